// Package record has the rows that the subjects of the ledger share: runs, attempts, events, notices, and the entries of an attempt's
// record. It reads, locks and adds them within a transaction of the caller.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/store"
)

// Errors that callers tell apart.
var (
	ErrNotClaimable = errors.New("the run cannot be started now")
	ErrFenced       = errors.New("the attempt is not the running one any more")
	// ErrNoLane is an ErrNotClaimable that is over as soon as another run ends.
	ErrNoLane = fmt.Errorf("other runs have its lanes: %w", ErrNotClaimable)
)

// Who pauses something, plans a wake or changes a workspace.
const (
	ByAgent  = "agent"
	ByUser   = "user"
	BySystem = "system"
)

// Usage is what calls of a model used.
type Usage struct {
	TokensIn, TokensOut, TokensCached, CostMicroUSD int64
	// The part of the tokens and of the cost that no server has reported: it was counted by what was
	// sent and received.
	EstimatedTokens, EstimatedMicroUSD int64
}

// Run is one requested execution of a job, or of an agent alone when Job is "".
type Run struct {
	ID         int64
	Key        string // unique: the same key is the same run
	Job, Agent string
	Trigger    domain.Trigger
	Detail     json.RawMessage // what asked for it; see Detail
	State      domain.State
	WaitingFor domain.Wait
	NotBefore  time.Time
	Outcome    domain.Outcome
	Exit       domain.Exit
	Verified   bool
	// Attempt is the number of the latest attempt, 0 before the first.
	Attempt, Interruptions int
	Parks                  int // attempts that ended in a question
	Postponements          int // attempts whose model could not be asked

	ScheduledAt, QueuedAt, StartedAt, FinishedAt time.Time

	Summary, Error string
	Steps, Calls   int
	Usage          Usage
	CancelReason   string // not "": cancellation was requested
	Taint          string // the letters of its taint; they only grow
	Tier           string // the weakest confinement of the programs it has started, "" before the first
	Workspace      int64  // that it works in; 0: none
	Checkpoint     int64  // that it was begun from; 0: none
	Blocked        Blocked
}

// WaitsForPerson reports whether a run waits for a person.
func (r Run) WaitsForPerson() bool {
	return r.State == domain.StateWaiting && slices.Contains([]domain.Wait{domain.WaitInput, domain.WaitApproval, domain.WaitPause}, r.WaitingFor)
}

// WaitsForRetry reports whether a run waits until it is tried again.
func (r Run) WaitsForRetry() bool {
	return r.State == domain.StateWaiting && r.WaitingFor == domain.WaitRetry
}

// Claimable reports whether a run may get its next attempt.
func (r Run) Claimable() bool {
	return r.State == domain.StateQueued || r.State == domain.StateWaiting && (r.WaitingFor == domain.WaitRetry || r.WaitingFor == domain.WaitResume)
}

// Yields reports whether a run waits behind all others, also those that come later: one of a backfill that is
// queued. An instant that is due now neither overlaps with it nor replaces it.
func (r Run) Yields() bool {
	return r.State == domain.StateQueued && r.Trigger == domain.TriggerBackfill
}

// Overlaps reports whether a run decides the overlap policy of an instant of its job: see ledger.OverlapCandidates. A run that has begun counts
// until it ends, also while it waits for a person or for its next attempt.
func (r Run) Overlaps(begun bool) bool {
	switch r.State {
	case domain.StateQueued:
		return !r.Yields()
	case domain.StateRunning:
		return begun
	case domain.StateWaiting:
		return begun || r.Postponed()
	}
	return false
}

// Behind reports whether a run starts after the runs of its job that wait for a person: a queued one of an instant.
func (r Run) Behind() bool {
	return r.State == domain.StateQueued && r.Job != "" && r.Trigger.OfInstant()
}

// Postponed reports whether a run waits for its model, which could not be asked.
func (r Run) Postponed() bool { return r.WaitsForRetry() && r.Postponements > 0 }

// WaitText describes the wait of a run that does not run now.
func (r Run) WaitText() string {
	switch {
	case r.State != domain.StateWaiting:
		return "is still " + string(r.State)
	case r.WaitingFor == domain.WaitInput:
		return "waits for an answer"
	case r.WaitingFor == domain.WaitApproval:
		return "waits for an approval"
	case r.WaitingFor == domain.WaitPause:
		return "is paused by its skill"
	case r.Postponed():
		return "waits for its model"
	case r.WaitingFor == domain.WaitRetry:
		return "waits for its next attempt"
	}
	return "waits to go on"
}

// Attempt is one try at a run. Its number fences off writers of earlier attempts.
type Attempt struct {
	Run                   int64
	Number                int
	State                 domain.AttemptState
	StartedAt, FinishedAt time.Time
	Error                 string
}

