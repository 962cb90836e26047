package changelog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/lineage"
	"rouse/agentdb/sqltext"
)

// laterChange describes a later change to the row that the undo would overwrite. It returns "" if
// the row is unchanged since the run.
func (u *undoer) laterChange(ctx context.Context, t *Layout, s Step) (why string, err error) {
	// The step is already reversed: its Before is the state that the run left.
	where, args := s.Key.conditions(t)
	if s.Before == nil {
		var there bool
		// The run deleted the row. A row with the same key was inserted later.
		err := u.tx.SQL().QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+sqltext.Quote(t.Name)+" WHERE "+where+")", args...).Scan(&there)
		if there {
			why = "another row with this key was written later"
		}
		return why, err
	}

	expect, more := s.Before.storedIn(t).conditions(t)
	if s.After == nil { // columns added after the run would be lost with the row
		expect += t.otherDefaults(s.Before.Columns)
	}

	var same bool
	err = u.tx.SQL().QueryRowContext(ctx, "SELECT "+expect+" FROM "+sqltext.Quote(t.Name)+" WHERE "+where, append(more, args...)...).Scan(&same)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "it is gone", nil
	case err == nil && !same:
		why = "it was changed later"
	}

	return why, err
}

// conditions returns SQL that compares each column with its value, as SQLite stores it in that
// column.
func (m Image) conditions(t *Layout) (text string, args []any) {
	conds := make([]string, len(m.Columns))
	for i, name := range m.Columns {
		// COLLATE BINARY, because a case-insensitive column would hide a change of case.
		conds[i] = sqltext.Quote(t.Name) + "." + sqltext.Quote(name) + " IS (? COLLATE BINARY)"
		args = append(args, m.Values[i])
	}
	return strings.Join(append(conds, "1"), " AND "), args
}

// otherDefaults returns the condition that all columns except known have their defaults.
func (t *Layout) otherDefaults(known []string) string {
	var b strings.Builder
	for i, name := range t.columns {
		if !sqltext.ContainsFold(known, name) {
			fmt.Fprintf(&b, " AND %s IS (%s)", sqltext.Quote(name), cmp.Or(t.defaults[i], "NULL"))
		}
	}
	return b.String()
}

// addRowConflict adds a conflict for a row once, with the writer of the last change.
func (u *undoer) addRowConflict(ctx context.Context, s Step, why string) {
	key := s.Key.String()
	if id := strings.ToLower(s.Table) + key; u.conflicts[id] {
		return
	} else if len(u.conflicts) < 1<<20 { // limits memory; further rows may count twice
		u.conflicts[id] = true
	}
	u.addConflict(s.Table, key, why+u.lastChangeBy(ctx, s, key))
}

func (u *undoer) addConflict(table, key, why string) {
	u.out.ConflictCount++
	if len(u.out.Conflicts) < maxConflicts {
		u.out.Conflicts = append(u.out.Conflicts, Conflict{table, key, why})
	}
}

// lastChangeBy describes the last change to a row, or returns "" if the row has no entry of its
// own.
func (u *undoer) lastChangeBy(ctx context.Context, s Step, key string) string {
	if len(u.out.Conflicts) >= maxConflicts {
		return ""
	}

	var run int64
	var actor, at string
	err := u.tx.SQL().QueryRowContext(ctx, `select run_id, actor, ts from _changelog
		where id > ?2 and (run_id <> ?1 or ledger <> `+lineage.OfRun+`) and "table" = ?3 collate nocase and pk = ?4 order by id desc limit 1`, u.spec.Run, s.Change, s.Table, key).Scan(&run, &actor, &at)
	switch {
	case err != nil: // optional detail
		return ""
	case run == 0:
		return fmt.Sprintf(" (by %s, %s)", actor, at)
	}

	return fmt.Sprintf(" (by run %d, %s)", run, at)
}

// checkForeignKeys adds conflicts for rows that would refer to deleted rows.
func (u *undoer) checkForeignKeys(ctx context.Context) error {
	rows, err := u.tx.SQL().QueryContext(ctx, `select "table", coalesce(rowid, 0), parent from pragma_foreign_key_check`)
	if err != nil {
		return err
	}
	defer rows.Close()

	for rows.Next() {
		var table, parent string
		var row int64
		if err := rows.Scan(&table, &row, &parent); err != nil {
			return err
		}
		// The commit would fail anyway: foreign keys are deferred, not disabled.
		if u.spec.Force {
			return &dberr.Error{Kind: dberr.KindRejected, Field: "run", Message: fmt.Sprintf("run %d cannot be undone: row %d of %s points at a row of %s that the run wrote. Force does not help here; delete or change that row first", u.spec.Run, row, table, parent)}
		}
		u.addConflict(table, fmt.Sprintf(`{"rowid":%d}`, row), "it points at a row of "+parent+" that the run wrote")
	}

	return rows.Err()
}
