// Package plan describes what is configured to run: agents, jobs, models and their limits. A Task is
// one run resolved against the plan, with everything that the run needs. The package holds data and
// answers questions about it; package agent executes tasks.
package plan

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/agent/tool/executor"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
	"rouse/scheduler/schedule"
	"rouse/skills"
)

// Agent is a named worker.
type Agent struct {
	Name         string
	Instructions string
	Soul         string // the owner's description of the agent; optional
	Mode         string // one of the modes, "" for ModeFolder
	HostFolder   string // of ModeIsolated: the folder of the host that it reads and cannot change, absolute; "": it has none
	Workdir      string // absolute; created when the first run starts
	Model        *Model // nil: the agent has none, and its prompts are held
	Database     bool
	Allow, Deny  []string // globs of tool names; no Allow means every tool
	Read, Write  []string // absolute roots beside the workdir; Write narrows it when given
	Public       []string // those of Read in which nothing is private
	// What lies in PrivateFolders, which may be the workdir, or in the database, is for the owner alone.
	PrivateFolders  []string
	PrivateDatabase bool
	// Executor is the installed program that does its prompts; nil: the loop does them.
	Executor *executor.Settings
	Commands []shell.Grant // that it may run unasked
	Network  []web.Grant
	Channels []string           // notice channels of runs without a job; nil means the default channels
	Secrets  []tool.SecretGrant // that its calls may use
	Bounds   loop.Bounds
	// DefaultSteps reports whether Bounds.Steps was not configured. A chat then uses its own, lower limit.
	DefaultSteps bool
	Phased       bool // prompts run in phases, with a working memory
	// OnDenied decides what happens to a call that is not allowed, "" for tool.OnDeniedPark.
	// MinTier is the weakest sandbox of its programs; "" means B, and A after untrusted content.
	OnDenied, MinTier string
	// Unconfined is the owner's reason to run programs without a sandbox, or "".
	Unconfined string
	Foreign    string   // how others than its owner could change its definition; "" when they cannot
	Untrusted  []string // configuration lines by which untrusted content can reach its runs, in words
	// SelfScheduling limits the wakes that it plans; nil: it plans none, and lacks the tools.
	SelfScheduling *schedule.Limits
	Budget         Budget // of a day
	Skills         Skills
	// Servers are its MCP servers, whose approved tools it has.
	Servers []mcp.Server
	// Checkout is the repository of which each of its runs gets a clone; nil: they work in Workdir.
	Checkout *checkout.Options
	// OnDemand are globs of tools that its model is not told of: it finds and loads them.
	OnDemand []string
	Where    string // file:line of the configuration
	// Obstacles keep its runs from starting, as the configuration says: a secret that is not set.
	Obstacles []ledger.Obstacle
}

// The modes in which an agent works (OSA-40).
const (
	ModeIsolated = "isolated" // in a folder of its own, with programs; of the host it reads what was granted and writes nothing
	ModeFolder   = "folder"   // in its workdir, which may be the owner's
	ModeNone     = "none"     // without file tools and programs
)

// Model is a configured way to reach a language model.
type Model struct {
	Name        string
	Provider    model.Provider
	MaxOutput   int // tokens, 0: the provider's own
	Window      int // tokens that its context holds, as far as the configuration tells; see ContextSize
	Temperature *float64
	Price       model.Price // zero if requests are free or the price is unknown
	Fallback    *Model      // takes over if the model has failed for good; optional
	Where       string      // file:line of the configuration
	// Obstacles keep it from being asked, as the configuration says.
	Obstacles []ledger.Obstacle
	// Nearby says that its server is on this machine: it is asked whether it has the model before any run begins.
	Nearby bool
	// AsksWindow says that the server is asked for the size of the context before the first run.
	AsksWindow bool

	// By atomic operations alone. They are no atomic types, which must not be copied.
	Asked  int32 // 1: the server was asked, or nothing can be asked
	served int32 // tokens that the context holds as the server says; 0 while it has not
}

// ContextSize returns the size of the context in tokens, the smaller of configured and served, or
// 0.
func (m *Model) ContextSize() int {
	served := int(atomic.LoadInt32(&m.served))
	if m.Window <= 0 || served > 0 && served < m.Window {
		return served
	}
	return m.Window
}

// LearnContext notes the size of the context as the server says it, in tokens. Zero means that it does not say.
func (m *Model) LearnContext(tokens int) {
	if tokens > 0 {
		atomic.StoreInt32(&m.served, int32(min(tokens, math.MaxInt32)))
	}
}

// LearnContext notes the size of the context of a model, by its name, as the server says it.
func (p Plan) LearnContext(name string, tokens int) {
	if m := Models(p)[name]; m != nil {
		m.LearnContext(tokens)
	}
}