// Call is one tool invocation.
type Call struct {
	Run                   int64
	Attempt, Step, Index  int
	ID, Key, Tool         string
	Args                  json.RawMessage
	Effect                domain.Effect
	State                 domain.CallState
	Envelope              json.RawMessage
	StartedAt, FinishedAt time.Time
}

// Notice is a message to the owner in the outbox.
type Notice struct {
	ID, Run           int64
	Job, Agent        string
	Key               string // unique when set: a repeated append adds nothing
	Channel           string
	Title, Body       string // ItemPlaceholder in Body stands for the number of the inbox item
	ViewRef           string // the view of the agent that it is about, "" for none
	Outcome           domain.Outcome
	Incident          int64  // that it is about, 0 for none
	State             string // pending, delivered, unverified, failed
	Tries             int
	NextAt, CreatedAt time.Time // NextAt of one that failed is when it was given up
	Error             string
	Answer            string // of the channel that took it, "" where that says nothing
}

// The states of a notice.
const (
	NoticePending    = "pending"
	NoticeDelivered  = "delivered"  // its channel said that it took it
	NoticeUnverified = "unverified" // it was sent, and nobody said that it arrived
	NoticeFailed     = "failed"
)

// Event is one thing that happened. ID orders all of them, Seq those of a run.
type Event struct {
	ID, Run int64
	Seq     int
	Job     string
	At      time.Time
	Kind    string
	Data    json.RawMessage
}

// Obstacle is one thing that keeps a run from starting, before it has cost anything.
type Obstacle struct {
	// Kind is a stable word for programs: secret, model, no_model, model_paused, folder, program, confinement, skill,
	// database, workspace, agent, overlap.
	Kind string `json:"kind"`
	// Source is what is in the way, the same for all the runs that it is in the way of: secret/api.
	Source string `json:"source"`
	Text   string `json:"text"`            // what is wrong and what to do, never the value of a secret
	Where  string `json:"where,omitempty"` // file:line of the configuration, "" where it is not known
	// Quiet says that its owner is told of it in another way, or need not be.
	Quiet bool `json:"-"`
}

func (o Obstacle) String() string {
	out := o.Kind + ": " + o.Text
	if o.Where != "" {
		out += " (" + o.Where + ")"
	}
	return out
}

// ObstaclesText is why a run does not start, "" without an obstacle.
func ObstaclesText(all []Obstacle) string {
	var out []string
	for _, o := range all {
		out = append(out, o.String())
	}
	return strings.Join(out, "; ")
}

// Blocked is the time in which a run was kept from starting.
type Blocked struct {
	Since, Until time.Time // Since is zero where nothing was in its way, and Until while something is
	By           []Obstacle
}

// Now says whether something is in the way of the run.
func (b Blocked) Now() bool { return !b.Since.IsZero() && b.Until.IsZero() }

// obstacleColumn is the destination of a column with obstacles. Damaged ones are left out: the run is checked again before it
// starts.
type obstacleColumn []Obstacle

// Scan implements sql.Scanner.
func (c *obstacleColumn) Scan(v any) error {
	var all []Obstacle
	_ = store.Decoded(&all).Scan(v)
	*c = all
	return nil
}

// LockRun reads a run that is about to be changed. PostgreSQL locks the row for this
// transaction, so that of two processes the second sees what the first wrote; SQLite
// has one writer at a time anyway.
func LockRun(tx *store.Tx, db *store.DB, id int64) (Run, error) {
	r, err := store.One(tx, RunFields, `select `+RunColumns+` from runs where id = $1`+db.ForUpdate, id)
	return store.OrNotFound(r, err, "run %d", id)
}

// LockKnown is LockRun for a run that may have been removed.
func LockKnown(tx *store.Tx, db *store.DB, id int64) (Run, bool, error) {
	return store.OrFalse(store.One(tx, RunFields, `select `+RunColumns+` from runs where id = $1`+db.ForUpdate, id))
}

// CheckFence returns the run of an attempt if that attempt is the running one.
func CheckFence(tx *store.Tx, db *store.DB, a Attempt) (Run, error) {
	r, err := LockRun(tx, db, a.Run)
	if err != nil {
		return Run{}, err
	}
	if r.State != domain.StateRunning || r.Attempt != a.Number {
		return Run{}, fmt.Errorf("attempt %d of run %d: %w", a.Number, a.Run, ErrFenced)
	}
	return r, nil
}

// RunningRuns selects the runs that are running.
const RunningRuns = `select ` + RunColumns + ` from runs where state = 'running' and state <> 'finished' order by id`

