// Package workspace stores state of skills that outlives runs, with its artifacts, events,
// checkpoints and reviews.
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

// Workspace is the state of a skill of an agent that outlives runs.
type Workspace struct {
	ID           int64
	Agent, Skill string
	Name         string // unique for its skill and agent
	Status       Status
	// StatusBy is ByUser or ByAgent. A run cannot resume a workspace that its owner has paused.
	StatusBy      string
	Phase, Role   string
	State         json.RawMessage // JSON object of at most 256 KiB
	SchemaVersion string          // version of the state's schema, set by the skill
	LockVersion   int64           // starts at 1 and increases with each write
	// Review is the run that left the workspace partly changed. If it is not 0, runs cannot work in
	// the workspace until the owner has decided.
	Review               int64
	CreatedAt, UpdatedAt time.Time
}

// Status is the status of a workspace. Runs can work only in an active workspace.
type Status string

// Statuses of a workspace. An archived workspace can become active, but not paused.
const (
	Active   Status = "active"
	Paused   Status = "paused"
	Archived Status = "archived"
)

// Limits of a workspace.
const (
	maxState = 256 << 10 // in bytes; also limits the run state of a checkpoint
	maxWord  = 100       // in characters, for names, phases, roles, steps, types and statuses
	maxEvent = 16 << 10  // in bytes, for the data of an event
)

// ConflictError is returned for a write to a workspace that has changed since it was read.
type ConflictError struct {
	Workspace  int64
	Name       string
	Given, Now int64 // lock versions
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("workspace %d (%s) has the lock version %d by now, and %d was given: somebody else has written it; read it again, and repeat the change", e.Workspace, e.Name, e.Now, e.Given)
}

// BlockedError is returned if a run cannot work in a workspace. Its message tells the owner how to
// unblock it.
type BlockedError struct{ Workspace Workspace }

func (e *BlockedError) Error() string {
	w := e.Workspace
	if w.Review != 0 {
		return fmt.Sprintf("run %d left workspace %d (%s) half changed, and its owner decides first what becomes of that: rouse workspaces show %[2]d", w.Review, w.ID, w.Name)
	}
	return fmt.Sprintf("workspace %d (%s) is %s; resume it with: rouse workspaces resume %[1]d", w.ID, w.Name, w.Status)
}

// Error is returned for a request that is not valid for the workspace.
type Error struct {
	Field   string // faulty field; empty if the error concerns no single field
	Message string
}

func (e *Error) Error() string { return e.Message }

func wrong(field, format string, args ...any) error {
	return &Error{field, fmt.Sprintf(format, args...)}
}

// Author is the writer of a workspace: a call of an attempt, or the owner.
type Author struct {
	Attempt record.Attempt // zero for the owner
	Key     string         // key of the call; repeated calls with a key write only once
}

func (by Author) name() string {
	if by.Attempt.Run == 0 {
		return record.ByUser
	}
	return record.ByAgent
}

// Blocked returns a *BlockedError if runs cannot work in the workspace, and nil otherwise.
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

// Workspaces stores state of skills that outlives runs.
type Workspaces struct {
	DB    *store.DB
	Blobs *blob.Blobs
}

// Get returns a workspace. It returns ErrNotFound if the workspace does not exist.
func (l *Workspaces) Get(ctx context.Context, id int64) (Workspace, error) {
	w, err := store.One(store.Reads(ctx, l.DB), fields, `select `+columns+` from workspaces where id = $1`, id)
	return store.OrNotFound(w, err, "workspace %d", id)
}

// Named returns the workspace of an agent's skill with a name. It returns ErrNotFound if the
// workspace does not exist.
func (l *Workspaces) Named(ctx context.Context, agent, skill, name string) (Workspace, error) {
	w, err := store.One(store.Reads(ctx, l.DB), fields, `select `+columns+` from workspaces where agent = $1 and skill = $2 and name = $3`, agent, skill, name)
	return store.OrNotFound(w, err, "the workspace %q of the skill %s", name, skill)
}

// Filter selects workspaces. The zero value of a field matches all workspaces.
type Filter struct {
	Agent, Skill string
	Status       Status
	Limit        int // 0 means 100
	// Before is the ID of a workspace. Only workspaces written before it are selected.
	Before int64
}

// List returns workspaces, the most recently written first.
func (l *Workspaces) List(ctx context.Context, f Filter) ([]Workspace, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}

	return store.List(store.Reads(ctx, l.DB), fields, `select `+columns+` from workspaces
		where ($1 = '' or agent = $1) and ($2 = '' or skill = $2) and ($3 = '' or status = $3)
		and ($4 = 0 or (updated_at, id) < (select b.updated_at, b.id from workspaces b where b.id = $4)) order by updated_at desc, id desc limit $5`,
		f.Agent, f.Skill, string(f.Status), f.Before, f.Limit)
}

