package config

import (
	"strings"
	"time"

	"rouse/scheduler/schedule"
)

// Private is what of an agent's own places is for its owner alone.
type Private struct {
	Workdir  *bool `key:"workdir" unset:"true if the agent has both untrusted input and a way out (also by a condition) other than reading from hosts granted by name" say:"a run that reads in the workdir holds private data (B)"`
	Database *bool `key:"database" unset:"false" say:"a run that reads rows of the database holds private data (B)"`
}

// Config is the whole of rouse.yaml. What the tags say: see field.
type Config struct {
	Version       int            `key:"version" default:"1" say:"of this format"`
	Home          Path           `key:"home" env:"yes" say:"folder that holds all state" unset:"$ROUSE_HOME, or ~/.rouse" eg:"./.rouse"`
	Timezone      string         `key:"timezone" env:"yes" say:"IANA name, like Europe/Berlin" unset:"the machine's, followed when it changes" eg:"Europe/Berlin"`
	Include       []string       `key:"include" say:"files, or globs of files, with more models, agents, jobs and notifications" eg:"[jobs/*.yaml]"`
	Limits        limits         `key:"limits" say:"what all runs together may take"`
	Log           Log            `key:"log" say:"what the daemon writes to standard error"`
	Dashboard     Dashboard      `key:"dashboard" say:"the pages and the API at an address of the network, beside the socket of the home"`
	Telemetry     Telemetry      `key:"telemetry" say:"what is sent to programs that watch others; nothing is unless you say so here"`
	HeartbeatURL  string         `key:"heartbeat_url" secret:"yes" say:"an address that is asked each minute while triggers are armed and the ledger takes what is written, so that whoever watches it can tell you when that ends: https://hc-ping.com/…, best as secret:NAME" unset:"none" eg:"secret:heartbeat"`
	Replicate     *Replicate     `key:"replicate" say:"continuous copies of the home at another place, from which rouse restore --from brings back any second of the last days" unset:"none"`
	Skills        *skillSettings `key:"skills" say:"where skills are looked for, and what their modules are given"`
	Engine        Engine         `key:"engine" say:"where the ledger is"`
	Node          string         `key:"node" env:"yes" say:"name of this process among those that share a ledger on PostgreSQL; rouse serve --node says it too" unset:"the name of the machine" eg:"nas"`
	Defaults      *Job           `key:"defaults" say:"default settings of all jobs" eg:"{timezone: Europe/Berlin}"`
	Models        []Model        `key:"models" say:"the first is the default; without any, one is made from a key in the environment: ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY" eg:"[{name: local, provider: ollama, model: 'qwen3:8b'}]"`
	Agents        []Agent        `key:"agents" say:"workers: each has instructions, folders, a database and grants"`
	MCP           []MCPServer    `key:"mcp" say:"MCP servers; agents can use their tools once you have approved them (rouse mcp-servers)" eg:"[{name: files, argv: [/opt/mcp/files-server]}]"`
	Calendars     []Calendar     `key:"calendars" say:"calendars for exclude and only of jobs" eg:"[{name: closed, file: ./closed.ics}]"`
	Jobs          []Job          `key:"jobs" say:"the work, its agent and its triggers" eg:"[{name: morning-report, agent: bookkeeper, prompt: Write the report.}]"`
	Notifications []Notification `key:"notifications" say:"channels; desktop exists without being named"`

	// Files that were read, the main one first.
	Files []string
	// Sources are what the configuration was read from: a change of any changes it.
	Sources Sources
	// Warnings are what looks wrong and is not.
	Warnings []Problem
	// Texts are those of Files that hold a text, such as a prompt.
	Texts []string `json:"-"`
	// Secrets are those that the settings use.
	Secrets SecretUse `json:"-"`

	skills FoundSkills
	// Those of Agents and Jobs, by name; nil before Index.
	agentNamed map[string]*Agent
	jobNamed   map[string]*Job
	machine    *time.Location // the machine's time zone; nil means time.Local
	// calendars are those of Calendars, by name.
	calendars map[string]*schedule.Calendar
}

// SecretUse describes the secrets of a configuration.
type SecretUse struct {
	Values []string    // that must not be shown or stored, the longest first
	Refs   []SecretRef // the places that ask for a secret of the store
	Held   []Held      // the places that lack a secret, if that does not refuse the configuration
	Unset  []string    // the names of those that are not set; unreadable ones do not count
}

// Index makes agents and jobs known by their names. The lists must not change afterwards.
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

