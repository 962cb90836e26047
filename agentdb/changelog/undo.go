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

// UndoSpec selects the run to undo and sets the limits of the undo.
type UndoSpec struct {
	Run int64
	// Force continues if rows were changed after the run. The later values then exist only in the
	// changelog.
	Force  bool
	DryRun bool // roll back at the end: the result describes a real undo
	// Progress receives the number of the run's changelog entries that are done, and their total.
	// One entry of an import has a thousand rows. Optional.
	Progress func(done, of int64)
}

// Undone is the result of an undo, or of a dry run.
type Undone struct {
	Run           int64         `json:"run"`
	Done          bool          `json:"done"`     // the undo was committed
	CanUndo       bool          `json:"can_undo"` // there is no conflict
	Changes       int64         `json:"changes"`  // number of changelog entries
	Tables        []UndoneTable `json:"tables"`
	Schema        []string      `json:"schema"`    // SQL that undoes schema changes
	Conflicts     []Conflict    `json:"conflicts"` // the first 20
	ConflictCount int64         `json:"conflict_count"`
	Remaining     []string      `json:"left"` // other effects of the run, which remain
}

// UndoneTable counts the rows of a table that an undo reset.
type UndoneTable struct {
	Name     string `json:"name"`
	Removed  int64  `json:"removed"` // rows that the run had inserted
	Changed  int64  `json:"changed"`
	Restored int64  `json:"restored"` // rows that the run had hard-deleted
}

// Conflict is a later change that the undo would overwrite or delete.
type Conflict struct {
	Table string `json:"table"`
	Key   string `json:"key,omitempty"` // key of the row: {"id":7}
	Why   string `json:"why"`
}

const (
	maxConflicts = 20
)

// ErrRollback makes the caller roll back an undo without an error.
var ErrRollback = errors.New("the undo is rolled back")

// Undo reverses the changes of a run, the newest first, and records the undo. It returns
// ErrRollback with the result if the caller must roll the transaction back. That is the case for
// a dry run, and if a later change conflicts and spec.Force is not set.
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
	layouts           map[string]*Layout // nil value: no such table
	spec              UndoSpec
	out               Undone
	counts            map[string]*UndoneTable
	upto              int64           // newest changelog id of the run
	conflicts         map[string]bool // key: table and row key
	suspended         []string        // definitions of the dropped triggers
	triggersSuspended bool
	renamed           []rename // nil means not read yet
}

func newUndoer(tx *sqlite.Tx, by By, spec UndoSpec) *undoer {
	return &undoer{
		tx: tx, by: by, at: sqlvalue.Now(), spec: spec, out: Undone{Run: spec.Run},
		counts: map[string]*UndoneTable{}, conflicts: map[string]bool{},
	}
}

func (u *undoer) run(ctx context.Context) error {
	// The undo follows the order of the changelog, so foreign keys are only consistent at the
	// end.
	if _, err := u.tx.SQL().ExecContext(ctx, "pragma defer_foreign_keys=1"); err != nil {
		return err
	}

	ids, err := u.changeIDs(ctx)
	if err != nil {
		return err
	}

	u.out.Changes = int64(len(ids))
	for i, id := range ids {
		// One entry can hold a thousand rows, so this is not called too often.
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

// changeIDs returns the changes of the run since it was last undone, the newest first.
func (u *undoer) changeIDs(ctx context.Context) ([]int64, error) {
	return sqlite.Collect(ctx, u.tx.SQL(), sqlite.Single[int64], `select id from _changelog where run_id = ?1 and ledger = `+lineage.OfRun+` and actor in ('agent', 'migration')
		and id > (select coalesce(max(upto), 0) from _undone where run_id = ?1 and ledger = `+lineage.OfRun+`) order by id desc`, u.spec.Run)
}

// readChange reads one change. All changes of an import together may not fit into memory.
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
		// A schema change needs the triggers: it may affect one, and a rename rewrites them.
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

// undoRows runs steps for rows without triggers. The effects of triggers have their own steps.
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
	// From here on, use the current names of tables and columns.
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

	// A rejected statement must not leave its rows among the recorded changes.
	mark := u.tx.ChangeCount()
	result, err := u.tx.SQL().ExecContext(ctx, query, args...)
	if dberr.Refused(err) {
		u.tx.DiscardChanges(mark)
		u.addRowConflict(ctx, s, dberr.RowText(err))
		if !u.spec.Force {
			return nil
		}
		// If another row now has the same unique value, Force replaces that row.
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

// layout reads the layout of a table once. It returns nil if there is no such table.
func (u *undoer) layout(ctx context.Context, name string) (*Layout, error) {
	if t, ok := u.layouts[name]; ok {
		return t, nil
	}

	t, err := ReadLayout(ctx, u.tx, name)
	// Cache a missing table too.
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

// suspendTriggers drops the triggers until restoreTriggers is called.
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
	// Otherwise a resumed attempt would treat its writes as already done.
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

// listRemaining lists the effects of the run that are neither rows nor part of the schema.
func (u *undoer) listRemaining(ctx context.Context) error {
	views, err := sqlite.Collect(ctx, u.tx.SQL(), sqlite.Single[string], `select name from _views where run_id = ?1 and ledger = `+lineage.OfRun+` order by name`, u.spec.Run)
	for _, name := range views {
		u.out.Remaining = append(u.out.Remaining, "the saved view "+name+", which the run defined, stays")
	}
	return err
}

// UndoneAt returns the time a run was last undone, or the zero time if it was not. The rows the
// run wrote before that time are no longer in the database.
func UndoneAt(ctx context.Context, q *sql.DB, run int64) (time.Time, error) {
	var at string
	if err := q.QueryRowContext(ctx, `select coalesce(max(at), '') from _undone where run_id = ?1 and ledger = `+lineage.OfRun, run).Scan(&at); err != nil || at == "" {
		return time.Time{}, err
	}
	return time.Parse(sqlvalue.TimeLayout, at)
}