// Budget is what may be taken in a day, and in a calendar month; 0 is no limit.
type Budget struct{ CostMicroUSD, Tokens, MonthMicroUSD, MonthTokens int64 }

// Job is what a run does: exactly one of Prompt, Playbook and Skill is set.
type Job struct {
	Name, Agent string
	Prompt      string
	Playbook    []playbook.Call
	Skill       *skills.Skill      // whose module is run
	Input       map[string]any     // of the module: templates and expressions at any depth
	Workspace   string             // name of the workspace that the module works in, a template; "": none
	Executor    *executor.Settings // that does its prompt; nil: the agent's
	Model       *Model             // nil: the agent's
	Bounds      loop.Bounds
	Budget      Budget // of a day
	When        []Condition
	Expect      []Expectation
	Notify      Notify
	Watched     Watched
	Seldom      bool   // runs daily or less often, so each failure sends a notice
	MinTier     string // the weakest confinement of its programs; "" is the agent's
	Foreign     string // how others than its owner could change its definition; "" when they cannot
	Record      bool   // what its model is asked and answers is kept, to be replayed
	// UndoOnFailure undoes what a run wrote, files and database, when it fails.
	UndoOnFailure bool
	ContextViews  []string          // saved views of the agent's database whose rows the prompt shows
	Checkout      *checkout.Options // in the place of the agent's; nil: the agent's
	KeepSession   bool              // its runs continue the session of earlier runs
	Zone          *time.Location    // of its schedule; nil: the plan's
	Where         string            // file:line of the configuration
	// Obstacles keep its runs from starting, as the configuration says.
	Obstacles []ledger.Obstacle
}

// AsksModel reports whether the runs of the job need a language model, as prompts and some modules do.
func (j Job) AsksModel() bool {
	return j.Executor == nil && j.Playbook == nil && (j.Skill == nil || moduleapi.AsksModel(j.Skill.Manifest))
}

// Prompts reports whether the job has a prompt, for a model or an executor.
func (j Job) Prompts() bool { return j.Playbook == nil && j.Skill == nil }

// ModuleSettings are what the owner of a module says of it.
type ModuleSettings struct {
	Config json.RawMessage // a JSON object, host.config; nil: there is none
	Tools  []string        // globs of tools of its agent that it may call beside the methods of its host
}

// Watched is the folder that a job watches. Its own writes there do not wake it.
type Watched struct {
	Folder    string // absolute; "" without a watch
	Recursive bool
	Batch     bool     // its runs are of many files
	MovesTo   []string // absolute folders that its files are moved to
	// Parameters are the defaults of Input in the templates of its runs (OSA-90).
	Parameters map[string]string
}

// TriggeredBy returns what triggered a run as the job takes it now: a single file becomes a batch
// for a batch job, and parameters of the watch are added.
func (j Job) TriggeredBy(d ledger.Detail) ledger.Detail {
	if j.Watched.Batch && d.File != nil {
		d.Files, d.File = []ledger.File{*d.File}, nil
	}

	if len(j.Watched.Parameters) > 0 {
		input := maps.Clone(j.Watched.Parameters)
		maps.Copy(input, d.Input)
		d.Input = input
	}
	return d
}

// Condition is checked before a run. Exactly one of SQL, Command, HTTP, That and File is set.
type Condition struct {
	SQL     string   `json:"sql,omitempty"`     // one value on the agent's database that must be true; :last_success, :last_run and :now are bound
	Command []string `json:"command,omitempty"` // a program and its arguments, without a shell: exit 0 is true
	// For a command: whether it may write, what else it may read, whether it has a network, and the
	// reason not to confine it.
	Write      bool          `json:"write,omitempty"`
	Read       []string      `json:"read,omitempty"`
	Network    bool          `json:"network,omitempty"`
	Unconfined string        `json:"unconfined,omitempty"`
	HTTP       string        `json:"http,omitempty"` // a URL: a GET that ends with 2xx is true
	That       string        `json:"that,omitempty"` // an expression that must be true, on what templates know
	File       string        `json:"file,omitempty"` // absolute path or pattern: true when something is there
	Not        bool          `json:"not,omitempty"`  // false is wanted
	Timeout    time.Duration `json:"-"`              // 0 means 10 s
	Where      string        `json:"-"`              // file:line of the configuration
}

// Expectation is a condition that the host checks after a run; exactly one of File, SQL and Command is set.
type Expectation struct {
	File    string        // absolute path: exists, and was changed by the run
	SQL     string        // one value on the agent's database that must be true
	Command []string      // a program and its arguments, without a shell, confined in the run's workdir: exit 0 is true
	Timeout time.Duration // of the command; 0 means 10 min
	Where   string        // file:line of the configuration
}

