package config

import (
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"

	"rouse/agent/model/playbook"
	"rouse/internal/domain"
	"rouse/scheduler/schedule"
)

// MaxBatch is what a playbook's each takes.
const MaxBatch = 10_000

// Followed are the jobs whose runs a job follows, with the outcomes that it waits for.
func (j *Job) Followed() map[string][]domain.Outcome {
	out := map[string][]domain.Outcome{}
	for _, f := range j.Follows {
		out[f.Job] = f.On
	}
	return out
}

// DefaultKeep is how long the history of ad-hoc prompts and of removed jobs is kept.
const DefaultKeep = 90 * 24 * time.Hour

// Job is what triggers a run and what it does.
type Job struct {
	Name    Name   `key:"name" need:"yes" own:"yes" say:"by which commands and the history name it" eg:"morning-report"`
	Agent   string `key:"agent" need:"yes" say:"name of the agent that does it" eg:"bookkeeper"`
	Enabled *bool  `key:"enabled" default:"true" say:"false: nothing starts it but you"`

	Prompt     string         `key:"prompt" own:"yes" say:"a template; what the model is asked to do" eg:"Write yesterday's spending by category to report.md."`
	PromptFile Path           `key:"prompt_file" own:"yes" say:"read when the configuration is, into prompt" eg:"./report.md"`
	Playbook   []PlaybookCall `key:"playbook" own:"yes" say:"a fixed list of calls, without a model" eg:"[{call: notify, with: {title: done}}]"`
	Skill      string         `key:"skill" own:"yes" say:"name of a skill with a module, which is run without a model of its own" eg:"csv-report"`
	Input      map[string]any `key:"input" own:"yes" say:"what the module is given: templates, and expressions after '= '" eg:"{month: '{{ .Scheduled }}'}"`

	Workspace string `key:"workspace" own:"yes" say:"name of the workspace in which the module works, a template; it is made when it is first needed" eg:"books"`

	Schedule string     `key:"schedule" own:"yes" say:"five or six cron fields, @daily and the like, or words: daily at 08:00, weekly on mon at 08:00, monthly on 31 at 08:00 (the last day of shorter months)" eg:"'0 8 * * 1-5'"`
	Every    string     `key:"every" own:"yes" say:"a length of time" eg:"30m"`
	RunAt    string     `key:"at" own:"yes" say:"RFC 3339; fires once" eg:"2026-12-01T08:00:00+01:00"`
	Window   *window    `key:"window" own:"yes" say:"hours in which it runs once, at a moment that its name and the date decide"`
	Watch    *Watch     `key:"watch" own:"yes" say:"a folder whose files start runs"`
	Webhook  *Webhook   `key:"webhook" own:"yes" say:"signed requests of other programs that start runs"`
	Follows  []Followed `key:"after" own:"yes" say:"jobs whose runs it follows: it runs once for each of them that has ended, and knows it as .After"`

	Host          string         `key:"host" say:"with engine.postgres: the node that does the job's runs, and sees the folder of its watch" unset:"the agent's; any" eg:"nas"`
	Timezone      string         `key:"timezone" say:"time zone of the schedule and of collect" unset:"the daemon's" eg:"Europe/Berlin"`
	Exclude       []string       `key:"exclude" say:"dates, ranges 2026-12-24..2026-12-31, and names of calendars, in whose times the schedule is silent" eg:"[2026-12-24..2026-12-31]"`
	Only          []string       `key:"only" say:"the same: outside of them the schedule is silent" eg:"[2026-12-24..2026-12-31]"`
	OnMiss        domain.OnMiss  `key:"on_miss" enum:"skip|run_once|run_catchup" default:"run_once" say:"what is done for instants that passed unserved"`
	CatchupWindow Duration       `key:"catchup_window" default:"24h" positive:"yes" say:"how old a missed instant may be"`
	MaxCatchup    int            `key:"max_catchup" default:"100" positive:"yes" say:"runs of one run_catchup"`
	StartDeadline Duration       `key:"start_deadline" positive:"yes" say:"longest wait in the queue" unset:"none"`
	Overlap       domain.Overlap `key:"overlap" enum:"skip|queue_one|queue_all|cancel_previous|allow" default:"skip" say:"when it is due while it runs"`
	Jitter        Duration       `key:"jitter" say:"spreads the start over this time"`
	RunOnStart    bool           `key:"run_on_start" say:"runs when the daemon starts"`
	PauseAfter    int            `key:"pause_after_failures" positive:"yes" say:"failed runs in a row after which the job is paused" unset:"never" eg:"5"`

	ExpectSuccessWithin Duration `key:"expect_success_within" positive:"yes" say:"maximum time between two runs that end as success or nothing; if it passes, an incident opens and you get a notice, for any reason" unset:"not watched" eg:"26h"`

	Retry        retry       `key:"retry" say:"further attempts after a failure"`
	Resume       *bool       `key:"resume" default:"true" say:"go on after a crash"`
	When         []Condition `key:"when" say:"conditions that cost nothing and must all hold, or the run is skipped; not checked for the files of a watch"`
	Expect       []Expect    `key:"expect" say:"checked by the host after a run; unmet means error"`
	ContextViews []string    `key:"context_views" say:"saved views of the agent's database whose rows are put into the prompt" eg:"[open_invoices]"`
	Session      string      `key:"session" enum:"fresh|keep" default:"fresh" say:"keep: a run is told what was said in the runs of the job before it, never what their tools brought"`
	Record       bool        `key:"record" say:"keeps what its model is asked and answers as long as the run, for rouse replay"`
	UndoOnFail   bool        `key:"undo_on_failure" say:"takes back what a failed run wrote: rows and files"`
	Keep         Duration    `key:"keep" default:"90d" positive:"yes" say:"how long history is kept"`
	Bounds       Bounds      `key:"bounds" say:"of one run; what is left out is the agent's"`
	Budget       budget      `key:"budget" say:"of all its runs in a day, or in a calendar month, of the daemon's timezone, beside the agent's"`
	Model        string      `key:"model" unset:"the agent's" say:"name of the model that does its prompt" eg:"local"`
	Executor     *Executor   `key:"executor" own:"yes" say:"the agent program that does its prompt" unset:"the agent's"`
	Checkout     *Checkout   `key:"checkout" own:"yes" say:"each of its runs works in a private clone of a repository of yours, on a branch of its own" unset:"the agent's"`
	MinTier      string      `key:"min_tier" enum:"A|B|C|D" say:"the weakest confinement on which its programs may run" unset:"the agent's"`
	Notify       Notify      `key:"notify" say:"who is told how its runs end"`

	At       Position
	TextFile string // that its prompt was read from

	schedules []*schedule.Schedule // once they were checked, by their keys: see Config.Schedules
}

