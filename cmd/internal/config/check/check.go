package check

import (
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/plan/vars"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/text"
	"rouse/scheduler/schedule"
	"rouse/skills"
)

// checker checks what single values cannot show. It reports no mistake twice.
type checker struct {
	d     *yaml.Document
	cfg   *config.Config
	tools tool.Specs

	models, agents, channels, jobs []string
	// Looked up by name or folder, since a walk through all for each of them takes seconds at ten thousand jobs.
	jobsOf   map[string][]int           // by agent
	watching []*config.Job              // those with a watch
	workdirs map[string][]*config.Agent // those that are enabled, by folderKey
	plain    map[string]string          // what plainPlace said
	given    []givenFolder              // what conditions that can send are given
	sending  map[*config.Agent]bool     // conditions of its jobs that can send see its workdir

	types map[string]reflect.Type // of what templates and expressions can name

	calendarFiles []trusted // iCalendar files

	skillRoots []skills.Root // where skills are looked for

	offered map[*config.Agent]tool.Specs // the tools that the skills of agents offer
	hooks   map[string]*config.Job       // the webhooks, by their paths

	keeping []keepingCall // of playbooks, to be looked at when skills are known

	// Of the current job:
	mode  string       // of its watch, "" if it has none
	saved []string     // names of the results of its calls so far
	item  reflect.Type // of the current each, nil if it is not known
}

// Run checks the settings of a document, and reports the problems to it. tools are those that exist; nil leaves their names unchecked.
func Run(d *yaml.Document, tools tool.Specs) {
	cfg := d.Config
	c := &checker{d: d, cfg: cfg, tools: tools, types: vars.Types()}
	c.hooks, c.plain, c.sending = map[string]*config.Job{}, map[string]string{}, map[*config.Agent]bool{}
	if cfg.Version != 1 {
		c.bad("version", "must be 1, the only version there is")
	}

	c.zone("timezone", cfg.Timezone)
	c.models = unique(c, "models", cfg.Models, func(m config.Model) config.Name { return m.Name })
	c.agents = unique(c, "agents", cfg.Agents, func(a config.Agent) config.Name { return a.Name })
	c.channels = unique(c, "notifications", cfg.Notifications, func(n config.Notification) config.Name { return n.Name })
	if !slices.Contains(c.channels, config.DefaultChannel) {
		// The desktop needs no entry; the daemon opens it when nobody configured it.
		c.channels = append(c.channels, config.DefaultChannel)
	}

	c.checkCalendars()
	c.jobs = unique(c, "jobs", cfg.Jobs, func(j config.Job) config.Name { return j.Name })
	c.index()
	// The names are complete from here on, so that references can point forward.
	c.fallbacks()
	for path, m := range config.Each("models", cfg.Models) {
		c.model(path, m)
	}

	c.findSkills()
	c.servers()
	c.findOffers()
	for path, a := range config.Each("agents", cfg.Agents) {
		c.checkAgent(path, a)
	}

	for path, j := range config.Each("jobs", cfg.Jobs) {
		if j.At.Line > 0 { // else it is no mapping
			c.job(path, j)
			c.tells(path, j)
		}
	}

	c.cycles()
	c.checkExecutors()
	c.checkCheckouts()
	for path, n := range config.Each("notifications", cfg.Notifications) {
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
	for path, j := range config.Each("jobs", cfg.Jobs) { // the skills are known from here on
		if j.Skill != "" && j.At.Line > 0 {
			c.module(path, j, c.agent(j))
		}
	}
}

func (c *checker) agent(j *config.Job) *config.Agent { return c.cfg.Agent(j.Agent) }

// oneOf returns the key that is written of several that exclude each other. It reports any other
// number, unless the mapping has a problem already, and returns "".
func (c *checker) oneOf(path string, keys ...string) string {
	var given []string
	for _, key := range keys {
		if c.d.Given(path + "." + key) {
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
	case c.d.Given(path) && c.hasNoProblem(path): // else it was misspelt
		c.bad(path, "%s", message)
	}
	return ""
}

// notEmpty reports a text that is written and blank.
func (c *checker) notEmpty(path, value, message string) {
	if strings.TrimSpace(value) == "" && c.d.Given(path) && c.hasNoProblem(path) {
		c.bad(path, "%s", message)
	}
}

// index notes where agents and jobs are.
func (c *checker) index() {
	c.cfg.Index()
	c.workdirs = map[string][]*config.Agent{}
	for i := range c.cfg.Agents {
		// Pointers into the list: the checks of an agent also fill it in (secrets, skills).
		a := &c.cfg.Agents[i]
		if a.Workdir != "" && config.On(a.Enabled) {
			key := folderKey(string(a.Workdir))
			c.workdirs[key] = append(c.workdirs[key], a)
		}
	}

	c.jobsOf = map[string][]int{}
	for i := range c.cfg.Jobs {
		j := &c.cfg.Jobs[i]
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

func (c *checker) bad(path, format string, args ...any) *config.Problem {
	return c.d.Problem(c.d.Place(path), path, format, args...)
}

func (c *checker) warn(path, format string, args ...any) *config.Problem {
	p := c.bad(path, format, args...)
	p.Warning = true
	return p
}

// unique refuses two of one name; names become folders, so case does not part them.
func unique[T any](c *checker, key string, items []T, of func(T) config.Name) []string {
	seen := map[string]string{}
	var names []string
	for at, item := range config.Each(key, items) {
		name, path := string(of(*item)), at+".name"
		if name == "" {
			continue
		}

		if first, twice := seen[strings.ToLower(name)]; twice {
			c.bad(path, "the name %q is taken, at %s (names are the same whatever their case)", name, c.d.Place(first))
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

func (c *checker) unknownTool(at, name string) {
	c.bad(at, "%s", text.NoSuch("tool", name, c.tools.Callable()))
}

// zone checks a time zone. An empty one would be another zone on another machine, without a word.
func (c *checker) zone(path, name string) {
	switch _, err := schedule.Zone(name); {
	case name == "" && c.d.Given(path) && c.hasNoProblem(path):
		c.bad(path, "is empty; write an IANA name like Europe/Berlin, or leave the key out")
	case name != "" && err != nil:
		c.bad(path, "%s", err.Error())
	}
}

// hasNoProblem reports whether nothing was wrong with a value yet.
func (c *checker) hasNoProblem(path string) bool { return !c.d.HasProblem(path) }
