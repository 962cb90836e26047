package config

// The tags of a setting:
//
//	key    its name in YAML
//	need   "yes" when it must be given
//	enum   its values; one with a star behind it is known, and comes later
//	later  why it is refused in this version
//	say    what it does, for editors
//	unset  its default, for editors and `config show`

// Config is the whole of rouse.yaml.
type Config struct {
	Version       int            `key:"version" need:"yes" say:"1"`
	Home          Path           `key:"home" say:"folder that holds all state" unset:"~/.rouse"`
	Timezone      string         `key:"timezone" say:"IANA name" unset:"the system's"`
	Include       []Text         `key:"include" say:"globs of further files with models, agents, jobs and notifications"`
	Limits        Limits         `key:"limits"`
	Log           Log            `key:"log"`
	Dashboard     *Dashboard     `key:"dashboard" later:"the dashboard"`
	HeartbeatURL  string         `key:"heartbeat_url" later:"the heartbeat"`
	Skills        *SkillRoots    `key:"skills" later:"skills"`
	Engine        *Engine        `key:"engine" later:"the PostgreSQL engine"`
	Defaults      *Job           `key:"defaults" say:"what every job has unless it says otherwise"`
	Models        []Model        `key:"models" say:"the first is the default"`
	Agents        []Agent        `key:"agents"`
	Jobs          []Job          `key:"jobs"`
	Notifications []Notification `key:"notifications" say:"channels; desktop exists without being named"`

	// Files that were read, the main one first.
	Files []string
	// Warnings are what looks wrong and is not.
	Warnings []Problem
	secrets  []string
}

// Limits bound the daemon.
type Limits struct {
	Runs          int      `key:"runs" unset:"4" say:"runs at once"`
	RunsPerAgent  int      `key:"runs_per_agent" unset:"1"`
	CostUSDPerDay *float64 `key:"cost_usd_per_day" later:"cost limits"`
	TokensPerDay  *int64   `key:"tokens_per_day" later:"daily token limits"`
	Drain         Duration `key:"drain" unset:"30s" say:"how long running jobs may finish when the daemon stops"`
}

// Log says what the daemon writes to standard error.
type Log struct {
	Level  string `key:"level" enum:"debug|info|warn|error" unset:"info"`
	Format string `key:"format" enum:"auto|text|json" unset:"auto"`
}

// Dashboard comes later.
type Dashboard struct {
	Listen string `key:"listen"`
	Off    bool   `key:"off"`
}

// SkillRoots come later.
type SkillRoots struct {
	Roots []SkillRoot `key:"roots"`
}

// SkillRoot comes later.
type SkillRoot struct {
	Path    Path `key:"path" need:"yes"`
	Trusted bool `key:"trusted"`
}

// Engine comes later.
type Engine struct {
	Postgres string `key:"postgres"`
}

// Model is a way to reach a language model.
type Model struct {
	Name          Name              `key:"name" need:"yes"`
	Provider      string            `key:"provider" need:"yes" enum:"openai|anthropic*|gemini*|ollama*|replay*" say:"openai is any OpenAI-compatible server"`
	Model         string            `key:"model" need:"yes"`
	BaseURL       string            `key:"base_url" unset:"https://api.openai.com/v1"`
	APIKey        string            `key:"api_key" say:"use ${NAME} to take it from the environment"`
	Fallback      string            `key:"fallback" later:"fallback models"`
	ContextWindow int               `key:"context_window" say:"tokens"`
	MaxOutput     int               `key:"max_output" say:"tokens of one answer"`
	Price         *Price            `key:"price" later:"cost limits"`
	Timeout       Duration          `key:"timeout" unset:"10m" say:"of one answer"`
	Idle          Duration          `key:"idle" unset:"2m" say:"without a byte of the answer"`
	Temperature   *float64          `key:"temperature"`
	Headers       map[string]string `key:"headers"`

	At Position
}

// Price comes later.
type Price struct {
	Input       float64 `key:"input"`
	Output      float64 `key:"output"`
	CachedInput float64 `key:"cached_input"`
}

