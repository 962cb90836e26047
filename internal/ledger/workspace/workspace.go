// Package workspace has the state of skills that outlives runs, with its artifacts, events, checkpoints and reviews.
package workspace

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"rouse/internal/ledger/blob"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"rouse/internal/text"
)

// Workspace is state of one skill for one agent that outlives runs (OSL-23, OSL-27, OSL-28).
type Workspace struct {
	ID            int64
	Agent, Skill  string
	Name          string // unique for its skill and agent
	Status        Status
	StatusBy      string // ByUser or ByAgent: a run does not resume what its owner has paused
	Phase, Role   string
	State         json.RawMessage // an object of at most 256 KiB
	SchemaVersion string          // of the state, as the skill counts
	LockVersion   int64           // how often it was written, from 1
	// Review is the run that left it half changed; 0: none. No run may work in it until its owner has decided.
	Review               int64
	CreatedAt, UpdatedAt time.Time
}

// Status says whether runs may work in a workspace.
type Status string

// The statuses: active ⇄ paused, both → archived, and an archived one can be resumed.
const (
	Active   Status = "active"
	Paused   Status = "paused"
	Archived Status = "archived"
)

// Bounds of what a workspace holds.
const (
	maxState = 256 << 10 // bytes, of a state and of the state of a run in a checkpoint
	maxWord  = 100       // characters, of a name, a phase, a role, a step, a type, a status
	maxEvent = 16 << 10  // bytes, of the data of an event
)

// ConflictError is a write to a workspace that somebody else has written since it was read (OSL-27).
type ConflictError struct {
	Workspace  int64
	Name       string
	Given, Now int64 // lock versions
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("workspace %d (%s) has the lock version %d by now, and %d was given: somebody else has written it; read it again, and repeat the change", e.Workspace, e.Name, e.Now, e.Given)
}

// BlockedError is why a run may not work in a workspace, and what its owner can do.
type BlockedError struct{ Workspace Workspace }

func (e *BlockedError) Error() string {
	w := e.Workspace
	if w.Review != 0 {
		return fmt.Sprintf("run %d left workspace %d (%s) half changed, and its owner decides first what becomes of that: rouse workspaces show %[2]d", w.Review, w.ID, w.Name)
	}
	return fmt.Sprintf("workspace %d (%s) is %s; resume it with: rouse workspaces resume %[1]d", w.ID, w.Name, w.Status)
}

// Error is what was asked of a workspace and cannot be done.
type Error struct {
	Field   string // what was wrong of what was given; "": something else
	Message string
}

func (e *Error) Error() string { return e.Message }

func wrong(field, format string, args ...any) error {
	return &Error{field, fmt.Sprintf(format, args...)}
}

// Author is who writes to a workspace: a call of an attempt, or the owner.
type Author struct {
	Attempt record.Attempt // the zero value: the owner
	Key     string         // of the call, which writes once however often it is made
}

func (by Author) name() string {
	if by.Attempt.Run == 0 {
		return record.ByUser
	}
	return record.ByAgent
}

// Blocked says why no run may work in the workspace: nil, or a *BlockedError.
func (w Workspace) Blocked() error {
	if w.Status != Active || w.Review != 0 {
		return &BlockedError{w}
	}
	return nil
}

const columns = `id, agent, skill, name, status, status_by, phase, role, state, schema_version, lock_version, review, created_at, updated_at`

func fields(w *Workspace) []any {
	return []any{
		&w.ID, &w.Agent, &w.Skill, &w.Name, &w.Status, &w.StatusBy, &w.Phase, &w.Role, store.Raw(&w.State), &w.SchemaVersion, &w.LockVersion,
		&w.Review, store.Time(&w.CreatedAt), store.Time(&w.UpdatedAt),
	}
}

// Workspaces has the state of skills that outlives runs.
type Workspaces struct {
	DB    *store.DB
	Blobs *blob.Blobs
}

// Get reads one; ErrNotFound when there is none of that number.
func (l *Workspaces) Get(ctx context.Context, id int64) (Workspace, error) {
	w, err := store.One(store.Reads(ctx, l.DB), fields, `select `+columns+` from workspaces where id = $1`, id)
	return store.OrNotFound(w, err, "workspace %d", id)
}

