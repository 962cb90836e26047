package agentdb

import (
	"context"

	"rouse/agentdb/changelog"
	"rouse/agentdb/transfer"
	"rouse/internal/storage/sqlite"
)

// Import writes the rows of a file in one transaction. Rows that do not fit are skipped, counted
// and explained. Import rejects a file if more than half of its rows do not fit. It also rejects
// a file that cannot be read to its end.
func (db *DB) Import(ctx context.Context, by changelog.By, spec transfer.ImportSpec) (transfer.Imported, error) {
	// A repeated call must not read its file again, because the file may be gone.
	if stored, err := recallAcknowledged(ctx, db, by, changelog.OpImport); stored != nil || err != nil {
		return decodeResult[transfer.Imported](stored, err)
	}

	spec, err := spec.Checked()
	if err != nil {
		return transfer.Imported{}, err
	}

	s, err := transfer.Examine(spec)
	if err != nil {
		return transfer.Imported{}, err
	}

	// Checkpoint the WAL first. If the disk fills up during the import, diskFullError truncates the
	// WAL. That works only if the WAL has no data that is not yet in the file.
	_, _ = db.db.Read().ExecContext(ctx, "pragma wal_checkpoint(passive)")
	imported, err := write(ctx, db, by, changelog.OpImport, func(ctx context.Context, tx *sqlite.Tx) (transfer.Imported, error) {
		return transfer.ImportRows(ctx, tx, by, spec, s, db.Quota.limitBytes())
	})
	if err == nil {
		imported.Warnings = db.Quota.warnings(ctx, imported.Warnings)
	}

	return imported, err
}
