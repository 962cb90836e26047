package schedule

import (
	"fmt"
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
		due = append(due, decide(t, now, len(nominals)-1-i, p))
		due[i].Actual = s.Actual(t)
		due[i].Catchup = due[i].Run && p.OnMiss == MissCatchup && len(nominals) > 1
	}
	return due, left
}

// decide is about one instant with so many newer ones due as well.
func decide(nominal, now time.Time, newer int, p Policy) Instant {
	d := Instant{Nominal: nominal}
	late := now.Sub(nominal)
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
	start := from
	first := s.Next(from)
	if first.IsZero() || first.After(to) {
		return nil, ""
	}
	if dense := s.Next(first); !dense.IsZero() {
		if gap := dense.Sub(first); to.Sub(from)/max(gap, time.Second) > maxListed {
			// Too many to walk through: begin near the end.
			from = to.Add(-gap * maxListed)
		}
	}
	total := 0
	for t := s.Next(from); !t.IsZero() && !t.After(to); t = s.Next(t) {
		total++
		out = append(out, t)
		if len(out) >= 2*keep {
			out = append(out[:0], out[len(out)-keep:]...)
		}
		if total > 2*maxListed {
			break
		}
	}
	if len(out) > keep {
		out = out[len(out)-keep:]
	}
	if from.After(start) {
		return out, fmt.Sprintf("every instant from %s on", first.Format(time.RFC3339))
	}
	if total > len(out) {
		return out, fmt.Sprintf("%d instants from %s on", total-len(out), first.Format(time.RFC3339))
	}
	return out, ""
}
