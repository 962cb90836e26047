package config

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/text"
)

// Commands are the programs that an agent may run unasked.
func (a *Agent) Commands() []shell.Grant {
	var out []shell.Grant
	for _, g := range a.Grants.Commands {
		out = append(out, shell.Grant{Argv: g.Argv, Network: g.Network == "host", Written: g.written})
	}
	return out
}

func (c *checker) commands(agentPath string, a *Agent) {
	for at, g := range each(agentPath+".grants.commands", a.Grants.Commands) {
		at += ".argv"
		written := slices.Clone(g.Argv)
		if c.fromFile(at, g.Argv, string(a.Workdir)); !slices.Equal(written, g.Argv) {
			g.written = written
			for n, word := range g.Argv {
				if _, err := os.Stat(word); err != nil && word != written[n] {
					c.warn(at, "the file %s does not exist yet; %s is relative to the folder of this file", display(word), written[n])
				}
			}
		}
		c.elsewhere(at, g.Argv)
	}

	for at, g := range each(agentPath+".grants.commands", a.Commands()) {
		// A grant that could not be read has an argv of nothing, which means something else.
		if !c.d.given(at+".argv") || !c.hasNoProblem(at) { // said already
			continue
		}

		if err := g.Check(); err != nil {
			c.bad(at+".argv", "%s", err.Error()).Hint = `write the program and a pattern for each argument, as in [pandoc, "*.md", -o, "*.html"]; a last "*" stands for any arguments`
			continue
		}

		// In a private clone an agent is to have all of git, and the tools of the project.
		if why := grantsEverything(g.Argv); why != "" && a.Checkout == nil {
			c.warn(at+".argv", "%s, so that this grant is one for any program, within the agent's folders", why)
		} else {
			c.writableScripts(at, a, g.Argv)
		}
	}

	// Command tools come with the grant, but tools.allow and tools.deny can still take them away.
	runs := c.toolsGiven(tool.RequiresCommands)
	if len(a.Grants.Commands) > 0 && len(runs) > 0 && len(runs.Where(a.Tools.permits)) == 0 {
		first := runs.Where(func(s tool.Spec) bool { return s.AliasOf == "" })
		c.warn(agentPath+".grants.commands", "the agent's tools have no %s, so that it can run none of them", strings.Join(first.Names(), " or "))
	}
}

// writableScripts warns of a granted program or script that the agent itself can write.
func (c *checker) writableScripts(at string, a *Agent, argv []string) {
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

// escaped is what stands for itself in a pattern.
var escaped = regexp.MustCompile(`\\.`)

// grantsEverything returns why a grant allows any program, or "".
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

// fromFile resolves programs and scripts that begin with ./, ../ or ~/ relative to the file. A path
// that exists only in the agent's workdir stays relative to the workdir.
// It reports false after a problem.
func (c *checker) fromFile(path string, argv []string, workdir string) bool {
	if len(argv) == 1 {
		if words := strings.Fields(argv[0]); len(words) > 1 && !strings.ContainsAny(words[0], `/\`) {
			c.bad(path, "%q is a line for a shell, and there is none", short(argv[0])).Hint =
				"write the program and each argument by itself: " + flow(wordList(words))
			return false
		}
	}
	scripts := shell.Scripts(argv)
	for i, word := range argv {
		if err := shellPath(word); err != nil {
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

	place := c.d.place(path)
	file := c.d.resolve(place.File, word)
	if strings.ContainsAny(file, "*?[{") { // argv would treat them as patterns or templates
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
func (c *checker) commandFromFile(path string, call *PlaybookCall, agent *Agent) {
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
			"write argv: " + flow(wordList(append([]string{found}, argv[1:]...))) + ", and the same path in the command"
	}
}
