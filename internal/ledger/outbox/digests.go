package outbox

import (
	"context"
	"errors"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// DigestThrough returns the time up to which digests of a channel have reported. The first call for
// a channel stores now and returns it.
func (l *Outbox) DigestThrough(ctx context.Context, channel string, now time.Time) (time.Time, error) {
	through, known, err := store.OrFalse(store.TimeOf(store.Reads(ctx, l.DB), `select through from digests where channel = $1`, channel))
	if err != nil || known {
		return through, err
	}
	return store.Instant(store.Millis(now)), store.Exec(ctx, l.DB, `insert into digests (channel, through) values ($1, $2) on conflict (channel) do nothing`, channel, store.Millis(now))
}

// AppendDigest adds a digest for the time between from and to to the outbox. If the channel's last
// digest did not end at from, it adds no digest and reports false. Another process was faster then.
func (l *Outbox) AppendDigest(ctx context.Context, from, to time.Time, n record.Notice) (added bool, err error) {
	err = store.Write(ctx, l.DB, func(tx *store.Tx) error {
		if added, err = store.Changed(tx, `update digests set through = $1 where channel = $2 and through = $3`, store.Millis(to), n.Channel, store.Millis(from)); added {
			record.AddNotices(tx, l.DB.Now(), n)
		}
		return err
	})
	return added, err
}

// RestartDigest sets the time at which the next digest of a channel begins.
func (l *Outbox) RestartDigest(ctx context.Context, channel string, from time.Time) error {
	return store.Exec(ctx, l.DB, `update digests set through = $1 where channel = $2`, store.Millis(from), channel)
}

// KeepDigests deletes the digest state of all channels except the given ones. A channel that gets a
// digest again later starts over.
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
