package dispatch

import (
	"fmt"
	"hash/fnv"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/text"
)

// backoff returns the wait before the next try. The wait doubles with each try up to a maximum. It
// is then shortened by up to a quarter, so that runs that failed together do not return together.
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

// postponements are the waits before a run that has not begun asks for its model again. The last
// wait applies to all further tries.
var postponements = []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}

// postponedTo returns the time of the next try of a run while its model is unavailable. If its job
// does not wait that long, postponedTo returns the zero time and the reason.
func postponedTo(p Policy, run ledger.Run, until, now time.Time) (at time.Time, tooLate string) {
	at = now.Add(postponements[min(run.Postponements, len(postponements)-1)])
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

	key, most := "catchup_window", window
	switch {
	case p.StartDeadline > 0 && at.Sub(run.QueuedAt) > p.StartDeadline:
		key, most = "start_deadline", p.StartDeadline
	case at.Sub(due) <= window:
		return at, ""
	}
	return time.Time{}, fmt.Sprintf("the next try would be at %s, which is later than the job waits (%s: %s); to wait longer, raise %[2]s", at.UTC().Format("2006-01-02 15:04 UTC"), key, text.Span(most))
}
