package check

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/fspath"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
)

func (c *checker) checkAgent(path string, a *config.Agent) {
	c.reference(path+".model", "model", a.Model, c.models)
	if c.d.Given(path+".instructions") && c.d.Given(path+".instructions_file") {
		c.bad(path+".instructions_file", "give instructions or instructions_file, not both")
	}

	for at, name := range config.Each(path+".channels", a.Channels) {
		c.reference(at, "channel", *name, c.channels)
	}

	for list, globs := range map[string][]string{"allow": a.Tools.Allow, "deny": a.Tools.Deny, "on_demand": a.Tools.OnDemand} {
		for at, g := range config.Each(path+".tools."+list, globs) {
			c.toolGlob(at, *g)
		}
	}

	// The tools take an empty list like nil: no restriction. The author of [] means the opposite.
	if a.Tools.Allow != nil && len(a.Tools.Allow) == 0 {
		c.bad(path+".tools.allow", "is empty, which would allow every tool").Hint = `to allow none, write deny: ["*"]`
	}

	finders := c.toolsGiven(tool.RequiresUnlisted)
	denied := func(s tool.Spec) bool { return !tool.IsAllowed(nil, a.Tools.Deny, s.Name) }
	if len(a.Tools.OnDemand) > 0 && len(finders.Where(denied)) > 0 {
		c.warn(path+".tools.on_demand", "the agent may not use %s, so that its model is told of all its tools", strings.Join(finders.Names(), " and "))
	}

	if at := path + ".bounds.steps"; a.Loop == "phased" && c.d.Given(at) && a.Bounds.Steps > phasedSteps {
		c.warn(at, "a run in phases (loop: phased) takes at most %d steps", phasedSteps)
	}

	c.selfScheduling(path+".self_scheduling", a)
	c.sandboxOff(path, a.Sandbox, a.Reason, "programs of this agent run")
	if a.Sandbox == "off" && a.MinTier != "" && a.MinTier != "D" {
		c.bad(path+".min_tier", "with sandbox: off programs run on tier D, so that min_tier %s would refuse all of them", a.MinTier)
	}
	c.checkMode(path, a)
	c.checkSoul(path, a)

	for at, g := range config.Each(path+".grants.read", a.Grants.Read) {
		if _, err := os.Stat(string(g.Path)); err != nil && g.Path != "" {
			// Only a warning, because the folder may appear later.
			c.warn(at, "%s does not exist yet", config.Display(string(g.Path)))
		}
	}

	c.commands(path, a)
	c.network(path, a)
	c.secretGrants(path, a)
	c.warnSharedWorkdir(path+".workdir", a)
}

// sandboxOff requires a reason if the sandbox is off, and refuses one otherwise.
func (c *checker) sandboxOff(path, sandbox, reason, what string) {
	switch off := sandbox == "off"; {
	case off && strings.TrimSpace(reason) == "":
		c.bad(path+".sandbox", "sandbox: off needs a reason beside it: what makes it safe that %s without confinement", what)
	case !off && reason != "":
		c.bad(path+".reason", "a reason is only for sandbox: off")
	}
}

// warnSharedWorkdir warns of a workdir that another agent could replace by a link.
func (c *checker) warnSharedWorkdir(path string, a *config.Agent) {
	if a.Workdir == "" || !config.On(a.Enabled) {
		return
	}

	folder := folderKey(string(a.Workdir))
	for above := filepath.Dir(folder); above != folder; folder, above = above, filepath.Dir(above) {
		for _, o := range c.workdirs[above] {
			c.warn(path, "lies within the workdir of the agent %s, which could lead this one elsewhere by a link in its place; choose a folder beside it", o.Name)
		}
	}
}

const phasedSteps = 20

// maxSoul is the maximum length of a soul in bytes. The soul is part of every prompt.
const maxSoul = 8_000

