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

// undoSchema undoes a change of the schema: a table that the run made is dropped once the
// run's rows are out of it, and no others are in.
func (u *undoer) undoSchema(ctx context.Context, c Change, s Step) error {
	became, err := parseObjects(c.After)
	if err != nil {
		return unreadable(c.ID, err)
	}

	before, err := ReadObjects(ctx, u.tx)
	if err != nil {
		return err
	}

	// What the run made has to be there as it made it, or somebody has changed it since.
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
			// Not SQLite's refusal, but a failure of the host or the deadline.
			if sqlite.Code(err) == 0 {
				return ran, err
			}
			return ran, &dberr.Error{Kind: dberr.KindRejected, Field: "run", Message: fmt.Sprintf("run %d cannot be undone: %s is refused: %s", u.spec.Run, text, dberr.SQLText(err))}
		}

		ran, u.out.Schema = append(ran, text), append(u.out.Schema, text)
	}

	return ran, nil
}

// prepareDrop looks for rows and values of others that a statement would delete. With Force
// the rows are deleted first, so that the changelog has them.
func (u *undoer) prepareDrop(ctx context.Context, text string) (bool, error) {
	if table, ok := strings.CutPrefix(text, "DROP TABLE "); ok {
		var rows int64
		if err := u.tx.SQL().QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
			return false, err
		}
		// The rows of the run itself are gone by now, since its changes are undone from the
		// newest.
		if rows == 0 {
			return true, nil
		}

		u.addConflict(strings.Trim(table, `"`), "", fmt.Sprintf("the table holds %d rows that came from elsewhere", rows))
		if !u.spec.Force {
			return false, nil
		}

		// DROP TABLE is recorded as a change of the schema alone, without its rows.
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

// checkDependents looks for what others made that would not work any more, though it did. With
// Force it is dropped too; dropped is the SQL for that.
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
