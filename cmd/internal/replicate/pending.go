package replicate

import (
	"log/slog"
	"maps"
	"slices"
	"time"
)

// pending tracks the databases with writes that are not copied yet. The key "" is the ledger.
// Replicator.mu guards it.
type pending struct {
	dirty     map[string]bool // databases with writes since the last round
	since     time.Time       // time of the oldest write in dirty
	onTheWay  map[string]bool // databases that are being copied
	sentSince time.Time       // time of the oldest write in onTheWay
}

// add records a write.
func (p *pending) add(key string) {
	if len(p.dirty) == 0 {
		p.since = time.Now()
	}
	p.dirty[key] = true
}

// take begins a round and returns the databases to copy.
func (p *pending) take() (keys []string) {
	if len(p.onTheWay) == 0 {
		p.sentSince = p.since
	}
	keys = slices.Sorted(maps.Keys(p.dirty))
	maps.Copy(p.onTheWay, p.dirty)
	clear(p.dirty)
	return keys
}

// settle ends a round. After a failed round, its databases are copied again.
func (p *pending) settle(arrived bool) {
	if !arrived && len(p.onTheWay) > 0 {
		maps.Copy(p.dirty, p.onTheWay)
		p.since = p.sentSince
	}
	clear(p.onTheWay)
}

// all returns all databases with writes that are not copied yet.
func (p *pending) all() map[string]bool {
	out := maps.Clone(p.dirty)
	maps.Copy(out, p.onTheWay)
	return out
}

// behind returns the age of the oldest write that is not copied yet.
func (p *pending) behind() time.Duration {
	switch {
	case len(p.onTheWay) > 0:
		return max(time.Since(p.sentSince), 0)
	case len(p.dirty) > 0:
		return max(time.Since(p.since), 0)
	}
	return 0
}

// wallClock reads the wall clock, and notices when it jumps ahead of the time that has passed.
type wallClock struct {
	now func() time.Time
	log *slog.Logger

	readAt   time.Time // the last reading, by the clock of this process
	readWall time.Time // and by the wall clock
	ahead    time.Time // when the last jump was noticed
}

// read returns the time, and notes a jump: the machine slept, or the clock was set.
func (c *wallClock) read() time.Time {
	now, wall := time.Now(), c.now().Round(0)
	if !c.readAt.IsZero() && wall.Sub(c.readWall)-now.Sub(c.readAt) > jump {
		c.ahead = now
		c.log.Info("the clock has gone further than the time that has passed: this machine slept, or its clock was set; nothing that was copied is removed for an hour", "from", c.readWall, "to", wall)
	}
	c.readAt, c.readWall = now, wall
	return wall
}

// jumped reports whether the clock has jumped ahead a short while ago.
func (c *wallClock) jumped() bool { return !c.ahead.IsZero() && time.Since(c.ahead) < upkeepEvery }