// Job returns the job of a name, or nil if there is none.
func (c *Config) Job(name string) *Job {
	return find(c.jobNamed, c.Jobs, name, func(j *Job) Name { return j.Name })
}

// Agent returns the agent of a name, or nil if there is none.
func (c *Config) Agent(name string) *Agent {
	return find(c.agentNamed, c.Agents, name, func(a *Agent) Name { return a.Name })
}

type limits struct {
	Runs            int      `key:"runs" default:"4" positive:"yes" env:"yes" say:"runs at once"`
	RunsPerAgent    int      `key:"runs_per_agent" default:"1" positive:"yes" env:"yes" say:"runs of one agent at once"`
	Queued          int      `key:"queued" default:"1000" positive:"yes" env:"yes" say:"runs that may wait for their turn: with as many, what a person, a program or a webhook asks for is refused; what schedules, files and wakes ask for waits all the same"`
	AskedPerMinute  int      `key:"asked_per_minute" default:"60" positive:"yes" env:"yes" say:"runs that one caller may ask for in a minute: the token, or a browser that is logged in; who asks at the socket of the home is its owner, and neither they nor webhooks are counted"`
	CostUSDPerDay   float64  `key:"cost_usd_per_day" positive:"yes" say:"what models may cost in a day of timezone" unset:"5 when a model has a price" eg:"5"`
	TokensPerDay    int64    `key:"tokens_per_day" positive:"yes" say:"tokens of all models in a day of timezone" unset:"no limit" eg:"2000000"`
	CostUSDPerMonth float64  `key:"cost_usd_per_month" positive:"yes" say:"what models may cost in a calendar month of timezone, beside what they may in a day" unset:"no limit" eg:"50"`
	TokensPerMonth  int64    `key:"tokens_per_month" positive:"yes" say:"tokens of all models in a calendar month of timezone" unset:"no limit" eg:"20000000"`
	Drain           Duration `key:"drain" default:"30s" positive:"yes" env:"yes" say:"how long running jobs may finish when the daemon stops"`
}

// Log says what the daemon writes to standard error.
type Log struct {
	Level  string `key:"level" enum:"debug|info|warn|error" default:"info" env:"yes" say:"the least that is written"`
	Format string `key:"format" enum:"auto|text|json" default:"auto" env:"yes" say:"auto is text at a terminal and JSON elsewhere"`
}

// Telemetry says where numbers and traces are sent. Nothing is sent by default.
type Telemetry struct {
	OTLP *OTLP `key:"otlp" say:"sends what runs did, step by step and without what was said or read in them, as traces" unset:"nothing is sent"`
}

// OTLP is a receiver of the OpenTelemetry protocol over HTTP.
type OTLP struct {
	Endpoint string            `key:"endpoint" need:"yes" say:"https://otel.example.net, to which /v1/traces is added; http on this machine alone" eg:"https://otel.example.net"`
	Headers  map[string]string `key:"headers" say:"sent with each request, as {Authorization: \"Bearer ${secret:otlp}\"}" eg:"{Authorization: 'Bearer ${secret:otlp}'}"`
}

// TracesURL returns the address to which traces are sent.
func (o OTLP) TracesURL() string {
	const signal = "/v1/traces"
	return strings.TrimSuffix(strings.TrimRight(o.Endpoint, "/"), signal) + signal
}

// Dashboard says at which address browsers and programs reach the daemon, beside its socket.
type Dashboard struct {
	Listen string          `key:"listen" default:"127.0.0.1:7311" env:"yes" say:"an address of this machine with a port, or off; another than a loopback address needs tls or proxy"`
	Hosts  []string        `key:"hosts" say:"by which other names browsers know it, as in their address bar: box.example.net, or with a port that is not that of the scheme" eg:"[box.example.net]"`
	TLS    *dashboardTLS   `key:"tls" say:"a certificate of your own"`
	Proxy  *dashboardProxy `key:"proxy" say:"a proxy that speaks TLS with browsers, as tailscale serve does; what is sent to one of hosts must come from it"`
}

type dashboardTLS struct {
	Cert Path `key:"cert" need:"yes" say:"a file with the certificates, PEM" eg:"./tls/cert.pem"`
	Key  Path `key:"key" need:"yes" say:"a file with the private key, PEM" eg:"./tls/key.pem"`
}

