package schedule

import (
	"fmt"
	"strings"
	"time"

	"rouse/internal/text"
)

// ParsedTime is a time as a person wrote it. One that was written to the minute means the whole
// minute.
type ParsedTime struct {
	At        time.Time
	Precision time.Duration // how precisely it was written: a minute, a day
}

// dateTimes are the ways to write a local date and time, with their precision.
var dateTimes = map[string]time.Duration{
	"2006-01-02 15:04:05": time.Second, "2006-01-02T15:04:05": time.Second, "2006-01-02 15:04": time.Minute, "2006-01-02T15:04": time.Minute,
}

// ParseTime reads RFC 3339, a local date with or without a time, a time of day, or
// tomorrow. A time of day alone is the next one when the future is meant (ahead), and
// otherwise that of today. A reading that the zone's clocks show twice is the first of the
// two, and one that they skip is the first instant after the gap.
func ParseTime(written string, now time.Time, zone *time.Location, ahead bool) (ParsedTime, error) {
	written = strings.TrimSpace(written)
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(written)); err == nil {
		if t.Nanosecond() != 0 {
			return ParsedTime{t.UTC(), time.Millisecond}, nil
		}
		return ParsedTime{t.UTC(), time.Second}, nil
	}

	if strings.EqualFold(written, "tomorrow") {
		return wholeDay(NextDay(now, zone), zone), nil
	}

	for layout, span := range dateTimes {
		if t, err := time.Parse(layout, written); err == nil {
			at, err := localInstant(t, zone)
			return ParsedTime{at, span}, err
		}
	}

	if t, err := time.Parse(time.DateOnly, written); err == nil {
		at, err := localInstant(t, zone)
		return wholeDay(at, zone), err
	}

	for layout, span := range map[string]time.Duration{"15:04": time.Minute, "15:04:05": time.Second} {
		t, err := time.Parse(layout, written)
		if err != nil {
			continue
		}
		if ahead {
			return ParsedTime{NextTimeOfDay(now, t.Hour(), t.Minute(), t.Second(), zone), span}, nil
		}

		y, m, d := now.In(zone).Date()
		at, err := localInstant(time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.UTC), zone)
		return ParsedTime{at, span}, err
	}

	return ParsedTime{}, fmt.Errorf(`%q is not a time; write 15:04, tomorrow, 2026-11-21, "2026-11-21 15:04" or 2026-11-21T15:04:00+01:00`, text.Truncate(text.OneLine(written), 60))
}

func wholeDay(at time.Time, zone *time.Location) ParsedTime {
	return ParsedTime{at, NextDay(at, zone).Sub(at)}
}

// localInstant is when a zone's clocks show what a clock in UTC shows at t.
func localInstant(t time.Time, zone *time.Location) (time.Time, error) {
	at, ok := LocalToInstant(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), zone)
	if !ok {
		return at, fmt.Errorf("there is no %s in %s: its clocks skipped that date", t.Format(time.DateOnly), ZoneName(zone))
	}
	return at, nil
}

// ZoneName is the name of a zone for people.
func ZoneName(zone *time.Location) string {
	if zone == time.Local {
		return "local time"
	}
	return zone.String()
}
