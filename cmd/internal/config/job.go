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

// MaxBatch is the maximum number of items in an each of a playbook.
const MaxBatch = 10_000

// Followed returns the jobs that j follows, with the outcomes that start j.
func (j *Job) Followed() map[string][]domain.Outcome {
	out := map[string][]domain.Outcome{}
	for _, f := range j.Follows {
		out[f.Job] = f.On
	}
	return out
}

// DefaultKeep is the retention of the history of ad-hoc prompts and removed jobs.
const DefaultKeep = 90 * 24 * time.Hour

// Job is a piece of work with its triggers.
type Job struct {
	Name    Name   `key:"name" required:"yes" jobonly:"yes" doc:"by which commands and the history name it" example:"morning-report"`
	Agent   string `key:"agent" required:"yes" doc:"name of the agent that does it" example:"bookkeeper"`
	Enabled *bool  `key:"enabled" default:"true" doc:"false: nothing starts it but you"`

	Prompt     string         `key:"prompt" jobonly:"yes" doc:"a template; what the model is asked to do" example:"Write yesterday's spending by category to report.md."`
	PromptFile Path           `key:"prompt_file" jobonly:"yes" doc:"read when the configuration is, into prompt" example:"./report.md"`
	Playbook   []PlaybookCall `key:"playbook" jobonly:"yes" doc:"a fixed list of calls, without a model" example:"[{call: notify, with: {title: done}}]"`
	Skill      string         `key:"skill" jobonly:"yes" doc:"name of a skill with a module, which is run without a model of its own" example:"csv-report"`
	Input      map[string]any `key:"input" jobonly:"yes" doc:"what the module is given: templates, and expressions after '= '" example:"{month: '{{ .Scheduled }}'}"`

	Workspace string `key:"workspace" jobonly:"yes" doc:"name of the workspace in which the module works, a template; it is made when it is first needed" example:"books"`

	Schedule string     `key:"schedule" jobonly:"yes" doc:"five or six cron fields, @daily and the like, or words: daily at 08:00, weekly on mon at 08:00, monthly on 31 at 08:00 (the last day of shorter months)" example:"'0 8 * * 1-5'"`
	Every    string     `key:"every" jobonly:"yes" doc:"a length of time" example:"30m"`
	RunAt    string     `key:"at" jobonly:"yes" doc:"RFC 3339; fires once" example:"2026-12-01T08:00:00+01:00"`
	Window   *window    `key:"window" jobonly:"yes" doc:"hours in which it runs once, at a moment that its name and the date decide"`
	Watch    *Watch     `key:"watch" jobonly:"yes" doc:"a folder whose files start runs"`
	Webhook  *Webhook   `key:"webhook" jobonly:"yes" doc:"signed requests of other programs that start runs"`
	Follows  []Followed `key:"after" jobonly:"yes" doc:"jobs whose runs it follows: it runs once for each of them that has ended, and knows it as .After"`

	Host          string         `key:"host" doc:"with engine.postgres: the node that does the job's runs, and sees the folder of its watch" defaultdoc:"the agent's; any" example:"nas"`
	Timezone      string         `key:"timezone" doc:"time zone of the schedule and of collect" defaultdoc:"the daemon's" example:"Europe/Berlin"`
	Exclude       []string       `key:"exclude" doc:"dates, ranges 2026-12-24..2026-12-31, and names of calendars, in whose times the schedule is silent" example:"[2026-12-24..2026-12-31]"`
	Only          []string       `key:"only" doc:"the same: outside of them the schedule is silent" example:"[2026-12-24..2026-12-31]"`
	OnMiss        domain.OnMiss  `key:"on_miss" enum:"skip|run_once|run_catchup" default:"run_once" doc:"what is done for instants that passed unserved"`
	CatchupWindow Duration       `key:"catchup_window" default:"24h" positive:"yes" doc:"how old a missed instant may be"`
	MaxCatchup    int            `key:"max_catchup" default:"100" positive:"yes" doc:"runs of one run_catchup"`
	StartDeadline Duration       `key:"start_deadline" positive:"yes" doc:"longest wait in the queue" defaultdoc:"none"`
	Overlap       domain.Overlap `key:"overlap" enum:"skip|queue_one|queue_all|cancel_previous|allow" default:"skip" doc:"when it is due while it runs"`
	Jitter        Duration       `key:"jitter" doc:"spreads the start over this time"`
	RunOnStart    bool           `key:"run_on_start" doc:"runs when the daemon starts"`
	PauseAfter    int            `key:"pause_after_failures" positive:"yes" doc:"failed runs in a row after which the job is paused" defaultdoc:"never" example:"5"`

	ExpectSuccessWithin Duration `key:"expect_success_within" positive:"yes" doc:"maximum time between two runs that end as success or nothing; if it passes, an incident opens and you get a notice, for any reason" defaultdoc:"not watched" example:"26h"`

	Retry        retry       `key:"retry" doc:"further attempts after a failure"`
	Resume       *bool       `key:"resume" default:"true" doc:"go on after a crash"`
	When         []Condition `key:"when" doc:"conditions that cost nothing and must all hold, or the run is skipped; not checked for the files of a watch"`
	Expect       []Expect    `key:"expect" doc:"checked by the host after a run; unmet means error"`
	ContextViews []string    `key:"context_views" doc:"saved views of the agent's database whose rows are put into the prompt" example:"[open_invoices]"`
	Session      string      `key:"session" enum:"fresh|keep" default:"fresh" doc:"keep: a run is told what was said in the runs of the job before it, never what their tools brought"`
	Record       bool        `key:"record" doc:"keeps what its model is asked and answers as long as the run, for rouse replay"`
	UndoOnFail   bool        `key:"undo_on_failure" doc:"takes back what a failed run wrote: rows and files"`
	Keep         Duration    `key:"keep" default:"90d" positive:"yes" doc:"how long history is kept"`
	Bounds       Bounds      `key:"bounds" doc:"of one run; what is left out is the agent's"`
	Budget       budget      `key:"budget" doc:"of all its runs in a day, or in a calendar month, of the daemon's timezone, beside the agent's"`
	Model        string      `key:"model" defaultdoc:"the agent's" doc:"name of the model that does its prompt" example:"local"`
	Executor     *Executor   `key:"executor" jobonly:"yes" doc:"the agent program that does its prompt" defaultdoc:"the agent's"`
	Checkout     *Checkout   `key:"checkout" jobonly:"yes" doc:"each of its runs works in a private clone of a repository of yours, on a branch of its own" defaultdoc:"the agent's"`
	MinTier      string      `key:"min_tier" enum:"A|B|C|D" doc:"the weakest confinement on which its programs may run" defaultdoc:"the agent's"`
	Notify       Notify      `key:"notify" doc:"who is told how its runs end"`

	At       Position
	TextFile string // file that the prompt was read from

	// schedules caches the parsed schedules in the order of Timings. See Config.Schedules.
	schedules []*schedule.Schedule
}

