package schedule

import (
	"strings"
	"time"
	"unicode"
)

// filter is what takes instants out of a schedule: dates and calendars that it leaves out, and those to which it keeps.
type filter struct {
	excluded, only                   []dateRange
	excludedCalendars, onlyCalendars []*Calendar
	excludeTexts, onlyTexts          []string
}

func (f *filter) empty() bool { return len(f.excludeTexts)+len(f.onlyTexts) == 0 }

// fixed reports that no calendar is asked, so that what it takes out stays the same.
func (f *filter) fixed() bool { return len(f.excludedCalendars)+len(f.onlyCalendars) == 0 }

func (f *filter) parse(o Options) (err error) {
	f.excludeTexts, f.onlyTexts = o.Exclude, o.Only
	if f.excluded, f.excludedCalendars, err = parseTimes("exclude", o.Exclude, o.Calendar); err != nil {
		return err
	}
	f.only, f.onlyCalendars, err = parseTimes("only", o.Only, o.Calendar)
	return err
}

// parseTimes reads dates, ranges of dates, and names of calendars.
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
		case begins: // meant as a date
			return nil, nil, err
		default:
			return nil, nil, &Error{field, text, "is neither a date like 2026-12-25, a range like 2026-12-24..2026-12-31, nor the name of one of the calendars"}
		}
	}
	return dates, calendars, nil
}

// leftOut returns why an instant is left out, or "", and when that may change, zero for never.
func (s *Schedule) leftOut(t time.Time) (why string, until time.Time) {
	f := &s.filter
	if f.empty() {
		return "", time.Time{}
	}

	d := s.zone.dateAt(t.Unix())
	for _, r := range f.excluded {
		if r.from <= d && d <= r.to {
			return "exclude: " + r.text, s.startOf(r.to + 1)
		}
	}
	for _, c := range f.excludedCalendars {
		if entry, covered, end, _ := c.at(t.Unix(), s.zone); covered {
			return "exclude: " + entryText(c, entry), time.Unix(end, 0).UTC()
		}
	}
	if len(f.onlyTexts) == 0 {
		return "", time.Time{}
	}
	return s.outside(t, d)
}

// outside is leftOut of a schedule that keeps to some times.
func (s *Schedule) outside(t time.Time, d date) (why string, until time.Time) {
	for _, r := range s.filter.only {
		if r.from <= d && d <= r.to {
			return "", time.Time{}
		}
		if d < r.from {
			until = sooner(until, s.startOf(r.from))
		}
	}
	for _, c := range s.filter.onlyCalendars {
		_, covered, next, never := c.at(t.Unix(), s.zone)
		if covered {
			return "", time.Time{}
		}
		if !never {
			until = sooner(until, time.Unix(next, 0).UTC())
		}
	}
	return outsideText + strings.Join(s.filter.onlyTexts, ", "), until
}

// outsideText is how a reason begins that an instant lies outside of what a schedule keeps to.
const outsideText = "only: not in "

func isOutside(why string) bool { return strings.HasPrefix(why, outsideText) }

func (s *Schedule) startOf(d date) time.Time {
	return time.Unix(s.zone.resolve(d.at(0, 0, 0)), 0).UTC()
}

// sooner is the sooner of two times; zero stands for never.
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

// Calendars are those that the schedule asks.
func (s *Schedule) Calendars() (out []*Calendar) {
	return append(append(out, s.filter.excludedCalendars...), s.filter.onlyCalendars...)
}
