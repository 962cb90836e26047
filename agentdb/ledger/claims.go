package ledger

import (
	"context"
	"database/sql"
	"errors"

	"rouse/agentdb/sqlite"
)

const claimColumns = `id, job, path, hash, size, mod_time, run, outcome, after, dest`

func scanClaim(row interface{ Scan(...any) error }) (ClaimStatus, error) {
	var c ClaimStatus
	var mod int64
	err := row.Scan(&c.ID, &c.Job, &c.Path, &c.Hash, &c.Size, &mod, &c.Run, &c.Outcome, &c.After, &c.Dest)
	c.ModTime = instant(mod)
	return c, err
}

// ClaimOf looks up who took a content; false when nobody did.
func (l *Ledger) ClaimOf(ctx context.Context, job, path, hash string) (ClaimStatus, bool, error) {
	c, err := scanClaim(l.kept.row(ctx, `select `+claimColumns+` from claims where job = $1 and path = $2 and hash = $3`, job, l.path(path), hash))
	if errors.Is(err, sql.ErrNoRows) {
		return ClaimStatus{}, false, nil
	}
	return c, err == nil, err
}

// ClaimsOf lists the claims of a job on a path: one for each content that was there.
func (l *Ledger) ClaimsOf(ctx context.Context, job, path string) ([]ClaimStatus, error) {
	rows, err := l.read.QueryContext(ctx, `select `+claimColumns+` from claims where job = $1 and path = $2 order by id`, job, l.path(path))
	return collect(rows, err, func(rows *sql.Rows) (ClaimStatus, error) { return scanClaim(rows) })
}

// PendingAfter lists claims whose run has finished and whose file has not been dealt with.
func (l *Ledger) PendingAfter(ctx context.Context, limit int) ([]ClaimStatus, error) {
	rows, err := l.kept.query(ctx, `select `+claimColumns+` from claims where after = 'pending' order by id limit $1`, limit)
	return collect(rows, err, func(rows *sql.Rows) (ClaimStatus, error) { return scanClaim(rows) })
}

// FinishAfter records what became of a file: AfterDone, AfterLeft, or AfterFailed with why.
func (l *Ledger) FinishAfter(ctx context.Context, c ClaimStatus, after, dest, why string) error {
	now := l.now()
	return l.do(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`update claims set after = $1, dest = $2, error = $3 where id = $4 and after = 'pending'`, after, dest, why, c.ID); err != nil {
			return err
		}
		if after == AfterLeft && why == "" {
			return nil
		}
		return addEvent(tx, Event{Job: c.Job, Run: c.Run, At: now, Kind: "file.after"}, map[string]any{"path": c.Path, "state": after, "dest": dest, "error": why})
	})
}
