package changelog

import (
	"context"
	"errors"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// key returns a key that is unique within one schema.
func (o Object) key() string { return o.Type + " " + strings.ToLower(o.Name) }

// broken returns the errors of views and triggers that do not work, by object key. It lets SQLite
// compile a SELECT for each view and the statements that fire each trigger.
func (u *undoer) broken(ctx context.Context, objects []Object) (map[string]string, error) {
	out := map[string]string{}
	var triggers []Object
	for _, o := range objects {
		switch {
		case o.Type == "view":
			if why, err := u.compiles(ctx, "SELECT 1 FROM "+sqltext.Quote(o.Name)); err != nil {
				return nil, err
			} else if why != "" {
				out[o.key()] = why
			}
		case o.Type == "trigger" && !strings.HasPrefix(o.Name, "_"): // host triggers depend only on their own table
			triggers = append(triggers, o)
		}
	}
	if len(triggers) == 0 {
		return out, nil
	}

	return out, u.brokenTriggers(ctx, triggers, out)
}

// brokenTriggers tests each trigger alone, because a statement compiles all triggers of its
// table.
func (u *undoer) brokenTriggers(ctx context.Context, triggers []Object, out map[string]string) (err error) {
	if _, err := u.tx.SQL().ExecContext(ctx, "savepoint broken"); err != nil {
		return err
	}
	defer func() {
		for _, end := range []string{"rollback to broken", "release broken"} {
			_, e := u.tx.SQL().ExecContext(ctx, end)
			err = errors.Join(err, e)
		}
	}()

	if _, err := DropTriggers(ctx, u.tx); err != nil {
		return err
	}

	for _, o := range triggers {
		why, err := u.tryTrigger(ctx, o)
		if err != nil {
			return err
		}
		if why != "" {
			out[o.key()] = why
		}
	}

	return nil
}

// tryTrigger creates a trigger, compiles the statements that fire it, and drops it again.
func (u *undoer) tryTrigger(ctx context.Context, o Object) (why string, err error) {
	statements, err := u.firing(ctx, o)
	if err != nil {
		return "", err
	}

	// Errors that also occur without the trigger are not its fault.
	without := map[string]string{}
	for _, text := range statements {
		if without[text], err = u.compiles(ctx, text); err != nil {
			return "", err
		}
	}

	if _, err := u.tx.SQL().ExecContext(ctx, o.SQL); err != nil {
		if sqlite.Code(err) == 0 {
			return "", err
		}
		return dberr.SQLText(err), nil
	}

	for _, text := range statements {
		with, err := u.compiles(ctx, text)
		if err != nil {
			return "", err
		}
		if with != "" && with != without[text] {
			why = with
		}
	}

	_, err = u.tx.SQL().ExecContext(ctx, "DROP TRIGGER "+sqltext.Quote(o.Name))
	return why, err
}

// firing returns an insert, an update and a delete, one of which fires the trigger.
func (u *undoer) firing(ctx context.Context, o Object) ([]string, error) {
	var set string
	const columns = `select coalesce(group_concat('"' || replace(name, '"', '""') || '" = NULL'), '') from pragma_table_xinfo(?) where hidden = 0`
	if err := u.tx.SQL().QueryRowContext(ctx, columns, o.Table).Scan(&set); err != nil {
		return nil, err
	}

	table := sqltext.Quote(o.Table)
	return []string{"INSERT INTO " + table + " DEFAULT VALUES", "UPDATE " + table + " SET " + set, "DELETE FROM " + table}, nil
}

// compiles returns SQLite's error for a statement, or "" if it is valid. The statement is not
// executed.
func (u *undoer) compiles(ctx context.Context, text string) (why string, err error) {
	rows, err := u.tx.SQL().QueryContext(ctx, "EXPLAIN "+text)
	if err == nil {
		defer rows.Close()
		return "", rows.Err()
	}

	switch sqlite.Code(err) {
	case 0: // host failure or deadline
		return "", err
	case sqlite3.SQLITE_AUTH: // denied by the authorizer, not broken
		return "", nil
	}
	return dberr.SQLText(err), nil
}
