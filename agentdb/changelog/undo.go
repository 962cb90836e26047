package changelog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/agentdb/dberr"
	"rouse/agentdb/lineage"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

// UndoSpec says which run to undo, and how far that may go.
type UndoSpec struct {
	Run int64
	// Force goes on where somebody else changed the same rows later; what they wrote there
	// is then in the changelog alone.
	Force  bool
	DryRun bool // do everything, then roll it back: the result says what an undo would do
	// Progress, when set, hears how many of the run's entries of the changelog are done; one
	// of an import has a thousand rows.
	Progress func(done, of int64)
}

// Undone is what an undo of a run did, or would do.
type Undone struct {
	Run           int64         `json:"run"`
	Done          bool          `json:"done"`     // it is in the file now
	CanUndo       bool          `json:"can_undo"` // there is no conflict
	Changes       int64         `json:"changes"`  // entries of the changelog
	Tables        []UndoneTable `json:"tables"`
	Schema        []string      `json:"schema"`    // SQL that undoes changes of the schema
	Conflicts     []Conflict    `json:"conflicts"` // the first 20
	ConflictCount int64         `json:"conflict_count"`
	Remaining     []string      `json:"left"` // what stays, because it is not a row
}

// UndoneTable counts rows that are as they were before the run.
type UndoneTable struct {
	Name     string `json:"name"`
	Removed  int64  `json:"removed"` // the run had written them
	Changed  int64  `json:"changed"`
	Restored int64  `json:"restored"` // the run had deleted them for good
}

// Conflict is something that came after the run and would be lost with it.
type Conflict struct {
	Table string `json:"table"`
	Key   string `json:"key,omitempty"` // of the row: {"id":7}
	Why   string `json:"why"`
}

const (
	maxConflicts = 20
)

// ErrRollback ends the transaction of an undo that is only tried.
var ErrRollback = errors.New("the undo is rolled back")

// Undo reverses the changes of a run, the newest first, inside a transaction, and records that. It
// returns errRollback with the result if the caller must roll the transaction back: spec asks for a
// dry run, or a later change conflicts and spec.Force is not set.
func Undo(ctx context.Context, tx *sqlite.Tx, by By, spec UndoSpec) (Undone, error) {
	u := newUndoer(tx, by, spec)
	if err := u.run(ctx); err != nil {
		return Undone{}, err
	}
	if spec.DryRun || u.out.ConflictCount > 0 && !spec.Force {
		return u.result(false), ErrRollback
	}
	if err := u.recordUndo(); err != nil {
		return Undone{}, err
	}
	return u.result(true), nil
}

// undoer undoes one run inside a transaction.
type undoer struct {
	tx                *sqlite.Tx
	by                By
	at                string
	layouts           map[string]*Layout // nil: there is none of that name
	spec              UndoSpec
	out               Undone
	counts            map[string]*UndoneTable
	upto              int64
	conflicts         map[string]bool // Table and key
	suspended         []string        // definitions of the triggers that are dropped meanwhile
	triggersSuspended bool
	renamed           []rename // nil: not read yet
}

func newUndoer(tx *sqlite.Tx, by By, spec UndoSpec) *undoer {
	return &undoer{
		tx: tx, by: by, at: sqlvalue.Now(), spec: spec, out: Undone{Run: spec.Run},
		counts: map[string]*UndoneTable{}, conflicts: map[string]bool{},
	}
}

func (u *undoer) run(ctx context.Context) error {
	// Rows go and come in the order of the changelog, and are only consistent at the end.
	if _, err := u.tx.SQL().ExecContext(ctx, "pragma defer_foreign_keys=1"); err != nil {
		return err
	}

	ids, err := u.changeIDs(ctx)
	if err != nil {
		return err
	}

	u.out.Changes = int64(len(ids))
	for i, id := range ids {
		// An import has one entry for a thousand rows, so this is not called too often.
		if u.spec.Progress != nil {
			u.spec.Progress(int64(i), u.out.Changes)
		}

		c, err := u.readChange(ctx, id)
		if err != nil {
			return err
		}
		if err := u.undoChange(ctx, c); err != nil {
			return err
		}

		u.upto = max(u.upto, id)
	}
	if err := u.restoreTriggers(ctx); err != nil {
		return err
	}
	if err := u.checkForeignKeys(ctx); err != nil {
		return err
	}

	return u.listRemaining(ctx)
}

