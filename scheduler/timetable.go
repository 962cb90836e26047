package scheduler

import (
	"slices"
	"strings"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
	"rouse/scheduler/schedule"
)

// Timetable knows when every job and every planned wake comes due next. It has no clock and no
// database: the daemon, or a simulation, gives it the time and records what it decides.
type Timetable struct {
	jobs         map[string]*entry
	wakes        map[string]*entry // by agent
	settings     map[jobSettings]*jobSettings
	lastSettings *jobSettings // those of the last job
	heap         dueHeap
	last         Batch // whose memory the next one reuses
}

// maxReused is how many rows a batch may have for its memory to be reused. Many jobs that are
// due at once would otherwise hold it for good.
const maxReused = 1024

// entry is a job, or a wake, in the heap. There can be very many: instants are in Unix
// milliseconds, 0 for none, and what jobs share is in settings.
type entry struct {
	name      string // of the job, or of the wake's agent
	schedules []*schedule.Schedule
	settings  *jobSettings
	wake      *ledger.Wake // nil: a job
	watermark int64        // up to here the job has been dealt with
	startDue  int64        // when it is due because the scheduler started; 0 when it is not
	index     int32        // in the heap; negative: not in it
	removed   bool         // from the timetable, or replaced there
}

// jobSettings are what many jobs have in common; equal ones are stored once.
type jobSettings struct {
	agent      string
	overlap    domain.Overlap
	policy     schedule.Policy
	runOnStart bool
}

// job is the job as it was passed to Put.
func (e *entry) job() *Job {
	return &Job{Name: e.name, Agent: e.settings.agent, Schedules: e.schedules, Policy: e.settings.policy, Overlap: e.settings.overlap, RunOnStart: e.settings.runOnStart}
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
	entries []dueEntry
}

// dueEntry is what came due, with its next instant; 0 for none.
type dueEntry struct {
	*entry
	next int64
}

