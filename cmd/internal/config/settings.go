package config

import (
	"strings"
	"time"

	"rouse/scheduler/schedule"
)

// Private configures which of an agent's own places hold private data.
type Private struct {
	Workdir  *bool `key:"workdir" defaultdoc:"true if the agent has both untrusted input and a way out (also by a condition) other than reading from hosts granted by name" doc:"a run that reads in the workdir holds private data (B)"`
	Database *bool `key:"database" defaultdoc:"false" doc:"a run that reads rows of the database holds private data (B)"`
}

// Config holds all settings of rouse.yaml. See Field for the tags.
type Config struct {
	Version       int            `key:"version" default:"1" doc:"of this format"`
	Home          Path           `key:"home" env:"yes" doc:"folder that holds all state" defaultdoc:"$ROUSE_HOME, or ~/.rouse" example:"./.rouse"`
	Timezone      string         `key:"timezone" env:"yes" doc:"IANA name, like Europe/Berlin" defaultdoc:"the machine's, followed when it changes" example:"Europe/Berlin"`
	Include       []string       `key:"include" doc:"files, or globs of files, with more models, agents, jobs and notifications" example:"[jobs/*.yaml]"`
	Limits        limits         `key:"limits" doc:"what all runs together may take"`
	Log           Log            `key:"log" doc:"what the daemon writes to standard error"`
	Dashboard     Dashboard      `key:"dashboard" doc:"the pages and the API at an address of the network, beside the socket of the home"`
	Telemetry     Telemetry      `key:"telemetry" doc:"what is sent to programs that watch others; nothing is unless you say so here"`
	HeartbeatURL  string         `key:"heartbeat_url" secret:"yes" doc:"an address that is asked each minute while triggers are armed and the ledger takes what is written, so that whoever watches it can tell you when that ends: https://hc-ping.com/…, best as secret:NAME" defaultdoc:"none" example:"secret:heartbeat"`
	Replicate     *Replicate     `key:"replicate" doc:"continuous copies of the home at another place, from which rouse restore --from brings back any second of the last days" defaultdoc:"none"`
	Skills        *skillSettings `key:"skills" doc:"where skills are looked for, and what their modules are given"`
	Engine        Engine         `key:"engine" doc:"where the ledger is"`
	Node          string         `key:"node" env:"yes" doc:"name of this process among those that share a ledger on PostgreSQL; rouse serve --node says it too" defaultdoc:"the name of the machine" example:"nas"`
	Defaults      *Job           `key:"defaults" doc:"default settings of all jobs" example:"{timezone: Europe/Berlin}"`
	Models        []Model        `key:"models" doc:"the first is the default; without any, one is made from a key in the environment: ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY" example:"[{name: local, provider: ollama, model: 'qwen3:8b'}]"`
	Agents        []Agent        `key:"agents" doc:"workers: each has instructions, folders, a database and grants"`
	MCP           []MCPServer    `key:"mcp" doc:"MCP servers; agents can use their tools once you have approved them (rouse mcp-servers)" example:"[{name: files, argv: [/opt/mcp/files-server]}]"`
	Calendars     []Calendar     `key:"calendars" doc:"calendars for exclude and only of jobs" example:"[{name: closed, file: ./closed.ics}]"`
	Jobs          []Job          `key:"jobs" doc:"the work, its agent and its triggers" example:"[{name: morning-report, agent: bookkeeper, prompt: Write the report.}]"`
	Notifications []Notification `key:"notifications" doc:"channels; desktop exists without being named"`

	// Files lists the files that were read, the main file first.
	Files []string
	// Sources records the content of everything that was read, to detect changes.
	Sources Sources
	// Warnings lists the problems that do not refuse the configuration.
	Warnings []Problem
	// Texts lists the entries of Files that contain plain text, such as a prompt.
	Texts []string `json:"-"`
	// Secrets describes the secrets that the settings use.
	Secrets SecretUse `json:"-"`

	skills FoundSkills
	// Agents and Jobs by name; nil before Index.
	agentNamed map[string]*Agent
	jobNamed   map[string]*Job
	machine    *time.Location // time zone of the machine; nil means time.Local
	// calendars holds Calendars by name.
	calendars map[string]*schedule.Calendar
}