const RunColumns = `id, key, job, agent, triggered_by, detail, state, waiting_for, not_before, outcome, exit, verified, attempt, interruptions,
	scheduled_at, queued_at, started_at, finished_at, summary, error, steps, calls, tokens_in, tokens_out, tokens_cached, cost_micro_usd, estimated_tokens, estimated_micro_usd,
	cancel_reason, parks, postponements, taint, tier, workspace, checkpoint, blocked_since, blocked_until, blocked_by`

func RunFields(r *Run) []any {
	return []any{
		&r.ID, &r.Key, &r.Job, &r.Agent, &r.Trigger, store.Raw(&r.Detail), &r.State, &r.WaitingFor, store.Time(&r.NotBefore), &r.Outcome, &r.Exit, &r.Verified,
		&r.Attempt, &r.Interruptions, store.Time(&r.ScheduledAt), store.Time(&r.QueuedAt), store.Time(&r.StartedAt), store.Time(&r.FinishedAt), &r.Summary, &r.Error,
		&r.Steps, &r.Calls, &r.Usage.TokensIn, &r.Usage.TokensOut, &r.Usage.TokensCached, &r.Usage.CostMicroUSD,
		&r.Usage.EstimatedTokens, &r.Usage.EstimatedMicroUSD, &r.CancelReason, &r.Parks, &r.Postponements, &r.Taint, &r.Tier,
		&r.Workspace, &r.Checkpoint, store.Time(&r.Blocked.Since), store.Time(&r.Blocked.Until), (*obstacleColumn)(&r.Blocked.By),
	}
}

// IdsAtOnce is how many ids a query asks for. The number is fixed, so that its text is always the same and prepared once.
const IdsAtOnce = 64

// IdPlaces are the places of idArgs.
var IdPlaces = Places(1, IdsAtOnce)

// Places lists n places from $first on.
func Places(first, n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("$%d", first+i))
	}
	return strings.Join(all, ", ")
}

// IdArgs are up to idsAtOnce ids. The last is repeated in the places that are left over.
func IdArgs(ids []int64) []any {
	args := make([]any, IdsAtOnce)
	for i := range args {
		args[i] = ids[min(i, len(ids)-1)]
	}
	return args
}

// MaxEventText keeps an event small, in characters: the whole text is in its step.
const MaxEventText = 200

// AddEvent appends an event; a run's events are numbered from 1.
func AddEvent(tx *store.Tx, e Event, data map[string]any) error {
	text := string(e.Data)
	if data != nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("the event %s cannot be recorded: %w", e.Kind, err)
		}
		text = string(raw)
	}
	text = tx.RedactJSON(text)

	// Events of no run are not numbered: seq is 0.
	if e.Run == 0 {
		tx.Run(`insert into events (job, at, kind, data) values ($1, $2, $3, $4)`, e.Job, store.Millis(e.At), e.Kind, text)
		return nil
	}

	// The cast hides the value from SQLite's planner, which inspects it because of a partial index
	// and would then plan the statement again on every call. And values(…) with a subquery: an
	// insert … select from the same table would be copied to a temporary one first.
	tx.Run(`insert into events (run, seq, job, at, kind, data)
		values ($1, (select coalesce(max(seq), 0) + 1 from events where run = cast($1 as bigint) and run <> 0), $2, $3, $4, $5)`,
		e.Run, e.Job, store.Millis(e.At), e.Kind, text)
	return nil
}

// addEventsOf appends events of one run and job.
func addEventsOf(tx *store.Tx, run int64, job string, events []Event) error {
	for _, e := range events {
		e.Run, e.Job = run, job
		if err := AddEvent(tx, e, nil); err != nil {
			return err
		}
	}
	return nil
}

const EventColumns = `id, run, seq, job, at, kind, data`

func EventFields(e *Event) []any {
	return []any{&e.ID, &e.Run, &e.Seq, &e.Job, store.Time(&e.At), &e.Kind, store.Raw(&e.Data)}
}

// AddNotices puts notices into the outbox; a key that is there adds nothing.
func AddNotices(tx *store.Tx, now time.Time, notices ...Notice) {
	for _, n := range notices {
		// NULL, because the column is unique and any number of notices have no key.
		tx.Run(`insert into outbox (key, run, job, agent, channel, title, body, view_ref, outcome, incident, state, next_at, created_at)
			values (nullif(cast($1 as text), ''), $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11, $11) on conflict (key) do nothing`,
			n.Key, n.Run, n.Job, n.Agent, n.Channel, tx.Redact(n.Title), tx.Redact(n.Body), n.ViewRef, string(n.Outcome), n.Incident, store.Millis(now))
	}
}