// SessionKeep is the session of a job whose runs go on from those before.
const SessionKeep = "keep"

// Prompts reports whether a model does what the job is for.
func (j *Job) Prompts() bool { return j.Playbook == nil && j.Skill == "" }

// PlaybookCall is one call of a playbook.
type PlaybookCall struct {
	Call    string         `key:"call" need:"yes" say:"a tool" eg:"notify"`
	With    map[string]any `key:"with" say:"its arguments: templates, and expressions after '= '" eg:"{title: '{{ .Job }} is done'}"`
	Save    string         `key:"save" say:"name for its result" eg:"imported"`
	If      string         `key:"if" say:"an expression; false skips the call" eg:"Attempt == 1"`
	Each    any            `key:"each" say:"a list, or '= ' and an expression that gives one, such as '= Files' in a batch or '= Changes.Added' with converge; the call is made for each of them, which templates and expressions know as item, and its place from 0 on as index" eg:"'= Files'"`
	OnError string         `key:"on_error" enum:"fail|continue" default:"fail" say:"what a failed call does to the run"`

	MustSucceed *bool      `key:"must_succeed" say:"an exit code other than 0, of web_fetch a status of 400 and above, of git_commit that there is nothing to commit, is a failure of the call" unset:"true; of git_commit false"`
	Expect      callExpect `key:"expect" say:"what has to be true of the call once it was made; otherwise it failed"`

	At Position
}