// Agent is a named worker.
type Agent struct {
	Name             Name            `key:"name" need:"yes"`
	Enabled          *bool           `key:"enabled" unset:"true"`
	Model            string          `key:"model" say:"name of a model; the first one when absent"`
	Instructions     string          `key:"instructions"`
	InstructionsFile Path            `key:"instructions_file"`
	Workdir          Path            `key:"workdir" unset:"HOME/agents/NAME/work" say:"root of the file tools"`
	Database         Database        `key:"database"`
	SelfScheduling   *SelfScheduling `key:"self_scheduling" later:"self-scheduling"`
	Skills           []string        `key:"skills" later:"skills"`
	SkillAccess      string          `key:"skill_access" enum:"global_discovery|preloaded_only|none" later:"skills"`
	Loop             string          `key:"loop" enum:"tools|phased*" unset:"tools"`
	Tools            ToolFilter      `key:"tools"`
	Grants           Grants          `key:"grants"`
	OnDenied         string          `key:"on_denied" enum:"park|fail|continue" later:"approvals"`
	MinTier          string          `key:"min_tier" enum:"A|B|C|D" later:"the shell"`
	Sandbox          string          `key:"sandbox" enum:"off" later:"the shell"`
	Reason           string          `key:"reason" later:"the shell"`
	Bounds           Bounds          `key:"bounds"`
	Budget           *Budget         `key:"budget" later:"budgets"`

	At Position
}

// Database is the agent's own.
type Database struct {
	Enabled *bool `key:"enabled" unset:"true"`
	Quota   Size  `key:"quota" unset:"100MiB"`
}

// SelfScheduling comes later.
type SelfScheduling struct {
	Enabled     bool     `key:"enabled"`
	Mode        string   `key:"mode" enum:"ambient|reactive|project|manual"`
	Horizon     Duration `key:"horizon"`
	MinInterval Duration `key:"min_interval"`
	DailyCap    int      `key:"daily_cap"`
	QuietHours  string   `key:"quiet_hours"`
	Days        []string `key:"days"`
}

// ToolFilter are globs of tool names.
type ToolFilter struct {
	Allow []string `key:"allow"`
	Deny  []string `key:"deny"`
}

// Grants are what an agent may reach beside its workdir.
type Grants struct {
	Read     []Path         `key:"read" say:"folders that may be read"`
	Write    []Path         `key:"write" say:"if given, narrows writing in workdir to these"`
	Commands []CommandGrant `key:"commands" later:"the shell"`
	Network  []NetworkGrant `key:"network" later:"network grants"`
	Secrets  []SecretGrant  `key:"secrets" later:"secrets"`
}

// CommandGrant comes later.
type CommandGrant struct {
	Argv    []string `key:"argv" need:"yes"`
	Network string   `key:"network"`
}

// NetworkGrant comes later.
type NetworkGrant struct {
	Host    string   `key:"host" need:"yes"`
	Methods []string `key:"methods"`
}

// SecretGrant comes later.
type SecretGrant struct {
	Name   string `key:"name" need:"yes"`
	OnlyTo string `key:"only_to"`
}

// Bounds are the hard limits of one run.
type Bounds struct {
	Steps   int      `key:"steps" unset:"30"`
	Calls   int      `key:"calls" unset:"100"`
	Wall    Duration `key:"wall" unset:"10m"`
	Idle    Duration `key:"idle" unset:"5m"`
	Tokens  int64    `key:"tokens"`
	CostUSD *float64 `key:"cost_usd" later:"cost limits"`
	Output  Size     `key:"output" unset:"1MiB"`
}

// Budget comes later.
type Budget struct {
	CostUSDPerDay float64 `key:"cost_usd_per_day"`
	TokensPerDay  int64   `key:"tokens_per_day"`
}

// Job is what triggers a run and what it does.
type Job struct {
	Name    Name   `key:"name" need:"yes"`
	Agent   string `key:"agent" need:"yes"`
	Enabled *bool  `key:"enabled" unset:"true"`

	Prompt     string            `key:"prompt"`
	PromptFile Path              `key:"prompt_file"`
	Playbook   []PlaybookCall    `key:"playbook"`
	Skill      string            `key:"skill" later:"skills"`
	Input      map[string]string `key:"input" later:"skills"`

	Schedule string   `key:"schedule" say:"five or six cron fields, or @daily and the like"`
	Every    string   `key:"every" say:"a length of time"`
	RunAt    string   `key:"at" say:"RFC 3339; fires once"`
	Watch    *Watch   `key:"watch"`
	Webhook  *Webhook `key:"webhook" later:"webhooks"`

	Timezone      string   `key:"timezone"`
	Exclude       []string `key:"exclude" say:"dates, or ranges 2026-12-24..2026-12-31"`
	OnMiss        string   `key:"on_miss" enum:"skip|run_once|run_catchup" unset:"run_once"`
	CatchupWindow Duration `key:"catchup_window" unset:"24h"`
	MaxCatchup    int      `key:"max_catchup" unset:"100"`
	StartDeadline Duration `key:"start_deadline"`
	Overlap       string   `key:"overlap" enum:"skip|queue_one|queue_all|cancel_previous|allow" unset:"skip"`
	Jitter        Duration `key:"jitter"`
	RunOnStart    bool     `key:"run_on_start"`
	PauseAfter    int      `key:"pause_after_failures" later:"pauses"`

	Retry        Retry    `key:"retry"`
	Resume       *bool    `key:"resume" unset:"true" say:"go on after a crash"`
	When         []Gate   `key:"when" later:"gates"`
	Expect       []Expect `key:"expect" say:"checked by the host after a run; unmet means error"`
	ContextViews []string `key:"context_views" later:"views"`
	Record       bool     `key:"record" later:"replay"`
	UndoOnFail   bool     `key:"undo_on_failure" later:"undo"`
	Keep         Duration `key:"keep" unset:"90d" say:"how long history is kept"`
	Priority     string   `key:"priority" enum:"low|normal|high" later:"priorities"`
	Bounds       Bounds   `key:"bounds"`
	Budget       *Budget  `key:"budget" later:"budgets"`
	Model        string   `key:"model"`
	Notify       Notify   `key:"notify"`

	At Position
}