type dashboardProxy struct {
	UserHeader string `key:"user_header" need:"yes" say:"in which the proxy names who asks: Tailscale-User-Login; whoever asks logs in all the same" eg:"Tailscale-User-Login"`
	From       string `key:"from" need:"yes" say:"the address that it asks from: 127.0.0.1" eg:"127.0.0.1"`
}

// Off reports whether the daemon listens on no address.
func (d Dashboard) Off() bool { return d.Listen == "off" || d.Listen == "" }

// Replicate is where continuous copies of the home are kept.
type Replicate struct {
	To        string   `key:"to" need:"yes" say:"file:///mnt/usb/rouse, or s3://BUCKET/PREFIX?region=REGION&endpoint=https://HOST of any server that speaks S3; an empty place of its own for each home" eg:"file:///mnt/usb/rouse"`
	Keep      Duration `key:"keep" default:"7d" positive:"yes" say:"how long back a second can be brought back, 1h at least"`
	AccessKey string   `key:"access_key" secret:"yes" say:"of s3, best as secret:NAME" unset:"AWS_ACCESS_KEY_ID, or ~/.aws/credentials"`
	SecretKey string   `key:"secret_key" secret:"yes" say:"of s3, best as secret:NAME" unset:"AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials"`
}

// Engine says where the ledger is.
type Engine struct {
	Postgres  string `key:"postgres" secret:"yes" say:"postgres://… of a database that holds the ledger, which several rouse serve may share then; best as secret:NAME" unset:"a file in the home" eg:"secret:postgres"`
	Blobs     string `key:"blobs" say:"beside postgres: where values over 64 KiB are kept for all nodes, file:///mnt/shared/rouse (the same folder on each) or s3://BUCKET/PREFIX?region=REGION&endpoint=https://HOST; an empty place of its own for each ledger" unset:"in the database" eg:"s3://bucket"`
	AccessKey string `key:"access_key" secret:"yes" say:"of the bucket, best as secret:NAME" unset:"AWS_ACCESS_KEY_ID, or ~/.aws/credentials"`
	SecretKey string `key:"secret_key" secret:"yes" say:"of the bucket, best as secret:NAME" unset:"AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials"`
}

// Model is a way to reach a language model.
type Model struct {
	Name          Name              `key:"name" need:"yes" say:"by which agents and jobs name it" eg:"local"`
	Provider      string            `key:"provider" need:"yes" enum:"openai|anthropic|gemini|ollama|openrouter|groq|mistral|deepseek|together|fireworks|xai|cerebras|replay" say:"openai with base_url is any OpenAI-compatible server; replay answers from a recording"`
	Model         string            `key:"model" say:"as the server calls it; needed by all but replay" eg:"'qwen3:8b'"`
	Recording     Path              `key:"recording" say:"of replay: the file, as rouse replay RUN --save writes it" eg:"./recordings/12.json"`
	API           string            `key:"api" enum:"chat|responses" say:"of openai: chat completions, which all such servers know, or the Responses API, which keeps what a model thought between its calls" unset:"responses at OpenAI itself, else chat"`
	BaseURL       string            `key:"base_url" unset:"where the provider is; ollama: on this machine" say:"of openai with its /v1, of the others without" eg:"http://127.0.0.1:8080/v1"`
	APIKey        string            `key:"api_key" secret:"yes" say:"secret:NAME is set with rouse secrets set NAME; ${NAME} is taken from the environment" unset:"the environment variable of the provider, such as OPENROUTER_API_KEY, if base_url is not set either" eg:"secret:openai"`
	Fallback      string            `key:"fallback" say:"name of the model that takes over when this one has failed for good: no answer, overloaded, out of credit; never where the key or the request is wrong" eg:"spare"`
	ContextWindow int               `key:"context_window" positive:"yes" say:"tokens; the server's own limit counts if it is smaller; ollama makes room in memory for so many" unset:"what the server reports or is known of the model; of ollama 16384" eg:"32768"`
	MaxOutput     int               `key:"max_output" positive:"yes" say:"tokens of one answer" unset:"a quarter of the context, at most 16000" eg:"4096"`
	Price         *Price            `key:"price" say:"USD per million tokens" unset:"what is known of the model; nothing on this machine"`
	Timeout       Duration          `key:"timeout" default:"10m" positive:"yes" say:"of one answer"`
	Idle          Duration          `key:"idle" default:"2m" positive:"yes" say:"without a byte of the answer; of ollama 4m, since it loads the model first"`
	Temperature   *float64          `key:"temperature" say:"how freely it words its answers, where the model takes one" eg:"0.2"`
	Headers       map[string]string `key:"headers" say:"sent with each request" eg:"{X-Team: books}"`

	At Position
}

