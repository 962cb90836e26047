package dispatch

import (
	"fmt"
	"hash/fnv"
	"time"

	"rouse/agentdb/ledger"
)

// backoff is the wait before the next try: doubled for each one, bounded, and spread by
// up to a quarter so that what failed together does not return together.
func backoff(p Policy, run int64, tries int) time.Duration {
	wait, most := p.Backoff, p.MaxBackoff
	if wait <= 0 {
		wait = 30 * time.Second
	}

	if most <= 0 {
		most = 15 * time.Minute
	}

	for range tries - 1 {
		if wait *= 2; wait >= most {
			break
		}
	}

	wait = min(wait, most)
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%d", run, tries)
	return wait - time.Duration(h.Sum64()%uint64(wait/4+1))
}

// postponements are the pauses before a run that has not begun asks for its model again; the last one
// is that of all further ones.
var postponements = []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}

// postponedTo is when a run that has not begun is tried again; zero when its time is over before that.
func postponedTo(p Policy, run ledger.Run, until, now time.Time) time.Time {
	at := now.Add(postponements[min(run.Postponements, len(postponements)-1)])
	if until.After(at) {
		at = until
	}

	due, window := run.QueuedAt, p.CatchupWindow
	if !run.ScheduledAt.IsZero() {
		due = run.ScheduledAt
	}

	if window <= 0 {
		window = defaultCatchup
	}

	if at.Sub(due) > window || p.StartDeadline > 0 && at.Sub(run.QueuedAt) > p.StartDeadline {
		return time.Time{}
	}
	return at
}
