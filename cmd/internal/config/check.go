package config

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
	"rouse/skills"
)

// checker checks what single values cannot show. It reports no mistake twice.
type checker struct {
	d     *decoder
	cfg   *Config
	tools tool.Specs

	models, agents, channels, jobs []string
	// Looked up by name or folder, since a walk through all for each of them takes seconds at ten thousand jobs.
	jobsOf   map[string][]int    // by agent
	watching []*Job              // those with a watch
	workdirs map[string][]*Agent // those that are enabled, by folderKey
	plain    map[string]string   // what plainPlace said
	given    []givenFolder       // what conditions that can send are given
	sending  map[*Agent]bool     // conditions of its jobs that can send see its workdir

	types map[string]reflect.Type // of what templates and expressions can name

	skillRoots []skills.Root // where skills are looked for

	offered map[*Agent]tool.Specs // the tools that the skills of agents offer
	hooks   map[string]*Job       // the webhooks, by their paths

	keeping []keepingCall // of playbooks, to be looked at when skills are known

	// Of the current job:
	mode  string       // of its watch, "" if it has none
	saved []string     // names of the results of its calls so far
	item  reflect.Type // of the current each, nil if it is not known
}

func check(d *decoder, cfg *Config, tools tool.Specs) {
	c := &checker{d: d, cfg: cfg, tools: tools, types: agent.TemplateTypes()}
	c.hooks, c.plain, c.sending = map[string]*Job{}, map[string]string{}, map[*Agent]bool{}
	if cfg.Version != 1 {
		c.bad("version", "must be 1, the only version there is")
	}

	c.zone("timezone", cfg.Timezone)
	c.models = unique(c, "models", cfg.Models, func(m Model) Name { return m.Name })
	c.agents = unique(c, "agents", cfg.Agents, func(a Agent) Name { return a.Name })
	c.channels = unique(c, "notifications", cfg.Notifications, func(n Notification) Name { return n.Name })
	if !slices.Contains(c.channels, DefaultChannel) {
		// The desktop needs no entry; the daemon opens it when nobody configured it.
		c.channels = append(c.channels, DefaultChannel)
	}

	c.checkCalendars()
	c.jobs = unique(c, "jobs", cfg.Jobs, func(j Job) Name { return j.Name })
	c.index()
	// The names are complete from here on, so that references can point forward.
	c.fallbacks()
	for path, m := range each("models", cfg.Models) {
		c.model(path, m)
	}

	c.findSkills()
	c.servers()
	c.findOffers()
	for path, a := range each("agents", cfg.Agents) {
		c.checkAgent(path, a)
	}

	for path, j := range each("jobs", cfg.Jobs) {
		if j.At.Line > 0 { // else it is no mapping
			c.job(path, j)
			c.tells(path, j)
		}
	}

	c.cycles()
	c.checkExecutors()
	c.checkCheckouts()
	for path, n := range each("notifications", cfg.Notifications) {
		c.notification(path, n)
	}
	c.checkDashboard(cfg.Dashboard)
	c.checkTelemetry(cfg.Telemetry)
	c.checkHeartbeat(cfg.HeartbeatURL)
	c.checkReplicate(cfg.Replicate)
	c.checkNodes()
	c.warnTaints()
	c.money()
	c.layout()
	c.keepingCalls()
	c.moduleSettings()
	for path, j := range each("jobs", cfg.Jobs) { // the skills are known from here on
		if j.Skill != "" && j.At.Line > 0 {
			c.module(path, j, c.agent(j))
		}
	}
}

func (c *checker) agent(j *Job) *Agent { return c.cfg.agentNamed[j.Agent] }

// oneOf returns the key that is written of several that exclude each other. It reports any other
// number, unless the mapping has a problem already, and returns "".
func (c *checker) oneOf(path string, keys ...string) string {
	var given []string
	for _, key := range keys {
		if c.d.given(path + "." + key) {
			given = append(given, key)
		}
	}
	last := len(keys) - 1
	message := "give exactly one of " + strings.Join(keys[:last], ", ") + " and " + keys[last]
	switch {
	case len(given) == 1:
		return given[0]
	case len(given) > 1:
		c.bad(path+"."+given[1], "%s, not %s", message, strings.Join(given, " and "))
	case c.d.given(path) && c.hasNoProblem(path): // else it was misspelt
		c.bad(path, "%s", message)
	}
	return ""
}

