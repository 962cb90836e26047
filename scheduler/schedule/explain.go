package schedule

import (
	"fmt"
	"time"
)

// maxLookBack is the maximum distance that LastAndNext looks back.
const maxLookBack = 400 * 24 * time.Hour

// NextWithExcluded returns the next nominal instant, and the reason if it is excluded.
func (s *Schedule) NextWithExcluded(after time.Time) (t time.Time, why string) {
	if t = s.next(after); t.IsZero() || t.Unix() >= end {
		return time.Time{}, ""
	}
	why, _ = s.filter.leftOut(s.zone, t)
	return t, why
}

// Outside reports whether an instant is outside of the times that the schedule is limited to. until
// is the end of that state, or the zero time if it does not end.
func (s *Schedule) Outside(t time.Time) (outside bool, until time.Time) {
	why, until := s.filter.leftOut(s.zone, t)
	return isOutside(why), until
}

// Matches reports whether t is a nominal instant of the schedule.
func (s *Schedule) Matches(t time.Time) bool { return s.Next(t.Add(-time.Nanosecond)).Equal(t) }

// LastAndNext returns the last instant up to t, at most 400 days back, and the next one. A missing
// instant is the zero time.
func (s *Schedule) LastAndNext(t time.Time) (before, after time.Time) {
	after = s.Next(t)
	passed := func(n time.Time) bool { return !n.IsZero() && !n.After(t) }

	// Binary search: all later passed instants are between before and end.
	end := t
	for n := s.Next(t.Add(-maxLookBack)); passed(n); n = s.Next(before) {
		before = n
		middle := before.Add(end.Sub(before) / 2)
		if n = s.Next(middle); passed(n) {
			before = n
		} else {
			end = middle
		}
	}

	return before, after
}

// ClockChangeNote describes the effect of a clock change on an occurrence. It returns "" if there
// is no effect.
func (s *Schedule) ClockChangeNote(nominal time.Time) string {
	if s.source != sourceCron || s.cron.everyHour() {
		return ""
	}

	if lost := s.cron.skippedTimes(s.zone, nominal); len(lost) > 0 {
		first, last := lost[0], lost[len(lost)-1]
		if len(lost) == 1 {
			return fmt.Sprintf("%s does not exist on %s: runs at the first instant after the gap", clockOf(first), first.Format(time.DateOnly))
		}
		return fmt.Sprintf("%s to %s do not exist on %s: runs once, at the first instant after the gap", clockOf(first), clockOf(last), first.Format(time.DateOnly))
	}

	local := nominal.In(s.zone.Location)
	if s.cron.matches(local) && isRepeated(nominal, s.zone.Location) {
		return fmt.Sprintf("%s comes twice on %s: runs the first time only", clockOf(local), local.Format(time.DateOnly))
	}

	return ""
}

// skippedTimes returns the matching local times that are skipped by a clock change at t, stored as
// UTC.
func (f *fields) skippedTimes(zone *zone, t time.Time) (out []time.Time) {
	from, to := asIfUTC(t.Add(-time.Second), zone.Location).Add(time.Second), asIfUTC(t, zone.Location)
	for minute := from.Truncate(time.Minute); minute.Before(to); minute = minute.Add(time.Minute) {
		for _, second := range values(f.second, 60) {
			r := minute.Add(time.Duration(second) * time.Second)
			if !r.Before(from) && r.Before(to) && f.matches(r) && zone.hasDate(dateOf(r)) {
				out = append(out, r)
			}
		}
	}

	return out
}

// matches reports whether the fields match a local time.
func (f *fields) matches(local time.Time) bool {
	return f.second>>local.Second()&1 == 1 && f.minute>>local.Minute()&1 == 1 && f.hour>>local.Hour()&1 == 1 && f.matchesDate(dateOf(local))
}

func clockOf(local time.Time) string {
	if local.Second() != 0 {
		return local.Format("15:04:05")
	}
	return local.Format("15:04")
}

// Gone is an instant that is excluded from a schedule.
type Gone struct {
	At  time.Time
	Why string
}

// LeftOut returns at most n excluded instants after a time and up to another time. If the schedule
// is limited to certain times, one instant represents all instants until the next allowed time.
func (s *Schedule) LeftOut(after, to time.Time, n int) (out []Gone) {
	if s.filter.empty() {
		return nil
	}
	for t := s.next(after); !t.IsZero() && !t.After(to) && len(out) < n; {
		why, until := s.filter.leftOut(s.zone, t)
		if why != "" {
			out = append(out, Gone{t, why})
		}

		from := t
		if isOutside(why) {
			if until.IsZero() {
				break
			}
			from = until.Add(-1)
		}
		t = s.next(from)
	}
	return out
}