// Named reads the workspace of an agent's skill with a name; ErrNotFound when there is none.
func (l *Workspaces) Named(ctx context.Context, agent, skill, name string) (Workspace, error) {
	w, err := store.One(store.Reads(ctx, l.DB), fields, `select `+columns+` from workspaces where agent = $1 and skill = $2 and name = $3`, agent, skill, name)
	return store.OrNotFound(w, err, "the workspace %q of the skill %s", name, skill)
}

// Filter selects workspaces; the zero value of a field selects all.
type Filter struct {
	Agent, Skill string
	Status       Status
	Limit        int   // 0 means 100
	Before       int64 // those that were written before the workspace of this id; 0: all
}

// List lists workspaces, those written last first.
func (l *Workspaces) List(ctx context.Context, f Filter) ([]Workspace, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}

	return store.List(store.Reads(ctx, l.DB), fields, `select `+columns+` from workspaces
		where ($1 = '' or agent = $1) and ($2 = '' or skill = $2) and ($3 = '' or status = $3)
		and ($4 = 0 or (updated_at, id) < (select b.updated_at, b.id from workspaces b where b.id = $4)) order by updated_at desc, id desc limit $5`,
		f.Agent, f.Skill, string(f.Status), f.Before, f.Limit)
}

// Create creates a workspace of an agent's skill: Agent, Skill, Name, and what else is given of
// Phase, Role, State and SchemaVersion. The error is a *WorkspaceError when the name is taken.
func (l *Workspaces) Create(ctx context.Context, by Author, w Workspace) (Workspace, error) {
	if err := w.check(); err != nil {
		return Workspace{}, err
	}
	if len(w.State) == 0 {
		w.State = json.RawMessage(`{}`)
	}

	now := l.DB.Now()
	w.Status, w.StatusBy, w.LockVersion, w.CreatedAt, w.UpdatedAt = Active, by.name(), 1, store.Instant(store.Millis(now)), store.Instant(store.Millis(now))
	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Workspace, error) {
		r, err := author(tx, l.DB, by)
		if err != nil {
			return w, err
		}

		// A call that a crash made happen again has created it already.
		known, _, err := writtenBefore(tx, by)
		if err != nil {
			return w, err
		}
		if known != 0 {
			return lock(tx, l.DB, known)
		}
		if by.Attempt.Run != 0 && w.Agent != r.Agent {
			return w, wrong("", "a run of the agent %s can create no workspace of %s", r.Agent, w.Agent)
		}

		w := w
		w.ID, err = store.Value[int64](tx, `insert into workspaces (agent, skill, name, status, status_by, phase, role, state, schema_version, lock_version, created_at, updated_at)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, $10, $10) on conflict do nothing returning id`,
			w.Agent, w.Skill, w.Name, string(w.Status), w.StatusBy, w.Phase, w.Role, string(w.State), w.SchemaVersion, store.Millis(now))
		if errors.Is(err, sql.ErrNoRows) {
			err = wrong("name", "the skill %s has a workspace %q of the agent %s already; take that, or choose another name", w.Skill, w.Name, w.Agent)
		}
		if err == nil {
			err = addEvent(tx, by, r, w, now, eventCreated, nil)
		}
		if err == nil && by.Attempt.Run != 0 {
			err = beginIn(tx, r, w, now)
		}
		return w, err
	})
}

// check refuses words and a state that a workspace cannot hold.
func (w Workspace) check() error {
	for _, f := range []struct{ field, value string }{{"skill", w.Skill}, {"name", w.Name}, {"agent", w.Agent}} {
		if f.value == "" {
			return wrong(f.field, "the %s of the workspace is missing", f.field)
		}
	}

	for _, f := range []struct{ field, value string }{{"name", w.Name}, {"phase", w.Phase}, {"role", w.Role}, {"schema version", w.SchemaVersion}} {
		if err := checkWord(f.field, f.value); err != nil {
			return err
		}
	}
	return checkState("state", w.State)
}

// checkWord refuses what is no short text of one line: it is shown in lists, and to models.
func checkWord(field, value string) error {
	if n := utf8.RuneCountInString(value); n > maxWord {
		return wrong(field, "the %s has %d characters; at most %d are kept", field, n, maxWord)
	}
	if value != text.OneLine(value) || value != strings.TrimSpace(value) {
		return wrong(field, "the %s %q is not a text of one line", field, text.OneLine(value))
	}
	return nil
}

