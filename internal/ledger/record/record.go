// Package record has the rows that the subjects of the ledger share: runs, attempts, events,
// notices, and the entries of an attempt's record. It reads, locks and adds them within a
// transaction of the caller.
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

// Errors that callers distinguish.
var (
	ErrNotClaimable = errors.New("the run cannot be started now")
	ErrFenced       = errors.New("the attempt is not the running one any more")
	// ErrNoLane wraps ErrNotClaimable. The run can start once another run ends.
	ErrNoLane = fmt.Errorf("other runs have its lanes: %w", ErrNotClaimable)
)

// Actors that can pause something, plan a wake or change a workspace.
const (
	ByAgent  = "agent"
	ByUser   = "user"
	BySystem = "system"
)

// Usage is the usage of model calls.
type Usage struct {
	TokensIn, TokensOut, TokensCached, CostMicroUSD int64
	// The part of the tokens and of the cost that no server has reported. It is estimated from the
	// sent and received data.
	EstimatedTokens, EstimatedMicroUSD int64
}

// Run is one requested execution of a job, or of an agent alone if Job is empty.
type Run struct {
	ID         int64
	Key        string // unique; requests with the same key share a run
	Job, Agent string
	Trigger    domain.Trigger
	Detail     json.RawMessage // JSON of ledger.TriggerDetail
	State      domain.State
	WaitingFor domain.Wait
	NotBefore  time.Time
	Outcome    domain.Outcome
	Exit       domain.Exit
	Verified   bool
	// Attempt is the number of the latest attempt, or 0 before the first.
	Attempt, Interruptions int
	Parks                  int // attempts that ended in a question
	Postponements          int // attempts that could not reach their model

	ScheduledAt, QueuedAt, StartedAt, FinishedAt time.Time

	Summary, Error string
	Steps, Calls   int
	Usage          Usage
	CancelReason   string // set if cancellation was requested
	Taint          string // letters of its taint; they are only added
	Tier           string // weakest sandbox level of the started programs; empty before the first
	Workspace      int64  // id of the workspace it works in, or 0
	Checkpoint     int64  // id of the checkpoint it began from, or 0
	Blocked        Blocked
}

// WaitsForPerson reports whether the run waits for a person.
func (r Run) WaitsForPerson() bool {
	return r.State == domain.StateWaiting && slices.Contains([]domain.Wait{domain.WaitInput, domain.WaitApproval, domain.WaitPause}, r.WaitingFor)
}

// WaitsForRetry reports whether the run waits for a retry.
func (r Run) WaitsForRetry() bool {
	return r.State == domain.StateWaiting && r.WaitingFor == domain.WaitRetry
}

// Claimable reports whether the run may get its next attempt.
func (r Run) Claimable() bool {
	return r.State == domain.StateQueued || r.State == domain.StateWaiting && (r.WaitingFor == domain.WaitRetry || r.WaitingFor == domain.WaitResume)
}

// Yields reports whether the run waits behind all others, including later ones. This applies to
// queued runs of a backfill. A run that is due now does not overlap with such a run and does not
// replace it.
func (r Run) Yields() bool {
	return r.State == domain.StateQueued && r.Trigger == domain.TriggerBackfill
}

// Overlaps reports whether the run decides the overlap policy of its job, see
// ledger.OverlapCandidates. With begun, a run that has started counts until it ends, even while it
// waits.
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

// Behind reports whether the run starts only after the runs of its job that wait for a person. This
// applies to queued scheduled runs.
func (r Run) Behind() bool {
	return r.State == domain.StateQueued && r.Job != "" && r.Trigger.OfInstant()
}

// Postponed reports whether the run waits because its model was unavailable.
func (r Run) Postponed() bool { return r.WaitsForRetry() && r.Postponements > 0 }

// WaitText describes why the run waits, for a run that is not running.
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

// Attempt is one execution of a run. Writers of earlier attempts are fenced off by its number.
type Attempt struct {
	Run                   int64
	Number                int
	State                 domain.AttemptState
	StartedAt, FinishedAt time.Time
	Error                 string
}

// Call is one tool call.
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
	Key               string // unique if set; adding the same key again does nothing
	Channel           string
	Title, Body       string // ItemPlaceholder in Body stands for the number of the inbox item
	ViewRef           string // view of the agent that it is about; optional
	Outcome           domain.Outcome
	Incident          int64  // incident that it is about, or 0
	State             string // pending, delivered, unverified or failed
	Tries             int
	NextAt, CreatedAt time.Time // NextAt of a failed notice is when delivery was given up
	Error             string
	Answer            string // response of the channel that accepted it; may be empty
}

// The states of a notice.
const (
	NoticePending    = "pending"
	NoticeDelivered  = "delivered"  // the channel confirmed the delivery
	NoticeUnverified = "unverified" // sent without a confirmation
	NoticeFailed     = "failed"
)

// Event is something that happened. ID orders all events, Seq the events of a run.
type Event struct {
	ID, Run int64
	Seq     int
	Job     string
	At      time.Time
	Kind    string
	Data    json.RawMessage
}

