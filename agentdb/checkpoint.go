package agentdb

import (
	"context"

	"rouse/agentdb/sqlite"
)

// A commit of much data would also copy all of it from the log into the file while the caller
// waits, although it is durable already. So an import commits without a checkpoint, and the log
// is emptied in the background.

// deferCheckpoint makes the commit of this transaction leave the log as it is.
func deferCheckpoint(tx *sqlite.Tx) error { return autoCheckpoint(tx, "pragma wal_autocheckpoint=0") }

// autoCheckpoint reads what the pragma answers, or it would not be done.
func autoCheckpoint(tx *sqlite.Tx, pragma string) error {
	var pages int
	return tx.QueryRow(pragma).Scan(&pages)
}

// checkpoint restores SQLite's own habit and empties the log in the background. What
// fails here is done by a later commit, or when the file is closed.
func (db *DB) checkpoint(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	db.background.Go(func() {
		_ = db.db.Do(ctx, func(tx *sqlite.Tx) error { return autoCheckpoint(tx, "pragma wal_autocheckpoint=1000") })
		_, _ = db.db.Read().ExecContext(ctx, "pragma wal_checkpoint(passive)")
	})
}
