package ledger

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
)

// TriggerDetail is the JSON of Run.Detail. Each trigger sets only its own fields.
type TriggerDetail struct {
	Source  string     `json:"source,omitempty"`  // kind of schedule (cron, every, at or start), or slot for a wake
	Nominal *time.Time `json:"nominal,omitempty"` // scheduled time
	File    *File      `json:"file,omitempty"`    // file, for a watch with one run per file
	Files   []File     `json:"files,omitempty"`   // files, for a watch in batches
	More    int        `json:"more,omitempty"`    // number of ready files left for a later batch
	Folder  string     `json:"folder,omitempty"`  // folder, for a watch that converges
	Changes *Changes   `json:"changes,omitempty"` // changes since the last run, for a watch that converges
	// number of runs since the folder was last unchanged, including this one
	Round      int               `json:"round,omitempty"`
	Input      map[string]string `json:"input,omitempty"`   // input of a manual run
	Prompt     string            `json:"prompt,omitempty"`  // prompt of an ad-hoc run
	Session    string            `json:"session,omitempty"` // session key of an ad-hoc run
	NewSession bool              `json:"fresh,omitempty"`   // whether the run begins its session
	// whether the run is a chat request with a waiting client
	Chat           bool            `json:"chat,omitempty"`
	Tool           string          `json:"tool,omitempty"` // tool of a manual call
	Args           json.RawMessage `json:"args,omitempty"`
	FailOnExitCode bool            `json:"check,omitempty"` // whether a failing program fails the call
	Skill          string          `json:"skill,omitempty"` // skill that runs without a job
	SkillInput     json.RawMessage `json:"given,omitempty"` // input of the skill, a JSON object
	DryRun         bool            `json:"dry_run,omitempty"`
	// name of the workspace, for a skill that runs without a job
	Workspace string `json:"workspace,omitempty"`
	// whether the skill is only told that it will be removed, and does not run
	Uninstall bool           `json:"removes,omitempty"`
	Wake      *WakeDetail    `json:"wake,omitempty"`  // wake that started the run
	StartedBy *StarterDetail `json:"by,omitempty"`    // run that started this run with a call
	After     *EndedRun      `json:"after,omitempty"` // ended run of another job that this run follows
	Webhook   *Delivery      `json:"webhook,omitempty"`
	// key with which the client may repeat the request
	IdempotencyKey *IdempotencyKey `json:"once,omitempty"`
	// whether the requester may repeat untrusted content, as the model of another program may
	Untrusted bool `json:"untrusted,omitempty"`
	// whether a person retried the run; its model is then called even while the model is paused
	Retried bool `json:"retried,omitempty"`
	// hash of the job's definition when the job claimed a file; a failed file is not retried under
	// the same definition
	Definition string `json:"definition,omitempty"`
}

// Delivery is a request that a webhook received, without its body.
type Delivery struct {
	Path  string `json:"path"`            // path of the webhook
	ID    string `json:"id"`              // sender's id of the delivery
	Event string `json:"event,omitempty"` // sender's name of the event; may be empty
	Bytes int64  `json:"bytes"`           // size of the body
}

// IdempotencyKey is the client's name for a request. A request that is repeated with the same key
// gets the same run.
type IdempotencyKey struct {
	Key string `json:"key"`
	// SHA-256 of the request, hexadecimal; a different request with the same key is refused
	Request string `json:"request"`
}

// StarterDetail is the run that started another run with a call.
type StarterDetail struct {
	Run int64  `json:"run"`
	Job string `json:"job,omitempty"` // first job of the chain of runs; may be empty
}

// asker returns the run that caused this run, either by asking for it or by ending. It returns 0 if
// no run did.
func (d TriggerDetail) asker() int64 {
	switch {
	case d.After != nil:
		return d.After.Run
	case d.Wake != nil:
		return d.Wake.AskedBy
	case d.StartedBy != nil:
		return d.StartedBy.Run
	}
	return 0
}

// Chain returns the first job of the chain that led to the run, or "" without a chain. The run
// spends the budget of that job.
func (d TriggerDetail) Chain() string {
	switch {
	case d.Wake != nil:
		return d.Wake.Job
	case d.StartedBy != nil:
		return d.StartedBy.Job
	}
	return ""
}

// Changes are the changes in a folder since its last run, as sorted slash-separated paths relative
// to the folder. If there are too many, More counts the paths that are not listed.
type Changes struct {
	Added    []string `json:"added"`
	Removed  []string `json:"removed"`
	Modified []string `json:"modified"`
	More     int      `json:"more,omitempty"`
}

