package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
	"rouse/scheduler/schedule"
)

// SourceWake is the source of a run that an agent planned.
const SourceWake = "slot"

// Upcoming is a future occurrence with its expected decision.
type Upcoming struct {
	Job, Agent, Source string
	Nominal, Actual    time.Time
	Decision           domain.Decision
	Reason             string
}

// Next returns the next n occurrences after a time, in start order. With a job name, it lists that
// job and the wakes planned by its runs. With "", it lists all jobs and agents.
func (s *Scheduler) Next(name string, n int, after time.Time) []Upcoming {
	s.mu.Lock()
	pauses := s.pauses
	jobs, wakes := s.table.sources(name)
	s.mu.Unlock()
	var cursors []cursor
	for _, sl := range wakes {
		cursors = append(cursors, wakeCursor(sl, pauses, after))
	}

	for _, j := range jobs {
		for _, sch := range j.Schedules {
			if c, ok := nextOccurrence(j, sch, after, pauses); ok {
				cursors = append(cursors, c)
			}
		}
	}

	// Merge the schedules. Each has one cursor, which is reinserted in order after each occurrence.
	slices.SortFunc(cursors, byStart)
	var out []Upcoming
	for len(cursors) > 0 && len(out) < n {
		first, rest := cursors[0], cursors[1:]
		out = append(out, first.Upcoming)

		next, again := cursor{}, false
		if first.schedule != nil { // a wake has a single occurrence
			next, again = nextOccurrence(first.job, first.schedule, first.resume, pauses)
		}
		if !again {
			cursors = rest
			continue
		}

		// Move the cursors before it up by one, so that no memory is allocated.
		i, _ := slices.BinarySearchFunc(rest, next, byStart)
		copy(cursors, rest[:i])
		cursors[i] = next
	}

	return out
}

// cursor is the next unlisted occurrence of a schedule.
type cursor struct {
	Upcoming
	job      *Job
	schedule *schedule.Schedule
	resume   time.Time // start of the search for the next one
}

func byStart(a, b cursor) int {
	return cmp.Or(a.Actual.Compare(b.Actual), strings.Compare(a.Job, b.Job), strings.Compare(a.Source, b.Source))
}

// nextOccurrence returns the cursor of the first occurrence after a time, with its notes.
func nextOccurrence(j *Job, sch *schedule.Schedule, after time.Time, pauses []pause.Pause) (cursor, bool) {
	at, excluded := sch.NextWithExcluded(after)
	if at.IsZero() || after.IsZero() {
		return cursor{}, false
	}

	resume := at
	u := Upcoming{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: at, Actual: at, Decision: domain.DecisionRun}
	p, paused := pause.Paused(pauses, j.Name, j.Agent, at)
	switch {
	case excluded != "":
		u.Decision, u.Reason = domain.DecisionSkipped, excluded
		if outside, until := sch.Outside(at); outside {
			// Most instants may be outside of the allowed times. One line stands for all of them.
			if resume = until; resume.IsZero() {
				u.Reason += ", which names no later time"
				break
			}
			u.Reason += " before " + resume.Format(time.RFC3339)
			resume = resume.Add(-1)
		}
	case paused:
		u.Decision, u.Reason = domain.DecisionSkipped, p.String()
	default:
		u.Actual = sch.Actual(at)
		var notes []string
		if held := u.Actual.Sub(at); held > 0 {
			notes = append(notes, schedule.HeldText(u.Source, held))
		}

		if note := sch.ClockChangeNote(at); note != "" {
			notes = append(notes, note)
		}

		u.Reason = strings.Join(notes, "; ")
	}

	return cursor{u, j, sch, resume}, true
}

// wakeCursor returns the cursor of a planned wake. A wake in the past is about to fire, or waits
// for the end of a pause.
func wakeCursor(s wake.Wake, pauses []pause.Pause, now time.Time) cursor {
	u := Upcoming{Job: s.Job, Agent: s.Agent, Source: SourceWake, Nominal: s.At, Actual: s.At, Decision: domain.DecisionRun,
		Reason: fmt.Sprintf("agent %s, planned by the %s", s.Agent, s.ScheduledBy)}
	at := s.At
	if at.Before(now) {
		at = now
	}

	if p, ok := pause.Paused(pauses, "", s.Agent, at); ok {
		u.Reason = "waits for the end of the pause: " + p.String()
		if !p.Until.IsZero() {
			u.Actual = p.Until
		}
	}

	return cursor{Upcoming: u}
}

// NextStart returns the next start of a job, without excluded and paused instants. It returns the
// zero time if there is none or if the job is paused indefinitely.
func (s *Scheduler) NextStart(name string, after time.Time) time.Time {
	s.mu.Lock()
	pauses := s.pauses
	e := s.table.jobs[name]
	s.mu.Unlock()
	var first time.Time
	if e == nil {
		return first
	}

	for _, sch := range e.job.Schedules {
		t := sch.Next(after)
		for !t.IsZero() {
			p, paused := pause.Paused(pauses, e.job.Name, e.job.Agent, t)
			if !paused {
				break
			}
			// A pause does not include the instant of its end.
			if t = p.Until; !t.IsZero() {
				t = sch.Next(t.Add(-time.Nanosecond))
			}
		}
		if t.IsZero() {
			continue
		}

		first = domain.Earlier(first, sch.Actual(t))
	}

	return first
}

// JobStatus is the progress of a job's schedules.
type JobStatus struct {
	Job       Job       // with anchored schedules
	Watermark time.Time // instants up to here are decided
	// Due are the undecided instants, with the decisions that PopDue would make now. The ledger
	// decides about overlaps later.
	Due []ledger.Due
}

// JobStatus returns the status of a job, or false if the job does not exist. It records nothing. If
// no scheduler is running, it decides as if one started now.
func (s *Scheduler) JobStatus(name string) (JobStatus, bool) {
	now := s.now().Truncate(time.Millisecond)
	s.mu.Lock()
	c := DueContext{Pauses: s.pauses, StartedAt: s.startedAt}
	e := s.table.jobs[name]
	if e == nil {
		s.mu.Unlock()
		return JobStatus{}, false
	}

	snapshot := *e // the loop changes the entry concurrently
	s.mu.Unlock()
	if c.StartedAt.IsZero() {
		c.StartedAt = now
	}

	snapshot.startDue = time.Time{} // the start is not an instant of a schedule
	rows, _ := snapshot.due(now, c)
	return JobStatus{Job: snapshot.job, Watermark: snapshot.watermark, Due: rows}, true
}

// sources returns a job and the wakes planned by its runs, or all jobs and wakes if name is "".
func (t *Timetable) sources(name string) (jobs []*Job, wakes []wake.Wake) {
	if e := t.jobs[name]; e != nil {
		jobs = append(jobs, &e.job)
	} else if name == "" {
		for _, e := range t.jobs {
			jobs = append(jobs, &e.job)
		}
	}

	for _, e := range t.wakes {
		if name == "" || e.wake.Job == name {
			wakes = append(wakes, *e.wake)
		}
	}

	return jobs, wakes
}