// SecretUse describes the secrets that a configuration uses.
type SecretUse struct {
	Values []string    // values that must not be shown or stored, longest first
	Refs   []SecretRef // references to the secret store
	Held   []Held      // settings without their secret that do not refuse the configuration
	Unset  []string    // names of secrets that are not set, without unreadable ones
}

// Index builds the lookup of agents and jobs by name. The lists must not change afterwards.
func (c *Config) Index() {
	c.agentNamed, c.jobNamed = map[string]*Agent{}, map[string]*Job{}
	for i := range c.Agents {
		c.agentNamed[string(c.Agents[i].Name)] = &c.Agents[i]
	}
	for i := range c.Jobs {
		if name := string(c.Jobs[i].Name); name != "" && c.jobNamed[name] == nil {
			c.jobNamed[name] = &c.Jobs[i]
		}
	}
}

// Job returns the job with a name, or nil if it does not exist.
func (c *Config) Job(name string) *Job {
	return find(c.jobNamed, c.Jobs, name, func(j *Job) Name { return j.Name })
}

// Agent returns the agent with a name, or nil if it does not exist.
func (c *Config) Agent(name string) *Agent {
	return find(c.agentNamed, c.Agents, name, func(a *Agent) Name { return a.Name })
}

// limits holds the limits of all runs together.
type limits struct {
	Runs            int      `key:"runs" default:"4" positive:"yes" env:"yes" doc:"runs at once"`
	RunsPerAgent    int      `key:"runs_per_agent" default:"1" positive:"yes" env:"yes" doc:"runs of one agent at once"`
	Queued          int      `key:"queued" default:"1000" positive:"yes" env:"yes" doc:"runs that may wait for their turn: with as many, what a person, a program or a webhook asks for is refused; what schedules, files and wakes ask for waits all the same"`
	AskedPerMinute  int      `key:"asked_per_minute" default:"60" positive:"yes" env:"yes" doc:"runs that one caller may ask for in a minute: the token, or a browser that is logged in; who asks at the socket of the home is its owner, and neither they nor webhooks are counted"`
	CostUSDPerDay   float64  `key:"cost_usd_per_day" positive:"yes" doc:"what models may cost in a day of timezone" defaultdoc:"5 when a model has a price" example:"5"`
	TokensPerDay    int64    `key:"tokens_per_day" positive:"yes" doc:"tokens of all models in a day of timezone" defaultdoc:"no limit" example:"2000000"`
	CostUSDPerMonth float64  `key:"cost_usd_per_month" positive:"yes" doc:"what models may cost in a calendar month of timezone, beside what they may in a day" defaultdoc:"no limit" example:"50"`
	TokensPerMonth  int64    `key:"tokens_per_month" positive:"yes" doc:"tokens of all models in a calendar month of timezone" defaultdoc:"no limit" example:"20000000"`
	Drain           Duration `key:"drain" default:"30s" positive:"yes" env:"yes" doc:"how long running jobs may finish when the daemon stops"`
}

// Log configures the daemon's log on standard error.
type Log struct {
	Level  string `key:"level" enum:"debug|info|warn|error" default:"info" env:"yes" doc:"the least that is written"`
	Format string `key:"format" enum:"auto|text|json" default:"auto" env:"yes" doc:"auto is text at a terminal and JSON elsewhere"`
}

// Telemetry configures the export of traces. It is off by default.
type Telemetry struct {
	OTLP *OTLP `key:"otlp" doc:"sends what runs did, step by step and without what was said or read in them, as traces" defaultdoc:"nothing is sent"`
}

// OTLP is a receiver of the OpenTelemetry protocol over HTTP.
type OTLP struct {
	Endpoint string            `key:"endpoint" required:"yes" doc:"https://otel.example.net, to which /v1/traces is added; http on this machine alone" example:"https://otel.example.net"`
	Headers  map[string]string `key:"headers" doc:"sent with each request, as {Authorization: \"Bearer ${secret:otlp}\"}" example:"{Authorization: 'Bearer ${secret:otlp}'}"`
}

