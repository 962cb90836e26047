// Package outbox stores the notices that channels have to deliver to the owner. It also stores the
// time up to which the digests of a channel have reported.
package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// FallbackKey is the prefix of the keys of notices that a channel delivers in place of another
// channel.
const FallbackKey = "fallback:"

// Outbox stores notices for the owner and the digest state of channels.
type Outbox struct{ DB *store.DB }

// Append adds notices to the outbox, except those with a key that already exists.
func (l *Outbox) Append(ctx context.Context, notices ...record.Notice) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		record.AddNotices(tx, l.DB.Now(), notices...)
		return nil
	})
}

const noticeColumns = `id, coalesce(key, ''), run, job, agent, channel, title, body, view_ref, outcome, incident, state, tries, next_at, created_at, error, answer`

func noticeFields(n *record.Notice) []any {
	return []any{
		&n.ID, &n.Key, &n.Run, &n.Job, &n.Agent, &n.Channel, &n.Title, &n.Body, &n.ViewRef, &n.Outcome, &n.Incident, &n.State, &n.Tries,
		store.Time(&n.NextAt), store.Time(&n.CreatedAt), &n.Error, &n.Answer,
	}
}

// due selects the oldest notices of each channel, so that a channel with many notices does not
// delay the others.
const due = `select ` + noticeColumns + ` from (
	select *, row_number() over (partition by channel order by id) as place from outbox where state = 'pending' and next_at <= $1) first
	where place <= $2 order by id`

// Pending returns the notices that are due for delivery, oldest first, at most limit for each
// channel.
func (l *Outbox) Pending(ctx context.Context, now time.Time, limit int) ([]record.Notice, error) {
	return store.List(store.Reads(ctx, l.DB), noticeFields, due, store.Millis(now), limit)
}

// Next returns when the next pending notice is due after now. It returns the zero time if no notice
// is pending.
func (l *Outbox) Next(ctx context.Context, now time.Time) (time.Time, error) {
	return store.TimeOf(store.Reads(ctx, l.DB), `select coalesce(min(next_at), 0) from outbox where state = 'pending' and next_at > $1`, store.Millis(now))
}

// Update records a delivery attempt. It stores State, Tries, NextAt, Error and Answer of n.
func (l *Outbox) Update(ctx context.Context, n record.Notice) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		// The run may have been deleted since the notice was read.
		run, err := store.Value[int64](tx, `update outbox set state = $1, tries = $2, next_at = $3, error = $4, answer = $5 where id = $6
			returning case when exists (select 1 from runs where runs.id = outbox.run) then outbox.run else 0 end`,
			n.State, n.Tries, store.Millis(n.NextAt), tx.Redact(n.Error), tx.Redact(n.Answer), n.ID)
		if errors.Is(err, sql.ErrNoRows) { // deleted meanwhile
			return nil
		}
		if err != nil || n.State == record.NoticePending {
			return err
		}
		return record.AddEvent(tx, record.Event{Run: run, Job: n.Job, At: l.DB.Now(), Kind: "notice." + n.State},
			map[string]any{"channel": n.Channel, "title": n.Title, "error": n.Error, "answer": n.Answer})
	})
}

// Hurry makes the pending notices of a channel due now if their error contains because.
func (l *Outbox) Hurry(ctx context.Context, channel, because string) error {
	return store.Exec(ctx, l.DB, `update outbox set next_at = $1 where channel = $2 and state = 'pending' and next_at > $1 and error like '%' || $3 || '%'`, store.Millis(l.DB.Now()), channel, because)
}

const (
	lastNotice  = `select ` + noticeColumns + ` from outbox where channel = $1 order by id desc limit 1`
	undelivered = `select ` + noticeColumns + ` from outbox where state in ('pending', 'failed') order by id desc limit $1`
)

// Last returns the newest notice of a channel, and reports whether there is one.
func (l *Outbox) Last(ctx context.Context, channel string) (record.Notice, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), noticeFields, lastNotice, channel))
}

// Undelivered returns notices that are pending or have failed, newest first.
func (l *Outbox) Undelivered(ctx context.Context, limit int) ([]record.Notice, error) {
	return store.List(store.Reads(ctx, l.DB), noticeFields, undelivered, limit)
}
