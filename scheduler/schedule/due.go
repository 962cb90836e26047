package schedule

import (
	"fmt"
	"math"
	"time"
)

const (
	// grace is how late the latest instant may be and still count as in time: the
	// scheduler wakes at least this often, whatever the clock does.
	grace = 30 * time.Second
	// maxListed bounds how many passed instants are looked at one by one.
	maxListed = 100_000
	// maxRows bounds how many of them get a row of their own.
	maxRows = 1000
	// farBack is longer than any outage.
	farBack = 100 * 366 * 24 * time.Hour
)

// The policies for instants that were not started in time.
const (
	MissSkip    = "skip"
	MissRunOnce = "run_once"
	MissCatchup = "run_catchup"
)

// Policy says what becomes of missed instants.
type Policy struct {
	OnMiss        string        // "" means run_once
	CatchupWindow time.Duration // 0 means 24h
	MaxCatchup    int           // 0 means 100
}

// Instant is one due instant with what is decided about it.
type Instant struct {
	Nominal, Actual time.Time
	Run             bool // else missed
	Catchup         bool // one of several that all run: they wait for each other
	Reason          string
}

// Due decides about every instant after the watermark up to now, oldest first. Of an
// outage so long that its instants cannot be listed, the last are, and left says how the
// rest is accounted for. The new watermark is now.
func (s *Schedule) Due(watermark, now time.Time, p Policy) (due []Instant, left string) {
	if p.OnMiss == "" {
		p.OnMiss = MissRunOnce
	}
	if p.CatchupWindow <= 0 {
		p.CatchupWindow = 24 * time.Hour
	}
	if p.MaxCatchup <= 0 {
		p.MaxCatchup = 100
	}
	nominals, left := s.passed(watermark, now, max(maxRows, p.MaxCatchup+1))
	for i, t := range nominals {
		due = append(due, decide(t, s.Actual(t), now, len(nominals)-1-i, p))
		due[i].Catchup = due[i].Run && p.OnMiss == MissCatchup && len(nominals) > 1
	}
	return due, left
}

// decide is about one instant with so many newer ones due as well. It is late from its
// actual instant on: what jitter still holds back is in time.
func decide(nominal, actual, now time.Time, newer int, p Policy) Instant {
	d := Instant{Nominal: nominal, Actual: actual}
	late := now.Sub(actual)
	switch {
	case newer == 0 && late <= grace:
		d.Run = true
	case late > p.CatchupWindow:
		d.Reason = fmt.Sprintf("missed by %s, more than the catch-up window of %s", round(late), p.CatchupWindow)
	case p.OnMiss == MissSkip:
		d.Reason = fmt.Sprintf("missed by %s; on_miss is skip", round(late))
	case newer == 0:
		d.Run, d.Reason = true, fmt.Sprintf("caught up %s late; on_miss is %s", round(late), p.OnMiss)
	case p.OnMiss == MissRunOnce:
		d.Reason = fmt.Sprintf("missed by %s; on_miss is run_once, and a later one was due", round(late))
	case newer >= p.MaxCatchup:
		d.Reason = fmt.Sprintf("missed by %s; %d later ones are caught up, which is max_catchup", round(late), p.MaxCatchup)
	default:
		d.Run, d.Reason = true, fmt.Sprintf("caught up %s late; on_miss is run_catchup", round(late))
	}
	return d
}

func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// passed lists the last instants in (from, to], at most keep of them.
func (s *Schedule) passed(from, to time.Time, keep int) (out []time.Time, left string) {
	first := s.Next(from)
	if first.IsZero() || first.After(to) {
		return nil, ""
	}
	out, total := s.lastIn(from, to, keep, maxListed)
	if total < maxListed {
		if total > len(out) {
			left = fmt.Sprintf("%d instants from %s on", total-len(out), first.Format(time.RFC3339))
		}
		return out, left
	}
	// Too many to walk through: look back from the end, twice as far each time.
	for back := time.Minute; back < farBack; back *= 2 {
		begin := to.Add(-back)
		if begin.Before(from) {
			begin = from
		}
		if out, _ = s.lastIn(begin, to, keep, math.MaxInt); len(out) == keep || begin.Equal(from) {
			break
		}
	}
	return out, fmt.Sprintf("every instant from %s to the first that has a row", first.Format(time.RFC3339))
}

// lastIn walks through the instants in (from, to], at most so many, and keeps the last.
func (s *Schedule) lastIn(from, to time.Time, keep, most int) (out []time.Time, total int) {
	for t := s.Next(from); total < most && !t.IsZero() && !t.After(to); t = s.Next(t) {
		total++
		if out = append(out, t); len(out) >= 2*keep {
			out = append(out[:0], out[len(out)-keep:]...)
		}
	}
	return out[max(0, len(out)-keep):], total
}