// TracesURL returns the URL to which traces are sent.
func (o OTLP) TracesURL() string {
	const signal = "/v1/traces"
	return strings.TrimSuffix(strings.TrimRight(o.Endpoint, "/"), signal) + signal
}

// Dashboard configures the network address of the daemon, in addition to its socket.
type Dashboard struct {
	Listen string          `key:"listen" default:"127.0.0.1:7311" env:"yes" doc:"an address of this machine with a port, or off; another than a loopback address needs tls or proxy"`
	Hosts  []string        `key:"hosts" doc:"by which other names browsers know it, as in their address bar: box.example.net, or with a port that is not that of the scheme" example:"[box.example.net]"`
	TLS    *dashboardTLS   `key:"tls" doc:"a certificate of your own"`
	Proxy  *dashboardProxy `key:"proxy" doc:"a proxy that speaks TLS with browsers, as tailscale serve does; what is sent to one of hosts must come from it"`
}

type dashboardTLS struct {
	Cert Path `key:"cert" required:"yes" doc:"a file with the certificates, PEM" example:"./tls/cert.pem"`
	Key  Path `key:"key" required:"yes" doc:"a file with the private key, PEM" example:"./tls/key.pem"`
}

type dashboardProxy struct {
	UserHeader string `key:"user_header" required:"yes" doc:"in which the proxy names who asks: Tailscale-User-Login; whoever asks logs in all the same" example:"Tailscale-User-Login"`
	From       string `key:"from" required:"yes" doc:"the address that it asks from: 127.0.0.1" example:"127.0.0.1"`
}

// Off reports whether the daemon does not listen on a network address.
func (d Dashboard) Off() bool { return d.Listen == "off" || d.Listen == "" }

// Replicate configures the target of continuous copies of the home.
type Replicate struct {
	To        string   `key:"to" required:"yes" doc:"file:///mnt/usb/rouse, or s3://BUCKET/PREFIX?region=REGION&endpoint=https://HOST of any server that speaks S3; an empty place of its own for each home" example:"file:///mnt/usb/rouse"`
	Keep      Duration `key:"keep" default:"7d" positive:"yes" doc:"how long back a second can be brought back, 1h at least"`
	AccessKey string   `key:"access_key" secret:"yes" doc:"of s3, best as secret:NAME" defaultdoc:"AWS_ACCESS_KEY_ID, or ~/.aws/credentials"`
	SecretKey string   `key:"secret_key" secret:"yes" doc:"of s3, best as secret:NAME" defaultdoc:"AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials"`
}

// Engine configures the storage of the ledger.
type Engine struct {
	Postgres  string `key:"postgres" secret:"yes" doc:"postgres://… of a database that holds the ledger, which several rouse serve may share then; best as secret:NAME" defaultdoc:"a file in the home" example:"secret:postgres"`
	Blobs     string `key:"blobs" doc:"beside postgres: where values over 64 KiB are kept for all nodes, file:///mnt/shared/rouse (the same folder on each) or s3://BUCKET/PREFIX?region=REGION&endpoint=https://HOST; an empty place of its own for each ledger" defaultdoc:"in the database" example:"s3://bucket"`
	AccessKey string `key:"access_key" secret:"yes" doc:"of the bucket, best as secret:NAME" defaultdoc:"AWS_ACCESS_KEY_ID, or ~/.aws/credentials"`
	SecretKey string `key:"secret_key" secret:"yes" doc:"of the bucket, best as secret:NAME" defaultdoc:"AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials"`
}