// checkMode refuses settings that contradict the mode.
func (c *checker) checkMode(path string, a *config.Agent) {
	switch a.Mode {
	case plan.ModeIsolated:
		c.contradicts(path, ".grants.write", len(a.Grants.Write) > 0, "with mode: isolated the agent writes in a folder of its own and nowhere else")
		c.contradicts(path, ".sandbox", a.Sandbox == "off", "mode: isolated cannot be held by programs without confinement")
		c.contradicts(path, ".min_tier", a.MinTier > "B" && c.hasNoProblem(path+".min_tier"),
			"mode: isolated needs programs that are confined on tier B or A: the weaker ones do not keep what it reads from being written")
	case plan.ModeNone:
		c.contradicts(path, ".workdir", c.d.Given(path+".workdir"), "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.read", len(a.Grants.Read) > 0, "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.write", len(a.Grants.Write) > 0, "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.commands", len(a.Grants.Commands) > 0, "with mode: none the agent runs no programs")
		for at, name := range config.Each(".mcp", a.MCP) {
			s := config.ServerNamed(c.cfg.MCP, *name)
			c.contradicts(path, at, s != nil && len(s.Argv) > 0, "with mode: none the agent runs no programs, and this MCP server is one")
		}
	}
}

func (c *checker) contradicts(path, key string, given bool, why string) {
	if given {
		c.bad(path+key, "%s; leave this out, or choose another mode", why)
	}
}

func (c *checker) checkSoul(path string, a *config.Agent) {
	if c.d.Given(path+".soul") && c.d.Given(path+".soul_file") {
		c.bad(path+".soul_file", "give soul or soul_file, not both")
	}
	if len(a.Soul) > maxSoul {
		key := ".soul"
		if a.SoulText != "" {
			key = ".soul_file"
		}
		c.bad(path+key, "is %d bytes long, and a soul has %d at most; what it is to do belongs under instructions", len(a.Soul), maxSoul)
	}
}

// writable reports whether the agent may change a file.
func writable(a *config.Agent, path string) bool {
	return slices.ContainsFunc(a.Writes(), func(root string) bool { return fspath.Within(path, root) })
}

func (c *checker) commands(agentPath string, a *config.Agent) {
	for at, g := range config.Each(agentPath+".grants.commands", a.Grants.Commands) {
		at += ".argv"
		written := slices.Clone(g.Argv)
		if c.fromFile(at, g.Argv, string(a.Workdir)); !slices.Equal(written, g.Argv) {
			g.Written = written
			for n, word := range g.Argv {
				if _, err := os.Stat(word); err != nil && word != written[n] {
					c.warn(at, "the file %s does not exist yet; %s is relative to the folder of this file", config.Display(word), written[n])
				}
			}
		}
		c.elsewhere(at, g.Argv)
	}

	for at, g := range config.Each(agentPath+".grants.commands", a.Commands()) {
		// A grant that could not be read has an empty argv, which has another meaning.
		if !c.d.Given(at+".argv") || !c.hasNoProblem(at) { // already reported
			continue
		}

		if err := g.Check(); err != nil {
			c.bad(at+".argv", "%s", err.Error()).Hint = `write the program and a pattern for each argument, as in [pandoc, "*.md", -o, "*.html"]; a last "*" stands for any arguments`
			continue
		}

		// In a private clone, an agent may use all of git and the tools of the project.
		if why := grantsEverything(g.Argv); why != "" && a.Checkout == nil {
			c.warn(at+".argv", "%s, so that this grant is one for any program, within the agent's folders", why)
		} else {
			c.writableScripts(at, a, g.Argv)
		}
	}

	// A grant enables the command tools, but tools.allow and tools.deny can remove them.
	runs := c.toolsGiven(tool.RequiresCommands)
	if len(a.Grants.Commands) > 0 && len(runs) > 0 && len(runs.Where(a.Tools.Permits)) == 0 {
		first := runs.Where(func(s tool.Spec) bool { return s.AliasOf == "" })
		c.warn(agentPath+".grants.commands", "the agent's tools have no %s, so that it can run none of them", strings.Join(first.Names(), " or "))
	}
}

// writableScripts warns of a granted program or script that the agent can change.
func (c *checker) writableScripts(at string, a *config.Agent, argv []string) {
	for _, script := range shell.Scripts(argv) {
		file := script
		if !filepath.IsAbs(file) {
			file = filepath.Join(string(a.Workdir), file)
		}
		if writable(a, file) {
			c.warn(at+".argv", "the agent can write %s, so that it decides what this grant runs; keep the script out of the agent's folders, or leave the grant out and approve the command, which holds for one content", script)
		}
	}
}

