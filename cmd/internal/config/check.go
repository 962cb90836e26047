package config

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agent/tool"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
	"rouse/skills"
)

// checker checks what single values cannot show. What could not be read is not checked
// again: a mistake is reported once.
type checker struct {
	d     *decoder
	cfg   *Config
	tools tool.Specs

	models, agents, channels, jobs []string
	// Looked up by name or folder, since a walk through all for each of them takes seconds at ten thousand jobs.
	agent    map[string]*Agent
	jobNamed map[string]*Job             // the first of a name
	jobsOf   map[string][]int            // by agent
	watching []*Job                      // those with a watch
	workdirs map[string][]*Agent         // those that are enabled, by folderKey
	programs map[string][]placedExecutor // by agent
	plain    map[string]string           // what plainPlace said
	given    []givenFolder               // what conditions that can send are given
	sending  map[*Agent]bool             // conditions of its jobs that can send see its workdir

	types map[string]reflect.Type // of what templates and expressions can name
	takes map[string]takes        // what tools take, as far as playbooks call them

	skillRoots []skills.Root // where skills are looked for

	offered map[*Agent]tool.Specs // the tools that the skills of agents offer
	hooks   map[string]*Job       // the webhooks, by their paths

	keeping []keepingCall // of playbooks, to be looked at when skills are known

	// Of the job at hand: the mode of its watch, "" when it has none, the names that its calls have saved so
	// far, and the type of the items of the each at hand, nil when that is not known.
	mode  string
	saved []string
	item  reflect.Type
}

func check(d *decoder, cfg *Config, tools tool.Specs) {
	c := &checker{d: d, cfg: cfg, tools: tools, types: agent.TemplateTypes()}
	c.takes, c.hooks, c.plain, c.sending = map[string]takes{}, map[string]*Job{}, map[string]string{}, map[*Agent]bool{}
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
	for i, m := range cfg.Models {
		c.model(fmt.Sprintf("models[%d]", i), m)
	}

	c.findSkills()
	c.servers()
	c.findOffers()
	for i := range cfg.Agents {
		c.checkAgent(fmt.Sprintf("agents[%d]", i), &cfg.Agents[i])
	}

	for i := range cfg.Jobs {
		if cfg.Jobs[i].At.Line > 0 { // else it is no mapping
			c.job(itemOf("jobs", i), &cfg.Jobs[i])
			c.tells(itemOf("jobs", i), &cfg.Jobs[i])
		}
	}

	c.cycles()
	c.checkExecutors()
	c.checkCheckouts()
	c.checkNotifications(cfg.Notifications)
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
	for i := range cfg.Jobs { // the skills are known from here on
		if j := &cfg.Jobs[i]; j.Skill != "" && j.At.Line > 0 {
			c.module(fmt.Sprintf("jobs[%d]", i), j, c.agent[j.Agent])
		}
	}
}

// index notes where agents and jobs are.
func (c *checker) index() {
	c.agent, c.workdirs = map[string]*Agent{}, map[string][]*Agent{}
	for i := range c.cfg.Agents {
		// Pointers into the list: the checks of an agent also fill it in (secrets, skills).
		a := &c.cfg.Agents[i]
		c.agent[string(a.Name)] = a
		if a.Workdir != "" && On(a.Enabled) {
			key := folderKey(string(a.Workdir))
			c.workdirs[key] = append(c.workdirs[key], a)
		}
	}
	c.cfg.agentNamed = c.agent

	c.jobNamed, c.jobsOf = map[string]*Job{}, map[string][]int{}
	for i := range c.cfg.Jobs {
		j := &c.cfg.Jobs[i]
		if name := string(j.Name); name != "" && c.jobNamed[name] == nil {
			c.jobNamed[name] = j
		}
		c.jobsOf[j.Agent] = append(c.jobsOf[j.Agent], i)
		if j.Watch != nil {
			c.watching = append(c.watching, j)
		}
	}
	c.cfg.jobNamed = c.jobNamed

	c.programs = map[string][]placedExecutor{}
	for _, e := range c.cfg.executors() {
		c.programs[e.agent] = append(c.programs[e.agent], e)
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
	for i, item := range items {
		name, path := string(of(item)), fmt.Sprintf("%s[%d].name", key, i)
		if name == "" {
			continue
		}

		if first, twice := seen[strings.ToLower(name)]; twice {
			at := c.d.place(first)
			// The message stands in a text, where problem does not shorten the path.
			at.File = display(at.File)
			c.bad(path, "the name %q is taken, at %s (names are the same whatever their case)", name, at)
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

	for i, name := range a.Channels {
		c.reference(fmt.Sprintf("%s.channels[%d]", path, i), "channel", name, c.channels)
	}

	for list, globs := range map[string][]string{"allow": a.Tools.Allow, "deny": a.Tools.Deny, "on_demand": a.Tools.OnDemand} {
		for i, g := range globs {
			c.toolGlob(fmt.Sprintf("%s.tools.%s[%d]", path, list, i), g)
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
	c.unconfined(path, a)
	c.checkMode(path, a)
	c.checkSoul(path, a)

	for i, g := range a.Grants.Read {
		if _, err := os.Stat(string(g.Path)); err != nil && g.Path != "" {
			// Only a warning: the folder may appear later.
			c.warn(fmt.Sprintf("%s.grants.read[%d]", path, i), "%s does not exist yet", display(string(g.Path)))
		}
	}

	c.commands(path, a)
	c.network(path, a)
	c.secretGrants(path, a)
	c.warnSharedWorkdir(path+".workdir", a)
}

// unconfined requires a reason for switching the sandbox off, and refuses a minimum tier that no
// program could reach then.
func (c *checker) unconfined(path string, a *Agent) {
	switch off := a.Sandbox == "off"; {
	case off && strings.TrimSpace(a.Reason) == "":
		c.bad(path+".sandbox", "sandbox: off needs a reason beside it: what makes it safe that programs of this agent run without confinement")
	case !off && a.Reason != "":
		c.bad(path+".reason", "a reason is only for sandbox: off")
	case off && a.MinTier != "" && a.MinTier != "D":
		c.bad(path+".min_tier", "with sandbox: off programs run on tier D, so that min_tier %s would refuse all of them", a.MinTier)
	}
}

// warnSharedWorkdir warns of a workdir that another agent could replace by a link, which would lead
// the file tools of this one elsewhere.
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

	switch c.tools.Find(glob).Requires {
	case tool.RequiresPhases:
		c.bad(at, "%s comes with loop: phased, and is neither allowed nor denied by itself", glob)
		return
	case tool.RequiresExecutor:
		c.bad(at, "%s comes with executor, and is neither allowed nor denied by itself", glob)
		return
	case tool.RequiresModule:
		c.bad(at, "%s comes with the manifest of a skill, and is neither allowed nor denied by itself", glob)
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

// permits says whether a tool is neither left out nor denied.
func (f toolFilter) permits(s tool.Spec) bool { return tool.IsAllowed(f.Allow, f.Deny, s.Name) }

func (c *checker) unknownTool(at, name string) {
	c.bad(at, "%s", text.NoSuch("tool", name, c.tools.Callable()))
}

// phasedSteps is the most steps of a run in phases.
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
