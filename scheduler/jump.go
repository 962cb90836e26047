package scheduler

import (
	"time"

	"rouse/internal/domain"
	"rouse/scheduler/schedule"
)

// jump is a span of local time that was skipped because the system's time zone changed to one that
// is ahead.
type jump struct{ from, to time.Time }

// first returns the first instant that a job misses because of the jump, or the zero time if there
// is none. It ignores instants that exist in both zones, because they were already decided.
func (j *jump) first(old, schedules []*schedule.Schedule, anchor time.Time) (first time.Time) {
	for i, s := range schedules {
		_, before := j.to.In(old[i].Zone()).Zone()
		_, after := j.to.In(s.Zone()).Zone()
		if after <= before {
			continue
		}

		j.from = j.to.Add(-time.Duration(after-before) * time.Second)
		from := j.from
		if from.Before(anchor) {
			from = anchor
		}
		t := s.Next(from)
		for !t.IsZero() && !t.After(j.to) && old[i].Matches(t) {
			t = s.Next(t)
		}
		if !t.IsZero() && !t.After(j.to) {
			first = domain.Earlier(first, t)
		}
	}
	return first
}