// Obstacle is a condition that keeps a run from starting, before the run has cost anything.
type Obstacle struct {
	// stable word for programs: secret, model, no_model, model_paused, folder, program,
	// confinement, skill, database, workspace, agent or overlap
	Kind string `json:"kind"`
	// identifier of the obstacle, the same for all affected runs: secret/api
	Source string `json:"source"`
	Text   string `json:"text"`            // description and remedy, never the value of a secret
	Where  string `json:"where,omitempty"` // file:line of the configuration; empty if unknown
	// whether the owner needs no notice, for example because another one covers it
	Quiet bool `json:"-"`
}

func (o Obstacle) String() string {
	out := o.Kind + ": " + o.Text
	if o.Where != "" {
		out += " (" + o.Where + ")"
	}
	return out
}

// ObstaclesText returns why a run does not start, or "" without obstacles.
func ObstaclesText(all []Obstacle) string {
	var out []string
	for _, o := range all {
		out = append(out, o.String())
	}
	return strings.Join(out, "; ")
}

// Blocked is the period in which a run was kept from starting.
type Blocked struct {
	// Since is zero if the run was never blocked. Until is zero while it is blocked.
	Since, Until time.Time
	By           []Obstacle
}

// Now reports whether the run is blocked now.
func (b Blocked) Now() bool { return !b.Since.IsZero() && b.Until.IsZero() }

// obstacleColumn is the scan destination of a column with obstacles. It ignores damaged JSON,
// because the run is checked again before it starts.
type obstacleColumn []Obstacle

// Scan implements sql.Scanner.
func (c *obstacleColumn) Scan(v any) error {
	var all []Obstacle
	_ = store.Decoded(&all).Scan(v)
	*c = all
	return nil
}

// LockRun reads a run that is about to be changed. On PostgreSQL it locks the row, so that a second
// process sees the changes of the first. SQLite has only one writer at a time.
func LockRun(tx *store.Tx, db *store.DB, id int64) (Run, error) {
	r, err := store.One(tx, RunFields, `select `+RunColumns+` from runs where id = $1`+db.ForUpdate, id)
	return store.OrNotFound(r, err, "run %d", id)
}

// LockKnown is like LockRun, for a run that may have been removed.
func LockKnown(tx *store.Tx, db *store.DB, id int64) (Run, bool, error) {
	return store.OrFalse(store.One(tx, RunFields, `select `+RunColumns+` from runs where id = $1`+db.ForUpdate, id))
}

// CheckFence returns the run of an attempt. It returns ErrFenced if the attempt is not running any
// more.
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

// IdsAtOnce is the number of ids in a query. It is fixed, so that the text of the query does not
// vary and is prepared once.
const IdsAtOnce = 64

// IdPlaces are the placeholders for IdArgs.
var IdPlaces = Places(1, IdsAtOnce)

// Places returns n placeholders, starting with $first.
func Places(first, n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("$%d", first+i))
	}
	return strings.Join(all, ", ")
}

// IdArgs returns the arguments for up to IdsAtOnce ids. It repeats the last id in the remaining
// places. ids must not be empty.
func IdArgs(ids []int64) []any {
	args := make([]any, IdsAtOnce)
	for i := range args {
		args[i] = ids[min(i, len(ids)-1)]
	}
	return args
}

// MaxEventText is the maximum length of a text in an event, in characters. The full text is in the
// step.
const MaxEventText = 200

// AddEvent adds an event. The events of a run are numbered from 1.
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

	// Events without a run have seq 0.
	if e.Run == 0 {
		tx.Run(`insert into events (job, at, kind, data) values ($1, $2, $3, $4)`, e.Job, store.Millis(e.At), e.Kind, text)
		return nil
	}

	// The cast hides the value from SQLite's planner. Otherwise the planner inspects it because of
	// a partial index and plans the statement again on every call. The subquery in values(…) avoids
	// a temporary copy, which an insert … select from the same table needs.
	tx.Run(`insert into events (run, seq, job, at, kind, data)
		values ($1, (select coalesce(max(seq), 0) + 1 from events where run = cast($1 as bigint) and run <> 0), $2, $3, $4, $5)`,
		e.Run, e.Job, store.Millis(e.At), e.Kind, text)
	return nil
}

// addEventsOf adds events of one run and job.
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

// AddNotices adds notices to the outbox. It skips keys that already exist.
func AddNotices(tx *store.Tx, now time.Time, notices ...Notice) {
	for _, n := range notices {
		// The column is unique, so notices without a key must be NULL.
		tx.Run(`insert into outbox (key, run, job, agent, channel, title, body, view_ref, outcome, incident, state, next_at, created_at)
			values (nullif(cast($1 as text), ''), $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11, $11) on conflict (key) do nothing`,
			n.Key, n.Run, n.Job, n.Agent, n.Channel, tx.Redact(n.Title), tx.Redact(n.Body), n.ViewRef, string(n.Outcome), n.Incident, store.Millis(now))
	}
}
