package changelog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// undoSchema undoes a schema change. A table that the run created is dropped only if no rows
// remain in it after the run's rows are deleted.
func (u *undoer) undoSchema(ctx context.Context, c Change, s Step) error {
	became, err := parseObjects(c.After)
	if err != nil {
		return unreadable(c.ID, err)
	}

	before, err := ReadObjects(ctx, u.tx)
	if err != nil {
		return err
	}

	// The run's objects must be unchanged; otherwise they were changed later.
	for _, o := range became {
		if !slices.ContainsFunc(before, func(p Object) bool { return p.Type == o.Type && p.Name == o.Name && p.SQL == o.SQL }) {
			u.addConflict(o.Table, "", fmt.Sprintf("the %s %s was changed or removed later", o.Type, o.Name))
			if !u.spec.Force {
				return nil
			}
		}
	}

	brokenBefore, err := u.broken(ctx, before)
	if err != nil {
		return err
	}

	err = ChangeSchema(ctx, u.tx, u.by, u.at, s.Table, func() (string, error) {
		ran, err := u.runStatements(ctx, s)
		if err != nil {
			return "", err
		}

		after, err := ReadObjects(ctx, u.tx)
		if err != nil {
			return "", err
		}

		dropped, err := u.checkDependents(ctx, before, after, became, brokenBefore)
		if err != nil {
			return "", err
		}
		if after, err = ReadObjects(ctx, u.tx); err != nil {
			return "", err
		}

		synced, err := SyncTables(ctx, u.tx, u.by, u.at, before, after)
		return strings.Join(slices.Concat(ran, dropped, synced), ";\n") + ";", err
	})

	u.layouts, u.renamed = nil, nil
	return err
}

func (u *undoer) runStatements(ctx context.Context, s Step) ([]string, error) {
	var ran []string
	for _, text := range s.SQL {
		ready, err := u.prepareDrop(ctx, text)
		if err != nil {
			return ran, err
		}
		if !ready {
			continue
		}

		if _, err := u.tx.SQL().ExecContext(ctx, text); err != nil {
			// Not SQLite's error, but a host failure or the deadline.
			if sqlite.Code(err) == 0 {
				return ran, err
			}
			return ran, &dberr.Error{Kind: dberr.KindRejected, Field: "run", Message: fmt.Sprintf("run %d cannot be undone: %s is refused: %s", u.spec.Run, text, dberr.SQLText(err))}
		}

		ran, u.out.Schema = append(ran, text), append(u.out.Schema, text)
	}

	return ran, nil
}

// prepareDrop adds conflicts for other rows and values that a statement would delete. It reports
// whether the statement can run. With Force it deletes the rows of a table first, so that the
// changelog records them.
func (u *undoer) prepareDrop(ctx context.Context, text string) (bool, error) {
	if table, ok := strings.CutPrefix(text, "DROP TABLE "); ok {
		var rows int64
		if err := u.tx.SQL().QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
			return false, err
		}
		// The run's own rows are already deleted, because undo starts with the newest change.
		if rows == 0 {
			return true, nil
		}

		u.addConflict(strings.Trim(table, `"`), "", fmt.Sprintf("the table holds %d rows that came from elsewhere", rows))
		if !u.spec.Force {
			return false, nil
		}

		// DROP TABLE is logged only as a schema change, without its rows.
		changes, err := u.tx.RecordChanges(ctx, func(ctx context.Context) error {
			_, err := u.tx.SQL().ExecContext(ctx, "DELETE FROM "+table+" WHERE true")
			return err
		})
		if err != nil {
			return false, err
		}

		return true, LogRows(ctx, u.tx, u.by, u.at, "", changes)
	}

	rest, ok := strings.CutPrefix(text, "ALTER TABLE ")
	table, column, drops := strings.Cut(rest, " DROP COLUMN ")
	if !ok || !drops {
		return true, nil
	}

	var fallback string
	if err := u.tx.SQL().QueryRowContext(ctx, `select coalesce(dflt_value, 'null') from pragma_table_xinfo(?) where '"' || replace(name, '"', '""') || '"' = ?`, strings.Trim(table, `"`), column).Scan(&fallback); err != nil {
		return false, err
	}

	var rows int64
	if err := u.tx.SQL().QueryRowContext(ctx, "SELECT count(*) FROM "+table+" WHERE "+column+" IS NOT ("+fallback+")").Scan(&rows); err != nil {
		return false, err
	}

	if rows > 0 {
		u.addConflict(strings.Trim(table, `"`), "", fmt.Sprintf("its column %s, which the run added, holds values of others in %d rows", strings.Trim(column, `"`), rows))
	}

	return rows == 0 || u.spec.Force, nil
}

// checkDependents adds conflicts for views, indexes and triggers that were created later and
// would be dropped or stop working. With Force, it drops the broken ones and returns the SQL.
func (u *undoer) checkDependents(ctx context.Context, before, after, became []Object, brokenBefore map[string]string) (dropped []string, err error) {
	for _, o := range before {
		is := func(p Object) bool { return p.Type == o.Type && p.Name == o.Name }
		if o.Type != "table" && !strings.HasPrefix(o.Name, "_") && !slices.ContainsFunc(after, is) && !slices.ContainsFunc(became, is) {
			u.addConflict(o.Table, "", fmt.Sprintf("the %s %s, which was made later, would go with it", o.Type, o.Name))
		}
	}

	broken, err := u.broken(ctx, after)
	if err != nil {
		return nil, err
	}

	for _, o := range after {
		why, now := broken[o.key()]
		if _, was := brokenBefore[o.key()]; !now || was {
			continue
		}

		u.addConflict(o.Table, "", fmt.Sprintf("the %s %s would not work any more (%s)", o.Type, o.Name, why))
		if !u.spec.Force {
			continue
		}

		text := "DROP " + strings.ToUpper(o.Type) + " " + sqltext.Quote(o.Name)
		if _, err := u.tx.SQL().ExecContext(ctx, text); err != nil {
			return dropped, err
		}

		dropped = append(dropped, text)
	}

	return dropped, nil
}