// notEmpty reports a text that is written and blank.
func (c *checker) notEmpty(path, value, message string) {
	if strings.TrimSpace(value) == "" && c.d.given(path) && c.hasNoProblem(path) {
		c.bad(path, "%s", message)
	}
}

// index notes where agents and jobs are.
func (c *checker) index() {
	c.cfg.agentNamed, c.workdirs = map[string]*Agent{}, map[string][]*Agent{}
	for i := range c.cfg.Agents {
		// Pointers into the list: the checks of an agent also fill it in (secrets, skills).
		a := &c.cfg.Agents[i]
		c.cfg.agentNamed[string(a.Name)] = a
		if a.Workdir != "" && On(a.Enabled) {
			key := folderKey(string(a.Workdir))
			c.workdirs[key] = append(c.workdirs[key], a)
		}
	}

	c.cfg.jobNamed, c.jobsOf = map[string]*Job{}, map[string][]int{}
	for i := range c.cfg.Jobs {
		j := &c.cfg.Jobs[i]
		if name := string(j.Name); name != "" && c.cfg.jobNamed[name] == nil {
			c.cfg.jobNamed[name] = j
		}
		c.jobsOf[j.Agent] = append(c.jobsOf[j.Agent], i)
		if j.Watch != nil {
			c.watching = append(c.watching, j)
		}
	}
}

// folderKey is the same for two names of a folder that the system takes for one.
func folderKey(folder string) string {
	folder = filepath.Clean(folder)
	if runtime.GOOS == "windows" {
		folder = strings.ToLower(folder)
	}
	return folder
}

func (c *checker) bad(path, format string, args ...any) *Problem {
	return c.d.problem(c.d.place(path), path, format, args...)
}

func (c *checker) warn(path, format string, args ...any) *Problem {
	p := c.bad(path, format, args...)
	p.Warning = true
	return p
}

// unique refuses two of one name; names become folders, so case does not part them.
func unique[T any](c *checker, key string, items []T, of func(T) Name) []string {
	seen := map[string]string{}
	var names []string
	for at, item := range each(key, items) {
		name, path := string(of(*item)), at+".name"
		if name == "" {
			continue
		}

		if first, twice := seen[strings.ToLower(name)]; twice {
			c.bad(path, "the name %q is taken, at %s (names are the same whatever their case)", name, c.d.place(first))
		} else {
			seen[strings.ToLower(name)] = path
		}

		names = append(names, name)
	}

	return names
}

func (c *checker) reference(path, what, name string, known []string) {
	if name != "" && !slices.Contains(known, name) {
		c.bad(path, "%s", text.NoSuch(what, name, known))
	}
}