// Model configures access to a language model.
type Model struct {
	Name          Name              `key:"name" required:"yes" doc:"by which agents and jobs name it" example:"local"`
	Provider      string            `key:"provider" required:"yes" enum:"openai|anthropic|gemini|ollama|openrouter|groq|mistral|deepseek|together|fireworks|xai|cerebras|replay" doc:"openai with base_url is any OpenAI-compatible server; replay answers from a recording"`
	Model         string            `key:"model" doc:"as the server calls it; needed by all but replay" example:"'qwen3:8b'"`
	Recording     Path              `key:"recording" doc:"of replay: the file, as rouse replay RUN --save writes it" example:"./recordings/12.json"`
	API           string            `key:"api" enum:"chat|responses" doc:"of openai: chat completions, which all such servers know, or the Responses API, which keeps what a model thought between its calls" defaultdoc:"responses at OpenAI itself, else chat"`
	BaseURL       string            `key:"base_url" defaultdoc:"where the provider is; ollama: on this machine" doc:"of openai with its /v1, of the others without" example:"http://127.0.0.1:8080/v1"`
	APIKey        string            `key:"api_key" secret:"yes" doc:"secret:NAME is set with rouse secrets set NAME; ${NAME} is taken from the environment" defaultdoc:"the environment variable of the provider, such as OPENROUTER_API_KEY, if base_url is not set either" example:"secret:openai"`
	Fallback      string            `key:"fallback" doc:"name of the model that takes over when this one has failed for good: no answer, overloaded, out of credit; never where the key or the request is wrong" example:"spare"`
	ContextWindow int               `key:"context_window" positive:"yes" doc:"tokens; the server's own limit counts if it is smaller; ollama makes room in memory for so many" defaultdoc:"what the server reports or is known of the model; of ollama 16384" example:"32768"`
	MaxOutput     int               `key:"max_output" positive:"yes" doc:"tokens of one answer" defaultdoc:"a quarter of the context, at most 16000" example:"4096"`
	Price         *Price            `key:"price" doc:"USD per million tokens" defaultdoc:"what is known of the model; nothing on this machine"`
	Timeout       Duration          `key:"timeout" default:"10m" positive:"yes" doc:"of one answer"`
	Idle          Duration          `key:"idle" default:"2m" positive:"yes" doc:"without a byte of the answer; of ollama 4m, since it loads the model first"`
	Temperature   *float64          `key:"temperature" doc:"how freely it words its answers, where the model takes one" example:"0.2"`
	Headers       map[string]string `key:"headers" doc:"sent with each request" example:"{X-Team: books}"`

	At Position
}

type Price struct {
	Input       float64  `key:"input" required:"yes" doc:"of what it is sent" example:"3"`
	Output      float64  `key:"output" required:"yes" doc:"of what it answers" example:"15"`
	CachedInput *float64 `key:"cached_input" doc:"of input that the provider has read before" defaultdoc:"as input" example:"0.3"`
}

