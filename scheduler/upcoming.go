package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler/schedule"
)

// SourceWake is the source of a run that an agent planned.
const SourceWake = "slot"

// Upcoming is a coming occurrence with what is known of it now.
type Upcoming struct {
	Job, Agent, Source string
	Nominal, Actual    time.Time
	Decision           domain.Decision
	Reason             string
}

// Next lists the next n occurrences after a time, in the order in which they start: of one job
// with the wakes that its runs planned, or of all jobs and agents ("").
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

	// A merge of the schedules: each has one cursor, which goes back in where its next
	// occurrence belongs.
	slices.SortFunc(cursors, byStart)
	var out []Upcoming
	for len(cursors) > 0 && len(out) < n {
		first, rest := cursors[0], cursors[1:]
		out = append(out, first.Upcoming)

		next, again := cursor{}, false
		if first.schedule != nil { // a wake comes once
			next, again = nextOccurrence(first.job, first.schedule, first.resume, pauses)
		}
		if !again {
			cursors = rest
			continue
		}

		// Those before it move up into the place of the first, so that nothing is allocated.
		i, _ := slices.BinarySearchFunc(rest, next, byStart)
		copy(cursors, rest[:i])
		cursors[i] = next
	}

	return out
}

// cursor is the next occurrence of one schedule that has not been listed yet.
type cursor struct {
	Upcoming
	job      *Job
	schedule *schedule.Schedule
	resume   time.Time // after which the next one is looked for
}

func byStart(a, b cursor) int {
	return cmp.Or(a.Actual.Compare(b.Actual), strings.Compare(a.Job, b.Job), strings.Compare(a.Source, b.Source))
}

// nextOccurrence is the next instant of a schedule, with what is special about it.
func nextOccurrence(j *Job, sch *schedule.Schedule, after time.Time, pauses []ledger.Pause) (cursor, bool) {
	at, excluded := sch.NextWithExcluded(after)
	if at.IsZero() || after.IsZero() {
		return cursor{}, false
	}

	resume := at
	u := Upcoming{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: at, Actual: at, Decision: domain.DecisionRun}
	p, paused := ledger.Paused(pauses, j.Name, j.Agent, at)
	switch {
	case excluded != "":
		u.Decision, u.Reason = domain.DecisionSkipped, excluded
		if outside, until := sch.Outside(at); outside {
			// Most of the time is outside of what a job keeps to: one line stands for all of it.
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

// wakeCursor is the cursor of a planned wake. One whose time has passed is about to come, or
// waits for the end of a pause.
func wakeCursor(s ledger.Wake, pauses []ledger.Pause, now time.Time) cursor {
	u := Upcoming{Job: s.Job, Agent: s.Agent, Source: SourceWake, Nominal: s.At, Actual: s.At, Decision: domain.DecisionRun,
		Reason: fmt.Sprintf("agent %s, planned by the %s", s.Agent, s.ScheduledBy)}
	at := s.At
	if at.Before(now) {
		at = now
	}

	if p, ok := ledger.Paused(pauses, "", s.Agent, at); ok {
		u.Reason = "waits for the end of the pause: " + p.String()
		if !p.Until.IsZero() {
			u.Actual = p.Until
		}
	}

	return cursor{Upcoming: u}
}

// NextStart is when a job starts next by its schedules, without excluded and paused instants. It is
// zero when that is never, or only after somebody has resumed the job.
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
			p, paused := ledger.Paused(pauses, e.job.Name, e.job.Agent, t)
			if !paused {
				break
			}
			// An instant at the very end of a pause is no longer in it.
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

// JobStatus is up to when a job has been dealt with, and what is due since.
type JobStatus struct {
	Job       Job       // the grids of its schedules have their anchor
	Watermark time.Time // up to here its instants have been dealt with
	// Due are the instants since then, as Take decides about them now; whether they overlap
	// with other runs is left to the ledger.
	Due []ledger.Due
}

// JobStatus is the state of a job now; false when no such job is known. Nothing is recorded.
// While no scheduler runs, it decides as if one started now.
func (s *Scheduler) JobStatus(name string) (JobStatus, bool) {
	now := s.now().Truncate(time.Millisecond)
	s.mu.Lock()
	c := DueContext{Pauses: s.pauses, StartedAt: s.startedAt}
	e := s.table.jobs[name]
	if e == nil {
		s.mu.Unlock()
		return JobStatus{}, false
	}

	snapshot := *e // the loop goes on to change the entry
	s.mu.Unlock()
	if c.StartedAt.IsZero() {
		c.StartedAt = now
	}

	snapshot.startDue = time.Time{} // the start is no instant of its schedules
	rows, _ := snapshot.due(now, c)
	return JobStatus{Job: snapshot.job, Watermark: snapshot.watermark, Due: rows}, true
}

// sources are a job and the wakes that its runs planned, or all of both ("").
func (t *Timetable) sources(name string) (jobs []*Job, wakes []ledger.Wake) {
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