func (c *checker) checkAgent(path string, a *Agent) {
	c.reference(path+".model", "model", a.Model, c.models)
	if c.d.given(path+".instructions") && c.d.given(path+".instructions_file") {
		c.bad(path+".instructions_file", "give instructions or instructions_file, not both")
	}

	for at, name := range each(path+".channels", a.Channels) {
		c.reference(at, "channel", *name, c.channels)
	}

	for list, globs := range map[string][]string{"allow": a.Tools.Allow, "deny": a.Tools.Deny, "on_demand": a.Tools.OnDemand} {
		for at, g := range each(path+".tools."+list, globs) {
			c.toolGlob(at, *g)
		}
	}

	// nil and empty mean the same to the tools: no restriction. Whoever writes [] means the opposite.
	if a.Tools.Allow != nil && len(a.Tools.Allow) == 0 {
		c.bad(path+".tools.allow", "is empty, which would allow every tool").Hint = `to allow none, write deny: ["*"]`
	}

	finders := c.toolsGiven(tool.RequiresUnlisted)
	denied := func(s tool.Spec) bool { return !tool.IsAllowed(nil, a.Tools.Deny, s.Name) }
	if len(a.Tools.OnDemand) > 0 && len(finders.Where(denied)) > 0 {
		c.warn(path+".tools.on_demand", "the agent may not use %s, so that its model is told of all its tools", strings.Join(finders.Names(), " and "))
	}

	if at := path + ".bounds.steps"; a.Loop == "phased" && c.d.given(at) && a.Bounds.Steps > phasedSteps {
		c.warn(at, "a run in phases (loop: phased) takes at most %d steps", phasedSteps)
	}

	c.selfScheduling(path+".self_scheduling", a)
	c.sandboxOff(path, a.Sandbox, a.Reason, "programs of this agent run")
	if a.Sandbox == "off" && a.MinTier != "" && a.MinTier != "D" {
		c.bad(path+".min_tier", "with sandbox: off programs run on tier D, so that min_tier %s would refuse all of them", a.MinTier)
	}
	c.checkMode(path, a)
	c.checkSoul(path, a)

	for at, g := range each(path+".grants.read", a.Grants.Read) {
		if _, err := os.Stat(string(g.Path)); err != nil && g.Path != "" {
			// Only a warning: the folder may appear later.
			c.warn(at, "%s does not exist yet", display(string(g.Path)))
		}
	}

	c.commands(path, a)
	c.network(path, a)
	c.secretGrants(path, a)
	c.warnSharedWorkdir(path+".workdir", a)
}

// sandboxOff requires a reason if the sandbox is off, and only then.
func (c *checker) sandboxOff(path, sandbox, reason, what string) {
	switch off := sandbox == "off"; {
	case off && strings.TrimSpace(reason) == "":
		c.bad(path+".sandbox", "sandbox: off needs a reason beside it: what makes it safe that %s without confinement", what)
	case !off && reason != "":
		c.bad(path+".reason", "a reason is only for sandbox: off")
	}
}

// warnSharedWorkdir warns of a workdir that another agent could replace by a link.
func (c *checker) warnSharedWorkdir(path string, a *Agent) {
	if a.Workdir == "" || !On(a.Enabled) {
		return
	}

	folder := folderKey(string(a.Workdir))
	for above := filepath.Dir(folder); above != folder; folder, above = above, filepath.Dir(above) {
		for _, o := range c.workdirs[above] {
			c.warn(path, "lies within the workdir of the agent %s, which could lead this one elsewhere by a link in its place; choose a folder beside it", o.Name)
		}
	}
}

// toolGlob refuses a pattern that no tool matches: it protects from nothing, or grants nothing.
func (c *checker) toolGlob(at, glob string) {
	if _, err := path.Match(glob, ""); err != nil {
		c.bad(at, "the pattern %q is broken", glob)
		return
	}

	comesWith := map[tool.Requirement]string{
		tool.RequiresPhases: "loop: phased", tool.RequiresExecutor: "executor", tool.RequiresModule: "the manifest of a skill",
	}
	if with := comesWith[c.tools.Find(glob).Requires]; with != "" {
		c.bad(at, "%s comes with %s, and is neither allowed nor denied by itself", glob, with)
		return
	}

	// Callers that pass no list of tools leave the names unchecked.
	if c.tools != nil && !slices.ContainsFunc(c.tools.Callable(), func(name string) bool { return tool.IsAllowed([]string{glob}, nil, name) }) && !c.mayBeRegistered(glob) {
		c.unknownTool(at, glob)
	}
}

// toolsGiven are the tools that an agent gets with something.
func (c *checker) toolsGiven(with tool.Requirement) tool.Specs {
	return c.tools.Where(func(s tool.Spec) bool { return s.Requires == with })
}

// permits reports whether a tool is neither left out nor denied.
func (f toolFilter) permits(s tool.Spec) bool { return tool.IsAllowed(f.Allow, f.Deny, s.Name) }

