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

// laterChange says what came after the run and would be lost, "" when nothing did: the row has to
// be as the run left it.
func (u *undoer) laterChange(ctx context.Context, t *Layout, s Step) (why string, err error) {
	// Before and After of the step are reversed already: Before is what the run left.
	where, args := s.Key.conditions(t)
	if s.Before == nil {
		var there bool
		// The run deleted the row; whoever wrote one with its key since would lose it.
		err := u.tx.SQL().QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+sqltext.Quote(t.Name)+" WHERE "+where+")", args...).Scan(&there)
		if there {
			why = "another row with this key was written later"
		}
		return why, err
	}

	expect, more := s.Before.storedIn(t).conditions(t)
	if s.After == nil { // the columns that the run did not know would go with the row
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

// conditions compares each column with its value, as SQLite stores it in that column.
func (m Image) conditions(t *Layout) (text string, args []any) {
	conds := make([]string, len(m.Columns))
	for i, name := range m.Columns {
		// COLLATE BINARY, because a column that ignores case would hide a change of case.
		conds[i] = sqltext.Quote(t.Name) + "." + sqltext.Quote(name) + " IS (? COLLATE BINARY)"
		args = append(args, m.Values[i])
	}
	return strings.Join(append(conds, "1"), " AND "), args
}

// otherDefaults is the condition that the columns beside the known ones have their defaults.
func (t *Layout) otherDefaults(known []string) string {
	var b strings.Builder
	for i, name := range t.columns {
		if !sqltext.ContainsFold(known, name) {
			fmt.Fprintf(&b, " AND %s IS (%s)", sqltext.Quote(name), cmp.Or(t.defaults[i], "NULL"))
		}
	}
	return b.String()
}

// addRowConflict notes a row once, with who changed it.
func (u *undoer) addRowConflict(ctx context.Context, s Step, why string) {
	key := s.Key.String()
	if id := strings.ToLower(s.Table) + key; u.conflicts[id] {
		return
	} else if len(u.conflicts) < 1<<20 { // bounds the memory; beyond it a row may count twice
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

// lastChangeBy names the last change to a row; "" when the changelog has none of the row alone.
func (u *undoer) lastChangeBy(ctx context.Context, s Step, key string) string {
	if len(u.out.Conflicts) >= maxConflicts {
		return ""
	}

	var run int64
	var actor, at string
	err := u.tx.SQL().QueryRowContext(ctx, `select run_id, actor, ts from _changelog
		where id > ?2 and (run_id <> ?1 or ledger <> `+lineage.OfRun+`) and "table" = ?3 collate nocase and pk = ?4 order by id desc limit 1`, u.spec.Run, s.Change, s.Table, key).Scan(&run, &actor, &at)
	switch {
	case err != nil: // only an extra: the conflict itself is reported
		return ""
	case run == 0:
		return fmt.Sprintf(" (by %s, %s)", actor, at)
	}

	return fmt.Sprintf(" (by run %d, %s)", run, at)
}

// checkForeignKeys finds rows of others that would point at rows that are gone.
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
		// The commit would fail anyway: foreign keys are deferred, not switched off.
		if u.spec.Force {
			return &dberr.Error{Kind: dberr.KindRejected, Field: "run", Message: fmt.Sprintf("run %d cannot be undone: row %d of %s points at a row of %s that the run wrote. Force does not help here; delete or change that row first", u.spec.Run, row, table, parent)}
		}
		u.addConflict(table, fmt.Sprintf(`{"rowid":%d}`, row), "it points at a row of "+parent+" that the run wrote")
	}

	return rows.Err()
}