// SessionKeep is the session setting of a job that continues the conversation of its previous run.
const SessionKeep = "keep"

// Prompts reports whether a model does the work, not a playbook or a module.
func (j *Job) Prompts() bool { return j.Playbook == nil && j.Skill == "" }

// PlaybookCall is one call of a playbook.
type PlaybookCall struct {
	Call    string         `key:"call" required:"yes" doc:"a tool" example:"notify"`
	With    map[string]any `key:"with" doc:"its arguments: templates, and expressions after '= '" example:"{title: '{{ .Job }} is done'}"`
	Save    string         `key:"save" doc:"name for its result" example:"imported"`
	If      string         `key:"if" doc:"an expression; false skips the call" example:"Attempt == 1"`
	Each    any            `key:"each" doc:"a list, or '= ' and an expression that gives one, such as '= Files' in a batch or '= Changes.Added' with converge; the call is made for each of them, which templates and expressions know as item, and its place from 0 on as index" example:"'= Files'"`
	OnError string         `key:"on_error" enum:"fail|continue" default:"fail" doc:"what a failed call does to the run"`

	MustSucceed *bool      `key:"must_succeed" doc:"an exit code other than 0, of web_fetch a status of 400 and above, of git_commit that there is nothing to commit, is a failure of the call" defaultdoc:"true; of git_commit false"`
	Expect      callExpect `key:"expect" doc:"what has to be true of the call once it was made; otherwise it failed"`

	At Position
}