// Agent is a named worker.
type Agent struct {
	Name             Name            `key:"name" required:"yes" doc:"by which jobs and commands name it; its folder in the home" example:"bookkeeper"`
	Enabled          *bool           `key:"enabled" default:"true" doc:"false: none of its jobs starts, and none of its tools is called"`
	Model            string          `key:"model" doc:"name of a model" defaultdoc:"the first model" example:"local"`
	Instructions     string          `key:"instructions" doc:"what its model is told in every run" example:"You keep the household books."`
	InstructionsFile Path            `key:"instructions_file" doc:"read when the configuration is, into instructions" example:"./bookkeeper.md"`
	Soul             string          `key:"soul" doc:"who it is and how it speaks, 8,000 bytes at most: quoted before each of its prompts as a description, and never an instruction" defaultdoc:"nothing" example:"Patient, and never sure of a sum that it has not added twice."`
	SoulFile         Path            `key:"soul_file" doc:"read when the configuration is, into soul; refused where an agent can write it" example:"./bookkeeper.soul.md"`
	Mode             string          `key:"mode" enum:"isolated|folder|none" default:"folder" doc:"where it works. folder: in workdir. isolated: in a folder of its own, HOME/agents/NAME/work, with workdir to read and nothing else to write. none: without file tools and programs"`
	Workdir          Path            `key:"workdir" defaultdoc:"HOME/agents/NAME/work" doc:"root of the file tools; with mode: isolated what it reads and cannot change" example:"./books"`
	WorkdirShared    bool            `key:"workdir_shared" doc:"with engine.postgres: the workdir is the same folder on every node"`
	Host             string          `key:"host" doc:"with engine.postgres: the node that does the agent's runs" defaultdoc:"any" example:"nas"`
	Database         Database        `key:"database" doc:"its own SQLite database"`
	Private          Private         `key:"private" doc:"what of its own is for you alone, and must not leave unasked together with what strangers wrote"`
	Channels         []string        `key:"channels" doc:"notification channels of runs without a job and of jobs without channels" defaultdoc:"the default channels" example:"[ops]"`
	SelfScheduling   *selfScheduling `key:"self_scheduling" doc:"lets the agent plan its own next run, within the limits of a mode" defaultdoc:"off"`
	Skills           []string        `key:"skills" doc:"names of skills, or paths like ./skills/tax, that it is told in full from the start" example:"[csv-report]"`
	SkillAccess      string          `key:"skill_access" enum:"global_discovery|preloaded_only|none" doc:"which skills it may load: all that are found, those under skills, or none" defaultdoc:"preloaded_only where skills are named, else global_discovery"`
	SkillStyle       string          `key:"skill_style" enum:"index|catalog" default:"index" doc:"how its prompt lists skills: as XML, or as a section in Markdown"`
	SkillTools       bool            `key:"skill_allowed_tools" doc:"a skill that it has loaded allows the commands that its allowed-tools name, as Bash(git log:*) does, without a network; otherwise that field allows nothing"`
	Loop             string          `key:"loop" enum:"tools|phased" doc:"how prompts are done: by calling tools, or in phases (plan, act, verify, reflect) with a working memory, in at most 20 steps" default:"tools"`
	Executor         *Executor       `key:"executor" doc:"an installed agent program that does its prompts in the place of rouse's own loop" defaultdoc:"the loop"`
	Checkout         *Checkout       `key:"checkout" doc:"each of its runs works in a private clone of a repository of yours, on a branch of its own" defaultdoc:"runs work in workdir"`
	Tools            toolFilter      `key:"tools" doc:"which tools it has, of those that its grants serve"`
	MCP              []string        `key:"mcp" doc:"names of MCP servers, whose approved tools it has" defaultdoc:"none" example:"[files]"`
	Grants           grants          `key:"grants" doc:"what it may reach beyond its workdir; what is not granted waits for your approval"`
	OnDenied         string          `key:"on_denied" enum:"park|fail|continue" default:"park" doc:"what becomes of a call that its grants do not cover: park asks you in the inbox and waits, fail ends the run, continue refuses the call"`
	MinTier          string          `key:"min_tier" enum:"A|B|C|D" doc:"the weakest confinement on which its programs may run, A is the strongest; on a weaker one they are refused" defaultdoc:"B, and A once a run has met untrusted content"`
	Sandbox          string          `key:"sandbox" enum:"off" doc:"off lets its programs run without any confinement; needs reason" defaultdoc:"they are confined"`
	Reason           string          `key:"reason" doc:"why sandbox is off, in your words" example:"its programs are confined by the container"`
	Bounds           Bounds          `key:"bounds" doc:"of one run"`
	Budget           budget          `key:"budget" doc:"of all its runs in a day of the daemon's timezone"`

	At       Position
	TextFile string // file that the instructions were read from
	// DefaultSteps reports whether bounds.steps is not configured. Chats then use their own
	// default.
	DefaultSteps bool
	SoulText     string // path of the soul file
	// Untrusted describes the settings by which untrusted content can reach the agent's runs.
	Untrusted []string `json:"-"`
	// PrivateFolders lists the private folders that the agent can read.
	PrivateFolders []string `json:"-"`
	// PrivateDatabase reports whether the agent's database is private.
	PrivateDatabase bool `json:"-"`
	// HostFolder is the configured workdir of an isolated agent, which works elsewhere. It is
	// empty for other agents.
	HostFolder string
}

type Database struct {
	Enabled *bool `key:"enabled" default:"true" doc:"false: it has none, and no db_* tools"`
	Quota   Size  `key:"quota" default:"100MiB" positive:"yes" doc:"how large the database may become"`
}