// changeIDs are the changes of the run since it was last undone, the newest first.
func (u *undoer) changeIDs(ctx context.Context) ([]int64, error) {
	return sqlite.Collect(ctx, u.tx.SQL(), sqlite.Single[int64], `select id from _changelog where run_id = ?1 and ledger = `+lineage.OfRun+` and actor in ('agent', 'migration')
		and id > (select coalesce(max(upto), 0) from _undone where run_id = ?1 and ledger = `+lineage.OfRun+`) order by id desc`, u.spec.Run)
}

// readChange reads one, because all of an import's together need not fit into memory.
func (u *undoer) readChange(ctx context.Context, id int64) (Change, error) {
	found, err := sqlite.Collect(ctx, u.tx.SQL(), scanChange, selectChange+`id = ?`, id)
	if err != nil || len(found) == 0 {
		return Change{}, errors.Join(err, ctx.Err())
	}
	return found[0], nil
}

func (u *undoer) undoChange(ctx context.Context, c Change) error {
	steps, err := c.Reverse()
	if err != nil {
		if c.Op == opSchema {
			return &dberr.Error{Kind: dberr.KindRejected, Field: "run", Message: fmt.Sprintf("run %d cannot be undone: %v", u.spec.Run, err)}
		}
		return err
	}

	for _, s := range steps {
		// A change of the schema needs the triggers: it may be about one, and a rename rewrites
		// them.
		if s.SQL != nil {
			if err := u.restoreTriggers(ctx); err != nil {
				return err
			}
			return u.undoSchema(ctx, c, s)
		}
	}

	if c.isChunk() {
		if done, err := u.undoChunk(ctx, c, steps); done || err != nil {
			return err
		}
	}
	return u.undoRows(ctx, steps)
}

