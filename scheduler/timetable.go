package scheduler

import (
	"container/heap"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
	"rouse/scheduler/schedule"
)

// Timetable holds the next due time of every job and planned wake. It has no clock and no database.
// The caller passes the time and records the decisions.
type Timetable struct {
	jobs  map[string]*entry
	wakes map[string]*entry // by agent
	heap  dueHeap
}

// entry is a job or a planned wake.
type entry struct {
	job       Job        // with anchored schedules
	wake      *wake.Wake // nil for a job
	watermark time.Time  // instants up to here are decided
	startDue  time.Time  // due time of the run on start; zero if there is none
	at        time.Time  // due time while in the heap
	next      time.Time  // due time after the batch that is being recorded
	index     int        // index in the heap; -1 if not in the heap
	removed   bool       // removed from the timetable, or replaced
}

// DueContext is the context of decisions about due instants.
type DueContext struct {
	Pauses []pause.Pause
	// StartedAt is the start of the scheduler. Earlier instants could not run in time.
	StartedAt time.Time
	// ClockStep is the difference between the wall clock and the monotonic clock since LastCheck.
	// It is positive if the machine was suspended or the clock was set forward.
	ClockStep time.Duration
	LastCheck time.Time
	// UnwritableFrom and UnwritableTo delimit the last period in which the ledger was not writable
	// or was too slow. Instants in this period are late for that reason.
	UnwritableFrom, UnwritableTo time.Time
	Jump                         jump
}

// Batch is the result of PopDue: due instants with decisions, new watermarks by job, and IDs of
// planned wakes.
type Batch struct {
	Due   []ledger.Due
	Marks map[string]time.Time
	Wakes []int64

	now     time.Time
	entries []*entry
}

// NewTimetable returns an empty timetable.
func NewTimetable() *Timetable {
	return &Timetable{jobs: map[string]*entry{}, wakes: map[string]*entry{}}
}

// Put adds a job or replaces the job of the same name. Instants up to the watermark are already
// decided. The grids of its schedules start at anchor.
func (t *Timetable) Put(j Job, anchor, watermark time.Time) {
	j.Schedules = anchored(j.Schedules, anchor)
	e := &entry{job: j, watermark: watermark, index: -1}
	t.Remove(j.Name)
	t.jobs[j.Name] = e
	t.arm(e, next(j.Schedules, watermark))
}

// anchored returns copies of the schedules with the given anchor.
func anchored(schedules []*schedule.Schedule, anchor time.Time) []*schedule.Schedule {
	out := make([]*schedule.Schedule, len(schedules))
	for i, s := range schedules {
		out[i] = s.WithAnchor(anchor)
	}
	return out
}

// Remove removes a job.
func (t *Timetable) Remove(name string) {
	if e := t.jobs[name]; e != nil {
		delete(t.jobs, name)
		t.removeEntry(e)
	}
}

func (t *Timetable) removeEntry(e *entry) {
	e.removed = true
	t.arm(e, time.Time{})
}

// PutWakes replaces the planned wakes.
func (t *Timetable) PutWakes(slots []wake.Wake) {
	for _, e := range t.wakes {
		t.removeEntry(e)
	}

	clear(t.wakes)
	for _, s := range slots {
		e := &entry{wake: &s, index: -1}
		t.wakes[s.Agent] = e
		t.arm(e, s.At)
	}
}

// SettleWake applies a decision about a wake: it removes or moves the wake. If the agent is paused
// indefinitely, the wake is not armed until the next PutWakes.
func (t *Timetable) SettleWake(d wake.Decision) {
	e := t.wakes[d.Wake.Agent]
	if e == nil || e.wake.ID != d.Wake.ID {
		return // replaced while the decision was recorded
	}

	switch d.Decision {
	case wake.Deferred, wake.Paused:
		t.arm(e, d.At)
	default:
		delete(t.wakes, d.Wake.Agent)
		t.removeEntry(e)
	}
}

// Start makes the jobs with RunOnStart due immediately. The start counts as an occurrence, so the
// overlap policy also applies if the daemon restarts in a loop.
func (t *Timetable) Start(now time.Time) {
	for _, e := range t.jobs {
		if e.job.RunOnStart {
			e.startDue = now.Truncate(time.Millisecond)
			t.arm(e, e.startDue)
		}
	}
}

// Rewind handles a clock that was set back. Repeated instants become due again. The ledger already
// has rows for the decided ones and ignores them.
func (t *Timetable) Rewind(now time.Time) {
	for _, e := range t.jobs {
		if e.watermark.After(now) {
			e.watermark = now.Truncate(time.Millisecond)
			t.arm(e, next(e.job.Schedules, now))
		}
	}
}