type Price struct {
	Input       float64  `key:"input" need:"yes" say:"of what it is sent" eg:"3"`
	Output      float64  `key:"output" need:"yes" say:"of what it answers" eg:"15"`
	CachedInput *float64 `key:"cached_input" say:"of input that the provider has read before" unset:"as input" eg:"0.3"`
}

// Agent is a named worker.
type Agent struct {
	Name             Name            `key:"name" need:"yes" say:"by which jobs and commands name it; its folder in the home" eg:"bookkeeper"`
	Enabled          *bool           `key:"enabled" default:"true" say:"false: none of its jobs starts, and none of its tools is called"`
	Model            string          `key:"model" say:"name of a model" unset:"the first model" eg:"local"`
	Instructions     string          `key:"instructions" say:"what its model is told in every run" eg:"You keep the household books."`
	InstructionsFile Path            `key:"instructions_file" say:"read when the configuration is, into instructions" eg:"./bookkeeper.md"`
	Soul             string          `key:"soul" say:"who it is and how it speaks, 8,000 bytes at most: quoted before each of its prompts as a description, and never an instruction" unset:"nothing" eg:"Patient, and never sure of a sum that it has not added twice."`
	SoulFile         Path            `key:"soul_file" say:"read when the configuration is, into soul; refused where an agent can write it" eg:"./bookkeeper.soul.md"`
	Mode             string          `key:"mode" enum:"isolated|folder|none" default:"folder" say:"where it works. folder: in workdir. isolated: in a folder of its own, HOME/agents/NAME/work, with workdir to read and nothing else to write. none: without file tools and programs"`
	Workdir          Path            `key:"workdir" unset:"HOME/agents/NAME/work" say:"root of the file tools; with mode: isolated what it reads and cannot change" eg:"./books"`
	WorkdirShared    bool            `key:"workdir_shared" say:"with engine.postgres: the workdir is the same folder on every node"`
	Host             string          `key:"host" say:"with engine.postgres: the node that does the agent's runs" unset:"any" eg:"nas"`
	Database         Database        `key:"database" say:"its own SQLite database"`
	Private          Private         `key:"private" say:"what of its own is for you alone, and must not leave unasked together with what strangers wrote"`
	Channels         []string        `key:"channels" say:"notification channels of runs without a job and of jobs without channels" unset:"the default channels" eg:"[ops]"`
	SelfScheduling   *selfScheduling `key:"self_scheduling" say:"lets the agent plan its own next run, within the limits of a mode" unset:"off"`
	Skills           []string        `key:"skills" say:"names of skills, or paths like ./skills/tax, that it is told in full from the start" eg:"[csv-report]"`
	SkillAccess      string          `key:"skill_access" enum:"global_discovery|preloaded_only|none" say:"which skills it may load: all that are found, those under skills, or none" unset:"preloaded_only where skills are named, else global_discovery"`
	SkillStyle       string          `key:"skill_style" enum:"index|catalog" default:"index" say:"how its prompt lists skills: as XML, or as a section in Markdown"`
	SkillTools       bool            `key:"skill_allowed_tools" say:"a skill that it has loaded allows the commands that its allowed-tools name, as Bash(git log:*) does, without a network; otherwise that field allows nothing"`
	Loop             string          `key:"loop" enum:"tools|phased" say:"how prompts are done: by calling tools, or in phases (plan, act, verify, reflect) with a working memory, in at most 20 steps" default:"tools"`
	Executor         *Executor       `key:"executor" say:"an installed agent program that does its prompts in the place of rouse's own loop" unset:"the loop"`
	Checkout         *Checkout       `key:"checkout" say:"each of its runs works in a private clone of a repository of yours, on a branch of its own" unset:"runs work in workdir"`
	Tools            toolFilter      `key:"tools" say:"which tools it has, of those that its grants serve"`
	MCP              []string        `key:"mcp" say:"names of MCP servers, whose approved tools it has" unset:"none" eg:"[files]"`
	Grants           grants          `key:"grants" say:"what it may reach beyond its workdir; what is not granted waits for your approval"`
	OnDenied         string          `key:"on_denied" enum:"park|fail|continue" default:"park" say:"what becomes of a call that its grants do not cover: park asks you in the inbox and waits, fail ends the run, continue refuses the call"`
	MinTier          string          `key:"min_tier" enum:"A|B|C|D" say:"the weakest confinement on which its programs may run, A is the strongest; on a weaker one they are refused" unset:"B, and A once a run has met untrusted content"`
	Sandbox          string          `key:"sandbox" enum:"off" say:"off lets its programs run without any confinement; needs reason" unset:"they are confined"`
	Reason           string          `key:"reason" say:"why sandbox is off, in your words" eg:"its programs are confined by the container"`
	Bounds           Bounds          `key:"bounds" say:"of one run"`
	Budget           budget          `key:"budget" say:"of all its runs in a day of the daemon's timezone"`

	At       Position
	TextFile string // that its instructions were read from
	// DefaultSteps reports whether bounds.steps is not configured. Chats then use their own default.
	DefaultSteps bool
	SoulText     string // path of the soul file
	// Untrusted describes the lines by which untrusted content can reach its runs.
	Untrusted []string `json:"-"`
	// PrivateFolders are the private folders that it can reach.
	PrivateFolders []string `json:"-"`
	// PrivateDatabase reports whether its database is private.
	PrivateDatabase bool `json:"-"`
	// HostFolder is the workdir as it was written, of an agent that is isolated from it and works elsewhere; "": of no other.
	HostFolder string
}