// PlaybookCall is one call of a playbook.
type PlaybookCall struct {
	Call    string         `key:"call" need:"yes" say:"a tool"`
	With    map[string]any `key:"with" say:"its arguments"`
	Save    string         `key:"save" say:"name for its result"`
	If      string         `key:"if" say:"an expression; false skips the call"`
	Each    any            `key:"each" say:"a list, or an expression that gives one"`
	OnError string         `key:"on_error" enum:"fail|continue" unset:"fail"`

	At Position
}

// Watch is a folder whose files start runs.
type Watch struct {
	Path           Path     `key:"path" need:"yes"`
	Include        []string `key:"include"`
	Exclude        []string `key:"exclude"`
	Recursive      bool     `key:"recursive"`
	Mode           string   `key:"mode" enum:"per_file|batch*|converge*" unset:"per_file"`
	Responsiveness string   `key:"responsiveness" enum:"fast|balanced|patient" unset:"balanced"`
	MaxWait        Duration `key:"max_wait" later:"batch mode"`
	MaxFiles       int      `key:"max_files" later:"batch mode"`
	Existing       string   `key:"existing" enum:"process|ignore" unset:"process"`
	FollowSymlinks bool     `key:"follow_symlinks" later:"following links"`
	OnSuccess      After    `key:"on_success"`
	OnFailure      After    `key:"on_failure"`

	At Position
}

// After is what happens to a file after its run: leave, delete, or move: FOLDER.
type After struct {
	Action string
	Dir    string
}

// Webhook comes later.
type Webhook struct {
	Path   string `key:"path" need:"yes"`
	Secret string `key:"secret"`
}

// Retry says which runs are tried again.
type Retry struct {
	Attempts   int      `key:"attempts" unset:"1"`
	Backoff    Duration `key:"backoff" unset:"30s"`
	MaxBackoff Duration `key:"max_backoff" unset:"15m"`
	On         []string `key:"on" enum:"error|timeout" unset:"[error, timeout]"`
}

// Gate comes later.
type Gate struct {
	SQL     string   `key:"sql"`
	Command []string `key:"command"`
	HTTP    string   `key:"http"`
	File    Path     `key:"file"`
}

// Expect is a condition on what a run did.
type Expect struct {
	File Path   `key:"file" say:"exists and changed since the run started"`
	SQL  string `key:"sql" say:"gives one true value on the agent's database"`

	At Position
}

// Notify says which outcomes tell whom what.
type Notify struct {
	On       []string `key:"on" enum:"success|nothing|partial|error|timeout|budget_exceeded|cancelled|interrupted|skipped|waiting" unset:"[success, error, waiting]"`
	Channels []string `key:"channels" unset:"[desktop]"`
	Title    string   `key:"title" say:"a template"`
	Body     string   `key:"body" say:"a template"`
	Every    Duration `key:"every" later:"digests"`
}

// Notification is a channel.
type Notification struct {
	Name       Name   `key:"name" need:"yes"`
	Kind       string `key:"kind" need:"yes" enum:"desktop|url*|webhook*"`
	URL        string `key:"url" later:"channels by URL"`
	Secret     string `key:"secret" later:"channels by URL"`
	QuietHours string `key:"quiet_hours" later:"quiet hours"`

	At Position
}

// On says whether something is enabled: absent means yes.
func On(b *bool) bool { return b == nil || *b }

// Secrets are values that must not be shown or stored.
func (c *Config) Secrets() []string { return c.secrets }
