package scheduler

import (
	"time"

	"rouse/internal/domain"
	"rouse/scheduler/schedule"
)

// jump is a span of local time that was skipped because the machine changed to a time zone that is ahead.
type jump struct{ from, to time.Time }

// first returns the first instant that a job misses because of the jump, or the zero time. Instants that exist in both zones were
// decided before.
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