type toolFilter struct {
	Allow []string `key:"allow" doc:"globs of tool names; read_file, write_file, edit_file, list_files, search and bash, the names that some models know, are there when an entry other than * covers them" defaultdoc:"all" example:"[file_*, db_*, notify]"`
	Deny  []string `key:"deny" doc:"globs of tool names" defaultdoc:"none" example:"[shell_run]"`
	// OnDemand keeps a long list of tools out of each request.
	OnDemand []string `key:"on_demand" doc:"globs of tools that its model is not told of at first: it loads them with capabilities_load, or calls them by their names; [] tells it of all" defaultdoc:"the tools that ordinary tasks do without and that allow does not name (rouse tools TOOL says so); with a context_window below 16384 all but the main ones if the list takes more than a third of it" example:"[db_*]"`
}

type grants struct {
	Read     []ReadGrant    `key:"read" doc:"folders that may be read beside the workdir: paths, or {path: X, private: false} where what is there is no secret of yours"`
	Write    []Path         `key:"write" doc:"limits writing in workdir to these paths, for tools and programs; missing folders in workdir are created" example:"[./books/out]"`
	Commands []commandGrant `key:"commands" doc:"programs that may be run unasked, in the sandbox"`
	Network  []NetworkGrant `key:"network" doc:"hosts that web_fetch may ask"`
	Secrets  []secretGrant  `key:"secrets" doc:"secrets that calls may use by their placeholder __OSL_SECRET[NAME]__"`
}

// ReadGrant is an entry of grants.read: a path, or a mapping with a path and options.
type ReadGrant struct {
	Path    Path  `key:"path" required:"yes" doc:"the folder or file" example:"./statements"`
	Private *bool `key:"private" default:"true" doc:"a run that reads there holds private data (B)"`
}

type commandGrant struct {
	Argv    []string `key:"argv" required:"yes" doc:"the program exactly as commands write it, and a pattern for each argument; a final * stands for any number of arguments; ./NAME is relative to this file" example:"[pandoc, '*.md', -o, '*.html']"`
	Network string   `key:"network" enum:"none|host" default:"none" doc:"host lets the program use the network of this machine"`

	Written []string `json:"-"` // argv as configured, if it has a path relative to the configuration file
}

type NetworkGrant struct {
	Host    string   `key:"host" required:"yes" doc:"a name, *.example.com for all below one, * for all, or an address; with :port that port alone" example:"api.example.com"`
	Methods []string `key:"methods" enum:"GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS" defaultdoc:"GET, HEAD" doc:"of HTTP that it may ask with"`
	Private bool     `key:"private" doc:"the host may be on this machine or its network"`
}

type secretGrant struct {
	Name    string `key:"name" required:"yes" doc:"as in rouse secrets set NAME" example:"bank"`
	OnlyTo  string `key:"only_to" doc:"the host that web_fetch may send it to" defaultdoc:"for commands alone" example:"api.example.com"`
	Private *bool  `key:"private" default:"true" doc:"false: what it opens is not private data, as with the key of a weather service, so that its use does not make a run ask"`

	Value string `json:"-"`
}

// Bounds are the hard limits of one run.
type Bounds struct {
	Steps   int      `key:"steps" default:"30" positive:"yes" doc:"turns of the model; beside them as many again at most, and 16 at most, are not charged (rows moved in bulk, empty answers, turns of a reduction), and one ends the run in words; in a playbook each call is a step, and there are as many as calls unless this is given"`
	Calls   int      `key:"calls" default:"100" positive:"yes" doc:"tool calls"`
	Wall    Duration `key:"wall" default:"10m" positive:"yes" doc:"time in all"`
	Idle    Duration `key:"idle" default:"5m" positive:"yes" doc:"time without an event of the model or the end of a call"`
	Tokens  int64    `key:"tokens" positive:"yes" defaultdoc:"no limit" doc:"tokens of its model, those that it is sent and those that it answers" example:"200000"`
	CostUSD float64  `key:"cost_usd" positive:"yes" doc:"what its model may cost" defaultdoc:"no limit" example:"0.5"`
	Output  Size     `key:"output" default:"1MiB" positive:"yes" doc:"what the model may write"`
}

