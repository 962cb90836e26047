package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/store"
)

// Hold says what keeps a queued run from starting now.
type Hold struct {
	Run int64
	By  []Obstacle
	// Notices tell its owner, of each obstacle by its source, unless they were told of it already.
	Notices map[string][]Notice
}

// tellAgain is for how long an obstacle that comes and goes is told of once.
const tellAgain = time.Hour

// HoldRuns records what keeps runs from starting, and tells of the obstacles that nobody was told of yet, in one transaction. A run that
// is not queued any more is left as it is.
func (l *Ledger) HoldRuns(ctx context.Context, holds ...Hold) error {
	if len(holds) == 0 {
		return nil
	}

	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		// What only runs waited for that were cancelled is known to be there no more.
		blocked, err := store.Value[int](tx, runs.BlockedRuns)
		if err != nil {
			return err
		}
		if blocked == 0 {
			tx.Run(`update obstacles set over_at = $1 where over_at = 0`, store.Millis(now))
		}

		for _, h := range holds {
			r, known, err := record.LockKnown(tx, l.DB, h.Run)
			if err == nil && known && r.Claimable() {
				err = holdRun(tx, r, h, now)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func holdRun(tx *store.Tx, r Run, h Hold, now time.Time) error {
	// What is in its way may change while it waits, which is one wait all the same; and a daemon that was
	// killed says again what is on record.
	since := now
	if r.Blocked.Now() {
		since = r.Blocked.Since
	}
	known := r.Blocked.Now() && slices.EqualFunc(r.Blocked.By, h.By, func(a, b Obstacle) bool { a.Quiet, b.Quiet = false, false; return a == b })

	by, err := json.Marshal(h.By)
	if err != nil {
		return err
	}
	if !known {
		tx.Run(`update runs set blocked_since = $1, blocked_until = 0, blocked_by = $2 where id = $3`, store.Millis(since), string(by), r.ID)
		if err := record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.blocked"}, map[string]any{"reason": record.ObstaclesText(h.By), "obstacles": h.By}); err != nil {
			return err
		}
	}

	for _, o := range h.By {
		if err := meetObstacle(tx, o, h.Notices[o.Source], now); err != nil {
			return err
		}
	}
	return nil
}

// meetObstacle records that an obstacle is there, and tells of it once.
func meetObstacle(tx *store.Tx, o Obstacle, notices []Notice, now time.Time) error {
	var over, told time.Time
	err := store.Scan(tx, []any{store.Time(&over), store.Time(&told)}, `select over_at, told_at from obstacles where source = $1`, o.Source)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		tx.Run(`insert into obstacles (source, kind, reason, since) values ($1, $2, $3, $4) on conflict (source) do nothing`, o.Source, o.Kind, tx.Redact(o.Text), store.Millis(now))
	case err != nil:
		return err
	case !over.IsZero():
		// It is there again. One that comes and goes is not told of each time.
		if now.Sub(told) > tellAgain {
			told = time.Time{}
		}
		tx.Run(`update obstacles set over_at = 0, since = $1, told_at = $2, reason = $3 where source = $4`, store.Millis(now), store.Millis(told), tx.Redact(o.Text), o.Source)
	}

	if told.IsZero() && len(notices) > 0 {
		record.AddNotices(tx, now, notices...)
		tx.Run(`update obstacles set told_at = $1 where source = $2`, store.Millis(now), o.Source)
	}
	return nil
}

// ReleaseRuns records that nothing is in the way of some runs any more, and so of no other run that waited for the same.
func (l *Ledger) ReleaseRuns(ctx context.Context, runs ...int64) error {
	if len(runs) == 0 {
		return nil
	}

	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		for _, id := range runs {
			r, _, err := record.LockKnown(tx, l.DB, id)
			if err != nil {
				return err
			}
			if !r.Blocked.Now() {
				continue
			}

			endBlock(tx, r, now)
			if err := record.AddEvent(tx, Event{Run: r.ID, Job: r.Job, At: now, Kind: "run.unblocked"},
				map[string]any{"reason": record.ObstaclesText(r.Blocked.By), "seconds": now.Sub(r.Blocked.Since).Seconds()}); err != nil {
				return err
			}
			for _, o := range r.Blocked.By {
				tx.Run(`update obstacles set over_at = $1 where source = $2 and over_at = 0`, store.Millis(now), o.Source)
			}
		}
		return nil
	})
}

// endBlock notes until when a run was blocked; nothing where it is not.
func endBlock(tx *store.Tx, r Run, now time.Time) {
	if r.Blocked.Now() {
		tx.Run(`update runs set blocked_until = $1 where id = $2`, store.Millis(now), r.ID)
	}
}

// OpenObstacles lists the obstacles of a kind that are there, as far as runs came upon them.
func (l *Ledger) OpenObstacles(ctx context.Context, kind string) ([]Obstacle, error) {
	return store.List(store.Reads(ctx, l.DB), func(o *Obstacle) []any { return []any{&o.Kind, &o.Source, &o.Text} }, `select kind, source, reason from obstacles where kind = $1 and over_at = 0 order by source`, kind)
}

// blockedFirst is the oldest of some queued runs, if something is in its way: further ones of its job would wait behind it for the same.
func blockedFirst(queued []Run) (Run, bool) {
	i := slices.IndexFunc(queued, func(r Run) bool { return r.State == domain.StateQueued && r.Blocked.Now() })
	if i < 0 {
		return Run{}, false
	}
	return queued[i], true
}
