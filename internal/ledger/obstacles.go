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

// Hold is a queued run with the obstacles that keep it from starting.
type Hold struct {
	Run int64
	By  []Obstacle
	// Notices has the owner's notices for each obstacle, by its source. They are sent only once per
	// obstacle.
	Notices map[string][]Notice
}

// tellAgain is the minimum time between two notices about an obstacle that comes and goes.
const tellAgain = time.Hour

// HoldRuns records the obstacles of runs, and sends notices for new obstacles, in one transaction.
// It ignores runs that are not queued any more.
func (l *Ledger) HoldRuns(ctx context.Context, holds ...Hold) error {
	if len(holds) == 0 {
		return nil
	}

	now := l.Now()
	return store.Write(ctx, l.DB, func(tx *store.Tx) error {
		// Obstacles stay open if all their runs were cancelled. Close them once no run is blocked.
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
	// The wait continues if the obstacles change while the run waits. A daemon that was killed
	// reports again the obstacles that are already recorded.
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

// meetObstacle records that an obstacle exists, and adds its notices once.
func meetObstacle(tx *store.Tx, o Obstacle, notices []Notice, now time.Time) error {
	var over, told time.Time
	err := store.Scan(tx, []any{store.Time(&over), store.Time(&told)}, `select over_at, told_at from obstacles where source = $1`, o.Source)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		tx.Run(`insert into obstacles (source, kind, reason, since) values ($1, $2, $3, $4) on conflict (source) do nothing`, o.Source, o.Kind, tx.Redact(o.Text), store.Millis(now))
	case err != nil:
		return err
	case !over.IsZero():
		// The obstacle is back. Notify again only after tellAgain.
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

// ReleaseRuns records that runs are no longer blocked. It also closes their obstacles, so that no
// other run waits for them.
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

// endBlock records the end of a run's blocked time, if the run is blocked.
func endBlock(tx *store.Tx, r Run, now time.Time) {
	if r.Blocked.Now() {
		tx.Run(`update runs set blocked_until = $1 where id = $2`, store.Millis(now), r.ID)
	}
}

// OpenObstacles returns the open obstacles of a kind that runs have met.
func (l *Ledger) OpenObstacles(ctx context.Context, kind string) ([]Obstacle, error) {
	return store.List(store.Reads(ctx, l.DB), func(o *Obstacle) []any { return []any{&o.Kind, &o.Source, &o.Text} }, `select kind, source, reason from obstacles where kind = $1 and over_at = 0 order by source`, kind)
}

// blockedFirst returns the oldest of some queued runs that is blocked. Further runs of its job
// would wait behind it for the same reason.
func blockedFirst(queued []Run) (Run, bool) {
	i := slices.IndexFunc(queued, func(r Run) bool { return r.State == domain.StateQueued && r.Blocked.Now() })
	if i < 0 {
		return Run{}, false
	}
	return queued[i], true
}