// arm sets the next due time of an entry, rounded up to a millisecond. The zero time removes the
// entry from the heap.
func (t *Timetable) arm(e *entry, at time.Time) {
	if at.IsZero() {
		if e.index >= 0 {
			heap.Remove(&t.heap, e.index)
		}
		return
	}

	e.at = at.Add(time.Millisecond - 1).Truncate(time.Millisecond)
	if e.index >= 0 {
		heap.Fix(&t.heap, e.index)
	} else {
		heap.Push(&t.heap, e)
	}
}

// Head returns the time at which the next job or wake is due, or the zero time if there is none.
func (t *Timetable) Head() time.Time {
	if len(t.heap) == 0 {
		return time.Time{}
	}
	return t.heap[0].at
}

// PopDue removes all due entries from the heap and decides about them. The caller must record the
// batch and then call Advance, or Postpone if recording failed.
func (t *Timetable) PopDue(now time.Time, c DueContext) Batch {
	now = now.Truncate(time.Millisecond)
	b := Batch{Marks: map[string]time.Time{}, now: now}
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		e := heap.Pop(&t.heap).(*entry)
		b.entries = append(b.entries, e)
		if e.wake != nil {
			b.Wakes = append(b.Wakes, e.wake.ID)
		}
	}

	// Sort by name first, so that the order is deterministic for equal times.
	slices.SortFunc(b.entries, func(a, b *entry) int { return strings.Compare(a.job.Name, b.job.Name) })
	for _, e := range b.entries {
		if e.wake == nil {
			var due []ledger.Due
			due, e.next = e.due(now, c)
			b.Due = append(b.Due, due...)
			b.Marks[e.job.Name] = now
		}
	}

	// Runs are accepted in start order across all jobs.
	slices.SortStableFunc(b.Due, func(a, b ledger.Due) int { return a.Actual.Compare(b.Actual) })
	return b
}

// Advance arms the jobs of a recorded batch for their next instants.
func (t *Timetable) Advance(b Batch) {
	for _, e := range b.entries {
		if e.removed || e.wake != nil {
			continue // replaced meanwhile, or handled by SettleWake
		}
		e.watermark, e.startDue = b.now, time.Time{}
		t.arm(e, e.next)
	}
}

// Postpone arms the entries of a batch that could not be recorded for a retry.
func (t *Timetable) Postpone(b Batch, until time.Time) {
	for _, e := range b.entries {
		if !e.removed {
			t.arm(e, until)
		}
	}
}

// due returns the decisions about a job's instants since its watermark, and the time of the next
// instant.
func (e *entry) due(now time.Time, c DueContext) (out []ledger.Due, then time.Time) {
	j := &e.job
	if at := e.startDue; !at.IsZero() {
		out = append(out, ledger.Due{Job: j.Name, Agent: j.Agent, Source: SourceStart, Nominal: at, Actual: at,
			Decision: domain.DecisionRun, Overlap: j.Overlap})
	}

	o := schedule.DueOptions{Now: now, LateCause: c.lateCause, Paused: func(nominal time.Time) string {
		if p, ok := pause.Paused(c.Pauses, j.Name, j.Agent, nominal); ok {
			return p.String()
		}
		return ""
	}}
	for _, sch := range j.Schedules {
		instants, next := sch.Due(e.watermark, o, j.Policy)
		then = domain.Earlier(then, next)
		for _, at := range instants {
			d := ledger.Due{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: at.Nominal, Actual: at.Actual,
				Decision: domain.DecisionMissed, Reason: at.Reason, Overlap: j.Overlap, Through: at.Through, Instants: at.Count}
			switch {
			case at.Run:
				d.Decision = domain.DecisionRun
			case at.Skipped:
				d.Decision = domain.DecisionSkipped
			}
			if at.Catchup {
				d.Overlap = domain.OverlapQueueAll // caught-up runs must not skip each other
			}
			out = append(out, d)
		}
	}

	return out, then
}

// lateCause returns the reason why an instant could not run in time, or "" if it is unknown.
func (c DueContext) lateCause(nominal time.Time) string {
	switch {
	case nominal.After(c.Jump.from) && !nominal.After(c.Jump.to):
		return "the time zone of the machine changed"
	case nominal.Before(c.StartedAt):
		return "no daemon ran"
	case c.ClockStep >= MinClockStep && nominal.After(c.LastCheck):
		return "the machine slept, or its clock was set forward"
	case nominal.After(c.UnwritableFrom) && !nominal.After(c.UnwritableTo):
		return "the record could not be written"
	}
	return ""
}

// next returns the earliest next instant of several schedules.
func next(schedules []*schedule.Schedule, after time.Time) time.Time {
	var first time.Time
	for _, s := range schedules {
		first = domain.Earlier(first, s.Next(after))
	}
	return first
}

// dueHeap is a heap ordered by due time.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1], e.index = nil, -1 // lets the entry be garbage collected
	*h = old[:len(old)-1]
	return e
}
