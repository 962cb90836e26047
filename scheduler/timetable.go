package scheduler

import (
	"container/heap"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler/schedule"
)

// Timetable knows when every job and every planned wake comes due next. It has no clock and no
// database: the daemon, or a simulation, gives it the time and records what it decides.
type Timetable struct {
	jobs  map[string]*entry
	wakes map[string]*entry // by agent
	heap  dueHeap
}

// entry is a job or a planned wake.
type entry struct {
	job       Job          // its schedules have their anchor
	wake      *ledger.Wake // nil for a job
	watermark time.Time    // the job's instants up to here have been decided
	startDue  time.Time    // when the job is due because the scheduler started; zero if it is not
	at        time.Time    // when it is due, as long as it is in the heap
	next      time.Time    // of a job that is being recorded: when it is due after that
	index     int          // in the heap; -1 if it is not in it
	removed   bool         // from the timetable, or replaced there
}

// DueContext are what decisions about due instants depend on beside the jobs themselves.
type DueContext struct {
	Pauses []ledger.Pause
	// Since is when this scheduler began; what came before, nobody could serve.
	StartedAt time.Time
	// ClockStep is by how much the wall clock has moved more than the time that has passed since
	// LastCheck: the machine slept, or its clock was set.
	ClockStep time.Duration
	LastCheck time.Time
	// UnwritableFrom and UnwritableTo are when the ledger last could not be written, or only
	// slowly: this is why what came due between them is late.
	UnwritableFrom, UnwritableTo time.Time
	Jump                         jump
}

// Batch is what has come: instants with their decisions, watermarks, and ids of planned wakes.
type Batch struct {
	Due   []ledger.Due
	Marks map[string]time.Time
	Wakes []int64

	now     time.Time
	entries []*entry
}

// NewTimetable returns an empty one.
func NewTimetable() *Timetable {
	return &Timetable{jobs: map[string]*entry{}, wakes: map[string]*entry{}}
}

// Put adds a job, or replaces the one of its name. Its instants up to the watermark have been
// dealt with. The grids of its schedules begin at anchor.
func (t *Timetable) Put(j Job, anchor, watermark time.Time) {
	j.Schedules = anchored(j.Schedules, anchor)
	e := &entry{job: j, watermark: watermark, index: -1}
	t.Remove(j.Name)
	t.jobs[j.Name] = e
	t.arm(e, next(j.Schedules, watermark))
}

// anchored returns schedules with another anchor.
func anchored(schedules []*schedule.Schedule, anchor time.Time) []*schedule.Schedule {
	out := make([]*schedule.Schedule, len(schedules))
	for i, s := range schedules {
		out[i] = s.WithAnchor(anchor)
	}
	return out
}

// Remove takes a job out.
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

// PutWakes replaces what the agents have planned.
func (t *Timetable) PutWakes(slots []ledger.Wake) {
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

// SettleWake applies what was decided about a wake: it is gone, or comes later. One whose agent
// is paused without an end is not armed until PutWakes is called again.
func (t *Timetable) SettleWake(d ledger.WakeDecision) {
	e := t.wakes[d.Wake.Agent]
	if e == nil || e.wake.ID != d.Wake.ID {
		return // replaced while the decision was recorded
	}

	switch d.Decision {
	case ledger.WakeDeferred, ledger.WakePaused:
		t.arm(e, d.At)
	default:
		delete(t.wakes, d.Wake.Agent)
		t.removeEntry(e)
	}
}

// Start makes the jobs that ask for it due at once. A start is an occurrence like those of
// a schedule, so a daemon that is restarted in a loop piles nothing up: overlap decides.
func (t *Timetable) Start(now time.Time) {
	for _, e := range t.jobs {
		if e.job.RunOnStart {
			e.startDue = now.Truncate(time.Millisecond)
			t.arm(e, e.startDue)
		}
	}
}

// Rewind is for a clock that was set back. Instants of the time that comes again are due once
// more; the ledger knows by their rows which of them have been dealt with.
func (t *Timetable) Rewind(now time.Time) {
	for _, e := range t.jobs {
		if e.watermark.After(now) {
			e.watermark = now.Truncate(time.Millisecond)
			t.arm(e, next(e.job.Schedules, now))
		}
	}
}

// arm gives an entry its next instant, rounded up to the millisecond in which it is due. The zero time takes the entry out of
// the heap.
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

// Head returns when the next job or wake is due, and the zero time if none is.
func (t *Timetable) Head() time.Time {
	if len(t.heap) == 0 {
		return time.Time{}
	}
	return t.heap[0].at
}

// PopDue removes everything that has come by now from the heap, and decides about it. The caller
// records the batch, and then calls Advance, or Postpone if that failed.
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

	// By name first, so that what starts at the same time is in the same order each time.
	slices.SortFunc(b.entries, func(a, b *entry) int { return strings.Compare(a.job.Name, b.job.Name) })
	for _, e := range b.entries {
		if e.wake == nil {
			var due []ledger.Due
			due, e.next = e.due(now, c)
			b.Due = append(b.Due, due...)
			b.Marks[e.job.Name] = now
		}
	}

	// Runs are accepted in the order in which they start, whichever job they are of.
	slices.SortStableFunc(b.Due, func(a, b ledger.Due) int { return a.Actual.Compare(b.Actual) })
	return b
}

// Advance arms the jobs of a recorded batch for their next instants.
func (t *Timetable) Advance(b Batch) {
	for _, e := range b.entries {
		if e.removed || e.wake != nil {
			continue // replaced while the batch was recorded; wakes are for SettleWake
		}
		e.watermark, e.startDue = b.now, time.Time{}
		t.arm(e, e.next)
	}
}

// Postpone arms a batch that could not be recorded for another try.
func (t *Timetable) Postpone(b Batch, until time.Time) {
	for _, e := range b.entries {
		if !e.removed {
			t.arm(e, until)
		}
	}
}

// due returns the instants of a job since its watermark, with what is decided about them, and when
// the next one is due.
func (e *entry) due(now time.Time, c DueContext) (out []ledger.Due, then time.Time) {
	j := &e.job
	if at := e.startDue; !at.IsZero() {
		out = append(out, ledger.Due{Job: j.Name, Agent: j.Agent, Source: SourceStart, Nominal: at, Actual: at,
			Decision: domain.DecisionRun, Overlap: j.Overlap})
	}

	o := schedule.DueOptions{Now: now, LateCause: c.lateCause, Paused: func(nominal time.Time) string {
		if p, ok := ledger.Paused(c.Pauses, j.Name, j.Agent, nominal); ok {
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
				d.Overlap = domain.OverlapQueueAll // those that are caught up must not skip each other
			}
			out = append(out, d)
		}
	}

	return out, then
}

// lateCause says why an instant could not be served in time.
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

// next returns the earliest instant of several schedules.
func next(schedules []*schedule.Schedule, after time.Time) time.Time {
	var first time.Time
	for _, s := range schedules {
		first = domain.Earlier(first, s.Next(after))
	}
	return first
}

// dueHeap has the entry that is due first at its head.
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
	old[len(old)-1], e.index = nil, -1 // so that the entry can be collected
	*h = old[:len(old)-1]
	return e
}
