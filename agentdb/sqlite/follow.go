package sqlite

import (
	"context"
)

// Observe has somebody follow what is written. committed is called by the writer's goroutine after each batch of writes, before whoever
// wrote hears of it, and must not wait; closing when nothing is written any more, before the file is closed: whoever holds a Snapshot closes it there, or the log
// would stay. Only one observes a database.
func (db *DB) Observe(committed, closing func()) {
	db.writer.committed.Store(&committed)
	db.closing.Store(&closing)
}

// Turn runs fn while nothing is written to the database, so that what its log holds is whole transactions.
func (db *DB) Turn(ctx context.Context, fn func() error) error {
	return db.writer.submit(ctx, &operation{exclusive: fn, reads: true, done: make(chan struct{})})
}

// Checkpoint brings what the log holds into the file, as far as nobody reads from the log.
func (db *DB) Checkpoint(ctx context.Context) error {
	_, err := db.read.ExecContext(ctx, "pragma wal_checkpoint(passive)")
	return err
}

// Path is the file of the database.
func (db *DB) Path() string { return db.path }
