package schedule

import "time"

// LocalToInstant is the instant at which the clocks of a zone show a date and time: the first when
// they show it twice, the first after the gap when they never do. False: the zone skipped
// the whole date, or there is no such date at all.
func LocalToInstant(year int, month time.Month, day, hour, minute, second int, zone *time.Location) (time.Time, bool) {
	// Package time turns 31 February into a day of March: there is no such date.
	noon := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	if y, m, d := noon.Date(); y != year || m != month || d != day {
		return time.Time{}, false
	}
	return resolve(dateOf(noon), hour, minute, second, zone), dateOf(noon).exists(zone)
}

// NextTimeOfDay is when the clocks of a zone show a time of day next, after an instant: the
// first instant after the gap on a day on which they never do.
func NextTimeOfDay(after time.Time, hour, minute, second int, zone *time.Location) time.Time {
	// A reading of the day before can fall behind a gap that reaches over midnight.
	d := dateOf(after.In(zone)).add(-1)
	for range 4 { // days, of which a zone may skip one
		t := resolve(d, hour, minute, second, zone)
		if d.exists(zone) && t.After(after) {
			return t.UTC()
		}
		if again, twice := repeatOf(t, zone); twice && again.After(after) {
			return again.UTC()
		}
		d = d.add(1)
	}

	return after
}

// NextDay is the start of the local day after the one of an instant.
func NextDay(t time.Time, zone *time.Location) time.Time {
	return resolve(dateOf(t.In(zone)).add(1), 0, 0, 0, zone).UTC()
}

// Last lists the last n nominal instants between two times, oldest first, excluded or not.
func (s *Schedule) Last(after, before time.Time, n int) []time.Time {
	// Schedules can only be walked forward: from further back each time, until there are enough.
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