// callExpect is what has to be true of one call. All that is given has to hold.
type callExpect struct {
	Exit   []int  `key:"exit" say:"the exit codes of shell_run that are a success" eg:"[0, 24]"`
	Status []int  `key:"status" say:"the status codes of web_fetch that are a success" eg:"[200]"`
	That   string `key:"that" say:"an expression that is true; it knows the result of the call as result" eg:"result.text contains 'ok'"`
}

// Step is the call as the playbook provider takes it.
func (p PlaybookCall) Step() playbook.Call {
	return playbook.Call{
		Name: p.Call, With: p.With, Save: p.Save, If: p.If, Each: p.Each, OnError: p.OnError, Line: p.At.Line,
		MustSucceed: p.MustSucceed, Expect: playbook.Expect{Exit: p.Expect.Exit, Status: p.Expect.Status, That: p.Expect.That},
	}
}

// window is when a job runs once at a moment that nobody chooses.
type window struct {
	From string `key:"from" need:"yes" say:"a time of day, like 02:00" eg:"'02:00'"`
	To   string `key:"to" need:"yes" say:"a time of day, of the next day when it is before from" eg:"'05:00'"`
	Days string `key:"days" say:"on which it opens, like 1-5 or mon,thu" unset:"all" eg:"mon-fri"`

	At Position
}

// Followed is a job whose runs are followed.
type Followed struct {
	Job string           `key:"job" need:"yes" say:"name of the job whose runs it follows" eg:"fetch"`
	On  []domain.Outcome `key:"on" enum:"success|nothing|partial|error|timeout|budget_exceeded|cancelled|interrupted|skipped" default:"[success]" say:"how its runs have to have ended"`

	At Position
}

type Watch struct {
	Path           Path              `key:"path" need:"yes" say:"the folder" eg:"./inbox"`
	Include        []string          `key:"include" say:"globs of file names; one like *.tmp takes what is left out otherwise" unset:"all but hidden and half-written files" eg:"['*.csv']"`
	Exclude        []string          `key:"exclude" say:"globs of file names" unset:"none" eg:"['*.part']"`
	Case           string            `key:"case" enum:"any|exact" default:"any" say:"of names in include and exclude: with any, *.pdf matches SCAN.PDF"`
	OpenFiles      string            `key:"open_files" enum:"wait|take" default:"wait" say:"files that a program has open for writing, where the system tells: wait until they are closed"`
	Recursive      bool              `key:"recursive" say:"also what is in its folders"`
	Mode           string            `key:"mode" enum:"per_file|batch|converge" default:"per_file" say:"per_file: a run for each file, as .File; batch: one for all that came until the folder is quiet, as .Files, .More and .Manifest; converge: one for the folder, again until it stays as it is, as .Folder, .Changes and .Round"`
	Collect        *collect          `key:"collect" say:"hands over all new files to one run, at a time of day or at an interval; implies mode: batch"`
	Responsiveness string            `key:"responsiveness" enum:"fast|balanced|patient" default:"balanced" say:"how long a file must stay unchanged, and a folder quiet: 200ms, 1s, 3s"`
	MaxWait        Duration          `key:"max_wait" positive:"yes" say:"how long a folder that is never quiet is waited for; of batch and converge" unset:"30s"`
	MaxFiles       int               `key:"max_files" positive:"yes" say:"maximum number of files of one batch; more files make another batch" unset:"500, with collect 10000, or as many as a playbook has calls for" eg:"500"`
	Existing       string            `key:"existing" enum:"process|ignore" say:"files that were there before the job" unset:"process with per_file, else ignore"`
	Parameters     map[string]string `key:"parameters" say:"texts that templates know as .Input, where --input gives no others" eg:"{kind: invoice}"`
	FollowSymlinks bool              `key:"follow_symlinks" say:"also links to what is in the folder"`
	OnSuccess      After             `key:"on_success" default:"leave" say:"leave, delete, or {move: FOLDER}, which may end in a template: ./sorted/{{ .File.Name }}; not with mode: converge"`
	OnFailure      After             `key:"on_failure" default:"leave" say:"like on_success, after a failed run"`

	At Position
}