// PlaybookCalls returns the maximum number of calls of a playbook, and the key of that limit.
func (b Bounds) PlaybookCalls() (most int, key string) {
	if b.Steps < b.Calls {
		return b.Steps, "bounds.steps"
	}
	return b.Calls, "bounds.calls"
}

type budget struct {
	CostUSDPerDay   float64 `key:"cost_usd_per_day" positive:"yes" defaultdoc:"no limit" doc:"USD that models may cost" example:"1"`
	TokensPerDay    int64   `key:"tokens_per_day" positive:"yes" defaultdoc:"no limit" doc:"tokens of all models" example:"500000"`
	CostUSDPerMonth float64 `key:"cost_usd_per_month" positive:"yes" doc:"USD that models may cost in a calendar month" defaultdoc:"no limit" example:"10"`
	TokensPerMonth  int64   `key:"tokens_per_month" positive:"yes" doc:"tokens of all models in a calendar month" defaultdoc:"no limit" example:"5000000"`
}

// Budget is the exported name of budget.
type Budget = budget

// Budget returns the limits of cost and tokens for all agents together.
func (l limits) Budget() Budget {
	return Budget{l.CostUSDPerDay, l.TokensPerDay, l.CostUSDPerMonth, l.TokensPerMonth}
}

// CostKey returns the key and value of the cost limit, or "" if costs are not limited.
func (b budget) CostKey() (key string, usd float64) {
	switch {
	case b.CostUSDPerDay > 0:
		return "cost_usd_per_day", b.CostUSDPerDay
	case b.CostUSDPerMonth > 0:
		return "cost_usd_per_month", b.CostUSDPerMonth
	}
	return "", 0
}

// DefaultChannel is the name and kind of the channel that needs no configuration.
const DefaultChannel = "desktop"

// Notification configures a channel.
type Notification struct {
	Name       Name   `key:"name" required:"yes" doc:"by which jobs and agents name it" example:"ops"`
	Kind       string `key:"kind" required:"yes" enum:"desktop|url|webhook" doc:"desktop; url is any service that shoutrrr knows; webhook is a signed request"`
	URL        string `key:"url" secret:"yes" doc:"of the kinds url (any URL of shoutrrr: slack://, discord://, telegram://, ntfy://, matrix://, smtp://, …) and webhook (https://…)" example:"secret:slack_url"`
	Secret     string `key:"secret" secret:"yes" doc:"with which the requests of a webhook are signed: secret:NAME"`
	QuietHours string `key:"quiet_hours" doc:"hours in which its notices wait, as 22:00-07:00" defaultdoc:"none" example:"'22:00-07:00'"`
	Fallback   Name   `key:"fallback" doc:"the channel that is told of what this one does not take" defaultdoc:"none" example:"desktop"`
	Group      group  `key:"group" doc:"which failures of the same job and kind of error it is told of, until they are acknowledged (rouse ack) or a run succeeds"`
	Digest     string `key:"digest" doc:"a summary each day, as daily at 08:00 of timezone: what ran, what failed, what waits, what it cost; off for none" defaultdoc:"daily at 08:00 where a job that runs more often than hourly tells the channel and has no notify.on, else none" example:"'daily at 08:00'"`

	At Position
}

// group configures which repeated failures a channel reports.
type group struct {
	Every    int   `key:"every" default:"10" positive:"yes" doc:"beside the first failure each so many-th; 1 is all of them"`
	Recovery *bool `key:"recovery" default:"true" doc:"tell that the job succeeds again, where its successes are not told anyway"`
}

// On reports whether a setting is on. Nil means on.
func On(b *bool) bool { return b == nil || *b }

// find returns the item with a name, or nil if it does not exist. It uses the index if it is not
// nil.
func find[T any](index map[string]*T, all []T, name string, of func(*T) Name) *T {
	if index != nil {
		return index[name]
	}
	for i := range all {
		if string(of(&all[i])) == name {
			return &all[i]
		}
	}
	return nil
}

// KeepOf returns the retention of a job's history. The job need not be configured any more.
func (c *Config) KeepOf(job string) time.Duration {
	if j := c.Job(job); j != nil && j.Keep > 0 {
		return time.Duration(j.Keep)
	}
	return DefaultKeep
}
