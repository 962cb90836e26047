package store

import (
	"context"
	"errors"
)

// ErrUnfinishedCopy is a ledger that is not whole, because the copy that makes it was cut off.
var ErrUnfinishedCopy = errors.New("this ledger is a copy that was cut off, and is not whole; copy it again, which goes on where it ended: rouse engine migrate")

// checkWhole refuses a ledger that is a copy which was cut off.
func checkWhole(ctx context.Context, l *DB) error {
	partial, err := Value[bool](Reads(ctx, l), `select exists (select 1 from copies where done_at = 0)`)
	if partial {
		return ErrUnfinishedCopy
	}
	return err
}
