package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"slices"
	"time"

	"rouse/internal/text"
)

// What happens to a workspace.
const (
	workspaceCreated      = "created"
	workspaceBegun        = "begun" // a run has its first word with it
	workspaceChanged      = "changed"
	workspaceStatus       = "status"
	workspaceArtifact     = "artifact"
	workspaceApproval     = "approval" // of an artifact, by the owner
	workspaceCheckpoint   = "checkpoint"
	workspaceReview       = "review"
	workspaceAcknowledged = "acknowledged"
	workspaceDiscarded    = "discarded"
	workspaceRetried      = "retried"
)

// WorkspaceJob is the kind of an event that refers to a job of a bridge, a program that a run has started.
const WorkspaceJob = "job"

// skillEvent begins the kind of an event that a skill has named.
const skillEvent = "skill."

// workspaceWrites are the events that count as writes, and move the lock version.
var workspaceWrites = map[string]bool{
	workspaceChanged: true, workspaceStatus: true, workspaceArtifact: true, workspaceApproval: true,
	workspaceAcknowledged: true, workspaceDiscarded: true, workspaceRetried: true,
}

// WorkspaceEvent is one thing that happened to a workspace. Events stay when the run is removed.
type WorkspaceEvent struct {
	ID, Workspace, Run int64 // Run is 0 for its owner
	At                 time.Time
	Kind               string
	LockVersion        int64 // after it
	Data               json.RawMessage
}

// addWorkspaceEvent appends an event to the workspace, and to the feed of all.
func addWorkspaceEvent(tx *store.Tx, by Author, r Run, w Workspace, now time.Time, kind string, data map[string]any) error {
	raw := []byte(nil)
	if data != nil {
		var err error
		if raw, err = json.Marshal(data); err != nil {
			return fmt.Errorf("the event %s of workspace %d cannot be recorded: %w", kind, w.ID, err)
		}
	}

	tx.Run(`insert into workspace_events (workspace, run, attempt, key, at, kind, lock_version, data) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
		w.ID, r.ID, by.Attempt.Number, by.Key, store.Millis(now), kind, w.LockVersion, tx.RedactJSON(string(raw)))

	return record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "workspace." + kind}, map[string]any{"workspace": fmt.Sprint(w.ID), "name": w.Name, "lock_version": w.LockVersion})
}

// AddWorkspaceEvent appends an event of a skill's own to its workspace: WorkspaceJob, or any other word.
func (l *Ledger) AddWorkspaceEvent(ctx context.Context, by Author, id int64, kind string, data map[string]any) error {
	if kind != WorkspaceJob {
		if err := checkWord("kind", kind); err != nil {
			return err
		}
		kind = skillEvent + kind
	}

	raw, err := json.Marshal(data)
	if err != nil {
		return wrongWorkspace("data", "the event cannot be recorded: %v", err)
	}
	if len(raw) > maxWorkspaceEvent {
		return wrongWorkspace("data", "the event has %s; at most %s are kept", text.Size(int64(len(raw))), text.Size(maxWorkspaceEvent))
	}

	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		_, err := l.writeWorkspace(tx, by, id, l.Now(), false, func(*Workspace) (string, map[string]any, error) { return kind, data, nil })
		return err
	})
}

// WorkspaceEvents lists the last events of a workspace, the oldest of them first.
func (l *Ledger) WorkspaceEvents(ctx context.Context, workspace int64, limit int) ([]WorkspaceEvent, error) {
	out, err := store.List(store.Reads(ctx, l.DB), func(e *WorkspaceEvent) []any {
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
func (l *Ledger) AddCheckpoint(ctx context.Context, by Author, c Checkpoint) (Checkpoint, error) {
	if len(c.RunState) > maxWorkspaceState || len(c.RunState) > 0 && !json.Valid(c.RunState) {
		return c, wrongWorkspace("state", "the state of the run has %s and has to be JSON of at most %s", text.Size(int64(len(c.RunState))), text.Size(maxWorkspaceState))
	}
	for field, value := range map[string]string{"step": c.Step, "phase": c.Phase, "role": c.Role} {
		if err := checkWord(field, value); err != nil {
			return c, err
		}
	}

	now := l.Now()
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Checkpoint, error) {
		r, err := l.author(tx, by)
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
		_, err = l.writeWorkspace(tx, by, c.Workspace, now, false, func(w *Workspace) (string, map[string]any, error) {
			c.Phase, c.Role, c.State = w.Phase, w.Role, w.State
			return workspaceCheckpoint, map[string]any{"phase": c.Phase, "step": c.Step}, keepCheckpoint(tx, r, &c)
		})
		return c, err
	})
}

// keepCheckpoint stores a checkpoint of a run in place of its oldest.
func keepCheckpoint(tx *store.Tx, r Run, c *Checkpoint) error {
	if err := insertCheckpoint(tx, c); err != nil {
		return err
	}
	tx.Run(`delete from checkpoints where run = $1 and id not in (select id from checkpoints where run = $1 order by id desc limit $2)`, r.ID, keptCheckpoints)
	return record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: c.At, Kind: "run.checkpoint"}, map[string]any{"phase": c.Phase, "step": c.Step})
}

// LastCheckpoint is the last checkpoint of a run or, before it has one, that which it was begun from;
// ErrNotFound when there is neither.
func (l *Ledger) LastCheckpoint(ctx context.Context, run int64) (Checkpoint, error) {
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
