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

// TriggerDetail is the JSON of Run.Detail; a trigger fills what it knows.
type TriggerDetail struct {
	Source         string            `json:"source,omitempty"`  // of a schedule: cron, every, at, start
	Nominal        *time.Time        `json:"nominal,omitempty"` // of a schedule
	File           *File             `json:"file,omitempty"`    // of a watch, per file
	Files          []File            `json:"files,omitempty"`   // of a watch in batches
	More           int               `json:"more,omitempty"`    // files that were ready and come in a later batch
	Folder         string            `json:"folder,omitempty"`  // of a watch that converges
	Changes        *Changes          `json:"changes,omitempty"` // of a watch that converges
	Round          int               `json:"round,omitempty"`   // how many runs since the folder last came to rest, this one included
	Input          map[string]string `json:"input,omitempty"`   // of a manual run
	Prompt         string            `json:"prompt,omitempty"`  // of an ad-hoc run
	Session        string            `json:"session,omitempty"` // of an ad-hoc run: the key of the session that it belongs to
	NewSession     bool              `json:"fresh,omitempty"`   // its session begins with it
	Chat           bool              `json:"chat,omitempty"`    // of a request of a conversation, whose asker waits
	Tool           string            `json:"tool,omitempty"`    // of a manual call
	Args           json.RawMessage   `json:"args,omitempty"`
	FailOnExitCode bool              `json:"check,omitempty"` // a program that fails is a failed call
	Skill          string            `json:"skill,omitempty"` // of a skill that is run without a job
	SkillInput     json.RawMessage   `json:"given,omitempty"` // its input, a JSON object
	DryRun         bool              `json:"dry_run,omitempty"`
	// Workspace is the name of the workspace that such a skill works in.
	Workspace      string          `json:"workspace,omitempty"`
	Uninstall      bool            `json:"removes,omitempty"` // the skill is told that it will be removed, and is not run
	Wake           *WakeDetail     `json:"wake,omitempty"`    // of a wake
	StartedBy      *StarterDetail  `json:"by,omitempty"`      // of a run that another one started
	After          *EndedRun       `json:"after,omitempty"`   // of a run that follows one of another job
	Webhook        *Delivery       `json:"webhook,omitempty"`
	IdempotencyKey *IdempotencyKey `json:"once,omitempty"` // where whoever asked named the request, to send it again
	// Untrusted says that whoever asked may repeat what strangers have written, as the model of another program may.
	Untrusted bool `json:"untrusted,omitempty"`
	// Retried says that a person had the run tried again: its model is asked also while that is paused.
	Retried bool `json:"retried,omitempty"`
	// Definition is a hash of what the job was when it took a file: what failed is not tried again under the same one.
	Definition string `json:"definition,omitempty"`
}

// Delivery is a request that a webhook got, without its body.
type Delivery struct {
	Path  string `json:"path"`            // of the webhook
	ID    string `json:"id"`              // as its sender numbers them
	Event string `json:"event,omitempty"` // what its sender calls it, "" where they do not say
	Bytes int64  `json:"bytes"`           // of the body
}

// IdempotencyKey is what whoever asked for a run calls their request: they may send it again, and it stays one run.
type IdempotencyKey struct {
	Key     string `json:"key"`
	Request string `json:"request"` // SHA-256 of what was asked, hexadecimal: another request is refused under the same key
}

// StarterDetail is the run that started another one by a call.
type StarterDetail struct {
	Run int64  `json:"run"`
	Job string `json:"job,omitempty"` // at the beginning of its chain, "" for none
}

// asker is the run that asked for a run, or whose end did, 0 where none did.
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

// Chain is the job at the beginning of the chain that a run goes back to, "" where there is none: whoever asked for it spends
// what that job may.
func (d TriggerDetail) Chain() string {
	switch {
	case d.Wake != nil:
		return d.Wake.Job
	case d.StartedBy != nil:
		return d.StartedBy.Job
	}
	return ""
}