func (c *checker) unknownTool(at, name string) {
	c.bad(at, "%s", text.NoSuch("tool", name, c.tools.Callable()))
}

const phasedSteps = 20

// zone checks a time zone. An empty one would be another zone on another machine, without a word.
func (c *checker) zone(path, name string) {
	switch _, err := schedule.Zone(name); {
	case name == "" && c.d.given(path) && c.hasNoProblem(path):
		c.bad(path, "is empty; write an IANA name like Europe/Berlin, or leave the key out")
	case name != "" && err != nil:
		c.bad(path, "%s", err.Error())
	}
}

// Zone is the daemon's time zone.
func (c *Config) Zone() *time.Location {
	if c.Timezone != "" {
		if z, err := schedule.Zone(c.Timezone); err == nil { // a wrong one was refused
			return z
		}
	}
	return cmp.Or(c.machine, time.Local)
}

// InZone returns the configuration for another time zone of the machine.
func (c *Config) InZone(machine *time.Location) *Config {
	next := *c
	next.machine, next.Jobs = machine, slices.Clone(c.Jobs)
	for i := range next.Jobs {
		next.Jobs[i].schedules = nil
		next.Jobs[i].schedules, _ = next.parseSchedules(&next.Jobs[i]) // the next call returns the same error
	}
	return &next
}

// ZoneOf returns the timezone of a job.
func (c *Config) ZoneOf(j *Job) *time.Location {
	if z, err := schedule.Zone(j.Timezone); j.Timezone != "" && err == nil { // a wrong one was refused
		return z
	}
	return c.Zone()
}

// maxSoul is how long a soul may be, in bytes: it stands before every prompt.
const maxSoul = 8_000

// settle sets the workdir (OSA-40). An isolated agent works in own and may read its workdir.
func (a *Agent) settle(own Path) {
	if a.Mode == plan.ModeIsolated && a.Workdir != "" && a.Workdir != own { // the same in a configuration that rouse has shown
		a.HostFolder = string(a.Workdir)
		a.Grants.Read = append(a.Grants.Read, readGrant{Path: a.Workdir, Private: a.Private.Workdir})
		a.Workdir = ""
	}
	if a.Workdir == "" {
		a.Workdir = own
	}
}

// checkMode refuses settings that contradict the mode.
func (c *checker) checkMode(path string, a *Agent) {
	switch a.Mode {
	case plan.ModeIsolated:
		c.contradicts(path, ".grants.write", len(a.Grants.Write) > 0, "with mode: isolated the agent writes in a folder of its own and nowhere else")
		c.contradicts(path, ".sandbox", a.Sandbox == "off", "mode: isolated cannot be held by programs without confinement")
		c.contradicts(path, ".min_tier", a.MinTier > "B" && c.hasNoProblem(path+".min_tier"),
			"mode: isolated needs programs that are confined on tier B or A: the weaker ones do not keep what it reads from being written")
	case plan.ModeNone:
		c.contradicts(path, ".workdir", c.d.given(path+".workdir"), "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.read", len(a.Grants.Read) > 0, "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.write", len(a.Grants.Write) > 0, "with mode: none the agent has no file tools")
		c.contradicts(path, ".grants.commands", len(a.Grants.Commands) > 0, "with mode: none the agent runs no programs")
		for at, name := range each(".mcp", a.MCP) {
			s := c.cfg.serverOf(*name)
			c.contradicts(path, at, s != nil && len(s.Argv) > 0, "with mode: none the agent runs no programs, and this MCP server is one")
		}
	}
}

// lacksHostTool reports whether a tool is one of files or programs, of an agent that has neither.
func (a *Agent) lacksHostTool(name string) bool {
	return a.Mode == plan.ModeNone && agent.IsHostTool(name)
}

func (c *checker) contradicts(path, key string, given bool, why string) {
	if given {
		c.bad(path+key, "%s; leave this out, or choose another mode", why)
	}
}

func (c *checker) checkSoul(path string, a *Agent) {
	if c.d.given(path+".soul") && c.d.given(path+".soul_file") {
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
