package agentdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"rouse/agentdb/lineage"
	"rouse/internal/storage/sqlite"
)

// Audit checks that an agent's database is intact and that the ledger knows the runs that wrote
// to it. It calls found for each problem. The caller must read the ledger after the database. If
// frozen is true, the file is not open elsewhere and Audit creates no files beside it.
func Audit(ctx context.Context, path string, l lineage.Ledger, frozen bool, found func(text string) error) (err error) {
	open := sqlite.OpenShared
	if frozen {
		open = sqlite.OpenReadOnly
	}
	db, err := open(path)
	if err != nil {
		return reportCorrupt(err, found)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	// One transaction, so that all reads see the same state.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return reportCorrupt(err, found)
	}
	defer func() { _ = tx.Rollback() }() // read-only

	uses, err := auditFile(ctx, tx, path, found)
	if err != nil || len(uses) == 0 {
		return reportCorrupt(err, found)
	}

	newest, err := l.NewestRun(ctx)
	if err != nil {
		return err
	}
	if _, why := lineage.Unknown(uses, l.Epochs(), newest); why != "" {
		return found(why)
	}

	// The current epoch: only its runs can still write.
	now := l.Epochs()[len(l.Epochs())-1]
	for _, r := range uses {
		if r.ID != now.ID {
			continue
		}
		for _, table := range []struct{ name, run, what string }{{"_calls", "run", "the journal of calls"}, {"_changelog", "run_id", "the changelog"}} {
			var high sql.NullInt64
			if err := tx.QueryRowContext(ctx, fmt.Sprintf(`select max(%s) from %s where ledger = ?`, table.run, table.name), r.N).Scan(&high); err != nil {
				return reportCorrupt(err, found)
			}
			if high.Int64 > newest {
				if err := found(fmt.Sprintf("%s holds what run %d did, and the ledger has given no run after %d", table.what, high.Int64, newest)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// auditFile checks the file, reports problems to found, and returns the ledger epochs that wrote to
// it.
func auditFile(ctx context.Context, tx *sql.Tx, path string, found func(string) error) (uses []lineage.Row, err error) {
	var id int32
	if err := tx.QueryRowContext(ctx, "pragma application_id").Scan(&id); err != nil {
		return nil, err
	}
	if id != ApplicationID {
		return nil, found(fmt.Sprintf("%s is not an agent's database (application id %#x)", path, id))
	}

	var verdict string
	if err := tx.QueryRowContext(ctx, "pragma quick_check(1)").Scan(&verdict); err != nil {
		return nil, err
	}
	if verdict != "ok" {
		return nil, found(fmt.Sprintf("%s is damaged: %s", path, verdict))
	}

	return lineage.Read(ctx, tx)
}

// reportCorrupt reports corruption to found, and returns every other error.
func reportCorrupt(err error, found func(string) error) error {
	var bad *sqlite.CorruptError
	switch {
	case errors.As(err, &bad):
		return found(bad.Error())
	case sqlite.Corrupt(err):
		return found(err.Error())
	}
	return err
}

// Verify returns a *sqlite.CorruptError unless path is an intact database of an agent. No process
// may have the file open.
func Verify(ctx context.Context, path string) error {
	return sqlite.Verify(ctx, path, ApplicationID, false)
}
