package schedule

import (
	"fmt"
	"math"
	"time"

	"rouse/internal/domain"
)

const (
	// grace is the maximum delay of an instant that counts as in time. The scheduler checks at
	// least this often.
	grace = 30 * time.Second
	// maxListed is the maximum number of passed instants that are counted individually.
	maxListed = 100_000
	// maxRows is the maximum number of passed instants with individual rows.
	maxRows = 1000
	// maxOutage is longer than any outage.
	maxOutage = 100 * 366 * 24 * time.Hour
)

// Policy configures the handling of missed instants.
type Policy struct {
	OnMiss        domain.OnMiss // the default is run_once
	CatchupWindow time.Duration // the default is 24h
	MaxCatchup    int           // the default is 100
}

// Instant is a due instant with a decision.
type Instant struct {
	Nominal, Actual time.Time
	Run             bool // if false, the instant is missed or skipped
	Skipped         bool // because of a pause
	Catchup         bool // one of several runs that are caught up in sequence
	Reason          string
	// Through is set if the instant represents a range of missed instants from Nominal to Through,
	// inclusive. Count is the number of instants, or 0 if there are too many to count.
	Through time.Time
	Count   int
}

// DueOptions are inputs of a decision, in addition to the policy. The functions are optional.
type DueOptions struct {
	Now time.Time
	// Paused returns a description of the pause at an instant, or "". A paused instant is not
	// caught up.
	Paused func(nominal time.Time) string
	// LateCause returns the reason why an instant could not start in time, or "" if it is unknown.
	LateCause func(nominal time.Time) string
}

// Due decides about every instant after the watermark and up to now, oldest first. After a long
// outage, the first element represents the older instants that are not listed. The new watermark is
// now. next is the first instant after now.
func (s *Schedule) Due(watermark time.Time, m DueOptions, p Policy) (due []Instant, next time.Time) {
	if next = s.Next(watermark); next.IsZero() || next.After(m.Now) {
		return nil, next
	}

	if p.OnMiss == "" {
		p.OnMiss = domain.MissRunOnce
	}

	if p.CatchupWindow <= 0 {
		p.CatchupWindow = 24 * time.Hour
	}

	if p.MaxCatchup <= 0 {
		p.MaxCatchup = 100
	}

	nominals, rest, next := s.lastPassed(next, watermark, m.Now, max(maxRows, p.MaxCatchup+1))
	if !rest.Nominal.IsZero() {
		rest.Reason = decide(rest.Nominal, rest.Nominal, m, len(nominals), p).Reason
		due = append(due, rest)
	}

	first := len(due)
	for _, t := range nominals {
		due = append(due, Instant{Nominal: t, Actual: t})
	}

	// Go from newest to oldest, because a decision depends on the number of newer instants.
	newer := 0
	for i := len(due) - 1; i >= first; i-- {
		t := due[i].Nominal
		if m.Paused != nil {
			if why := m.Paused(t); why != "" {
				due[i].Actual, due[i].Skipped, due[i].Reason = s.Actual(t), true, why
				continue
			}
		}

		due[i] = decide(t, s.Actual(t), m, newer, p)
		due[i].Catchup = due[i].Run && p.OnMiss == domain.MissCatchup && len(nominals) > 1
		newer++
	}

	return due, next
}

// decide decides about one instant. Lateness is measured from its actual instant. newer is the
// number of newer instants that are due.
func decide(nominal, actual time.Time, m DueOptions, newer int, p Policy) Instant {
	d := Instant{Nominal: nominal, Actual: actual}
	late := m.Now.Sub(actual)
	if newer == 0 && late <= grace {
		d.Run = true
		return d
	}

	by, caught := fmt.Sprintf("missed by %s", round(late)), fmt.Sprintf("caught up %s late", round(late))
	if m.LateCause != nil {
		if why := m.LateCause(nominal); why != "" {
			by, caught = by+" ("+why+")", caught+" ("+why+")"
		}
	}

	switch {
	case late > p.CatchupWindow:
		d.Reason = fmt.Sprintf("%s, more than the catch-up window of %s", by, p.CatchupWindow)
	case p.OnMiss == domain.MissSkip:
		d.Reason = by + "; on_miss is skip"
	case newer == 0:
		d.Run, d.Reason = true, fmt.Sprintf("%s; on_miss is %s", caught, p.OnMiss)
	case p.OnMiss == domain.MissRunOnce:
		d.Reason = by + "; on_miss is run_once, and a later one was due"
	case newer >= p.MaxCatchup:
		d.Reason = fmt.Sprintf("%s; %d later ones are caught up, which is max_catchup", by, p.MaxCatchup)
	default:
		d.Run, d.Reason = true, caught+"; on_miss is run_catchup"
	}

	return d
}

func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// lastPassed returns the last instants in (from, to], at most keep of them. first is the first
// instant in the range. rest represents the unlisted instants, if there are any. next is the first
// instant after to.
func (s *Schedule) lastPassed(first, from, to time.Time, keep int) (out []time.Time, rest Instant, next time.Time) {
	out, total, next := s.lastOf(first, to, keep, maxListed)
	if total < maxListed {
		if total > len(out) {
			rest = Instant{Nominal: first, Actual: first, Count: total - len(out)}
		}
	} else {
		// There are too many to iterate. Search backwards from the end, doubling the distance each
		// time.
		for back := time.Minute; back < maxOutage; back *= 2 {
			begin := to.Add(-back)
			if begin.Before(from) {
				begin = from
			}
			if out, _, next = s.lastOf(s.Next(begin), to, keep, math.MaxInt); len(out) == keep || begin.Equal(from) {
				break
			}
		}

		rest = Instant{Nominal: first, Actual: first}
		if s.every > 0 && s.filter.empty() {
			rest.Count = int(out[0].Sub(first) / s.every)
		}
	}

	if !rest.Nominal.IsZero() {
		// A single instant is not a range and gets a normal row.
		rest.Through = out[0].Add(-time.Second)
		if rest.Count == 1 {
			return append([]time.Time{first}, out...), Instant{}, next
		}
	}

	return out, rest, next
}

// lastOf iterates over at most most instants from next up to to and returns the last ones. It also
// returns the number of instants and the instant after them.
func (s *Schedule) lastOf(next, to time.Time, keep, most int) (out []time.Time, total int, _ time.Time) {
	for ; total < most && !next.IsZero() && !next.After(to); next = s.Next(next) {
		total++
		// Trim only at twice the needed length, so that not every append copies the slice.
		if out = append(out, next); len(out) >= 2*keep {
			out = append(out[:0], out[len(out)-keep:]...)
		}
	}
	return out[max(0, len(out)-keep):], total, next
}
