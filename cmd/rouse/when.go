package main

import (
	"fmt"
	"strings"
	"time"

	"rouse/scheduler/schedule"
)

// when is a time as a person wrote it. Of one that was written to the minute, the whole
// minute is meant.
type when struct {
	at   time.Time
	span time.Duration
}

// dateTimes are the ways to write a local date and time, with how exact they are.
var dateTimes = map[string]time.Duration{
	"2006-01-02 15:04:05": time.Second, "2006-01-02T15:04:05": time.Second, "2006-01-02 15:04": time.Minute, "2006-01-02T15:04": time.Minute,
}

// parseWhen reads RFC 3339, a local date with or without a time, a time of day, or
// tomorrow. A time of day alone is the next one when it is about what comes (ahead), and
// else the one of today. A reading that the zone's clocks show twice is the first of the
// two, and one that they skip is the first instant after the gap.
func parseWhen(text string, now time.Time, zone *time.Location, ahead bool) (when, error) {
	text = strings.TrimSpace(text)
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(text)); err == nil {
		if t.Nanosecond() != 0 {
			return when{t.UTC(), time.Millisecond}, nil
		}
		return when{t.UTC(), time.Second}, nil
	}
	if strings.EqualFold(text, "tomorrow") {
		return day(schedule.NextDay(now, zone), zone), nil
	}
	for layout, span := range dateTimes {
		if t, err := time.Parse(layout, text); err == nil {
			at, err := reading(t, zone)
			return when{at, span}, err
		}
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		at, err := reading(t, zone)
		return day(at, zone), err
	}
	for layout, span := range map[string]time.Duration{"15:04": time.Minute, "15:04:05": time.Second} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		if ahead {
			return when{schedule.NextReading(now, t.Hour(), t.Minute(), t.Second(), zone), span}, nil
		}
		y, m, d := now.In(zone).Date()
		at, err := reading(time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, time.UTC), zone)
		return when{at, span}, err
	}
	return when{}, fmt.Errorf(`%q is not a time; write 15:04, tomorrow, 2026-11-21, "2026-11-21 15:04" or 2026-11-21T15:04:00+01:00`, shorten(text, 60))
}

func day(at time.Time, zone *time.Location) when {
	return when{at, schedule.NextDay(at, zone).Sub(at)}
}

// reading is when a zone's clocks show what a clock in UTC shows at t.
func reading(t time.Time, zone *time.Location) (time.Time, error) {
	at, ok := schedule.Reading(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), zone)
	if !ok {
		return at, fmt.Errorf("there is no %s in %s: its clocks skipped that date", t.Format(time.DateOnly), zoneName(zone))
	}
	return at, nil
}

// zoneName is a zone as a person knows it.
func zoneName(zone *time.Location) string {
	if zone == time.Local {
		return "local time"
	}
	return zone.String()
}