// callExpect lists conditions for the success of a call. All configured conditions must hold.
type callExpect struct {
	Exit   []int  `key:"exit" doc:"the exit codes of shell_run that are a success" example:"[0, 24]"`
	Status []int  `key:"status" doc:"the status codes of web_fetch that are a success" example:"[200]"`
	That   string `key:"that" doc:"an expression that is true; it knows the result of the call as result" example:"result.text contains 'ok'"`
}

// Step converts the call to a call of the playbook provider.
func (p PlaybookCall) Step() playbook.Call {
	return playbook.Call{
		Name: p.Call, With: p.With, Save: p.Save, If: p.If, Each: p.Each, OnError: p.OnError, Line: p.At.Line,
		MustSucceed: p.MustSucceed, Expect: playbook.Expect{Exit: p.Expect.Exit, Status: p.Expect.Status, That: p.Expect.That},
	}
}

// window is a period of the day in which a job runs once, at a time that rouse chooses.
type window struct {
	From string `key:"from" required:"yes" doc:"a time of day, like 02:00" example:"'02:00'"`
	To   string `key:"to" required:"yes" doc:"a time of day, of the next day when it is before from" example:"'05:00'"`
	Days string `key:"days" doc:"on which it opens, like 1-5 or mon,thu" defaultdoc:"all" example:"mon-fri"`

	At Position
}

// Followed is an entry of after: a job, and the outcomes that start the following job.
type Followed struct {
	Job string           `key:"job" required:"yes" doc:"name of the job whose runs it follows" example:"fetch"`
	On  []domain.Outcome `key:"on" enum:"success|nothing|partial|error|timeout|budget_exceeded|cancelled|interrupted|skipped" default:"[success]" doc:"how its runs have to have ended"`

	At Position
}

// Watch configures a watched folder. Its files start runs.
type Watch struct {
	Path           Path              `key:"path" required:"yes" doc:"the folder" example:"./inbox"`
	Include        []string          `key:"include" doc:"globs of file names; one like *.tmp takes what is left out otherwise" defaultdoc:"all but hidden and half-written files" example:"['*.csv']"`
	Exclude        []string          `key:"exclude" doc:"globs of file names" defaultdoc:"none" example:"['*.part']"`
	Case           string            `key:"case" enum:"any|exact" default:"any" doc:"of names in include and exclude: with any, *.pdf matches SCAN.PDF"`
	OpenFiles      string            `key:"open_files" enum:"wait|take" default:"wait" doc:"files that a program has open for writing, where the system tells: wait until they are closed"`
	Recursive      bool              `key:"recursive" doc:"also what is in its folders"`
	Mode           string            `key:"mode" enum:"per_file|batch|converge" default:"per_file" doc:"per_file: a run for each file, as .File; batch: one for all that came until the folder is quiet, as .Files, .More and .Manifest; converge: one for the folder, again until it stays as it is, as .Folder, .Changes and .Round"`
	Collect        *collect          `key:"collect" doc:"hands over all new files to one run, at a time of day or at an interval; implies mode: batch"`
	Responsiveness string            `key:"responsiveness" enum:"fast|balanced|patient" default:"balanced" doc:"how long a file must stay unchanged, and a folder quiet: 200ms, 1s, 3s"`
	MaxWait        Duration          `key:"max_wait" positive:"yes" doc:"how long a folder that is never quiet is waited for; of batch and converge" defaultdoc:"30s"`
	MaxFiles       int               `key:"max_files" positive:"yes" doc:"maximum number of files of one batch; more files make another batch" defaultdoc:"500, with collect 10000, or as many as a playbook has calls for" example:"500"`
	Existing       string            `key:"existing" enum:"process|ignore" doc:"files that were there before the job" defaultdoc:"process with per_file, else ignore"`
	Parameters     map[string]string `key:"parameters" doc:"texts that templates know as .Input, where --input gives no others" example:"{kind: invoice}"`
	FollowSymlinks bool              `key:"follow_symlinks" doc:"also links to what is in the folder"`
	OnSuccess      After             `key:"on_success" default:"leave" doc:"leave, delete, or {move: FOLDER}, which may end in a template: ./sorted/{{ .File.Name }}; not with mode: converge"`
	OnFailure      After             `key:"on_failure" default:"leave" doc:"like on_success, after a failed run"`

	At Position
}