// Changes are what happened in a folder since its last run: slash-separated paths relative
// to it, sorted. Of very many the first are listed; More says how many are not.
type Changes struct {
	Added    []string `json:"added"`
	Removed  []string `json:"removed"`
	Modified []string `json:"modified"`
	More     int      `json:"more,omitempty"`
}

// Text names the changes for a person, the first of each kind. Names are quoted: others may have chosen them.
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

// maxNamed is how many changes of a kind are named to a person.
const maxNamed = 5

// File is a file that triggered a run.
type File struct {
	Path    string    `json:"path"`
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	Hash    string    `json:"hash"` // SHA-256, hexadecimal
	ModTime time.Time `json:"mod_time"`
}

// Request asks for a run.
type Request struct {
	// Key makes the request idempotent: a key that was seen returns its run. "" makes a
	// new run each time.
	Key                    string
	Job, Agent             string
	Trigger                domain.Trigger
	Detail                 TriggerDetail
	ScheduledAt, NotBefore time.Time
	// Claim is committed with the run; it takes the place of Key.
	Claim *claim.Claim
	// Claims are those of Detail.Files, in the same order, for one run of many files. Files that
	// other runs have claimed are left out of the run.
	Claims []claim.Claim
	// Breaker pauses the job when it claims one path too often.
	Breaker pause.Breaker
	// Named says that a person named the file: it is tried also where the same content has failed.
	Named bool
	// Again requests another run of content that already had its run, with any outcome.
	Again bool
	// Watch is remembered with a new run, which becomes its Run.
	Watch *claim.WatchState
	// Body is what came with Detail.Webhook, UTF-8. It is kept with a new run (Runs.DeliveryBody).
	Body string
}

// Accepted answers a Request.
type Accepted struct {
	Run int64
	New bool
	// Blocked says that the content was claimed before, or all of the contents: Run is that run,
	// unfinished (Outcome ""), done, or failed under the definition that the job still has.
	Blocked bool
	// Broken says that the breaker paused the job.
	BreakerTripped bool
	Outcome        domain.Outcome
}

// Due is an instant that has come.
type Due struct {
	Job, Agent, Source string
	Nominal, Actual    time.Time
	Decision           domain.Decision
	Reason             string
	Overlap            domain.Overlap // decides a DecisionRun against the job's other runs
	// Through and Instants let one row stand for a long stretch of instants, which are all
	// missed: from Nominal to Through, both included. Instants 0: too many to count.
	Through  time.Time
	Instants int
}

// JobSpec is a configured job as the ledger keeps it.
type JobSpec struct{ Name, Agent, ScheduleHash string }

// JobState is how far a job's schedule has been processed.
type JobState struct {
	JobSpec
	Anchor, Watermark time.Time
}

// Result is how an attempt ended.
type Result struct {
	Outcome        domain.Outcome
	Exit           domain.Exit
	Summary, Error string
	Verified       bool
	Usage          Usage
	Steps, Calls   int
	// RetryAt, when set, is when the next attempt starts: the run does not end with this one.
	RetryAt time.Time
	Notices []Notice
	// Kind is the kind of error that a failed run ended with, in a few words that stay the same when the details do not;
	// "": as much as outcome and exit tell.
	Kind string
	// Tell has the notices of the end. If nil, the end causes no notices and changes no incidents.
	Tell  *incident.EndNotices
	Pause pause.Rule
	// Wait, when set, lets the run wait for an answer; Outcome is "" then.
	Wait *inbox.Question
	// Postpone, when set, says that the run has not begun, because its model cannot be asked, and may
	// wait for it. With RetryAt it does.
	Postpone *Postponement
	// Record is what is still to be recorded of the attempt's steps and calls: it comes first, in the same transaction.
	Record []Entry
}

// Postponement is what a run waits for that has not begun.
type Postponement struct {
	Until   time.Time // before which nothing is to be tried; zero: nobody knows
	Notices []Notice  // for its owner, when it waits
}

// WakeDetail is the detail of a wake that its run gets.
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