// collect describes when a watch hands over the collected files.
type collect struct {
	Until string   `key:"until" say:"time of day in the job's time zone; if it was missed, the handover follows at the next start" eg:"'08:00'"`
	Every Duration `key:"every" positive:"yes" say:"time between two handovers" eg:"24h"`
}

// When returns the rule in words.
func (c *collect) When() string {
	if c.Every > 0 {
		return "every " + c.Every.String()
	}
	return "until " + c.Until
}

// The modes of a watch.
const (
	PerFile  = "per_file"
	Batch    = "batch"
	Converge = "converge"
)

// Fill gives the defaults that depend on the mode and the work of the job.
func (w *Watch) Fill(j *Job, modeGiven bool) {
	if w.Collect != nil && w.Mode == PerFile && !modeGiven {
		w.Mode = Batch
	}
	if w.Existing == "" {
		w.Existing = "ignore"
		if w.Mode == PerFile {
			w.Existing = "process"
		}
	}

	if w.MaxWait == 0 && w.Mode != PerFile {
		w.MaxWait = Duration(30 * time.Second)
	}

	if w.MaxFiles == 0 && w.Mode == Batch {
		w.MaxFiles = 500
		if w.Collect != nil {
			w.MaxFiles = MaxBatch
		}
		most, _ := j.Bounds.PlaybookCalls()
		if each, once := CallsOfBatch(j.Playbook); each > 0 && most > 0 {
			// A batch that needs more calls than the run may make would fail every time.
			w.MaxFiles = max(1, min(w.MaxFiles, (most-once)/each))
		}
	}
}

// CallsOfBatch estimates how many calls a playbook makes for each file, and for the whole batch.
func CallsOfBatch(calls []PlaybookCall) (each, once int) {
	for _, c := range calls {
		if overFiles(c.Each) {
			each++
		} else {
			once++
		}
	}
	return each, once
}

// overFiles reports whether a list is made of the files of a batch.
func overFiles(list any) bool {
	text, ok := list.(string)
	if !ok {
		return false
	}

	// What does not parse is reported by the check of the playbook.
	tree, err := parser.Parse(strings.TrimPrefix(text, "= "))
	if err != nil {
		return false
	}

	var v filesVisitor
	ast.Walk(&tree.Node, &v)
	return v.found
}

// filesVisitor looks for the name Files in an expression.
type filesVisitor struct{ found bool }

// Visit implements ast.Visitor.
func (v *filesVisitor) Visit(n *ast.Node) {
	if id, ok := (*n).(*ast.IdentifierNode); ok && id.Value == "Files" {
		v.found = true
	}
}

// After is what happens to a file after its run: leave, delete, or move: FOLDER.
type After struct {
	Action   string
	Dir      string // of move, without the template
	Template string // of move: the path below Dir
}

// To returns the full destination of move.
func (a After) To() string {
	if a.Template == "" {
		return a.Dir
	}
	return a.Dir + "/" + a.Template
}

// MovedTo are the folders that the watch's files are moved to.
func (w *Watch) MovedTo() (out []string) {
	for _, after := range []After{w.OnSuccess, w.OnFailure} {
		if after.Dir != "" {
			out = append(out, after.Dir)
		}
	}
	return out
}

