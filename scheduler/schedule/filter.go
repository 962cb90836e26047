package schedule

import (
	"strings"
	"time"
	"unicode"
)

// filter excludes instants from a schedule. It holds excluded dates and calendars, and the dates
// and calendars that the schedule is limited to.
type filter struct {
	excluded, only                   []dateRange
	excludedCalendars, onlyCalendars []*Calendar
	excludeTexts, onlyTexts          []string
}

func (f *filter) empty() bool { return len(f.excludeTexts)+len(f.onlyTexts) == 0 }

// fixed reports whether the filter uses no calendars, so that its result never changes.
func (f *filter) fixed() bool { return len(f.excludedCalendars)+len(f.onlyCalendars) == 0 }

func (f *filter) parse(o Options) (err error) {
	f.excludeTexts, f.onlyTexts = o.Exclude, o.Only
	if f.excluded, f.excludedCalendars, err = parseTimes("exclude", o.Exclude, o.Calendar); err != nil {
		return err
	}
	f.only, f.onlyCalendars, err = parseTimes("only", o.Only, o.Calendar)
	return err
}

// parseTimes parses dates, date ranges and calendar names.
func parseTimes(field string, texts []string, calendar func(string) *Calendar) (dates []dateRange, calendars []*Calendar, err error) {
	for _, text := range texts {
		r, err := parseDates(field, text)
		if err == nil {
			dates = append(dates, r)
			continue
		}

		var c *Calendar
		if calendar != nil {
			c = calendar(text)
		}
		switch begins := strings.IndexFunc(text, unicode.IsDigit) == 0; {
		case c != nil:
			calendars = append(calendars, c)
		case begins: // looks like a date
			return nil, nil, err
		default:
			return nil, nil, &Error{field, text, "is neither a date like 2026-12-25, a range like 2026-12-24..2026-12-31, nor the name of one of the calendars"}
		}
	}
	return dates, calendars, nil
}

// leftOut returns the reason why an instant is excluded, or "". until is the time at which that may
// change, or the zero time if it does not.
func (f *filter) leftOut(zone *zone, t time.Time) (why string, until time.Time) {
	if f.empty() {
		return "", time.Time{}
	}

	d := zone.dateAt(t.Unix())
	for _, r := range f.excluded {
		if r.from <= d && d <= r.to {
			return "exclude: " + r.text, zone.startOf(r.to + 1)
		}
	}
	for _, c := range f.excludedCalendars {
		if entry, covered, end, _ := c.at(t.Unix(), zone); covered {
			return "exclude: " + entryText(c, entry), time.Unix(end, 0).UTC()
		}
	}
	if len(f.onlyTexts) == 0 {
		return "", time.Time{}
	}
	return f.outside(zone, t, d)
}

// outside implements leftOut for a schedule that is limited to certain times.
func (f *filter) outside(zone *zone, t time.Time, d date) (why string, until time.Time) {
	for _, r := range f.only {
		if r.from <= d && d <= r.to {
			return "", time.Time{}
		}
		if d < r.from {
			until = sooner(until, zone.startOf(r.from))
		}
	}
	for _, c := range f.onlyCalendars {
		_, covered, next, never := c.at(t.Unix(), zone)
		if covered {
			return "", time.Time{}
		}
		if !never {
			until = sooner(until, time.Unix(next, 0).UTC())
		}
	}
	return outsideText + strings.Join(f.onlyTexts, ", "), until
}

// outsideText is the prefix of the reason for instants outside of the allowed times.
const outsideText = "only: not in "

func isOutside(why string) bool { return strings.HasPrefix(why, outsideText) }

func (z *zone) startOf(d date) time.Time {
	return time.Unix(z.resolve(d.at(0, 0, 0)), 0).UTC()
}

// sooner returns the earlier of two times. The zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func entryText(c *Calendar, entry string) string {
	if entry == "" {
		return c.name
	}
	return c.name + " (" + entry + ")"
}

// Calendars returns the calendars that the schedule uses.
func (s *Schedule) Calendars() (out []*Calendar) {
	return append(append(out, s.filter.excludedCalendars...), s.filter.onlyCalendars...)
}
