package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"
)

// horizon bounds the search for the next date, in days: 29 February on a given weekday
// can be 40 years away.
const horizon = 45 * 366

// date is a local calendar date.
type date struct {
	year  int
	month int
	day   int
}

func dateOf(t time.Time) date {
	y, m, d := t.Date()
	return date{y, int(m), d}
}

func (d date) add(days int) date {
	return dateOf(time.Date(d.year, time.Month(d.month), d.day+days, 12, 0, 0, 0, time.UTC))
}

func (d date) weekday() int {
	return int(time.Date(d.year, time.Month(d.month), d.day, 12, 0, 0, 0, time.UTC).Weekday())
}

func (d date) before(o date) bool {
	if d.year != o.year {
		return d.year < o.year
	}
	if d.month != o.month {
		return d.month < o.month
	}
	return d.day < o.day
}

// dateRange is a pair of local dates, both included.
type dateRange struct{ from, to date }

func parseDates(text string) (dateRange, error) {
	from, to, ranged := strings.Cut(text, "..")
	if !ranged {
		to = from
	}
	a, errA := time.Parse(time.DateOnly, strings.TrimSpace(from))
	b, errB := time.Parse(time.DateOnly, strings.TrimSpace(to))
	if errA != nil || errB != nil {
		return dateRange{}, &Error{"exclude", text, "is neither a date like 2026-12-25 nor a range like 2026-12-24..2026-12-31"}
	}
	if b.Before(a) {
		return dateRange{}, &Error{"exclude", text, "the range runs backwards"}
	}
	return dateRange{dateOf(a), dateOf(b)}, nil
}

// resolve maps a local clock reading to its instant: the first when it exists twice, the
// first after the gap when it does not exist.
func resolve(d date, hour, minute, second int, zone *time.Location) time.Time {
	naive := time.Date(d.year, time.Month(d.month), d.day, hour, minute, second, 0, time.UTC)
	offset := func(t time.Time) time.Duration {
		_, o := t.In(zone).Zone()
		return time.Duration(o) * time.Second
	}
	offsets := []time.Duration{offset(naive.Add(-24 * time.Hour)), offset(naive), offset(naive.Add(24 * time.Hour))}
	var found time.Time
	for _, o := range offsets {
		if t := naive.Add(-o); offset(t) == o && (found.IsZero() || t.Before(found)) {
			found = t
		}
	}
	if !found.IsZero() {
		return found
	}
	// The clock was put forward between the instants that the reading has under the
	// largest and the smallest offset. time.ZoneBounds does not say when: where a zone's
	// rules begin it can be an hour off.
	from := naive.Add(-slices.Max(offsets))
	gap := int((slices.Max(offsets) - slices.Min(offsets)) / time.Second)
	n := sort.Search(gap, func(n int) bool { return offset(from.Add(time.Duration(n)*time.Second)) != offset(from) })
	return from.Add(time.Duration(n) * time.Second)
}

// exists says whether a zone has a local date at all: Apia had no 2011-12-30.
func (d date) exists(zone *time.Location) bool {
	return dateOf(resolve(d, 12, 0, 0, zone).In(zone)) == d
}

// Next is the first nominal instant after a time, zero when there is none.
func (s *Schedule) Next(after time.Time) time.Time {
	for {
		t := s.next(after)
		if t.IsZero() {
			return t
		}
		last, ok := s.excludedUntil(t)
		if !ok {
			return t.UTC()
		}
		after = resolve(last.add(1), 0, 0, 0, s.zone).Add(-time.Nanosecond)
		if after.Before(t) {
			after = t
		}
	}
}

// excludedUntil is the last date of the exclusion that holds an instant.
func (s *Schedule) excludedUntil(t time.Time) (date, bool) {
	d := dateOf(t.In(s.zone))
	for _, r := range s.excluded {
		if !d.before(r.from) && !r.to.before(d) {
			return r.to, true
		}
	}
	return date{}, false
}

