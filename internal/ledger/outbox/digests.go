package outbox

import (
	"context"
	"errors"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// DigestThrough is up to when the digests of a channel have told. The first question for a channel is its beginning: it
// writes now, and returns that.
func (l *Outbox) DigestThrough(ctx context.Context, channel string, now time.Time) (time.Time, error) {
	through, known, err := store.OrFalse(store.TimeOf(store.Reads(ctx, l.DB), `select through from digests where channel = $1`, channel))
	if err != nil || known {
		return through, err
	}
	return store.Instant(store.Millis(now)), store.Exec(ctx, l.DB, `insert into digests (channel, through) values ($1, $2) on conflict (channel) do nothing`, channel, store.Millis(now))
}

// AppendDigest puts a digest into the outbox, which tells of the time from one instant to another. A digest that begins
// elsewhere than the last one has ended is none: somebody else was faster, and false is returned.
func (l *Outbox) AppendDigest(ctx context.Context, from, to time.Time, n record.Notice) (added bool, err error) {
	err = store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if added, err = store.Changed(tx, `update digests set through = $1 where channel = $2 and through = $3`, store.Millis(to), n.Channel, store.Millis(from)); added {
			record.AddNotices(tx, l.DB.Now(), n)
		}
		return err
	})
	return added, err
}

// RestartDigest has the next digest of a channel begin at an instant.
func (l *Outbox) RestartDigest(ctx context.Context, channel string, from time.Time) error {
	return store.Exec(ctx, l.DB, `update digests set through = $1 where channel = $2`, store.Millis(from), channel)
}

// KeepDigests forgets the channels that have no digest any more: one that gets it again later starts over.
func (l *Outbox) KeepDigests(ctx context.Context, channels map[string]bool) error {
	known, err := store.Values[string](store.Reads(ctx, l.DB), `select channel from digests`)
	if err != nil {
		return err
	}

	for _, channel := range known {
		if !channels[channel] {
			err = errors.Join(err, store.Exec(ctx, l.DB, `delete from digests where channel = $1`, channel))
		}
	}
	return err
}
