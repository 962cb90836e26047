package scheduler

import (
	"time"

	"rouse/scheduler/schedule"
)

// jump is the time before the clocks of the machine were set forward because its time zone changed: the times of day of the new zone in it
// never came.
type jump struct{ from, to time.Time }

// first returns the first instant that a job misses by the jump, or the zero time if there is none. What was an instant in the old zone
// as well has been dealt with.
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
			first = earlier(first, t)
		}
	}
	return first
}