// Text describes the changes for a person, with at most maxNamed names of each kind. It quotes the
// names, because untrusted parties may have chosen them.
func (c Changes) Text() string {
	var parts []string
	for _, kind := range []struct {
		word  string
		names []string
	}{{"added", c.Added}, {"modified", c.Modified}, {"removed", c.Removed}} {
		if len(kind.names) == 0 {
			continue
		}

		quoted := make([]string, len(kind.names))
		for i, name := range kind.names {
			quoted[i] = strconv.Quote(name)
		}
		parts = append(parts, kind.word+" "+text.List(quoted, maxNamed))
	}

	if c.More > 0 {
		parts = append(parts, fmt.Sprintf("%d more", c.More))
	}
	return strings.Join(parts, "; ")
}

// maxNamed is the maximum number of names in each kind of Changes.Text.
const maxNamed = 5

// File is a file that triggered a run.
type File struct {
	Path    string    `json:"path"`
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	Hash    string    `json:"hash"` // SHA-256, hexadecimal
	ModTime time.Time `json:"mod_time"`
}

// Request is a request for a run.
type Request struct {
	// Key makes the request idempotent: a known key returns its existing run. If empty, each
	// request creates a new run.
	Key                    string
	Job, Agent             string
	Trigger                domain.Trigger
	Detail                 TriggerDetail
	ScheduledAt, NotBefore time.Time
	// Claim is committed with the run and replaces Key. Optional.
	Claim *claim.Claim
	// Claims are the claims of Detail.Files, in the same order, for one run with many files. Files
	// that other runs have claimed are left out of the run.
	Claims []claim.Claim
	// Breaker pauses the job if it claims the same path too often.
	Breaker pause.Breaker
	// Named means that a person named the file. It is then tried even if the same content has
	// failed before.
	Named bool
	// Again requests another run of content that already had a run, with any outcome.
	Again bool
	// Watch is saved if a run is created. Its Run is set to that run.
	Watch *claim.WatchState
	// Body is the body of Detail.Webhook, in UTF-8. It is saved if a run is created, and
	// Runs.DeliveryBody returns it.
	Body string
}

// Accepted is the result of a Request.
type Accepted struct {
	Run int64
	New bool
	// Blocked means that all contents of the request are already claimed. Run is then the claiming
	// run. It is unfinished (Outcome ""), done, or failed under the job's current definition.
	Blocked bool
	// BreakerTripped means that the breaker paused the job.
	BreakerTripped bool
	Outcome        domain.Outcome
}

// Due is a scheduled time of a job that has come.
type Due struct {
	Job, Agent, Source string
	Nominal, Actual    time.Time
	Decision           domain.Decision
	Reason             string
	Overlap            domain.Overlap // decides a DecisionRun against the job's other runs
	// Through and Instants describe a range of missed scheduled times that share one row. The range
	// is from Nominal to Through, both included. If Instants is 0, there are too many to count.
	Through  time.Time
	Instants int
}

// JobSpec is a configured job, as the ledger stores it.
type JobSpec struct{ Name, Agent, ScheduleHash string }

// JobState is a job with the progress of its schedule.
type JobState struct {
	JobSpec
	Anchor, Watermark time.Time
}

// Result is the result of an attempt.
type Result struct {
	Outcome        domain.Outcome
	Exit           domain.Exit
	Summary, Error string
	Verified       bool
	Usage          Usage
	Steps, Calls   int
	// RetryAt is the time of the next attempt. If it is set, the run does not end with this
	// attempt.
	RetryAt time.Time
	Notices []Notice
	// Kind is the kind of error of a failed run: a few words without details that vary. If empty,
	// outcome and exit describe the error.
	Kind string
	// Tell has the notices of the end. If nil, the end causes no notices and changes no incidents.
	Tell  *incident.EndNotices
	Pause pause.Rule
	// Wait is the question that the run waits for. Optional. If it is set, Outcome is empty.
	Wait *inbox.Question
	// Postpone means that the run could not begin because its model is unavailable. Optional. The
	// run is postponed only if RetryAt is also set.
	Postpone *Postponement
	// Record has the steps and calls of the attempt that are not recorded yet. They are written
	// first, in the same transaction.
	Record []Entry
}

// Postponement describes why a run that could not begin waits.
type Postponement struct {
	Until   time.Time // earliest time of the next try; zero if unknown
	Notices []Notice  // notices for the owner if the run waits
}

// WakeDetail is the part of a wake that its run can see.
type WakeDetail struct {
	ID           int64     `json:"slot"`
	Instructions string    `json:"instructions"`
	ContextViews []string  `json:"context_views,omitempty"`
	ScheduledBy  string    `json:"scheduled_by"`
	Planned      time.Time `json:"planned"`
	Asked        time.Time `json:"asked"`
	AskedBy      int64     `json:"asked_by,omitempty"` // run
	Job          string    `json:"job,omitempty"`
	Depth        int       `json:"depth"`
}
