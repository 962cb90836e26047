package schedule

import (
	"sort"
	"time"
)

// LocalToInstant is the instant at which the clocks of a zone show a date and time: the first when
// they show it twice, the first after the gap when they never do. False: the zone skipped
// the whole date, or there is no such date at all.
func LocalToInstant(year int, month time.Month, day, hour, minute, second int, zone *time.Location) (time.Time, bool) {
	// Package time turns 31 February into a day of March: there is no such date.
	noon := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	if noon.Month() != month || noon.Day() != day {
		return time.Time{}, false
	}
	return resolve(dateOf(noon), hour, minute, second, zone), dateOf(noon).exists(zone)
}

// NextTimeOfDay returns the next instant with a local time, or the end of the gap that skips it.
func NextTimeOfDay(after time.Time, hour, minute, second int, zone *time.Location) time.Time {
	return nextReading(after, hour, minute, second, zone, true)
}

// nextReading is NextTimeOfDay. Only with again, a reading that repeats on the same day counts twice.
func nextReading(after time.Time, hour, minute, second int, zone *time.Location, again bool) time.Time {
	// A reading of the day before can fall behind a gap that reaches over midnight.
	d := dateOf(after.In(zone)).add(-1)
	for range 4 { // days, of which a zone may skip one
		t := resolve(d, hour, minute, second, zone)
		if d.exists(zone) && t.After(after) {
			return t.UTC()
		}
		if repeated, twice := repeatOf(t, zone); again && twice && repeated.After(after) {
			return repeated.UTC()
		}
		d = d.add(1)
	}
	return after.Add(24 * time.Hour) // no zone is so strange
}

// resolve returns the first instant of a local reading, held as UTC, or the end of its gap.
func (z *zone) resolve(reading int64) int64 {
	// The offset is the same a day before and a day after, so no change is near.
	offsets := [...]int64{z.offset(reading - daySeconds), z.offset(reading), z.offset(reading + daySeconds)}
	if offsets[0] == offsets[1] && offsets[1] == offsets[2] {
		return reading - offsets[0]
	}

	found, ok := int64(0), false
	for _, o := range offsets {
		if t := reading - o; z.offset(t) == o && (!ok || t < found) {
			found, ok = t, true
		}
	}
	if ok {
		return found
	}

	// The clock was put forward between the instants that the reading has under the largest
	// and the smallest offset.
	most, least := max(offsets[0], offsets[1], offsets[2]), min(offsets[0], offsets[1], offsets[2])
	from := reading - most
	n := sort.Search(int(most-least), func(n int) bool { return z.offset(from+int64(n)) != z.offset(from) })

	return from + int64(n)
}

// isRepeated reports whether the clock shows the reading of t once more within a day.
func isRepeated(t time.Time, zone *time.Location) bool {
	_, twice := repeatOf(t, zone)
	return twice
}

// repeatOf is when the clock shows the reading of t once more within a day.
func repeatOf(t time.Time, zone *time.Location) (again time.Time, twice bool) {
	_, offset := t.In(zone).Zone()
	// If the clock is set back within a day, its offset is smaller a day later.
	_, later := t.Add(24 * time.Hour).In(zone).Zone()
	again = t.Add(time.Duration(offset-later) * time.Second)
	return again, later < offset && asIfUTC(again, zone).Equal(asIfUTC(t, zone))
}

// asIfUTC is what a local clock shows, held as if it were UTC.
func asIfUTC(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
