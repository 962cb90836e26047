package check

import (
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"rouse/agent/plan/vars"
	"rouse/agent/tool"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/internal/text"
)

// checker runs the checks of a configuration. It does not report a mistake twice. The checks of
// some subjects have types of their own.
type checker struct {
	report
	*protected
	*templates
	connections
	calendars
	*starts
	*modelChecks
	*nodeChecks
	*checkouts
	*lookup

	tools tool.Specs

	agents, channels []string
	plain            map[string]string      // cache of plainPlace
	given            []givenFolder          // folders given to conditions that can send data
	sending          map[*config.Agent]bool // agents with a condition that sees the workdir and can send data

	offered map[*config.Agent]tool.Specs // tools that the skills of agents offer

	keeping []keepingCall // calls of playbooks to check once skills are known
}

// lookup finds jobs and agents by name or folder. Scanning all jobs for each lookup would take
// seconds with many jobs.
type lookup struct {
	jobsOf   map[string][]int           // indexes of jobs by agent
	watching []*config.Job              // jobs with a watch
	workdirs map[string][]*config.Agent // enabled agents by folderKey
}

// Run checks the settings of a document and adds the problems to it. Tool names are checked
// against tools, unless tools is nil.
func Run(d *yaml.Document, tools tool.Specs) {
	cfg := d.Config
	r := report{d: d, cfg: cfg}
	p := &protected{report: r}
	t := &templates{report: r, types: vars.Types()}
	on := &starts{report: r, templates: t, calendars: calendars{r, p}, hooks: map[string]*config.Job{}}
	c := &checker{report: r, protected: p, templates: t, connections: connections{r}, calendars: calendars{r, p}, starts: on, lookup: &lookup{}, tools: tools}
	c.modelChecks = &modelChecks{report: r, connections: c.connections, lookup: c.lookup}
	c.nodeChecks = &nodeChecks{r, c.connections, c.lookup}
	c.checkouts = &checkouts{r, t}
	c.plain, c.sending = map[string]string{}, map[*config.Agent]bool{}
	if cfg.Version != 1 {
		c.bad("version", "must be 1, the only version there is")
	}

	c.zone("timezone", cfg.Timezone)
	c.models = unique(c.report, "models", cfg.Models, func(m config.Model) config.Name { return m.Name })
	c.agents = unique(c.report, "agents", cfg.Agents, func(a config.Agent) config.Name { return a.Name })
	c.channels = unique(c.report, "notifications", cfg.Notifications, func(n config.Notification) config.Name { return n.Name })
	if !slices.Contains(c.channels, config.DefaultChannel) {
		// The desktop needs no entry. The daemon opens it if it is not configured.
		c.channels = append(c.channels, config.DefaultChannel)
	}

	c.checkCalendars()
	c.jobs = unique(c.report, "jobs", cfg.Jobs, func(j config.Job) config.Name { return j.Name })
	c.index()
	// From here on all names are known, so references can point forward.
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
		if j.At.Line > 0 { // otherwise it is not a mapping
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
	for path, j := range config.Each("jobs", cfg.Jobs) { // skills are known from here on
		if j.Skill != "" && j.At.Line > 0 {
			c.module(path, j, c.agent(j))
		}
	}
}

func (c report) agent(j *config.Job) *config.Agent { return c.cfg.Agent(j.Agent) }

// index fills the lookup.
func (c *checker) index() {
	c.cfg.Index()
	c.workdirs = map[string][]*config.Agent{}
	for i := range c.cfg.Agents {
		// Keep pointers into the list, because the checks of an agent also set its secrets and
		// skills.
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

// folderKey returns a key that is equal for two names of the same folder.
func folderKey(folder string) string {
	folder = filepath.Clean(folder)
	if runtime.GOOS == "windows" {
		folder = strings.ToLower(folder)
	}
	return folder
}

// toolGlob refuses a pattern that matches no tool, because it has no effect.
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

	// If the caller passes no tools, names are not checked.
	if c.tools != nil && !slices.ContainsFunc(c.tools.Callable(), func(name string) bool { return tool.IsAllowed([]string{glob}, nil, name) }) && !c.mayBeRegistered(glob) {
		c.unknownTool(at, glob)
	}
}

// toolsGiven returns the tools that an agent gets by meeting a requirement.
func (c *checker) toolsGiven(with tool.Requirement) tool.Specs {
	return c.tools.Where(func(s tool.Spec) bool { return s.Requires == with })
}

func (c *checker) unknownTool(at, name string) {
	c.bad(at, "%s", text.NoSuch("tool", name, c.tools.Callable()))
}
