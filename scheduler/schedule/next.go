package schedule

import (
	"fmt"
	"math/bits"
	"time"
)

// horizon limits the search for the next date, in days. 29 February on a given weekday can be 40
// years away.
const horizon = 45 * 366

// end is the first time that RFC 3339 cannot represent.
var end = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// Next returns the first nominal instant after a time, or the zero time if there is none.
func (s *Schedule) Next(after time.Time) time.Time {
	for {
		t := s.next(after)
		if t.Unix() >= end {
			return time.Time{}
		}
		if t.IsZero() || s.filter.empty() {
			return t
		}

		why, until := s.filter.leftOut(s.zone, t)
		switch {
		case why == "":
			return t
		case until.IsZero():
			return time.Time{}
		}

		// Skip the excluded period.
		after = until.Add(-1)
		if after.Before(t) {
			after = t
		}
	}
}

// next returns the first instant after a time in UTC, including excluded instants.
func (s *Schedule) next(after time.Time) time.Time {
	var t int64
	var ok bool

	switch s.source {
	case sourceEvery:
		return s.nextOnGrid(after)
	case sourceAt:
		if s.at.After(after) {
			return s.at
		}
		return time.Time{}
	}

	// Cron instants are whole seconds, so fractions of a second can be ignored.
	if s.cron.everyHour() {
		t, ok = s.cron.nextRealTime(s.zone, after.Unix())
	} else {
		t, ok = s.cron.nextLocal(s.zone, after.Unix())
	}
	if !ok {
		return time.Time{}
	}

	return time.Unix(t, 0).UTC()
}

func (s *Schedule) nextOnGrid(after time.Time) time.Time {
	origin := time.Unix(0, 0)
	if !s.anchor.IsZero() {
		origin = s.anchor
	}

	// Use seconds, because the difference of two times can exceed a Duration.
	step := int64(s.every / time.Second)
	gone := after.Unix() - origin.Unix()
	if after.Nanosecond() < origin.Nanosecond() {
		gone-- // the last second is incomplete
	}

	k := floorDiv(gone, step)
	return time.Unix(origin.Unix()+(k+1)*step, int64(origin.Nanosecond())).UTC()
}

// nextLocal returns the next instant of a schedule that consists of local times.
func (f *fields) nextLocal(zone *zone, after int64) (int64, bool) {
	d := zone.dateAt(after)
	if _, ok := zone.constantOffset(d); !ok {
		d-- // its local times may be moved past a gap at midnight
	}

	for end := d + horizon; d < end; d++ {
		if !f.matchesDate(d) {
			continue
		}
		if offset, ok := zone.constantOffset(d); ok {
			if r, ok := f.nextInDay(after + 1 + offset - d.at(0, 0, 0)); ok {
				return d.at(0, 0, 0) + r - offset, true
			}
		} else if t, ok := f.firstOnDate(zone, d, after); ok && zone.hasDate(d) {
			return t, true
		}
	}

	return 0, false
}

// firstOnDate returns the first instant after a time on a date near a clock change. It resolves
// each candidate.
func (f *fields) firstOnDate(zone *zone, d date, after int64) (int64, bool) {
	for hours := f.hour; hours != 0; hours &= hours - 1 {
		hour := bits.TrailingZeros32(hours)
		if zone.resolve(d.at(hour, 59, 59)) <= after {
			continue // the whole hour has passed
		}

		for minutes := f.minute; minutes != 0; minutes &= minutes - 1 {
			minute := bits.TrailingZeros64(minutes)
			if zone.resolve(d.at(hour, minute, 59)) <= after {
				continue
			}

			for seconds := f.second; seconds != 0; seconds &= seconds - 1 {
				if t := zone.resolve(d.at(hour, minute, bits.TrailingZeros64(seconds))); t > after {
					return t, true
				}
			}
		}
	}

	return 0, false
}

// nextRealTime returns the next instant of a schedule that runs in real time. It never steps over a
// clock change.
func (f *fields) nextRealTime(zone *zone, after int64) (int64, bool) {
	for t, limit := after+1, after+horizon*daySeconds; t < limit; {
		local := t + zone.offset(t)
		d := date(floorDiv(local, daySeconds))
		r := local - d.at(0, 0, 0)
		on := f.matchesDate(d)
		if offset, ok := zone.constantOffset(d); ok {
			if n, ok := f.nextInDay(r); ok && on {
				return t + n - r, true
			}
			t = (d+1).at(0, 0, 0) - offset
			continue
		}

		// Near a change, use the longest step that does not cross the change.
		second, minute := r%60, r/60%60
		switch {
		case !on:
			t = zone.step(t, daySeconds-r, 60-second)
		case f.minute>>minute&1 == 0:
			t = zone.step(t, distanceToNext(f.minute, minute)*60-second, 60-second)
		case f.second>>second&1 == 0:
			t = zone.step(t, distanceToNext(f.second, second))
		default:
			return t, true
		}
	}
	return 0, false
}

// distanceToNext returns the distance from n to the next allowed value, or to 60.
func distanceToNext(allowed uint64, n int64) int64 { return lowest(allowed>>n | 1<<(60-n)) }

// step returns t plus the first length that does not cross a clock change, or else t plus one
// second.
func (z *zone) step(t int64, lengths ...int64) int64 {
	offset := z.offset(t)
	for _, seconds := range lengths {
		if z.offset(t+seconds) == offset {
			return t + seconds
		}
	}
	return t + 1
}

// String returns a description of the schedule for logs.
func (s *Schedule) String() string { return fmt.Sprintf("%s %s", s.source, s.Describe()) }

// Last returns the last n nominal instants between two times, oldest first, including excluded
// instants.
func (s *Schedule) Last(after, before time.Time, n int) []time.Time {
	// Schedules can only be iterated forward. Start further back until there are enough instants.
	for back := time.Minute; ; back *= 2 {
		from := before.Add(-back)
		whole := !from.After(after) || back > maxOutage
		if whole {
			from = after
		}

		var out []time.Time
		for t, _ := s.NextWithExcluded(from); !t.IsZero() && t.Before(before); t, _ = s.NextWithExcluded(t) {
			if out = append(out, t); len(out) >= 2*n+100 {
				out = append(out[:0], out[len(out)-n:]...)
			}
		}
		if len(out) >= n || whole {
			return out[max(0, len(out)-n):]
		}
	}
}
