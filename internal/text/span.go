package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	day = 24 * time.Hour
	// farAway is the distance from which on When returns a date.
	farAway = 60 * day
)

// maxDays is the maximum of a time.Duration in days, 292 years.
const maxDays = 106_751

// ParseSpan parses a duration in the configuration and on the command line: a Go duration (90s,
// 1h30m) or a number of days (7d) of 24 hours each.
//
// time.ParseDuration does not support days, because their length depends on the calendar. Libraries
// that support days also accept weeks, months and years of a fixed length, which a configuration
// must not contain.
func ParseSpan(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}

	number, isDays := strings.CutSuffix(s, "d")
	n, wrong := strconv.ParseFloat(number, 64)
	if !isDays || wrong != nil || math.IsNaN(n) || math.Abs(n) > maxDays {
		return 0, err
	}
	// Rounded to milliseconds, because 0.7 days are not whole seconds in floating point.
	return time.Duration(math.Round(n*24*3600*1000)) * time.Millisecond, nil
}

// FormatSpan formats a duration for ParseSpan, without zero units: 1m30s, 6h, 7d.
func FormatSpan(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Span formats a duration for people, in at most two units: "340 ms", "12.3 s", "3 min", "2 h 5
// min", "4 d 16 h".
func Span(d time.Duration) string {
	switch d = max(d, -d); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second >= 50*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return wholeSpan(d)
}

// wholeSpan is like Span, without fractions of a second.
func wholeSpan(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 10*time.Minute:
		return units(d, time.Minute, "min", time.Second, "s")
	}

	// Round to the smaller unit first, so that an hour is not "60 min".
	if d = d.Round(time.Minute); d < time.Hour {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	if d < day {
		return units(d, time.Hour, "h", time.Minute, "min")
	}
	if d = d.Round(time.Hour); d < 10*day {
		return units(d, day, "d", time.Hour, "h")
	}
	return fmt.Sprintf("%d d", d.Round(day)/day)
}

func units(d, large time.Duration, first string, small time.Duration, second string) string {
	if rest := d % large / small; rest > 0 {
		return fmt.Sprintf("%d %s %d %s", d/large, first, rest, second)
	}
	return fmt.Sprintf("%d %s", d/large, first)
}

// When formats a time relative to now: "3 min ago", "in 4 d 16 h", "now". If it is far away, it
// returns the date: "2026-08-01". For the zero time, it returns "–".
func When(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}

	d := t.Sub(now).Round(time.Second)
	switch {
	case d == 0:
		return "now"
	case d > farAway || d < -farAway:
		return t.Local().Format(time.DateOnly)
	case d > 0:
		return "in " + wholeSpan(d)
	case d > -10*time.Minute && d <= -time.Minute: // seconds do not matter for the past
		return wholeSpan((-d).Truncate(time.Minute)) + " ago"
	}
	return wholeSpan(-d) + " ago"
}
