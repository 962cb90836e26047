package store

import (
	"context"
	"errors"
)

// ErrUnfinishedCopy is returned for a ledger that is an incomplete copy.
var ErrUnfinishedCopy = errors.New("this ledger is a copy that was cut off, and is not whole; copy it again, which goes on where it ended: rouse engine migrate")

// checkWhole returns ErrUnfinishedCopy if the ledger is a copy that was interrupted.
func checkWhole(ctx context.Context, l *DB) error {
	partial, err := Value[bool](Reads(ctx, l), `select exists (select 1 from copies where done_at = 0)`)
	if partial {
		return ErrUnfinishedCopy
	}
	return err
}