// undoRows does steps about rows without triggers, whose effects have steps of their own.
func (u *undoer) undoRows(ctx context.Context, steps []Step) error {
	if len(steps) == 0 {
		return nil
	}
	if err := u.suspendTriggers(ctx); err != nil {
		return err
	}

	changes, err := u.tx.RecordChanges(ctx, func(ctx context.Context) error {
		for _, s := range steps {
			if err := u.undoRow(ctx, s); err != nil {
				return fmt.Errorf("change %d: a row of %s: %w", s.Change, s.Table, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	return LogRows(ctx, u.tx, u.by, u.at, "", changes)
}

func (u *undoer) undoRow(ctx context.Context, s Step) error {
	// Everything below talks to the tables as they are called today.
	s, err := u.withCurrentNames(ctx, s)
	if err != nil {
		return err
	}

	t, err := u.layout(ctx, s.Table)
	if err != nil {
		return err
	}

	if t == nil || s.UnknownColumn(t) != "" {
		u.addRowConflict(ctx, s, "its table, or a column of it, was removed later")
		return nil
	}

	why, err := u.laterChange(ctx, t, s)
	if err != nil {
		return err
	}

	if why != "" {
		u.addRowConflict(ctx, s, why)
		if !u.spec.Force {
			return nil
		}
	}

	query, args := s.Statement(t)
	if query == "" {
		return nil
	}

	// A refused statement must not leave its rows among the recorded ones.
	mark := u.tx.ChangeCount()
	result, err := u.tx.SQL().ExecContext(ctx, query, args...)
	if dberr.Refused(err) {
		u.tx.DiscardChanges(mark)
		u.addRowConflict(ctx, s, dberr.RowText(err))
		if !u.spec.Force {
			return nil
		}
		// Where another row has the same unique value by now, Force replaces that one.
		query = strings.Replace(query, " OR ABORT ", " OR REPLACE ", 1)
		result, err = u.tx.SQL().ExecContext(ctx, query, args...)
	}
	if err != nil {
		return err
	}

	n, err := result.RowsAffected()
	u.count(s, n)
	return err
}

func (u *undoer) count(s Step, n int64) {
	t := u.table(s.Table)
	switch {
	case s.After == nil:
		t.Removed += n
	case s.Before == nil:
		t.Restored += n
	default:
		t.Changed += n
	}
}

func (u *undoer) table(name string) *UndoneTable {
	t := u.counts[strings.ToLower(name)]
	if t == nil {
		t = &UndoneTable{Name: name}
		u.counts[strings.ToLower(name)] = t
	}
	return t
}

// layout reads a table once; nil when there is none of the name.
func (u *undoer) layout(ctx context.Context, name string) (*Layout, error) {
	if t, ok := u.layouts[name]; ok {
		return t, nil
	}

	t, err := ReadLayout(ctx, u.tx, name)
	// That there is no such table is remembered too.
	if errors.Is(err, sql.ErrNoRows) {
		t, err = nil, nil
	}
	if err != nil {
		return nil, err
	}

	if u.layouts == nil {
		u.layouts = map[string]*Layout{}
	}

	u.layouts[name] = t
	return t, nil
}

// suspendTriggers drops the triggers until the schema is needed as it is.
func (u *undoer) suspendTriggers(ctx context.Context) (err error) {
	if u.triggersSuspended {
		return nil
	}
	u.triggersSuspended = true
	u.suspended, err = DropTriggers(ctx, u.tx)
	return err
}

func (u *undoer) restoreTriggers(ctx context.Context) error {
	for _, text := range u.suspended {
		if _, err := u.tx.SQL().ExecContext(ctx, text); err != nil {
			return err
		}
	}
	u.suspended, u.triggersSuspended, u.layouts = nil, false, nil
	return nil
}

// recordUndo records the undo itself.
func (u *undoer) recordUndo() error {
	// A resumed attempt would otherwise take its writes for done.
	if _, err := u.tx.Exec(`delete from _calls where ledger = `+lineage.OfRun+` and run = ?1`, u.spec.Run); err != nil {
		return err
	}
	// A run without changes needs no record.
	if u.out.Changes == 0 {
		return nil
	}

	if len(u.out.Schema) > 0 {
		_, err := RecordMigration(u.tx, u.by, Migration{Slug: fmt.Sprintf("undo-run-%d", u.spec.Run), Description: fmt.Sprintf("Undo of run %d", u.spec.Run), Up: strings.Join(u.out.Schema, ";\n") + ";"})
		if err != nil {
			return err
		}
	}

	_, err := u.tx.Exec(`insert into _undone(ledger, run_id, upto, at, actor, forced) values (`+lineage.OfRun+`, ?1, ?2, ?3, ?4, ?5)`, u.spec.Run, u.upto, u.at, u.by.Actor, u.spec.Force)
	return err
}

func (u *undoer) result(done bool) Undone {
	out := u.out
	out.Done, out.CanUndo = done, out.ConflictCount == 0
	out.Tables = []UndoneTable{}
	for _, t := range u.counts {
		out.Tables = append(out.Tables, *t)
	}

	slices.SortFunc(out.Tables, func(a, b UndoneTable) int { return strings.Compare(a.Name, b.Name) })
	out.Schema, out.Remaining = append([]string{}, out.Schema...), append([]string{}, out.Remaining...)
	out.Conflicts = append([]Conflict{}, out.Conflicts...)
	return out
}

// listRemaining names what stays because it is neither a row nor part of the schema.
func (u *undoer) listRemaining(ctx context.Context) error {
	views, err := sqlite.Collect(ctx, u.tx.SQL(), sqlite.Single[string], `select name from _views where run_id = ?1 and ledger = `+lineage.OfRun+` order by name`, u.spec.Run)
	for _, name := range views {
		u.out.Remaining = append(u.out.Remaining, "the saved view "+name+", which the run defined, stays")
	}
	return err
}

// UndoneAt returns the time a run was last undone, or the zero time. What the run recorded before
// that is no longer in the database.
func UndoneAt(ctx context.Context, q *sql.DB, run int64) (time.Time, error) {
	var at string
	if err := q.QueryRowContext(ctx, `select coalesce(max(at), '') from _undone where run_id = ?1 and ledger = `+lineage.OfRun, run).Scan(&at); err != nil || at == "" {
		return time.Time{}, err
	}
	return time.Parse(sqlvalue.TimeLayout, at)
}
