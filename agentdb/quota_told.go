package agentdb

import (
	"context"

	"rouse/agentdb/sqlite"
)

// TellQuota calls tell once each time that the use crosses 80 % of the quota on the way up
// (OSA-62), with both in bytes. It is remembered in the file, so a restart tells nothing
// twice; a crash between the two may.
func (db *DB) TellQuota(ctx context.Context, tell func(used, limit int64) error) error {
	used, limit := db.quota.state()
	near := db.quota.near(used)
	var told bool
	if err := db.db.Read().QueryRowContext(ctx, "select exists (select 1 from _quota_told)").Scan(&told); err != nil || near == told {
		return err
	}

	query := "delete from _quota_told"
	if near {
		if err := tell(used, limit); err != nil {
			return err
		}
		query = "insert into _quota_told(at) values (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
	}

	err := db.db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(query)
		return err
	})
	if err != nil {
		return db.explain(ctx, err)
	}

	return nil
}