type Database struct {
	Enabled *bool `key:"enabled" default:"true" say:"false: it has none, and no db_* tools"`
	Quota   Size  `key:"quota" default:"100MiB" positive:"yes" say:"how large the database may become"`
}

type toolFilter struct {
	Allow []string `key:"allow" say:"globs of tool names; read_file, write_file, edit_file, list_files, search and bash, the names that some models know, are there when an entry other than * covers them" unset:"all" eg:"[file_*, db_*, notify]"`
	Deny  []string `key:"deny" say:"globs of tool names" unset:"none" eg:"[shell_run]"`
	// OnDemand keeps a long list of tools out of each request.
	OnDemand []string `key:"on_demand" say:"globs of tools that its model is not told of at first: it loads them with capabilities_load, or calls them by their names; [] tells it of all" unset:"the tools that ordinary tasks do without and that allow does not name (rouse tools TOOL says so); with a context_window below 16384 all but the main ones if the list takes more than a third of it" eg:"[db_*]"`
}

type grants struct {
	Read     []ReadGrant    `key:"read" say:"folders that may be read beside the workdir: paths, or {path: X, private: false} where what is there is no secret of yours"`
	Write    []Path         `key:"write" say:"limits writing in workdir to these paths, for tools and programs; missing folders in workdir are created" eg:"[./books/out]"`
	Commands []commandGrant `key:"commands" say:"programs that may be run unasked, in the sandbox"`
	Network  []NetworkGrant `key:"network" say:"hosts that web_fetch may ask"`
	Secrets  []secretGrant  `key:"secrets" say:"secrets that calls may use by their placeholder __OSL_SECRET[NAME]__"`
}

// ReadGrant is a path, or a mapping that says more of it.
type ReadGrant struct {
	Path    Path  `key:"path" need:"yes" say:"the folder or file" eg:"./statements"`
	Private *bool `key:"private" default:"true" say:"a run that reads there holds private data (B)"`
}

type commandGrant struct {
	Argv    []string `key:"argv" need:"yes" say:"the program exactly as commands write it, and a pattern for each argument; a final * stands for any number of arguments; ./NAME is relative to this file" eg:"[pandoc, '*.md', -o, '*.html']"`
	Network string   `key:"network" enum:"none|host" default:"none" say:"host lets the program use the network of this machine"`

	Written []string `json:"-"` // argv as configured, if it has a path relative to the configuration file
}

type NetworkGrant struct {
	Host    string   `key:"host" need:"yes" say:"a name, *.example.com for all below one, * for all, or an address; with :port that port alone" eg:"api.example.com"`
	Methods []string `key:"methods" enum:"GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS" unset:"GET, HEAD" say:"of HTTP that it may ask with"`
	Private bool     `key:"private" say:"the host may be on this machine or its network"`
}

type secretGrant struct {
	Name    string `key:"name" need:"yes" say:"as in rouse secrets set NAME" eg:"bank"`
	OnlyTo  string `key:"only_to" say:"the host that web_fetch may send it to" unset:"for commands alone" eg:"api.example.com"`
	Private *bool  `key:"private" default:"true" say:"false: what it opens is not private data, as with the key of a weather service, so that its use does not make a run ask"`

	Value string `json:"-"`
}