func (s *Schedule) next(after time.Time) time.Time {
	switch {
	case s.every > 0:
		return s.nextOnGrid(after)
	case s.cron == nil:
		if s.at.After(after) {
			return s.at
		}
		return time.Time{}
	case s.cron.all24():
		return s.nextReal(after)
	}
	return s.nextFixed(after)
}

func (s *Schedule) nextOnGrid(after time.Time) time.Time {
	origin := time.Unix(0, 0)
	if !s.options.Anchor.IsZero() {
		origin = s.options.Anchor
	}
	// In seconds: the difference of two times can be more than a Duration holds.
	step := int64(s.every / time.Second)
	gone := after.Unix() - origin.Unix()
	if after.Nanosecond() < origin.Nanosecond() {
		gone--
	}
	k := gone / step
	if gone < 0 && gone%step != 0 {
		k--
	}
	return time.Unix(origin.Unix()+(k+1)*step, int64(origin.Nanosecond()))
}

// nextFixed looks for the next of the local clock readings that the fields name.
func (s *Schedule) nextFixed(after time.Time) time.Time {
	// A reading of the day before can fall behind a gap that reaches over midnight.
	d := dateOf(after.In(s.zone)).add(-1)
	for range horizon {
		if s.cron.onDate(d) && d.exists(s.zone) {
			if t := s.firstOn(d, after); !t.IsZero() {
				return t
			}
		}
		d = d.add(1)
	}
	return time.Time{}
}

func (s *Schedule) firstOn(d date, after time.Time) time.Time {
	f := s.cron
	for hours := f.hour & (1<<24 - 1); hours != 0; hours &= hours - 1 {
		hour := bits.TrailingZeros64(hours)
		if !resolve(d, hour, 59, 59, s.zone).After(after) {
			continue
		}
		for minutes := f.minute & (1<<60 - 1); minutes != 0; minutes &= minutes - 1 {
			minute := bits.TrailingZeros64(minutes)
			if !resolve(d, hour, minute, 59, s.zone).After(after) {
				continue
			}
			for seconds := f.second & (1<<60 - 1); seconds != 0; seconds &= seconds - 1 {
				if t := resolve(d, hour, minute, bits.TrailingZeros64(seconds), s.zone); t.After(after) {
					return t
				}
			}
		}
	}
	return time.Time{}
}

// nextReal steps through instants and reads the local clock at each; it never steps over
// a change of the clock. Where a zone's offset ends is found by looking at it:
// time.ZoneBounds names an end that lies behind on 31 December of leap years.
func (s *Schedule) nextReal(after time.Time) time.Time {
	f := s.cron
	t := after.Truncate(time.Second).Add(time.Second)
	limit := after.AddDate(0, 0, horizon)
	for t.Before(limit) {
		local := t.In(s.zone)
		minute := 60 - local.Second()
		switch d := dateOf(local); {
		case !f.onDate(d):
			t = s.step(t, 24*3600-local.Hour()*3600-local.Minute()*60-local.Second(), minute)
		case f.minute>>local.Minute()&1 == 0:
			t = s.step(t, minute)
		case f.second>>local.Second()&1 == 0:
			t = t.Add(time.Second)
		default:
			return t
		}
	}
	return time.Time{}
}

// step goes as far as the first of these lengths, in seconds, over which the clock is not
// changed, and else a second.
func (s *Schedule) step(t time.Time, lengths ...int) time.Time {
	_, offset := t.In(s.zone).Zone()
	for _, seconds := range lengths {
		to := t.Add(time.Duration(seconds) * time.Second)
		if _, o := to.In(s.zone).Zone(); o == offset {
			return to
		}
	}
	return t.Add(time.Second)
}

// String names the schedule as a log line does.
func (s *Schedule) String() string { return fmt.Sprintf("%s %s", s.source, s.Describe()) }
