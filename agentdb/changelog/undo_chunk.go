package changelog

import (
	"context"
	"errors"
	"strings"

	"rouse/agentdb/dberr"
)

// undoChunk undoes a chunk if its rows are unchanged since the run, and records the undo in one
// entry. If done is false, it had no effect, and the caller must undo and record each row.
func (u *undoer) undoChunk(ctx context.Context, c Change, steps []Step) (done bool, err error) {
	// The entry uses the original names of the table and its columns.
	if since, err := u.renamesAfter(ctx, c.ID, c.Table); len(since) > 0 || err != nil {
		return false, err
	}
	// Deleting rows that other tables refer to may cascade, which is only recorded per row.
	t, err := u.layout(ctx, c.Table)
	if err != nil || t == nil || t.Parent {
		return false, err
	}
	if err := u.suspendTriggers(ctx); err != nil {
		return false, err
	}

	if _, err := u.tx.Exec("savepoint chunk"); err != nil {
		return false, err
	}
	done, err = u.undoUntouched(ctx, t, steps)
	end := []string{"release chunk"}
	if !done {
		end = []string{"rollback to chunk", "release chunk"}
	}
	for _, text := range end {
		_, e := u.tx.Exec(text)
		err = errors.Join(err, e)
	}
	if err != nil || !done {
		return false, err
	}

	for _, s := range steps {
		u.count(s, 1)
	}
	gone := strings.TrimSuffix(c.PK, "}") + `,"at":"` + c.At + `"}`
	_, err = Log(u.tx, u.by, u.at, Entry{Op: OpRaw, Table: c.Table, PK: gone, Before: c.After, After: c.Before})
	return true, err
}

// undoUntouched runs steps for rows. It stops at the first row with a conflict.
func (u *undoer) undoUntouched(ctx context.Context, t *Layout, steps []Step) (done bool, err error) {
	for _, s := range steps {
		if s.UnknownColumn(t) != "" {
			return false, nil
		}
		if why, err := u.laterChange(ctx, t, s); why != "" || err != nil {
			return false, err
		}

		query, args := s.Statement(t)
		result, err := u.tx.SQL().ExecContext(ctx, query, args...)
		if dberr.Refused(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if n, err := result.RowsAffected(); n != 1 || err != nil {
			return false, err
		}
	}
	return true, nil
}
