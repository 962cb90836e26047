package agentdb

import (
	"context"
	"errors"

	"rouse/internal/storage/sqlite"
)

// maxCheck is up to which size a file that was not closed is checked while it is opened, in
// bytes. SQLite checks some 600 MB per second; larger files are checked while they are in use.
const maxCheck = 1 << 30

// checkInBackground checks a large file while others use it.
func (db *DB) checkInBackground(ctx context.Context) {
	err := db.db.Check(ctx)
	var bad *sqlite.CorruptError
	switch {
	case err == nil:
		db.marker.SetChecked()
	case errors.As(err, &bad):
		db.log.Error("an agent's database is damaged, and is not used any more", "path", db.path, "error", db.marker.Quarantine(bad))
	case ctx.Err() == nil:
		db.log.Warn("an agent's database could not be checked", "path", db.path, "error", err)
	}
}

// quarantineIfCorrupt quarantines a database that SQLite finds damaged while it is read.
func (db *DB) quarantineIfCorrupt(ctx context.Context, err error) error {
	var bad *sqlite.CorruptError
	if err == nil || errors.As(err, &bad) || !corrupt(err) {
		return err
	}
	return db.explain(ctx, err)
}

// CheckFile quarantines the database if its file is lost, and reports whether it did.
func (db *DB) CheckFile(ctx context.Context) bool {
	var lost *sqlite.LostError
	if db.marker.Quarantined() != nil || !errors.As(db.db.CheckFile(ctx), &lost) {
		return false
	}

	err := db.marker.Lost(lost)
	db.log.Error("an agent's database is lost, and is not used any more", "path", db.path, "error", err)
	return true
}

// Fault returns why the database cannot be used any more, or nil.
func (db *DB) Fault() error { return db.marker.Quarantined() }