// Create creates a workspace from Agent, Skill and Name of w. Phase, Role, State and SchemaVersion
// are optional. It returns an *Error if the name is taken.
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

		// A call that is repeated after a crash has already created the workspace.
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

// check returns an *Error if a field of the workspace is not valid.
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

// checkWord returns an *Error if value is not a short text of one line. Such values appear in lists
// and in prompts.
func checkWord(field, value string) error {
	if n := utf8.RuneCountInString(value); n > maxWord {
		return wrong(field, "the %s has %d characters; at most %d are kept", field, n, maxWord)
	}
	if value != text.OneLine(value) || value != strings.TrimSpace(value) {
		return wrong(field, "the %s %q is not a text of one line", field, text.OneLine(value))
	}
	return nil
}

// checkState returns an *Error if state is not a JSON object or is too large. A nil state is valid.
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

// Change is a change of a workspace. Fields with the zero value do not change.
type Change struct {
	// LockVersion is the version that the author read. If 0, the lock version is not checked.
	LockVersion int64
	// Since is the version that the author read, if the author's own later changes do not conflict.
	// If 0, it is not checked.
	Since         int64
	State         json.RawMessage
	Phase, Role   *string
	SchemaVersion *string
	Status        Status
}

// Change changes a workspace, at most once for each call of its author, and returns the result. The
// error can be a *ConflictError, a *BlockedError, an *Error, ErrFenced or ErrNotFound.
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

// moves reports whether the change sets only the status.
func (c Change) moves() bool {
	return c.Status != "" && c.State == nil && c.Phase == nil && c.Role == nil && c.SchemaVersion == nil
}

// apply applies the change to w, and returns the kind and data of the resulting event.
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

// checkOthers returns a *ConflictError if another run or the owner has changed the workspace since
// c.Since.
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

// checkMove returns an error if the author cannot set the status to.
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

	// Archiving would take the workspace from a run that is working in it.
	run, works, err := store.OrFalse(store.Value[int64](tx, `select id from runs where workspace = cast($1 as bigint) and workspace <> 0 and state <> 'finished' and id <> $2 order by id limit 1`, w.ID, by.Attempt.Run))
	if works {
		err = wrong("status", "run %d works in workspace %d (%s); cancel it first: rouse stop %[1]d", run, w.ID, w.Name)
	}
	return err
}

// author checks that the author's attempt is current and returns its run. It returns the zero Run
// for the owner.
func author(tx *store.Tx, db *store.DB, by Author) (record.Run, error) {
	switch {
	case by.Attempt.Run == 0:
		return record.Run{}, nil
	case by.Key == "":
		return record.Run{}, fmt.Errorf("attempt %d of run %d writes to a workspace and does not say by which call", by.Attempt.Number, by.Attempt.Run)
	}
	return record.CheckFence(tx, db, by.Attempt)
}

// writtenBefore returns the workspace that a call has already written, and the lock version it had
// then. It returns 0 if the call has not written.
func writtenBefore(tx *store.Tx, by Author) (workspace, lockVersion int64, err error) {
	err = store.Scan(tx, []any{&workspace, &lockVersion}, `select workspace, lock_version from workspace_events where run = $1 and run <> 0 and key = $2 and key <> ''`, by.Attempt.Run, by.Key)
	_, err = store.OrZero(0, err)
	return workspace, lockVersion, err
}

// lock reads a workspace and locks it for an update.
func lock(tx *store.Tx, db *store.DB, id int64) (Workspace, error) {
	w, err := store.One(tx, fields, `select `+columns+` from workspaces where id = $1`+db.ForUpdate, id)
	return store.OrNotFound(w, err, "workspace %d", id)
}

// write performs every write to a workspace. It checks that the author's attempt is current and
// belongs to the workspace's agent. It does nothing if the call has already written.
//
// The change function applies the change and returns the kind and data of its event. If moves is
// set, the change concerns only the status: it is allowed in a paused workspace, and the run does
// not have to work in the workspace.
func write(tx *store.Tx, db *store.DB, by Author, id int64, now time.Time, moves bool, change func(*Workspace) (kind string, data map[string]any, err error)) (Workspace, error) {
	r, err := author(tx, db, by)
	if err != nil {
		return Workspace{}, err
	}

	w, err := lock(tx, db, id)
	if err != nil {
		return w, err
	}

	// A run cannot see the workspaces of other agents.
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
