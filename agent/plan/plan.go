// Package plan describes the configured agents, jobs and models with their limits. A Task is one
// run resolved against the plan, with everything that the run needs.
//
// The package holds data and answers questions about it. Package agent executes tasks.
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

// Agent is a configured agent.
type Agent struct {
	Name         string
	Instructions string
	Soul         string // owner's description of the agent; optional
	Mode         string // one of the modes; "" means ModeFolder
	// HostFolder is a folder of the host that an agent of ModeIsolated can read but not change. It
	// is absolute. Optional.
	HostFolder  string
	Workdir     string // absolute; created when the first run starts
	Model       *Model // if nil, runs with a prompt stay queued
	Database    bool
	Allow, Deny []string // globs of tool names; an empty Allow means every tool
	// Read and Write hold absolute paths outside the workdir. If Write is set, the agent can write
	// only there.
	Read, Write []string
	Public      []string // paths in Read without private data
	// Data in PrivateFolders is private. These may include the workdir. If PrivateDatabase is true,
	// so is the data in the database.
	PrivateFolders  []string
	PrivateDatabase bool
	// Executor is the installed program that executes prompts. If nil, the loop does.
	Executor *executor.Settings
	Commands []shell.Grant // commands that need no approval
	Network  []web.Grant
	Channels []string           // notice channels of runs without a job; nil means the default channels
	Secrets  []tool.SecretGrant // secrets that calls may use
	Bounds   loop.Bounds
	// DefaultSteps reports whether Bounds.Steps was not configured. A chat then has a lower limit
	// of its own.
	DefaultSteps bool
	Phased       bool // prompts run in phases, with a working memory
	// OnDenied selects how a forbidden call is handled; "" means tool.OnDeniedPark. MinTier is the
	// weakest sandbox tier for programs; "" means B, or A if the run holds untrusted content.
	OnDenied, MinTier string
	// Unconfined is the owner's reason for programs without a sandbox. If it is "", programs are
	// confined.
	Unconfined string
	Foreign    string   // how another user can change the definition, or ""
	Untrusted  []string // configuration lines that let untrusted content reach the runs
	// SelfScheduling limits the wakes that the agent plans. If nil, it cannot plan wakes and does
	// not have the tools.
	SelfScheduling *schedule.Limits
	Budget         Budget // daily and monthly limits
	Skills         Skills
	// Servers holds the MCP servers of the agent. It has their approved tools.
	Servers []mcp.Server
	// Checkout is the repository that is cloned for each run. If nil, runs work in Workdir.
	Checkout *checkout.Options
	// OnDemand holds globs of tools that are not in the model's initial list. The model can search
	// for them and load them.
	OnDemand []string
	Where    string // file:line of the configuration
	// Obstacles are configuration problems that keep the runs from starting, such as a missing
	// secret.
	Obstacles []ledger.Obstacle
}

// Modes of agents.
const (
	ModeIsolated = "isolated" // own folder with programs; can read granted files of the host but not write any
	ModeFolder   = "folder"   // works in its workdir, which may belong to the owner
	ModeNone     = "none"     // no file tools and no programs
)

// Model is a configured language model.
type Model struct {
	Name        string
	Provider    model.Provider
	MaxOutput   int // in tokens; 0 means the provider's default
	Window      int // configured context size in tokens; see ContextSize
	Temperature *float64
	Price       model.Price // zero if requests are free or the price is unknown
	Fallback    *Model      // used if the model fails permanently; optional
	Where       string      // file:line of the configuration
	// Obstacles are configuration problems that keep the model from being used.
	Obstacles []ledger.Obstacle
	// Nearby reports whether the server is on this machine. Before a run starts, the server is
	// asked whether it has the model.
	Nearby bool
	// AsksWindow reports whether the server is asked for the context size before the first run.
	AsksWindow bool

	// Use only atomic operations on these fields. They are not atomic types, because those must not
	// be copied.
	Asked  int32 // 1 if the server was asked or cannot be asked
	served int32 // context size in tokens that the server reported; 0 if unknown
}