// checkState refuses a state that is no JSON object, or too large; nil is none.
func checkState(field string, state json.RawMessage) error {
	if len(state) == 0 {
		return nil
	}
	if len(state) > maxState {
		return wrong(field, "the %s has %s; at most %s are kept: put what is large into artifacts", field, text.Size(int64(len(state))), text.Size(maxState))
	}

	if !json.Valid(state) || !bytes.HasPrefix(bytes.TrimSpace(state), []byte("{")) {
		return wrong(field, "the %s is no JSON object", field)
	}
	return nil
}

// Change is what becomes different of a workspace; what is left out stays.
type Change struct {
	LockVersion   int64 // that it was read with; 0: whatever it is by now
	Since         int64 // that it was read with, by an author whose own changes since do no harm; 0: none
	State         json.RawMessage
	Phase, Role   *string
	SchemaVersion *string
	Status        Status
}

// Change changes a workspace, once for its author's call, and returns it as it is then. The
// error is a *ConflictError, a *BlockedError, a *WorkspaceError, ErrFenced or ErrNotFound.
func (l *Workspaces) Change(ctx context.Context, by Author, id int64, c Change) (Workspace, error) {
	if err := checkState("state", c.State); err != nil {
		return Workspace{}, err
	}
	for field, value := range map[string]*string{"phase": c.Phase, "role": c.Role, "schema version": c.SchemaVersion} {
		if value == nil {
			continue
		}
		if err := checkWord(field, *value); err != nil {
			return Workspace{}, err
		}
	}

	return store.InTx(ctx, l.DB, func(tx *store.Tx) (Workspace, error) {
		return write(tx, l.DB, by, id, l.DB.Now(), c.moves(), func(w *Workspace) (string, map[string]any, error) {
			return c.apply(tx, by, w)
		})
	})
}

// moves reports whether the change is about the status alone.
func (c Change) moves() bool {
	return c.Status != "" && c.State == nil && c.Phase == nil && c.Role == nil && c.SchemaVersion == nil
}

// apply makes the change, and says which event it is.
func (c Change) apply(tx *store.Tx, by Author, w *Workspace) (kind string, data map[string]any, err error) {
	if c.LockVersion != 0 && c.LockVersion != w.LockVersion {
		return "", nil, &ConflictError{w.ID, w.Name, c.LockVersion, w.LockVersion}
	}
	if err := c.checkOthers(tx, by, *w); err != nil {
		return "", nil, err
	}

	kind, data = eventStatus, map[string]any{}
	if c.Status != "" && c.Status != w.Status {
		if err := w.checkMove(tx, by, c.Status); err != nil {
			return "", nil, err
		}
		w.Status, w.StatusBy, data["status"] = c.Status, by.name(), c.Status
	}

	if c.State != nil {
		w.State, kind, data["state"] = c.State, eventChanged, len(c.State)
	}
	for _, f := range []struct {
		name string
		to   *string
		of   *string
	}{{"phase", c.Phase, &w.Phase}, {"role", c.Role, &w.Role}, {"schema_version", c.SchemaVersion, &w.SchemaVersion}} {
		if f.to != nil {
			*f.of, kind, data[f.name] = *f.to, eventChanged, *f.to
		}
	}

	if kind == eventChanged && w.Status == Archived {
		return "", nil, &BlockedError{*w}
	}
	return kind, data, nil
}

// checkOthers refuses a change where another run, or the owner, has changed the workspace since its author read it (OSL-27).
func (c Change) checkOthers(tx *store.Tx, by Author, w Workspace) error {
	if c.Since == 0 {
		return nil
	}

	others, err := store.Value[int](tx, `select count(*) from workspace_events where workspace = $1 and lock_version > $2 and run <> $3 and kind in ('changed', 'discarded', 'retried')`,
		w.ID, c.Since, by.Attempt.Run)
	if err == nil && others > 0 {
		err = &ConflictError{w.ID, w.Name, c.Since, w.LockVersion}
	}
	return err
}

