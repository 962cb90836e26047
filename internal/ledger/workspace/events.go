package workspace

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// What happens to a workspace.
const (
	eventCreated      = "created"
	eventBegun        = "begun" // a run has its first word with it
	eventChanged      = "changed"
	eventStatus       = "status"
	eventArtifact     = "artifact"
	eventApproval     = "approval" // of an artifact, by the owner
	eventCheckpoint   = "checkpoint"
	eventReview       = "review"
	eventAcknowledged = "acknowledged"
	eventDiscarded    = "discarded"
	eventRetried      = "retried"
)

// JobEvent is the kind of an event that refers to a job of a bridge, a program that a run has started.
const JobEvent = "job"

// skillEvent begins the kind of an event that a skill has named.
const skillEvent = "skill."

// writes are the events that count as writes, and move the lock version.
var writes = map[string]bool{
	eventChanged: true, eventStatus: true, eventArtifact: true, eventApproval: true,
	eventAcknowledged: true, eventDiscarded: true, eventRetried: true,
}

// Event is one thing that happened to a workspace. Events stay when the run is removed.
type Event struct {
	ID, Workspace, Run int64 // Run is 0 for its owner
	At                 time.Time
	Kind               string
	LockVersion        int64 // after it
	Data               json.RawMessage
}

// addEvent appends an event to the workspace, and to the feed of all.
func addEvent(tx *store.Tx, by Author, r record.Run, w Workspace, now time.Time, kind string, data map[string]any) error {
	raw := []byte(nil)
	if data != nil {
		var err error
		if raw, err = json.Marshal(data); err != nil {
			return fmt.Errorf("the event %s of workspace %d cannot be recorded: %w", kind, w.ID, err)
		}
	}

	tx.Run(`insert into workspace_events (workspace, run, attempt, key, at, kind, lock_version, data) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
		w.ID, r.ID, by.Attempt.Number, by.Key, store.Millis(now), kind, w.LockVersion, tx.RedactJSON(string(raw)))

	return record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: now, Kind: "workspace." + kind}, map[string]any{"workspace": fmt.Sprint(w.ID), "name": w.Name, "lock_version": w.LockVersion})
}

// AddEvent appends an event of a skill's own to its workspace: WorkspaceJob, or any other word.
func (l *Workspaces) AddEvent(ctx context.Context, by Author, id int64, kind string, data map[string]any) error {
	if kind != JobEvent {
		if err := checkWord("kind", kind); err != nil {
			return err
		}
		kind = skillEvent + kind
	}

	raw, err := json.Marshal(data)
	if err != nil {
		return wrong("data", "the event cannot be recorded: %v", err)
	}
	if len(raw) > maxEvent {
		return wrong("data", "the event has %s; at most %s are kept", text.Size(int64(len(raw))), text.Size(maxEvent))
	}

	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		_, err := write(tx, l.DB, by, id, l.DB.Now(), false, func(*Workspace) (string, map[string]any, error) { return kind, data, nil })
		return err
	})
}

// Events lists the last events of a workspace, the oldest of them first.
func (l *Workspaces) Events(ctx context.Context, workspace int64, limit int) ([]Event, error) {
	out, err := store.List(store.Reads(ctx, l.DB), func(e *Event) []any {
		return []any{&e.ID, &e.Workspace, &e.Run, store.Time(&e.At), &e.Kind, &e.LockVersion, store.Raw(&e.Data)}
	}, `select id, workspace, run, at, kind, lock_version, data from workspace_events where workspace = $1 order by id desc limit $2`, workspace, limit)

	slices.Reverse(out)
	return out, err
}

// Checkpoint is where a run can be begun again from (OSL-29).
type Checkpoint struct {
	ID, Workspace, Run int64 // Workspace is 0 for a run that has none
	// Key is that of the call which made it: what the run has called since comes after that one. "": the run began with it.
	Key               string
	At                time.Time
	Phase, Role, Step string
	RunState          json.RawMessage // as the skill gave it; null: nothing
	State             json.RawMessage // of the workspace
	artifact          int64           // the last of the ledger then
}

// keptCheckpoints is how many checkpoints of a run are kept, the last ones.
const keptCheckpoints = 10

const checkpointColumns = `id, workspace, run, key, at, phase, role, step, run_state, state, artifact`

func checkpointFields(c *Checkpoint) []any {
	return []any{&c.ID, &c.Workspace, &c.Run, &c.Key, store.Time(&c.At), &c.Phase, &c.Role, &c.Step, store.Raw(&c.RunState), store.Raw(&c.State), &c.artifact}
}

func insertCheckpoint(tx *store.Tx, c *Checkpoint) error {
	if len(c.RunState) == 0 {
		c.RunState = json.RawMessage(`null`)
	}
	if len(c.State) == 0 {
		c.State = json.RawMessage(`{}`)
	}

	return store.Scan(tx, []any{&c.ID, &c.artifact}, `insert into checkpoints (workspace, run, key, at, phase, role, step, run_state, state, artifact)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, (select coalesce(max(id), 0) from artifacts)) returning id, artifact`,
		c.Workspace, c.Run, c.Key, store.Millis(c.At), c.Phase, c.Role, c.Step, string(c.RunState), string(c.State))
}

// AddCheckpoint records where an attempt has got to: Step and RunState of c, and the workspace as it is. A run without
// a workspace says its Phase and Role, too. A call that is made again gets what it recorded before.
func (l *Workspaces) AddCheckpoint(ctx context.Context, by Author, c Checkpoint) (Checkpoint, error) {
	if len(c.RunState) > maxState || len(c.RunState) > 0 && !json.Valid(c.RunState) {
		return c, wrong("state", "the state of the run has %s and has to be JSON of at most %s", text.Size(int64(len(c.RunState))), text.Size(maxState))
	}
	for field, value := range map[string]string{"step": c.Step, "phase": c.Phase, "role": c.Role} {
		if err := checkWord(field, value); err != nil {
			return c, err
		}
	}

	now := l.DB.Now()
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Checkpoint, error) {
		r, err := author(tx, l.DB, by)
		if err != nil {
			return c, err
		}
		known, again, err := store.OrFalse(store.One(tx, checkpointFields, `select `+checkpointColumns+` from checkpoints where run = $1 and key = $2 and key <> '' order by id limit 1`, r.ID, by.Key))
		if err != nil || again {
			return known, err
		}

		c := c
		c.Run, c.Key, c.At = r.ID, by.Key, store.Instant(store.Millis(now))
		if c.Workspace == 0 {
			err = keepCheckpoint(tx, r, &c)
			return c, err
		}
		_, err = write(tx, l.DB, by, c.Workspace, now, false, func(w *Workspace) (string, map[string]any, error) {
			c.Phase, c.Role, c.State = w.Phase, w.Role, w.State
			return eventCheckpoint, map[string]any{"phase": c.Phase, "step": c.Step}, keepCheckpoint(tx, r, &c)
		})
		return c, err
	})
}

// keepCheckpoint stores a checkpoint of a run in place of its oldest.
func keepCheckpoint(tx *store.Tx, r record.Run, c *Checkpoint) error {
	if err := insertCheckpoint(tx, c); err != nil {
		return err
	}
	tx.Run(`delete from checkpoints where run = $1 and id not in (select id from checkpoints where run = $1 order by id desc limit $2)`, r.ID, keptCheckpoints)
	return record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: c.At, Kind: "run.checkpoint"}, map[string]any{"phase": c.Phase, "step": c.Step})
}

// LastCheckpoint is the last checkpoint of a run or, before it has one, that which it was begun from;
// ErrNotFound when there is neither.
func (l *Workspaces) LastCheckpoint(ctx context.Context, run int64) (Checkpoint, error) {
	c, err := store.One(store.Reads(ctx, l.DB), checkpointFields, `select `+checkpointColumns+` from checkpoints where run = $1 order by id desc limit 1`, run)
	if errors.Is(err, sql.ErrNoRows) {
		c, err = store.One(store.Reads(ctx, l.DB), checkpointFields, `select `+checkpointColumns+` from checkpoints where id = (select checkpoint from runs where id = $1)`, run)
	}
	return store.OrNotFound(c, err, "a checkpoint of run %d", run)
}

// lastCheckpointIn is the last checkpoint of a run in a workspace.
func lastCheckpointIn(tx *store.Tx, run, workspace int64) (Checkpoint, error) {
	return store.One(tx, checkpointFields, `select `+checkpointColumns+` from checkpoints where run = $1 and workspace = $2 order by id desc limit 1`, run, workspace)
}