// NewTimetable returns an empty one.
func NewTimetable() *Timetable {
	return &Timetable{jobs: map[string]*entry{}, wakes: map[string]*entry{}, settings: map[jobSettings]*jobSettings{}}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// due is an instant as a key of the heap: rounded up, so that nothing comes early.
func due(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Put adds a job, or replaces the one of its name. Its instants up to the watermark have been
// dealt with. The grids of its schedules begin at anchor.
func (t *Timetable) Put(j Job, anchor, watermark time.Time) {
	e := &entry{name: j.Name, schedules: anchored(j.Schedules, anchor), settings: t.internSettings(j), watermark: millis(watermark), index: -1}
	t.Remove(j.Name)
	t.jobs[j.Name] = e
	t.arm(e, due(next(e.schedules, watermark)))
}

// anchored are schedules with another anchor, the same slice if they have none.
func anchored(schedules []*schedule.Schedule, anchor time.Time) []*schedule.Schedule {
	out := schedules
	for i, s := range schedules {
		if a := s.WithAnchor(anchor); a != s {
			// The slice is the caller's; it is cloned once, and only if it has to be.
			if &out[0] == &schedules[0] {
				out = slices.Clone(schedules)
			}
			out[i] = a
		}
	}

	return out
}

// internSettings is the one copy of a job's settings.
func (t *Timetable) internSettings(j Job) *jobSettings {
	// Jobs that follow each other mostly have the same, which saves the hashing.
	own := jobSettings{agent: j.Agent, overlap: j.Overlap, policy: j.Policy, runOnStart: j.RunOnStart}
	if t.lastSettings != nil && *t.lastSettings == own {
		return t.lastSettings
	}

	if t.lastSettings = t.settings[own]; t.lastSettings == nil {
		t.lastSettings = new(jobSettings)
		*t.lastSettings = own
		t.settings[own] = t.lastSettings
	}
	return t.lastSettings
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
	t.arm(e, 0)
}

// PutWakes replaces what the agents have planned.
func (t *Timetable) PutWakes(slots []ledger.Wake) {
	for _, e := range t.wakes {
		t.removeEntry(e)
	}

	clear(t.wakes)
	for _, s := range slots {
		e := &entry{name: s.Agent, wake: &s, index: -1}
		t.wakes[s.Agent] = e
		t.arm(e, due(s.At))
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
		t.arm(e, due(d.At))
	default:
		delete(t.wakes, d.Wake.Agent)
		t.removeEntry(e)
	}
}

// Start makes the jobs that ask for it due at once. A start is an occurrence like those of
// a schedule, so a daemon that is restarted in a loop piles nothing up: overlap decides.
func (t *Timetable) Start(now time.Time) {
	for _, e := range t.jobs {
		if e.settings.runOnStart {
			e.startDue = millis(now)
			t.arm(e, e.startDue)
		}
	}
}

// Rewind is for a clock that was set back. Instants of the time that comes again are due once
// more; the ledger knows by their rows which of them have been dealt with.
func (t *Timetable) Rewind(now time.Time) {
	for _, e := range t.jobs {
		if e.watermark > millis(now) {
			e.watermark = millis(now)
			t.arm(e, due(next(e.schedules, now)))
		}
	}
}

// arm gives an entry its next instant; 0 takes it out of the heap.
func (t *Timetable) arm(e *entry, at int64) {
	switch {
	case at == 0 && e.index >= 0:
		t.heap.remove(int(e.index))
	case at == 0: // it is not in the heap either
	case e.index >= 0:
		t.heap.fix(int(e.index), heapItem{at, e})
	default:
		t.heap.push(heapItem{at, e})
	}
}

// Head is when the next job or slot is due; zero when none ever is.
func (t *Timetable) Head() time.Time {
	if len(t.heap) == 0 {
		return time.Time{}
	}
	return instant(t.heap[0].at)
}

// Len is how many jobs there are.
func (t *Timetable) Len() int { return len(t.jobs) }

// PopDue removes everything that has come by now from the heap, and decides about it. The caller
// records the batch, and then calls Advance, or Postpone if that failed. The batch is valid
// until the next Take.
func (t *Timetable) PopDue(now time.Time, c DueContext) Batch {
	now = now.Truncate(time.Millisecond)
	b := t.newBatch(now)
	for len(t.heap) > 0 && t.heap[0].at <= millis(now) {
		e := t.heap[0].entry
		t.heap.remove(0)
		b.entries = append(b.entries, dueEntry{entry: e})
		if e.wake != nil {
			b.Wakes = append(b.Wakes, e.wake.ID)
		}
	}

	// By name first, so that what starts at the same time is in the same order each time.
	slices.SortFunc(b.entries, func(a, b dueEntry) int { return strings.Compare(a.name, b.name) })
	b.Due = slices.Grow(b.Due, len(b.entries))
	m := c.dueOptions(now)
	for i, e := range b.entries {
		if e.wake == nil {
			b.Due, b.entries[i].next = e.due(b.Due, m, c.Pauses)
			b.Marks[e.name] = now
		}
	}

	// Runs are accepted in the order in which they start, whichever job they are of.
	if starts := func(a, b ledger.Due) int { return a.Actual.Compare(b.Actual) }; !slices.IsSortedFunc(b.Due, starts) {
		slices.SortStableFunc(b.Due, starts)
	}

	t.last = b
	return b
}

// newBatch is an empty batch, in the memory of the last one if that is not too large.
func (t *Timetable) newBatch(now time.Time) Batch {
	b := t.last
	if cap(b.Due) > maxReused || b.Marks == nil {
		return Batch{Marks: map[string]time.Time{}, now: now}
	}
	clear(b.Marks)
	return Batch{Due: b.Due[:0], Marks: b.Marks, entries: b.entries[:0], now: now}
}

// Empty says whether nothing has come.
func (b Batch) Empty() bool { return len(b.entries) == 0 }

// Advance arms the jobs of a recorded batch for their next instants.
func (t *Timetable) Advance(b Batch) {
	for _, e := range b.entries {
		if e.removed || e.wake != nil {
			continue // replaced while the batch was recorded; wakes are for SettleWake
		}
		e.watermark, e.startDue = millis(b.now), 0
		t.arm(e.entry, e.next)
	}
}

// Postpone arms a batch that could not be recorded for another try.
func (t *Timetable) Postpone(b Batch, until time.Time) {
	for _, e := range b.entries {
		if !e.removed {
			t.arm(e.entry, due(until))
		}
	}
}

// due appends the instants of a job since its watermark, with what is decided about them, and
// says when the next one is due.
func (e *entry) due(out []ledger.Due, m schedule.DueOptions, pauses []ledger.Pause) (_ []ledger.Due, then int64) {
	name, agent, overlap := e.name, e.settings.agent, e.settings.overlap
	if e.startDue != 0 {
		at := instant(e.startDue)
		out = append(out, ledger.Due{Job: name, Agent: agent, Source: SourceStart, Nominal: at, Actual: at,
			Decision: domain.DecisionRun, Overlap: overlap})
	}

	if len(pauses) > 0 {
		m.Paused = func(nominal time.Time) string {
			if p, ok := ledger.Paused(pauses, name, agent, nominal); ok {
				return p.String()
			}
			return ""
		}
	}

	var first time.Time
	var one [1]schedule.Instant // nearly always there is one, which then needs no allocation
	for _, sch := range e.schedules {
		instants, next := sch.AppendDue(one[:0], instant(e.watermark), m, e.settings.policy)
		first = earlier(first, next)

		for i := range instants {
			at := &instants[i]
			out = append(out, ledger.Due{Job: name, Agent: agent, Source: sch.Source(), Nominal: at.Nominal, Actual: at.Actual,
				Decision: domain.DecisionMissed, Reason: at.Reason, Overlap: overlap, Through: at.Through, Instants: at.Count})
			d := &out[len(out)-1]
			switch {
			case at.Run:
				d.Decision = domain.DecisionRun
			case at.Skipped:
				d.Decision = domain.DecisionSkipped
			}

			if at.Catchup {
				d.Overlap = domain.OverlapQueueAll // those that are caught up must not skip each other
			}
		}
	}

	return out, due(first)
}

// dueOptions are what package schedule decides with, without the pauses, which differ by job.
func (c DueContext) dueOptions(now time.Time) schedule.DueOptions {
	return schedule.DueOptions{Now: now, LateCause: c.lateCause}
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

// next is the earliest instant of several schedules.
func next(schedules []*schedule.Schedule, after time.Time) time.Time {
	var first time.Time
	for _, s := range schedules {
		first = earlier(first, s.Next(after))
	}
	return first
}

// earlier is the earlier of two times; zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
