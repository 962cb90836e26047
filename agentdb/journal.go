package agentdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"rouse/agentdb/changelog"
	"rouse/agentdb/lineage"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
)

const selectCall = `select op, result from _calls where ledger = ` + lineage.OfRun + ` and run = ?1 and key = ?2`

// scanCall returns the stored result of the call, or nil if the call was not made yet. It returns
// an error if the stored result belongs to another operation.
func scanCall(row interface{ Scan(...any) error }, by changelog.By, op string) ([]byte, error) {
	var did, result string
	err := row.Scan(&did, &result)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read the call journal: %w", err)
	// The playbook was edited between two attempts: the stored result is of another call.
	case op != "" && did != op:
		return nil, fmt.Errorf("call %s of run %d was a %s before and is a %s now; start a new run, because this one cannot be resumed after such a change", by.Key, by.Run, did, op)
	}

	return []byte(result), nil
}

func recordCall(tx *sqlite.Tx, by changelog.By, op string, result []byte) error {
	if by.Key == "" {
		return nil
	}
	_, err := tx.Exec(`insert into _calls(ledger, run, key, op, result, at) values (`+lineage.OfRun+`, ?1, ?2, ?3, ?4, ?5)`, by.Run, by.Key, op, string(result), sqlvalue.Now())
	return err
}

// pruneJournal deletes entries older than journalRetention.
func pruneJournal(ctx context.Context, db *sqlite.DB) error {
	before := time.Now().Add(-journalRetention).UTC().Format(sqlvalue.TimeLayout)
	var old bool // do not write to a database that is only read
	if err := db.Read().QueryRowContext(ctx, `select exists (select 1 from _calls where at < ?)`, before).Scan(&old); err != nil || !old {
		return err
	}

	return db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`delete from _calls where at < ?`, before)
		return err
	})
}