// Webhook is where other programs send requests that start runs of a job.
type Webhook struct {
	Path    string `key:"path" need:"yes" say:"begins with /hooks/" eg:"/hooks/bank"`
	Secret  string `key:"secret" need:"yes" secret:"yes" say:"with which the requests are signed: secret:NAME" eg:"secret:bank"`
	Scheme  string `key:"scheme" enum:"standard|github|gitlab|stripe|slack" default:"standard" say:"how they are signed; standard is Standard Webhooks"`
	MaxBody Size   `key:"max_body" default:"1MiB" positive:"yes" say:"of a request"`
}

type retry struct {
	Attempts   int              `key:"attempts" default:"1" positive:"yes" say:"in all; 1 means no retry"`
	Backoff    Duration         `key:"backoff" default:"30s" positive:"yes" say:"pause before the second attempt; it doubles with each further one"`
	MaxBackoff Duration         `key:"max_backoff" default:"15m" positive:"yes" say:"longest pause"`
	On         []domain.Outcome `key:"on" enum:"error|timeout" default:"[error, timeout]" say:"outcomes after which it is tried again"`
}

type Condition struct {
	SQL     string   `key:"sql" say:"gives one true value on the agent's database; knows :last_success, :last_run and :now" eg:"select count(*) > 0 from expenses where _created_at > :last_success"`
	Command []string `key:"command" say:"a program and its arguments, without a shell, in the agent's workdir; ./NAME is relative to this file; exit 0 is true" eg:"[./has-news.sh]"`
	Write   bool     `key:"write" say:"the command may change what its agent may; otherwise it only reads"`
	Read    []Path   `key:"read" say:"what the command may read beside its agent's folders and the paths among its arguments" eg:"[./feeds]"`
	Network string   `key:"network" enum:"none|host" default:"none" say:"of the command"`
	Sandbox string   `key:"sandbox" enum:"off" say:"off runs the command without any confinement; needs reason" unset:"it is confined, as the agent's commands are"`
	Reason  string   `key:"reason" say:"why sandbox is off, in your words" eg:"it only asks the clock"`
	HTTP    string   `key:"http" say:"a URL; true when a GET gives 2xx" eg:"https://example.com/health"`
	File    Path     `key:"file" say:"a path, or a glob of files; true when something is there" eg:"'./inbox/*.csv'"`
	That    string   `key:"that" say:"an expression that is true; it knows what templates do, as Payload of a webhook" eg:"Payload.type == 'payment'"`
	Not     bool     `key:"not" say:"holds when the condition is false"`
	Timeout Duration `key:"timeout" default:"10s" positive:"yes" say:"of this check"`

	At Position
}

type Expect struct {
	File Path   `key:"file" say:"must exist and be changed by the run; writing the same content is an error" eg:"./out/report.md"`
	SQL  string `key:"sql" say:"gives one true value on the agent's database" eg:"select count(*) > 0 from reports where day = date('now')"`
	// Command is not resolved like that of a condition: what it names is the project's own.
	Command []string `key:"command" say:"a program and its arguments, without a shell, in the workdir of the run, confined and without a network: exit 0 is true; of any other the last lines that it printed stand in the error" eg:"[go, test, ./...]"`
	Timeout Duration `key:"timeout" default:"10m" positive:"yes" say:"of the command"`

	At Position
}

type Notify struct {
	On       []string `key:"on" enum:"success|nothing|partial|error|timeout|budget_exceeded|cancelled|interrupted|skipped|failure|waiting" unset:"success, failure, waiting; failure, waiting for a schedule with gaps of less than an hour (successes are in the daily digest)" say:"outcomes that send a notice; failure is every outcome that opens an incident (error, timeout, budget_exceeded, interrupted), waiting a run that needs your answer"`
	Channels []string `key:"channels" say:"names of notifications" unset:"the channels of the agent, else the first of notifications, else desktop if there is a desktop session" eg:"[ops]"`
	Title    string   `key:"title" say:"a template" eg:"'{{ .Job }}'"`
	Body     string   `key:"body" say:"a template" eg:"'{{ .Summary }}'"`

	Digested bool // its successes are told in the digest of its channels, for it runs so often
}