// Bounds are the hard limits of one run.
type Bounds struct {
	Steps   int      `key:"steps" default:"30" positive:"yes" say:"turns of the model; beside them as many again at most, and 16 at most, are not charged (rows moved in bulk, empty answers, turns of a reduction), and one ends the run in words; in a playbook each call is a step, and there are as many as calls unless this is given"`
	Calls   int      `key:"calls" default:"100" positive:"yes" say:"tool calls"`
	Wall    Duration `key:"wall" default:"10m" positive:"yes" say:"time in all"`
	Idle    Duration `key:"idle" default:"5m" positive:"yes" say:"time without an event of the model or the end of a call"`
	Tokens  int64    `key:"tokens" positive:"yes" unset:"no limit" say:"tokens of its model, those that it is sent and those that it answers" eg:"200000"`
	CostUSD float64  `key:"cost_usd" positive:"yes" say:"what its model may cost" unset:"no limit" eg:"0.5"`
	Output  Size     `key:"output" default:"1MiB" positive:"yes" say:"what the model may write"`
}

// PlaybookCalls is how many calls a playbook may make, and the bound that says so.
func (b Bounds) PlaybookCalls() (most int, key string) {
	if b.Steps < b.Calls {
		return b.Steps, "bounds.steps"
	}
	return b.Calls, "bounds.calls"
}

type budget struct {
	CostUSDPerDay   float64 `key:"cost_usd_per_day" positive:"yes" unset:"no limit" say:"USD that models may cost" eg:"1"`
	TokensPerDay    int64   `key:"tokens_per_day" positive:"yes" unset:"no limit" say:"tokens of all models" eg:"500000"`
	CostUSDPerMonth float64 `key:"cost_usd_per_month" positive:"yes" say:"USD that models may cost in a calendar month" unset:"no limit" eg:"10"`
	TokensPerMonth  int64   `key:"tokens_per_month" positive:"yes" say:"tokens of all models in a calendar month" unset:"no limit" eg:"5000000"`
}

// Budget is what one of them may take.
type Budget = budget

// Budget is what all agents together may take.
func (l limits) Budget() Budget {
	return Budget{l.CostUSDPerDay, l.TokensPerDay, l.CostUSDPerMonth, l.TokensPerMonth}
}

// CostKey is the key of a limit in money, and its value; "" without one.
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

// Notification is a channel.
type Notification struct {
	Name       Name   `key:"name" need:"yes" say:"by which jobs and agents name it" eg:"ops"`
	Kind       string `key:"kind" need:"yes" enum:"desktop|url|webhook" say:"desktop; url is any service that shoutrrr knows; webhook is a signed request"`
	URL        string `key:"url" secret:"yes" say:"of the kinds url (any URL of shoutrrr: slack://, discord://, telegram://, ntfy://, matrix://, smtp://, …) and webhook (https://…)" eg:"secret:slack_url"`
	Secret     string `key:"secret" secret:"yes" say:"with which the requests of a webhook are signed: secret:NAME"`
	QuietHours string `key:"quiet_hours" say:"hours in which its notices wait, as 22:00-07:00" unset:"none" eg:"'22:00-07:00'"`
	Fallback   Name   `key:"fallback" say:"the channel that is told of what this one does not take" unset:"none" eg:"desktop"`
	Group      group  `key:"group" say:"which failures of the same job and kind of error it is told of, until they are acknowledged (rouse ack) or a run succeeds"`
	Digest     string `key:"digest" say:"a summary each day, as daily at 08:00 of timezone: what ran, what failed, what waits, what it cost; off for none" unset:"daily at 08:00 where a job that runs more often than hourly tells the channel and has no notify.on, else none" eg:"'daily at 08:00'"`

	At Position
}

// group says which failures a channel is told of.
type group struct {
	Every    int   `key:"every" default:"10" positive:"yes" say:"beside the first failure each so many-th; 1 is all of them"`
	Recovery *bool `key:"recovery" default:"true" say:"tell that the job succeeds again, where its successes are not told anyway"`
}

// On reports whether something is enabled: absent means yes.
func On(b *bool) bool { return b == nil || *b }

// find is what has a name, nil where nothing has. Where a configuration was checked an index knows.
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

// KeepOf is how long the history of a job is kept, be it configured or not.
func (c *Config) KeepOf(job string) time.Duration {
	if j := c.Job(job); j != nil && j.Keep > 0 {
		return time.Duration(j.Keep)
	}
	return DefaultKeep
}