// escaped matches an escaped character in a pattern.
var escaped = regexp.MustCompile(`\\.`)

// grantsEverything returns the reason why a grant allows any program, or "".
func grantsEverything(argv []string) string {
	open := func(from int) bool {
		return slices.ContainsFunc(argv[min(from, len(argv)):], func(element string) bool {
			return strings.ContainsAny(escaped.ReplaceAllString(element, ""), "*?[")
		})
	}
	name := strings.ToLower(strings.TrimSuffix(path.Base(strings.ReplaceAll(argv[0], `\`, "/")), ".exe"))
	switch {
	case !open(1):
		return ""
	case shell.Interprets(name):
		return name + " runs what its arguments say"
	case name == "find" && (slices.Contains(argv, "-exec") || argv[len(argv)-1] == "*"):
		return "find runs programs with -exec"
	case name == "git" && argv[1] == "*":
		return "git runs programs that its options and the repository name"
	case name == "tar" && argv[len(argv)-1] == "*":
		return "tar runs programs with --to-command"
	}

	return ""
}

// fromFile resolves programs and scripts that begin with ./, ../ or ~/ relative to the file. A
// path that exists only in the agent's workdir stays relative to the workdir. It returns false if
// it reports a problem.
func (c *checker) fromFile(path string, argv []string, workdir string) bool {
	if len(argv) == 1 {
		if words := strings.Fields(argv[0]); len(words) > 1 && !strings.ContainsAny(words[0], `/\`) {
			c.bad(path, "%q is a line for a shell, and there is none", config.Short(argv[0])).Hint =
				"write the program and each argument by itself: " + yaml.FlowList(words)
			return false
		}
	}
	scripts := shell.Scripts(argv)
	for i, word := range argv {
		if err := yaml.ShellPath(word); err != nil {
			c.bad(path, "%s", err.Error())
			return false
		}
		if slices.Contains(scripts, word) {
			argv[i] = c.programPath(path, word, workdir)
		}
	}
	return true
}

// programPath resolves one word of a command like fromFile.
func (c *checker) programPath(path, word, workdir string) string {
	slashed := filepath.ToSlash(word)
	if !strings.HasPrefix(slashed, "./") && !strings.HasPrefix(slashed, "../") && !strings.HasPrefix(slashed, "~/") {
		return word
	}

	place := c.d.Place(path)
	file := c.d.Resolve(place.File, word)
	if strings.ContainsAny(file, "*?[{") { // argv would treat these characters as patterns or templates
		return word
	}
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if workdir != "" && slashed[0] != '~' {
		if _, err := os.Stat(filepath.Join(workdir, word)); err == nil {
			return word
		}
	}
	return file
}

// commandScript matches a relative path of a program, or of the script of its interpreter.
var commandScript = regexp.MustCompile(`^\s*(?:(?:[\w./-]*/)?(?:(?:ba|da|z|k)?sh|python[0-9.]*|perl|ruby|node|deno|bun|php)\s+)?((?:\.{1,2}|~)/[\w./+@%:-]+)(?:\s|$)`)

// commandFromFile resolves the command of a playbook's call like fromFile.
func (c *checker) commandFromFile(path string, call *config.PlaybookCall, agent *config.Agent) {
	command, _ := call.With["command"].(string)
	m := commandScript.FindStringSubmatch(command)
	if m == nil || strings.HasPrefix(command, "= ") {
		return
	}

	if file := c.programPath(path, m[1], string(agent.Workdir)); file != m[1] {
		call.With["command"] = strings.Replace(command, m[1], text.ShellWord(file), 1)
	}
}

// elsewhere warns of a granted program in the user's PATH that commands do not find.
func (c *checker) elsewhere(path string, argv []string) {
	if len(argv) == 0 || strings.ContainsAny(argv[0], `/\*?[`) || shell.HasProgram(argv[0]) {
		return
	}
	if found := shell.Elsewhere(argv[0]); found != "" {
		c.warn(path, "%s is at %s, but commands find programs only in the system folders (%s)", argv[0], found, shell.SearchPath()).Hint =
			"write argv: " + yaml.FlowList(append([]string{found}, argv[1:]...)) + ", and the same path in the command"
	}
}

func (c *checker) network(path string, a *config.Agent) {
	for at, g := range config.Each(path+".grants.network", a.Network()) {
		if g.Host == "" || !c.hasNoProblem(at) {
			continue
		}

		if err := g.Check(); err != nil {
			c.bad(at+".host", "%s", err.Error()).Hint = "write a host like api.example.com, *.example.com or 192.168.1.5:8080"
		} else if strings.HasPrefix(g.Host, "*") && !strings.Contains(strings.TrimPrefix(g.Host, "*."), ".") {
			c.warn(at+".host", "lets the agent ask any host%s, also one that a page which it reads names to it", map[bool]string{true: " below " + strings.TrimPrefix(g.Host, "*.")}[len(g.Host) > 2])
		}
	}
}

// secretGrants looks up the secrets of an agent and reports those that could never be used.
func (c *checker) secretGrants(path string, a *config.Agent) {
	seen := map[string]bool{}
	for at, g := range config.Each(path+".grants.secrets", a.Grants.Secrets) {
		if g.Name == "" {
			continue
		}

		if !yaml.IsSecretName(g.Name) {
			c.bad(at+".name", "%q is not the name of a secret; it is what rouse secrets set NAME took", config.Short(g.Name))
			continue
		}

		if seen[g.Name] {
			c.bad(at+".name", "the secret %s is granted twice", g.Name)
			continue
		}

		seen[g.Name] = true
		g.Value = c.d.Grant(at, g.Name) // stored in the agent, so that calls do not read the store
		if g.OnlyTo == "" {
			continue
		}

		only := web.Grant{Host: g.OnlyTo}
		if err := only.Check(); err != nil || strings.Contains(g.OnlyTo, "*") {
			c.bad(at+".only_to", "must be one host like api.example.com")
		} else if !web.CoversHost(a.Network(), only) {
			c.warn(at+".only_to", "no host under grants.network is %s, so that no request can send it", g.OnlyTo)
		}
	}
}

func (c *checker) selfScheduling(path string, a *config.Agent) {
	s := a.SelfScheduling
	if s == nil {
		return
	}

	if at := path + ".quiet_hours"; s.QuietHours != nil && c.hasNoProblem(at) {
		_, err := schedule.ParseQuiet(*s.QuietHours)
		c.schedule(at, "quiet_hours", err)
	}

	for at, day := range config.Each(path+".days", s.Days) {
		if c.hasNoProblem(at) {
			_, err := schedule.ParseDays([]string{*day})
			c.schedule(at, "days", err)
		}
	}

	if at := path + ".days"; s.Days != nil && len(s.Days) == 0 && c.hasNoProblem(at) {
		c.bad(at, "is empty, which allows no day").Hint = "leave it out for all days; to let only the owner plan, write mode: manual"
	}

	if s.MinInterval != nil && s.Horizon != nil && *s.MinInterval > *s.Horizon && c.hasNoProblem(path+".horizon") {
		c.bad(path, "min_interval %s is longer than horizon %s", s.MinInterval, s.Horizon)
	}

	if s.On() {
		c.planner(path, a)
	}
}

// planner warns of settings that keep an agent from planning its own runs, or from being woken.
func (c *checker) planner(path string, a *config.Agent) {
	if a.Model == "" {
		c.warn(path, "a wake needs a model, and the agent %q has none: its wakes stay queued until one is configured under models:", a.Name)
	}

	if a.SelfScheduling.Mode == string(schedule.ModeManual) {
		for _, key := range []string{"min_interval", "daily_cap", "quiet_hours", "days", "max_chain"} {
			if c.d.Given(path + "." + key) {
				c.warn(path+"."+key, "has no effect with mode: manual, in which only the owner plans")
			}
		}
		return
	}

	plans := c.toolsGiven(tool.RequiresSelfScheduling).Where(func(s tool.Spec) bool { return s.Writes == tool.WritesWake })
	if len(plans) > 0 && len(plans.Where(a.Tools.Permits)) == 0 {
		c.warn(path, "the agent %q may not use %s (see its tools.allow and tools.deny), so that only its owner plans", a.Name, strings.Join(plans.Names(), " or "))
	}
}