// ContextSize returns the size of the context in tokens. It is the smaller of the configured and
// the reported size, or 0 if neither is known.
func (m *Model) ContextSize() int {
	served := int(atomic.LoadInt32(&m.served))
	if m.Window <= 0 || served > 0 && served < m.Window {
		return served
	}
	return m.Window
}

// LearnContext sets the context size in tokens that the server reported. Zero means that the size
// is unknown.
func (m *Model) LearnContext(tokens int) {
	if tokens > 0 {
		atomic.StoreInt32(&m.served, int32(min(tokens, math.MaxInt32)))
	}
}

// LearnContext sets the context size that the server reported for the model with the given name.
func (p Plan) LearnContext(name string, tokens int) {
	if m := Models(p)[name]; m != nil {
		m.LearnContext(tokens)
	}
}

// Budget limits the cost and the tokens of a day and of a calendar month. Zero means no limit.
type Budget struct{ CostMicroUSD, Tokens, MonthMicroUSD, MonthTokens int64 }

// Job is a configured job. Exactly one of Prompt, Playbook and Skill is set.
type Job struct {
	Name, Agent string
	Prompt      string
	Playbook    []playbook.Call
	Skill       *skills.Skill      // skill with the module to run
	Input       map[string]any     // input of the module, with templates and expressions at any depth
	Workspace   string             // template for the name of the module's workspace; optional
	Executor    *executor.Settings // executes the prompt; nil means the agent's executor
	Model       *Model             // nil means the agent's model
	Bounds      loop.Bounds
	Budget      Budget // daily and monthly limits
	When        []Condition
	Expect      []Expectation
	Notify      Notify
	Watched     Watched
	Seldom      bool   // runs daily or less often, so each failure sends a notice
	MinTier     string // weakest sandbox tier for programs; "" means the agent's
	Foreign     string // how another user can change the definition, or ""
	Record      bool   // record the requests and answers of the model for a replay
	// UndoOnFailure undoes the changes of a failed run to files and database.
	UndoOnFailure bool
	ContextViews  []string          // saved views to show in the prompt
	Checkout      *checkout.Options // overrides the agent's checkout; nil means the agent's
	KeepSession   bool              // runs continue the session of earlier runs
	Zone          *time.Location    // zone of the schedule; nil means the plan's zone
	Where         string            // file:line of the configuration
	// Obstacles are configuration problems that keep the runs from starting.
	Obstacles []ledger.Obstacle
}

// AsksModel reports whether the runs of the job need a language model. Prompts and some modules do.
func (j Job) AsksModel() bool {
	return j.Executor == nil && j.Playbook == nil && (j.Skill == nil || moduleapi.AsksModel(j.Skill.Manifest))
}

// Prompts reports whether the job has a prompt, for a model or an executor.
func (j Job) Prompts() bool { return j.Playbook == nil && j.Skill == nil }

// ModuleSettings holds the owner's settings for a module.
type ModuleSettings struct {
	Config json.RawMessage // JSON object for host.config; optional
	Tools  []string        // globs of the agent's tools that the module may call, in addition to the methods of its host
}

// Watched is the folder that a job watches. Writes of its own runs do not trigger it.
type Watched struct {
	Folder    string // absolute; "" if the job has no watch
	Recursive bool
	Batch     bool     // a run processes several files
	MovesTo   []string // absolute folders to which files are moved
	// Parameters holds defaults for Input in the templates of the runs.
	Parameters map[string]string
}