// Notify says which outcomes tell whom what.
type Notify struct {
	On          []string // outcomes
	Channels    []string
	Title, Body string // templates; "" uses the built-in text
}

// Plan holds all agents and jobs of the configuration. Names are unique regardless of case.
type Plan struct {
	Agents map[string]Agent
	Jobs   map[string]Job
	// Disabled are the jobs that wait for their agent, which is disabled, by name.
	Disabled map[string]ledger.Obstacle
	// Modules are the skills with a module that their owner may run without a job, by name.
	Modules map[string]*skills.Skill
	// ModuleSettings are those of skills with a module, by name.
	ModuleSettings map[string]ModuleSettings
	// Servers are all MCP servers, also those that no agent has.
	Servers []mcp.Server
	// Channels lists all notification channels.
	Channels []string
	// DefaultChannels are used if neither job nor agent names one. If nil, notices go to the
	// desktop.
	DefaultChannels []string
	// Groups say how channels gather failures; a channel without one has the usual.
	Groups map[string]Group
	// Secrets are values that must not reach the record.
	Secrets []string
	Zone    *time.Location // in which agents are told the time, and days begin; nil means UTC
	Budget  Budget         // of all agents together, for a day

	// Clones is the folder of private clones, in which agents write; "" without any.
	Clones string
	// Masks are the places that no tool of any agent may change, or see.
	Masks tool.Masks
	// UntrustedFolders are folders in which strangers leave files, also of disabled jobs, absolute.
	UntrustedFolders []string
	// Boundary holds the places in which agents or strangers can make links, which are not
	// followed.
	Boundary nofollow.Boundary
}

// Skills are what an agent sees of skills, and how its prompt speaks of them.
type Skills struct {
	skills.View
	Style string // of skills.View.Prompt
	// Allowing has the allowed-tools of a skill that was loaded allow its commands (AGS-13).
	Allowing bool
}

// Group says which failures of an incident a channel is told of: the first, and every so many-th.
type Group struct {
	Every    int  // 1: each; 0: the first alone
	Recovery bool // and that the job succeeds again
}

// usualGroup is that of a channel of which nothing else is said.
var usualGroup = Group{Every: 10, Recovery: true}

// Wants reports whether notify.on covers an outcome or "waiting".
func (n Notify) Wants(end string) bool {
	return slices.ContainsFunc(n.On, func(s string) bool {
		return strings.EqualFold(s, end) || s == domain.Failure && domain.Outcome(end).OpensIncident()
	})
}

func (p Plan) GroupOf(channel string) Group {
	if g, ok := p.Groups[channel]; ok {
		return g
	}
	return usualGroup
}

// desktopChannel is the channel that exists without configuration.
const desktopChannel = "desktop"

// ChannelsOr returns the first list that is not nil, or the default channels.
func (p *Active) ChannelsOr(lists ...[]string) []string {
	for _, list := range append(lists, p.DefaultChannels) {
		if list != nil {
			return list
		}
	}
	if p.Desktop != nil && p.Desktop() {
		return []string{desktopChannel}
	}
	return nil
}

// Models returns the models of all agents and jobs, with their fallbacks, by name.
func Models(p Plan) map[string]*Model {
	out := map[string]*Model{}
	add := func(m *Model) {
		for ; m != nil && out[m.Name] == nil; m = m.Fallback {
			out[m.Name] = m
		}
	}
	for _, a := range p.Agents {
		add(a.Model)
	}
	for _, j := range p.Jobs {
		add(j.Model)
	}
	return out
}

// ServersByName returns all MCP servers of the plan by name.
func (p Plan) ServersByName() map[string]mcp.Server {
	out := map[string]mcp.Server{}
	for _, s := range p.Servers {
		out[s.Name] = s
	}
	return out
}

// ServerSpecs stand for the tools of the MCP servers of a plan, which are known only once they are approved.
func (p Plan) ServerSpecs() (out tool.Specs) {
	all := p.ServersByName()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, mcp.OpenSpec(all[name]))
	}
	return out
}

func (a Agent) ServerNames() (out []string) {
	for _, s := range a.Servers {
		out = append(out, s.Name)
	}
	return out
}

// OfferSpecs are the specs of the tools that the skills of a plan offer.
func (p Plan) OfferSpecs() (out tool.Specs) {
	for _, s := range p.Modules {
		out = append(out, moduleapi.OfferSpecs(s)...)
	}
	return out
}

func (a Agent) SecretNames() (out []string) {
	for _, g := range a.Secrets {
		out = append(out, g.Name)
	}
	return out
}

func (p Plan) ModuleFor(id signin.ID) *skills.Skill {
	for _, j := range p.Jobs {
		if j.Agent == id.Agent && j.Skill != nil && j.Skill.Name == id.Skill {
			return j.Skill
		}
	}
	return p.Modules[id.Skill]
}