// checkMove refuses a status that a workspace cannot get from its author.
func (w Workspace) checkMove(tx *store.Tx, by Author, to Status) error {
	switch {
	case to != Active && to != Paused && to != Archived:
		return wrong("status", "a workspace is active, paused or archived, not %q", to)
	case w.Status == Archived && to == Paused:
		return wrong("status", "workspace %d (%s) is archived; resume it first", w.ID, w.Name)
	case to == Active && by.name() == record.ByAgent && w.StatusBy == record.ByUser:
		return &BlockedError{w}
	case to != Archived:
		return nil
	}

	// A run would lose the ground under its feet.
	run, works, err := store.OrFalse(store.Value[int64](tx, `select id from runs where workspace = cast($1 as bigint) and workspace <> 0 and state <> 'finished' and id <> $2 order by id limit 1`, w.ID, by.Attempt.Run))
	if works {
		err = wrong("status", "run %d works in workspace %d (%s); cancel it first: rouse stop %[1]d", run, w.ID, w.Name)
	}
	return err
}

// author is the run whose attempt writes, fenced; the zero Run for the owner.
func author(tx *store.Tx, db *store.DB, by Author) (record.Run, error) {
	switch {
	case by.Attempt.Run == 0:
		return record.Run{}, nil
	case by.Key == "":
		return record.Run{}, fmt.Errorf("attempt %d of run %d writes to a workspace and does not say by which call", by.Attempt.Number, by.Attempt.Run)
	}
	return record.CheckFence(tx, db, by.Attempt)
}

// writtenBefore is the workspace that a call has written already, 0 for none, and the lock version that it had then.
func writtenBefore(tx *store.Tx, by Author) (workspace, lockVersion int64, err error) {
	err = store.Scan(tx, []any{&workspace, &lockVersion}, `select workspace, lock_version from workspace_events where run = $1 and run <> 0 and key = $2 and key <> ''`, by.Attempt.Run, by.Key)
	_, err = store.OrZero(0, err)
	return workspace, lockVersion, err
}

// lock reads a workspace that is about to be changed.
func lock(tx *store.Tx, db *store.DB, id int64) (Workspace, error) {
	w, err := store.One(tx, fields, `select `+columns+` from workspaces where id = $1`+db.ForUpdate, id)
	return store.OrNotFound(w, err, "workspace %d", id)
}

// write is the one way to write to a workspace: fenced by the attempt, by a run of its agent alone,
// once for a call, while no one else has to decide first. change says which event it is. moves says that it is about
// the status, so that a paused workspace can be resumed, and its author need not
// work in it.
func write(tx *store.Tx, db *store.DB, by Author, id int64, now time.Time, moves bool, change func(*Workspace) (kind string, data map[string]any, err error)) (Workspace, error) {
	r, err := author(tx, db, by)
	if err != nil {
		return Workspace{}, err
	}

	w, err := lock(tx, db, id)
	if err != nil {
		return w, err
	}

	// Of other agents a run knows nothing.
	byRun := by.Attempt.Run != 0
	if byRun && w.Agent != r.Agent {
		return Workspace{}, fmt.Errorf("workspace %d is %w", id, store.ErrNotFound)
	}

	if known, version, err := writtenBefore(tx, by); err != nil || known != 0 {
		w.LockVersion = version
		return w, err
	}

	if byRun {
		if err := w.Blocked(); err != nil && (!moves || w.Review != 0) {
			return w, err
		}
		if !moves {
			if err := beginIn(tx, r, w, now); err != nil {
				return w, err
			}
		}
	}

	kind, data, err := change(&w)
	if err != nil {
		return w, err
	}

	if writes[kind] {
		w.LockVersion++
		w.UpdatedAt = store.Instant(store.Millis(now))
		put(tx, w)
	}
	return w, addEvent(tx, by, r, w, now, kind, data)
}

func put(tx *store.Tx, w Workspace) {
	tx.Run(`update workspaces set status = $1, status_by = $2, phase = $3, role = $4, state = $5, schema_version = $6, lock_version = $7, review = $8, updated_at = $9 where id = $10`,
		string(w.Status), w.StatusBy, w.Phase, w.Role, string(w.State), w.SchemaVersion, w.LockVersion, w.Review, store.Millis(w.UpdatedAt), w.ID)
}
