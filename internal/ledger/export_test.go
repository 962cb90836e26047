package ledger

import (
	"context"
	"io/fs"
	"testing/fstest"

	"rouse/internal/ledger/store"
	"rouse/internal/storage/dbfile"
)

// OpenLate opens a ledger that is checked in the background, regardless of its size.
func OpenLate(ctx context.Context, o Options) (*Ledger, error) {
	o.Late = true
	return Open(ctx, o)
}

// OpenMigrating opens a ledger as a later version with a second migration would.
func OpenMigrating(ctx context.Context, o Options, second string) (*Ledger, error) {
	first, err := fs.ReadFile(store.Migrations, "0001_ledger.sql")
	if err != nil {
		return nil, err
	}
	o.Migrations = fstest.MapFS{"0001_ledger.sql": {Data: first}, "0002_second.sql": {Data: []byte(second)}}
	return Open(ctx, o)
}

// MarkOpen marks a closed ledger as if its process had been killed.
func MarkOpen(path string) error {
	return dbfile.WriteMarker(path, dbfile.Marker{State: dbfile.StateOpen})
}

// Exec changes the file with statements that rouse itself does not use.
func (l *Ledger) Exec(ctx context.Context, statements ...string) error {
	return store.WriteQuietly(ctx, l.DB, func(tx *store.Tx) error {
		for _, s := range statements {
			if _, err := tx.SQL().ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// SetFailing sets the error of the last write.
func (l *Ledger) SetFailing(err error) { store.SetFailing(l.DB, err) }
