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

// Kinds of workspace events.
const (
	eventCreated      = "created"
	eventBegun        = "begun" // a run began to work in the workspace
	eventChanged      = "changed"
	eventStatus       = "status"
	eventArtifact     = "artifact"
	eventApproval     = "approval" // decision of the owner about an artifact
	eventCheckpoint   = "checkpoint"
	eventReview       = "review"
	eventAcknowledged = "acknowledged"
	eventDiscarded    = "discarded"
	eventRetried      = "retried"
)

// JobEvent is the kind of an event about a program that a run started through a bridge.
const JobEvent = "job"

// skillEvent is the prefix of event kinds that skills define.
const skillEvent = "skill."

// writes holds the kinds of events that increase the lock version.
var writes = map[string]bool{
	eventChanged: true, eventStatus: true, eventArtifact: true, eventApproval: true,
	eventAcknowledged: true, eventDiscarded: true, eventRetried: true,
}

// Event is an event of a workspace. Events are kept when the run is deleted.
type Event struct {
	ID, Workspace, Run int64 // Run is 0 for the owner
	At                 time.Time
	Kind               string
	LockVersion        int64 // lock version after the event
	Data               json.RawMessage
}

// addEvent adds an event to the workspace and to the event record of the ledger.
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

// AddEvent adds an event of a skill to its workspace. The kind is JobEvent or a word chosen by the
// skill.
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

// Events returns the last events of a workspace, oldest first.
func (l *Workspaces) Events(ctx context.Context, workspace int64, limit int) ([]Event, error) {
	out, err := store.List(store.Reads(ctx, l.DB), func(e *Event) []any {
		return []any{&e.ID, &e.Workspace, &e.Run, store.Time(&e.At), &e.Kind, &e.LockVersion, store.Raw(&e.Data)}
	}, `select id, workspace, run, at, kind, lock_version, data from workspace_events where workspace = $1 order by id desc limit $2`, workspace, limit)

	slices.Reverse(out)
	return out, err
}

// Checkpoint is a state from which a run can start again.
type Checkpoint struct {
	ID, Workspace, Run int64 // Workspace is 0 if the run does not work in one
	// Key is the key of the call that made the checkpoint. It is empty for the checkpoint at the
	// start of the run.
	Key               string
	At                time.Time
	Phase, Role, Step string
	RunState          json.RawMessage // state given by the skill; may be null
	State             json.RawMessage // state of the workspace
	artifact          int64           // newest artifact ID of the ledger at that time
}

// keptCheckpoints is the number of checkpoints kept for each run.
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

// AddCheckpoint stores a checkpoint of an attempt: Step and RunState of c, and the current
// workspace. If the run has no workspace, Phase and Role of c are stored, too. A repeated call
// returns the checkpoint that it stored before.
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

// keepCheckpoint stores a checkpoint of a run and deletes its oldest ones.
func keepCheckpoint(tx *store.Tx, r record.Run, c *Checkpoint) error {
	if err := insertCheckpoint(tx, c); err != nil {
		return err
	}
	tx.Run(`delete from checkpoints where run = $1 and id not in (select id from checkpoints where run = $1 order by id desc limit $2)`, r.ID, keptCheckpoints)
	return record.AddEvent(tx, record.Event{Run: r.ID, Job: r.Job, At: c.At, Kind: "run.checkpoint"}, map[string]any{"phase": c.Phase, "step": c.Step})
}

// LastCheckpoint returns the last checkpoint of a run. If the run has not made one, it returns the
// checkpoint from which the run started. It returns ErrNotFound if there is neither.
func (l *Workspaces) LastCheckpoint(ctx context.Context, run int64) (Checkpoint, error) {
	c, err := store.One(store.Reads(ctx, l.DB), checkpointFields, `select `+checkpointColumns+` from checkpoints where run = $1 order by id desc limit 1`, run)
	if errors.Is(err, sql.ErrNoRows) {
		c, err = store.One(store.Reads(ctx, l.DB), checkpointFields, `select `+checkpointColumns+` from checkpoints where id = (select checkpoint from runs where id = $1)`, run)
	}
	return store.OrNotFound(c, err, "a checkpoint of run %d", run)
}

// lastCheckpointIn returns the last checkpoint of a run in a workspace.
func lastCheckpointIn(tx *store.Tx, run, workspace int64) (Checkpoint, error) {
	return store.One(tx, checkpointFields, `select `+checkpointColumns+` from checkpoints where run = $1 and workspace = $2 order by id desc limit 1`, run, workspace)
}