// TriggeredBy adapts the trigger of a run to the current definition of the job. For a batch job, a
// single file becomes a batch. Parameters of the watch are added.
func (j Job) TriggeredBy(d ledger.TriggerDetail) ledger.TriggerDetail {
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
	// SQL is a query for one value in the agent's database. The value must be true. Its parameters
	// are :last_success, :last_run and :now.
	SQL string `json:"sql,omitempty"`
	// Command is a program with its arguments, without a shell. It must exit with code 0.
	Command []string `json:"command,omitempty"`
	// Write, Read, Network and Unconfined configure the sandbox of the command. Unconfined is the
	// reason for not confining it.
	Write      bool     `json:"write,omitempty"`
	Read       []string `json:"read,omitempty"`
	Network    bool     `json:"network,omitempty"`
	Unconfined string   `json:"unconfined,omitempty"`
	// HTTP is a URL. A GET request must return a 2xx status.
	HTTP string `json:"http,omitempty"`
	// That is an expression that must be true. It has the variables of templates.
	That string `json:"that,omitempty"`
	// File is an absolute path or pattern. A matching file must exist.
	File    string        `json:"file,omitempty"`
	Not     bool          `json:"not,omitempty"` // negate the condition
	Timeout time.Duration `json:"-"`             // 0 means 10 s
	Where   string        `json:"-"`             // file:line of the configuration
}

// Expectation is a condition that the host checks after a run. Exactly one of File, SQL and Command
// is set.
type Expectation struct {
	// File is the absolute path of a file that must exist and must have been changed by the run.
	File string
	SQL  string // query for one value in the agent's database, which must be true
	// Command is a program with its arguments, without a shell. It is confined in the run's workdir
	// and must exit with code 0.
	Command []string
	Timeout time.Duration // timeout of the command; 0 means 10 min
	Where   string        // file:line of the configuration
}

// Notify configures the notices about the outcomes of runs.
type Notify struct {
	On          []string // outcomes that cause a notice
	Channels    []string
	Title, Body string // templates; "" means the built-in text
}

// Plan holds all agents and jobs of the configuration. Names are unique regardless of case.
type Plan struct {
	Agents map[string]Agent
	Jobs   map[string]Job
	// Disabled holds the jobs of disabled agents, by name.
	Disabled map[string]ledger.Obstacle
	// Modules holds the skills with a module that the owner may run without a job, by name.
	Modules map[string]*skills.Skill
	// ModuleSettings holds the settings of skills with a module, by name.
	ModuleSettings map[string]ModuleSettings
	// Servers holds all MCP servers, including those that no agent uses.
	Servers []mcp.Server
	// Channels holds all notification channels.
	Channels []string
	// DefaultChannels are used if neither job nor agent names a channel. If nil, notices go to the
	// desktop.
	DefaultChannels []string
	// Groups configures how channels group failures. Other channels use the default.
	Groups map[string]Group
	// Secrets holds values that must not be recorded.
	Secrets []string
	Zone    *time.Location // zone of times in prompts and of the start of days; nil means UTC
	Budget  Budget         // limits for all agents together

	// Clones is the folder of the private clones in which agents write. Optional.
	Clones string
	// Masks holds the places that no tool of any agent may change or read.
	Masks tool.ProtectedPaths
	// UntrustedFolders holds absolute folders in which untrusted sources leave files, including
	// those of disabled jobs.
	UntrustedFolders []string
	// Boundary holds the places in which agents or untrusted sources can create links. Such links
	// are not followed.
	Boundary nofollow.UntrustedDirs
}

// Skills holds the skills that an agent sees, and the style in which its prompt lists them.
type Skills struct {
	skills.View
	Style string // style for skills.View.Prompt
	// Allowing makes the allowed-tools of a loaded skill allow its commands.
	Allowing bool
}

// Group selects the failures of an incident that a channel reports: the first, and then every
// Every-th.
type Group struct {
	Every    int  // 1 means each failure; 0 means only the first
	Recovery bool // also report that the job succeeds again
}

// usualGroup is the default for channels without a group.
var usualGroup = Group{Every: 10, Recovery: true}

// Wants reports whether notify.on contains an outcome or "waiting".
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

// desktopChannel is a channel that exists without configuration.
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

// Models returns the models of all agents and jobs and their fallbacks, by name.
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

// ServerSpecs returns placeholder specs for the tools of all MCP servers. Their tools are unknown
// until they are approved.
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

// OfferSpecs returns the specs of the tools that the skills of a plan offer.
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
