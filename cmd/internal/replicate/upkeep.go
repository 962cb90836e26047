package replicate

import (
	"context"
	"time"

	"rouse/agentdb/replica"
)

// readClock reads the wall clock, and notes that it has gone further than the time that has passed: the machine slept, or the clock was set,
// and may be set right again.
func (r *Replicator) readClock() time.Time {
	now, wall := time.Now(), r.o.Now().Round(0)
	if !r.cutAt.IsZero() && wall.Sub(r.cutWall)-now.Sub(r.cutAt) > jump {
		r.ahead = now
		r.o.Logger.Info("the clock has gone further than the time that has passed: this machine slept, or its clock was set; nothing that was copied is removed for an hour", "from", r.cutWall, "to", wall)
	}
	r.cutAt, r.cutWall = now, wall
	return wall
}

// tend merges what was shipped of a database, and removes what is older than is kept.
func (r *Replicator) tend(ctx context.Context, p part) error {
	client, key := replica.NewClient(r.o.Store, p.prefix), p.key
	if r.shipped[key] >= compactAt {
		if err := replica.Compact(ctx, client); err != nil {
			return err
		}
		r.shipped[key] = 0
	}
	if time.Since(r.tended[key]) < upkeepEvery {
		return nil
	}
	if err := replica.Checkpoint(ctx, client, min(24*time.Hour, r.o.Keep/4)); err != nil {
		return err
	}
	if err := r.prune(ctx, key, p.prefix); err != nil {
		return err
	}
	r.tended[key] = time.Now()
	return nil
}

// prune removes what is older than is kept. A clock that has just jumped ahead does not say what that is.
func (r *Replicator) prune(ctx context.Context, key, prefix string) error {
	if !r.ahead.IsZero() && time.Since(r.ahead) < upkeepEvery {
		return nil
	}
	before := r.o.Now().Add(-r.o.Keep)
	if err := replica.Prune(ctx, replica.NewClient(r.o.Store, prefix), before); err != nil || key != "" {
		return err
	}
	return pruneFiles(ctx, r.o.Store, before)
}

// makeRoom removes what is older than is kept from a place that takes nothing, which may be because it is full: rounds that do not
// succeed remove nothing.
func (r *Replicator) makeRoom(ctx context.Context) {
	if !r.roomFor.IsZero() && time.Since(r.roomFor) < upkeepEvery {
		return
	}
	r.roomFor = time.Now()
	r.mu.Lock()
	prefixes := map[string]string{"": "ledger"}
	for key, agent := range r.names {
		prefixes[key] = "db/" + agent
	}
	r.mu.Unlock()
	for key, prefix := range prefixes {
		if r.prune(ctx, key, prefix) != nil {
			return // what is wrong with the place is told of the round
		}
	}
}