// collect configures when a watch hands over the collected files.
type collect struct {
	Until string   `key:"until" doc:"time of day in the job's time zone; if it was missed, the handover follows at the next start" example:"'08:00'"`
	Every Duration `key:"every" positive:"yes" doc:"time between two handovers" example:"24h"`
}

// When returns the time of the handover for messages.
func (c *collect) When() string {
	if c.Every > 0 {
		return "every " + c.Every.String()
	}
	return "until " + c.Until
}

// Modes of a watch.
const (
	PerFile  = "per_file"
	Batch    = "batch"
	Converge = "converge"
)

// Fill sets the defaults that depend on the mode and on the job's work.
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
			// A batch that needs more calls than a run may make would always fail.
			w.MaxFiles = max(1, min(w.MaxFiles, (most-once)/each))
		}
	}
}

// CallsOfBatch estimates the number of calls of a playbook per file and per batch.
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

// overFiles reports whether an each iterates over the files of a batch.
func overFiles(list any) bool {
	text, ok := list.(string)
	if !ok {
		return false
	}

	// The check of the playbook reports syntax errors.
	tree, err := parser.Parse(strings.TrimPrefix(text, "= "))
	if err != nil {
		return false
	}

	var v filesVisitor
	ast.Walk(&tree.Node, &v)
	return v.found
}

// filesVisitor searches an expression for the name Files.
type filesVisitor struct{ found bool }

// Visit implements ast.Visitor.
func (v *filesVisitor) Visit(n *ast.Node) {
	if id, ok := (*n).(*ast.IdentifierNode); ok && id.Value == "Files" {
		v.found = true
	}
}

// After is the action on a file after its run: leave, delete, or move: FOLDER.
type After struct {
	Action   string
	Dir      string // destination of move, without the template
	Template string // template of move, relative to Dir
}

// To returns the full destination of move.
func (a After) To() string {
	if a.Template == "" {
		return a.Dir
	}
	return a.Dir + "/" + a.Template
}

// MovedTo returns the folders to which the watch moves files.
func (w *Watch) MovedTo() (out []string) {
	for _, after := range []After{w.OnSuccess, w.OnFailure} {
		if after.Dir != "" {
			out = append(out, after.Dir)
		}
	}
	return out
}

// Webhook configures a path at which signed requests start runs of a job.
type Webhook struct {
	Path    string `key:"path" required:"yes" doc:"begins with /hooks/" example:"/hooks/bank"`
	Secret  string `key:"secret" required:"yes" secret:"yes" doc:"with which the requests are signed: secret:NAME" example:"secret:bank"`
	Scheme  string `key:"scheme" enum:"standard|github|gitlab|stripe|slack" default:"standard" doc:"how they are signed; standard is Standard Webhooks"`
	MaxBody Size   `key:"max_body" default:"1MiB" positive:"yes" doc:"of a request"`
}

