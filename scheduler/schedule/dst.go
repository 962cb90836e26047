package schedule

import (
	"sort"
	"time"
)

// LocalToInstant returns the instant of a local time in a zone. It returns the first one if the
// local time occurs twice, and the first instant after the gap if it is skipped. It returns false
// if the date does not exist or the zone skips it.
func LocalToInstant(year int, month time.Month, day, hour, minute, second int, zone *time.Location) (time.Time, bool) {
	// Package time normalizes 31 February to a day in March.
	noon := time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
	if noon.Month() != month || noon.Day() != day {
		return time.Time{}, false
	}
	return resolve(dateOf(noon), hour, minute, second, zone), dateOf(noon).exists(zone)
}

// NextTimeOfDay returns the next instant with the given local time, or the end of the gap that
// skips it.
func NextTimeOfDay(after time.Time, hour, minute, second int, zone *time.Location) time.Time {
	return nextReading(after, hour, minute, second, zone, true)
}

// nextReading implements NextTimeOfDay. If again is true, a local time that occurs twice on a day
// counts twice.
func nextReading(after time.Time, hour, minute, second int, zone *time.Location, again bool) time.Time {
	// Start at the previous day, because its local time may be moved past a gap at midnight.
	d := dateOf(after.In(zone)).add(-1)
	for range 4 { // a zone may skip a day
		t := resolve(d, hour, minute, second, zone)
		if d.exists(zone) && t.After(after) {
			return t.UTC()
		}
		if repeated, twice := repeatOf(t, zone); again && twice && repeated.After(after) {
			return repeated.UTC()
		}
		d = d.add(1)
	}
	return after.Add(24 * time.Hour) // cannot happen in a known zone
}

// resolve returns the first instant of a local time, or the end of the gap that skips it. The local
// time is stored as UTC seconds.
func (z *zone) resolve(reading int64) int64 {
	// There is no nearby change if the offset is the same one day before and after.
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

	// The local time is in a gap. The change is between the instants of the local time for the
	// largest and the smallest offset.
	most, least := max(offsets[0], offsets[1], offsets[2]), min(offsets[0], offsets[1], offsets[2])
	from := reading - most
	n := sort.Search(int(most-least), func(n int) bool { return z.offset(from+int64(n)) != z.offset(from) })

	return from + int64(n)
}

// isRepeated reports whether the local time of t occurs again within a day.
func isRepeated(t time.Time, zone *time.Location) bool {
	_, twice := repeatOf(t, zone)
	return twice
}

// repeatOf returns the time at which the local time of t occurs again, and whether it does so
// within a day.
func repeatOf(t time.Time, zone *time.Location) (again time.Time, twice bool) {
	_, offset := t.In(zone).Zone()
	// If the clock is set back within a day, the offset is smaller a day later.
	_, later := t.Add(24 * time.Hour).In(zone).Zone()
	again = t.Add(time.Duration(offset-later) * time.Second)
	return again, later < offset && asIfUTC(again, zone).Equal(asIfUTC(t, zone))
}

// asIfUTC returns the local time of t, stored as UTC.
func asIfUTC(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
