// Package outbox has the messages to the owner that channels are to deliver, and up to when the digest of a channel has told.
package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
)

// FallbackKey begins the keys of notices that a channel is told in place of another one.
const FallbackKey = "fallback:"

// Outbox has the messages to the owner, and up to when the digests of channels have told.
type Outbox struct{ DB *store.DB }

// Append puts notices into the outbox; a key that is there adds nothing.
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

// due has the oldest of each channel: one for which much is due leaves room for the others.
const due = `select ` + noticeColumns + ` from (
	select *, row_number() over (partition by channel order by id) as place from outbox where state = 'pending' and next_at <= $1) first
	where place <= $2 order by id`

// Pending lists what is due for delivery, oldest first, so many of each channel.
func (l *Outbox) Pending(ctx context.Context, now time.Time, limit int) ([]record.Notice, error) {
	return store.List(store.Reads(ctx, l.DB), noticeFields, due, store.Millis(now), limit)
}

// Next is when the earliest pending notice is due after now; zero when none is.
func (l *Outbox) Next(ctx context.Context, now time.Time) (time.Time, error) {
	return store.TimeOf(store.Reads(ctx, l.DB), `select coalesce(min(next_at), 0) from outbox where state = 'pending' and next_at > $1`, store.Millis(now))
}

// Update records an attempt at delivery: State, Tries, NextAt, Error and Answer of n.
func (l *Outbox) Update(ctx context.Context, n record.Notice) error {
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		// Its run may have been removed since the notice was read.
		run, err := store.Value[int64](tx, `update outbox set state = $1, tries = $2, next_at = $3, error = $4, answer = $5 where id = $6
			returning case when exists (select 1 from runs where runs.id = outbox.run) then outbox.run else 0 end`,
			n.State, n.Tries, store.Millis(n.NextAt), tx.Redact(n.Error), tx.Redact(n.Answer), n.ID)
		if errors.Is(err, sql.ErrNoRows) { // removed meanwhile
			return nil
		}
		if err != nil || n.State == record.NoticePending {
			return err
		}
		return record.AddEvent(tx, record.Event{Run: run, Job: n.Job, At: l.DB.Now(), Kind: "notice." + n.State},
			map[string]any{"channel": n.Channel, "title": n.Title, "error": n.Error, "answer": n.Answer})
	})
}

// Hurry makes the notices of a channel due that wait with an error in which a text stands.
func (l *Outbox) Hurry(ctx context.Context, channel, because string) error {
	return store.Exec(ctx, l.DB, `update outbox set next_at = $1 where channel = $2 and state = 'pending' and next_at > $1 and error like '%' || $3 || '%'`, store.Millis(l.DB.Now()), channel, because)
}

const (
	lastNotice  = `select ` + noticeColumns + ` from outbox where channel = $1 order by id desc limit 1`
	undelivered = `select ` + noticeColumns + ` from outbox where state in ('pending', 'failed') order by id desc limit $1`
)

// Last is the newest notice for a channel; false before the first.
func (l *Outbox) Last(ctx context.Context, channel string) (record.Notice, bool, error) {
	return store.OrFalse(store.One(store.Reads(ctx, l.DB), noticeFields, lastNotice, channel))
}

// Undelivered lists notices that are pending or were given up, newest first.
func (l *Outbox) Undelivered(ctx context.Context, limit int) ([]record.Notice, error) {
	return store.List(store.Reads(ctx, l.DB), noticeFields, undelivered, limit)
}