// retry configures how often and when a failed run is attempted again.
type retry struct {
	Attempts   int              `key:"attempts" default:"1" positive:"yes" doc:"in all; 1 means no retry"`
	Backoff    Duration         `key:"backoff" default:"30s" positive:"yes" doc:"pause before the second attempt; it doubles with each further one"`
	MaxBackoff Duration         `key:"max_backoff" default:"15m" positive:"yes" doc:"longest pause"`
	On         []domain.Outcome `key:"on" enum:"error|timeout" default:"[error, timeout]" doc:"outcomes after which it is tried again"`
}

// Condition is a check before a run. If it does not hold, the run is skipped.
type Condition struct {
	SQL     string   `key:"sql" doc:"gives one true value on the agent's database; knows :last_success, :last_run and :now" example:"select count(*) > 0 from expenses where _created_at > :last_success"`
	Command []string `key:"command" doc:"a program and its arguments, without a shell, in the agent's workdir; ./NAME is relative to this file; exit 0 is true" example:"[./has-news.sh]"`
	Write   bool     `key:"write" doc:"the command may change what its agent may; otherwise it only reads"`
	Read    []Path   `key:"read" doc:"what the command may read beside its agent's folders and the paths among its arguments" example:"[./feeds]"`
	Network string   `key:"network" enum:"none|host" default:"none" doc:"of the command"`
	Sandbox string   `key:"sandbox" enum:"off" doc:"off runs the command without any confinement; needs reason" defaultdoc:"it is confined, as the agent's commands are"`
	Reason  string   `key:"reason" doc:"why sandbox is off, in your words" example:"it only asks the clock"`
	HTTP    string   `key:"http" doc:"a URL; true when a GET gives 2xx" example:"https://example.com/health"`
	File    Path     `key:"file" doc:"a path, or a glob of files; true when something is there" example:"'./inbox/*.csv'"`
	That    string   `key:"that" doc:"an expression that is true; it knows what templates do, as Payload of a webhook" example:"Payload.type == 'payment'"`
	Not     bool     `key:"not" doc:"holds when the condition is false"`
	Timeout Duration `key:"timeout" default:"10s" positive:"yes" doc:"of this check"`

	At Position
}

// Expect is a check after a run. If it does not hold, the run fails.
type Expect struct {
	File Path   `key:"file" doc:"must exist and be changed by the run; writing the same content is an error" example:"./out/report.md"`
	SQL  string `key:"sql" doc:"gives one true value on the agent's database" example:"select count(*) > 0 from reports where day = date('now')"`
	// Unlike the command of a condition, this one is not resolved relative to the configuration.
	// It belongs to the project in the workdir.
	Command []string `key:"command" doc:"a program and its arguments, without a shell, in the workdir of the run, confined and without a network: exit 0 is true; of any other the last lines that it printed stand in the error" example:"[go, test, ./...]"`
	Timeout Duration `key:"timeout" default:"10m" positive:"yes" doc:"of the command"`

	At Position
}

// Notify configures which outcomes send notices, and to which channels.
type Notify struct {
	On       []string `key:"on" enum:"success|nothing|partial|error|timeout|budget_exceeded|cancelled|interrupted|skipped|failure|waiting" defaultdoc:"success, failure, waiting; failure, waiting for a schedule with gaps of less than an hour (successes are in the daily digest)" doc:"outcomes that send a notice; failure is every outcome that opens an incident (error, timeout, budget_exceeded, interrupted), waiting a run that needs your answer"`
	Channels []string `key:"channels" doc:"names of notifications" defaultdoc:"the channels of the agent, else the first of notifications, else desktop if there is a desktop session" example:"[ops]"`
	Title    string   `key:"title" doc:"a template" example:"'{{ .Job }}'"`
	Body     string   `key:"body" doc:"a template" example:"'{{ .Summary }}'"`

	// Digested reports whether the channels' digest covers successes, because the job runs often.
	Digested bool
}
