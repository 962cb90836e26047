package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Quiet is a range of local hours, in minutes since midnight. The end is exclusive. Equal values
// mean no quiet hours.
type Quiet struct{ From, To int }

// normalizeDash replaces the en dash, which some editors insert, with a hyphen.
func normalizeDash(text string) string { return strings.ReplaceAll(text, "–", "-") }

// ParseQuiet parses hours like 22:00-07:00, or none. It returns an *Error if text is invalid.
func ParseQuiet(text string) (Quiet, error) {
	if strings.EqualFold(strings.TrimSpace(text), "none") {
		return Quiet{}, nil
	}

	from, to, _ := strings.Cut(normalizeDash(text), "-")
	a, errA := parseClock(from)
	b, errB := parseClock(to)
	if errA != nil || errB != nil || a == 24*60 {
		return Quiet{}, &Error{"quiet_hours", text, "is neither none nor hours like 22:00-07:00"}
	}

	if b == 24*60 {
		// Equal values would mean no quiet hours.
		if b = 0; a == 0 {
			return Quiet{}, &Error{"quiet_hours", text, "is the whole day; use mode: manual to have no wakes"}
		}
	}

	return Quiet{a, b}, nil
}

// parseClock parses times like 7:00, 07:00 or 24:00. It returns minutes since midnight.
func parseClock(text string) (int, error) {
	text = strings.TrimSpace(text)
	if text == "24:00" {
		return 24 * 60, nil
	}
	t, err := time.Parse("15:04", text)
	return t.Hour()*60 + t.Minute(), err
}

// String returns the format of ParseQuiet.
func (q Quiet) String() string {
	if q.From == q.To {
		return "none"
	}
	return fmt.Sprintf("%02d:%02d-%02d:%02d", q.From/60, q.From%60, q.To/60, q.To%60)
}

// holds reports whether a local time is in the quiet hours.
func (q Quiet) holds(local time.Time) bool {
	minute := local.Hour()*60 + local.Minute()
	if q.From <= q.To {
		return q.From <= minute && minute < q.To
	}
	return minute >= q.From || minute < q.To
}

// End returns the end of the quiet hours at t, or t if it is not in quiet hours. A clock change can
// lead into further quiet hours.
func (q Quiet) End(t time.Time, zone *time.Location) time.Time {
	for range 8 { // limit for unknown zones
		if !q.holds(t.In(zone)) {
			break
		}
		t = q.firstEnd(t, zone)
	}
	return t
}

// firstEnd returns the next local time that ends the quiet hours, even if the clock repeats it.
func (q Quiet) firstEnd(t time.Time, zone *time.Location) time.Time {
	local := t.In(zone)
	d := dateOf(local)
	if local.Hour()*60+local.Minute() >= q.To {
		d = d.add(1)
	}
	if end := resolve(d, q.To/60, q.To%60, 0, zone); end.After(t) {
		return end
	}

	_, offset := local.Zone()
	return time.Unix(d.at(q.To/60, q.To%60, 0)-int64(offset), 0).UTC()
}

// ParseDays parses days of the week and ranges like mon, Tuesday or fri-sun. It returns an *Error
// if a name is invalid.
func ParseDays(names []string) (uint8, error) {
	var mask uint8
	for _, name := range names {
		low, high, ranged := strings.Cut(normalizeDash(name), "-")
		from := dayNumber(low)
		to := from
		if ranged {
			to = dayNumber(high)
		}
		if from < 0 || to < 0 {
			return 0, &Error{"days", name, "is neither a day like mon or Monday nor a range like mon-fri"}
		}

		// A range may wrap around: sat-mon is three days.
		for d := from; ; d = (d + 1) % 7 {
			mask |= 1 << d
			if d == to {
				break
			}
		}
	}

	return mask, nil
}

// dayNumber returns 0 for Sunday to 6 for Saturday, or -1 if name is not a day.
func dayNumber(name string) int {
	name = strings.TrimSpace(name)
	return slices.IndexFunc(dayNames, func(day string) bool {
		return strings.EqualFold(name, day) || strings.EqualFold(name, day[:3])
	})
}

// Daily is a local time of day, in minutes since midnight.
type Daily int

// ParseDaily parses text like "daily at 08:00". It returns an *Error if text is invalid.
func ParseDaily(text string) (Daily, error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) != 3 || words[0] != "daily" || words[1] != "at" {
		return 0, &Error{"digest", text, "is not like daily at 08:00"}
	}

	minutes, err := parseClock(words[2])
	if err != nil || minutes == 24*60 {
		return 0, &Error{"digest", text, "is not like daily at 08:00"}
	}
	return Daily(minutes), nil
}

// Next returns the first occurrence after a time. A repeated local time counts once, at its first
// instant. A skipped local time becomes the first instant after the gap.
func (d Daily) Next(after time.Time, zone *time.Location) time.Time {
	return nextReading(after, int(d)/60, int(d)%60, 0, zone, false)
}

// String returns the format of ParseDaily.
func (d Daily) String() string { return fmt.Sprintf("daily at %02d:%02d", int(d)/60, int(d)%60) }
