package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"rouse/internal/text"
)

// ParsedTime is the result of ParseTime. A time without seconds has a precision of one minute.
type ParsedTime struct {
	At        time.Time
	Precision time.Duration // precision of the input, like a minute or a day
}

// clockLayouts lists the layouts of a time of day, in lower case, with their precision.
var clockLayouts = map[string]time.Duration{
	"15:04": time.Minute, "15:04:05": time.Second, "3pm": time.Minute, "3:04pm": time.Minute,
}

// dayOffsets maps words for days to their distance from today.
var dayOffsets = map[string]int{"yesterday": -1, "today": 0, "tomorrow": 1}

// timeForms lists the accepted forms of a time, for error messages and the help.
const timeForms = `15:04, today, yesterday, tomorrow, monday 15:04, -2h, 2026-11-21, "2026-11-21 15:04" or 2026-11-21T15:04:00+01:00`

// ParseTime parses a time: RFC 3339, now, a time of day, a duration (2h, -2h, +2h, "2h ago",
// "in 2h"), or a day with an optional time of day. A day is a local date, today, yesterday,
// tomorrow or a weekday.
//
// If ahead is true, a weekday or a time of day is the next one, and 2h is in two hours.
// Otherwise a weekday is the most recent one, a time of day is that of today, and 2h is two
// hours ago. A local time that occurs twice is the first one. A local time that the zone skips
// is the first instant after the gap.
func ParseTime(written string, now time.Time, zone *time.Location, ahead bool) (ParsedTime, error) {
	p, err := parseTime(strings.ToLower(strings.TrimSpace(written)), now, zone, ahead)
	// JSON cannot hold other years.
	if y := p.At.Year(); err == nil && (y < 1 || y > 9999) {
		err = errNoTime
	}
	if errors.Is(err, errNoTime) {
		return ParsedTime{}, fmt.Errorf(`%q is not a time; write %s`, text.Truncate(text.OneLine(strings.TrimSpace(written)), 60), timeForms)
	}
	return p, err
}

var errNoTime = errors.New("not a time")

func parseTime(written string, now time.Time, zone *time.Location, ahead bool) (ParsedTime, error) {
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(written)); err == nil {
		if t.Nanosecond() != 0 {
			return ParsedTime{t.UTC(), time.Millisecond}, nil
		}
		return ParsedTime{t.UTC(), time.Second}, nil
	}
	if written == "now" {
		return ParsedTime{now.UTC(), time.Millisecond}, nil
	}
	if shift, ok := parseShift(written, ahead); ok {
		return ParsedTime{now.Add(shift).UTC(), time.Second}, nil
	}

	// A T between date and time is the same as a blank.
	if len(written) > len(time.DateOnly) && written[len(time.DateOnly)] == 't' {
		written = written[:len(time.DateOnly)] + " " + written[len(time.DateOnly)+1:]
	}
	words := strings.Fields(written)
	if len(words) == 0 || len(words) > 2 {
		return ParsedTime{}, errNoTime
	}

	clock, span, isClock := parseTimeOfDay(words[len(words)-1])
	switch {
	case isClock && len(words) == 1 && ahead:
		return ParsedTime{NextTimeOfDay(now, clock.Hour(), clock.Minute(), clock.Second(), zone), span}, nil
	case isClock && len(words) == 1:
		words[0] = "today"
	case !isClock && len(words) == 2:
		return ParsedTime{}, errNoTime
	}

	d, err := parseDay(words[0], clock, now, zone, ahead)
	if err != nil {
		return ParsedTime{}, err
	}
	at := resolve(d, clock.Hour(), clock.Minute(), clock.Second(), zone)
	if !isClock {
		span = NextDay(at, zone).Sub(at)
	}
	return ParsedTime{at, span}, nil
}

// parseShift parses a duration relative to now.
func parseShift(written string, ahead bool) (time.Duration, bool) {
	back := !ahead
	length, ago := strings.CutSuffix(written, " ago")
	length, in := strings.CutPrefix(length, "in ")
	length, plus := strings.CutPrefix(length, "+")
	length, minus := strings.CutPrefix(length, "-")
	switch {
	case ago && (in || plus || minus), in && (plus || minus), plus && minus:
		return 0, false
	case ago, minus:
		back = true
	case in, plus:
		back = false
	}

	d, err := text.ParseSpan(strings.TrimSpace(length))
	if err != nil || d < 0 {
		return 0, false
	}
	if back {
		d = -d
	}
	return d, true
}

// parseTimeOfDay parses a time of day.
func parseTimeOfDay(written string) (clock time.Time, span time.Duration, ok bool) {
	for layout, span := range clockLayouts {
		if t, err := time.Parse(layout, written); err == nil {
			return t, span, true
		}
	}
	return time.Time{}, 0, false
}

// parseDay parses a date, a word for a day, or a weekday. The date of a weekday depends on the time
// of day.
func parseDay(written string, clock, now time.Time, zone *time.Location, ahead bool) (date, error) {
	today := dateOf(now.In(zone))
	if t, err := time.Parse(time.DateOnly, written); err == nil {
		d := dateOf(t)
		if !d.exists(zone) {
			return d, fmt.Errorf("there is no %s in %s: its clocks skipped that date", written, ZoneName(zone))
		}
		return d, nil
	}

	if offset, ok := dayOffsets[written]; ok {
		d := today.add(offset)
		for offset != 0 && !d.exists(zone) {
			d = d.add(offset)
		}
		return d, nil
	}

	day, ok := parseWeekday(written)
	if !ok {
		return 0, errNoTime
	}
	step := -1
	if ahead {
		step = 1
	}
	// Look two weeks ahead, because a zone may skip a date.
	for i := range 15 {
		d := today.add(i * step)
		at := resolve(d, clock.Hour(), clock.Minute(), clock.Second(), zone)
		if d.weekday() == day && d.exists(zone) && at.After(now) == ahead {
			return d, nil
		}
	}
	return 0, errNoTime
}

// parseWeekday parses the English name of a day or a prefix of at least three letters.
func parseWeekday(written string) (int, bool) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if len(written) >= 3 && strings.HasPrefix(strings.ToLower(day.String()), written) {
			return int(day), true
		}
	}
	return 0, false
}

// ZoneName returns the display name of a zone.
func ZoneName(zone *time.Location) string {
	if zone.String() == "Local" {
		return "local time"
	}
	return zone.String()
}
