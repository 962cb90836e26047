package scheduler

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"rouse/agentdb/ledger"
	"rouse/scheduler/schedule"
)

// wakeCap is the longest sleep: how late a suspend or a clock step can be noticed.
const wakeCap = 30 * time.Second

// Job is a job with its schedules.
type Job struct {
	Name, Agent string
	Schedules   []*schedule.Schedule
	Policy      schedule.Policy
	Overlap     string
	RunOnStart  bool
}

// Options are the scheduler's parts.
type Options struct {
	Ledger *ledger.Ledger
	Logger *slog.Logger
}

// Scheduler keeps the clock for all jobs.
type Scheduler struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	ready  chan struct{}
	once   sync.Once
	fire   chan struct{} // capacity 1: the cron entry came due
	rearm  chan struct{} // capacity 1: the head of the heap may have changed

	failing bool // whether due jobs could not be recorded when last tried; of the loop alone

	mu    sync.Mutex
	jobs  map[string]*job
	heads queue
}

// job is a configured job with how far it has been dealt with.
type job struct {
	Job
	watermark time.Time
	next      time.Time // of all its schedules; zero: never again
	start     time.Time // when it has to run because the scheduler started; zero: it has not
}

// Upcoming is a coming occurrence.
type Upcoming struct {
	Job, Source     string
	Nominal, Actual time.Time
}

// New checks the options.
func New(o Options) (*Scheduler, error) {
	if o.Ledger == nil {
		return nil, errors.New("scheduler: a ledger is needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scheduler{
		ledger: o.Ledger, log: o.Logger, jobs: map[string]*job{},
		ready: make(chan struct{}), fire: make(chan struct{}, 1), rearm: make(chan struct{}, 1),
	}, nil
}

// Ready is closed when every schedule is armed.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Set replaces the jobs. One whose schedules did not change keeps its place in time.
func (s *Scheduler) Set(ctx context.Context, jobs []Job) error {
	now := time.Now()
	specs := make([]ledger.JobSpec, len(jobs))
	for i, j := range jobs {
		specs[i] = ledger.JobSpec{Name: j.Name, Agent: j.Agent, ScheduleHash: hash(j.Schedules)}
	}
	states, err := s.ledger.SyncJobs(ctx, now, specs)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs, s.heads = make(map[string]*job, len(jobs)), nil
	for _, j := range jobs {
		st := states[j.Name]
		j.Schedules = slices.Clone(j.Schedules)
		for i, sch := range j.Schedules {
			j.Schedules[i] = sch.WithAnchor(st.Anchor)
		}
		entry := &job{Job: j, watermark: st.Watermark}
		s.jobs[j.Name] = entry
		if entry.next = next(j.Schedules, entry.watermark); !entry.next.IsZero() {
			s.heads = append(s.heads, entry)
		}
	}
	heap.Init(&s.heads)
	poke(s.rearm)
	return nil
}

func hash(schedules []*schedule.Schedule) string {
	var parts []string
	for _, s := range schedules {
		parts = append(parts, s.Hash())
	}
	return strings.Join(parts, "+")
}

// next is the earliest instant of several schedules.
func next(schedules []*schedule.Schedule, after time.Time) time.Time {
	var first time.Time
	for _, s := range schedules {
		if t := s.Next(after); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run fires what comes due until ctx ends. What came due while nobody ran is decided first.
func (s *Scheduler) Run(ctx context.Context) error {
	s.armStarts()
	for {
		s.dispatchDue(ctx)
		s.once.Do(func() { close(s.ready) })
		// cron.Cron is rebuilt when the head moves: its own timer cannot be moved nearer.
		clock := cron.New(cron.WithLocation(time.UTC))
		clock.Schedule(wake{s}, cron.FuncJob(func() { poke(s.fire) }))
		clock.Start()
		over := false
		select {
		case <-ctx.Done():
			over = true
		case <-s.fire:
		case <-s.rearm:
		}
		<-clock.Stop().Done()
		if over {
			return nil
		}
	}
}

// armStarts makes the jobs that ask for it due now. A start is an occurrence like those of
// a schedule, so a daemon that is restarted in a loop piles nothing up: overlap decides.
func (s *Scheduler) armStarts() {
	now := wallClock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads = s.heads[:0]
	for _, j := range s.jobs {
		if j.RunOnStart {
			j.start, j.next = now, now
		}
		if !j.next.IsZero() {
			s.heads = append(s.heads, j)
		}
	}
	heap.Init(&s.heads)
}

// wallClock leaves the monotonic clock out: that one stops while a machine is suspended.
func wallClock() time.Time { return time.Now().UTC().Round(0) }

// wake is the only entry of the cron clock.
type wake struct{ s *Scheduler }

// Next is the head of the heap, and never further than wakeCap from now. robfig may pass
// a time of before a slow wake-up, so the clock is read here.
func (w wake) Next(time.Time) time.Time {
	now := time.Now()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	at := now.Add(wakeCap)
	if len(w.s.heads) > 0 && w.s.heads[0].next.Before(at) {
		at = w.s.heads[0].next
	}
	if !at.After(now) {
		at = now.Add(time.Millisecond)
	}
	return at
}

// dispatchDue records every instant that has come. What cannot be written now stays due.
func (s *Scheduler) dispatchDue(ctx context.Context) {
	now := wallClock()
	s.mu.Lock()
	var due []ledger.Due
	marks := map[string]time.Time{}
	var touched []*job
	var events []ledger.Event
	for len(s.heads) > 0 && !s.heads[0].next.After(now) {
		j := heap.Pop(&s.heads).(*job)
		touched = append(touched, j)
		d, e := j.due(now)
		due, events = append(due, d...), append(events, e...)
		marks[j.Name] = now
	}
	s.mu.Unlock()
	if len(touched) == 0 {
		return
	}
	// Accepted in the order in which they start, whichever job they are of.
	slices.SortStableFunc(due, func(a, b ledger.Due) int { return a.Actual.Compare(b.Actual) })
	recorded, err := s.ledger.RecordDue(ctx, now, due, marks)
	if err == nil && len(events) > 0 {
		err = s.ledger.AppendEvents(ctx, events...)
	}
	if ctx.Err() == nil {
		s.logFailure(err, len(touched))
	}
	for _, o := range recorded {
		if o.Decision != ledger.DecisionRun {
			s.log.Info("an occurrence does not run", "job", o.Job, "nominal", o.Nominal, "decision", o.Decision, "reason", o.Reason)
		}
	}
	s.putBack(touched, now, err)
}

// logFailure says once that due jobs cannot be recorded, and once that they can again: a
// full disk lasts, and they are tried each second.
func (s *Scheduler) logFailure(err error, jobs int) {
	switch {
	case err != nil && !s.failing:
		s.log.Error("due jobs could not be recorded; they are tried again each second", "jobs", jobs, "error", err)
	case err == nil && s.failing:
		s.log.Info("due jobs are recorded again", "jobs", jobs)
	}
	s.failing = err != nil
}

// putBack arms jobs for their next instant; after a failure, for the same ones again soon.
func (s *Scheduler) putBack(touched []*job, now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range touched {
		if s.jobs[j.Name] != j {
			continue // replaced by a reload meanwhile
		}
		if err != nil {
			j.next = now.Add(time.Second)
		} else {
			j.watermark, j.start = now, time.Time{}
			if j.next = next(j.Schedules, now); j.next.IsZero() {
				continue
			}
		}
		heap.Push(&s.heads, j)
	}
}

// due lists the instants of a job since its watermark, with what is decided about them.
func (j *job) due(now time.Time) ([]ledger.Due, []ledger.Event) {
	var out []ledger.Due
	var events []ledger.Event
	if !j.start.IsZero() {
		out = append(out, ledger.Due{Job: j.Name, Agent: j.Agent, Source: "start", Nominal: j.start, Actual: j.start,
			Decision: ledger.DecisionRun, Overlap: j.Overlap})
	}
	for _, sch := range j.Schedules {
		instants, left := sch.Due(j.watermark, now, j.Policy)
		if left != "" {
			text := []byte(`{"reason":"the outage was too long to list each instant","instants":"` + left + `"}`)
			events = append(events, ledger.Event{Job: j.Name, Kind: "occurrence.missed", Data: text})
		}
		for _, i := range instants {
			d := ledger.Due{Job: j.Name, Agent: j.Agent, Source: sch.Source(), Nominal: i.Nominal, Actual: i.Actual,
				Decision: ledger.DecisionMissed, Reason: i.Reason, Overlap: j.Overlap}
			if i.Run {
				d.Decision = ledger.DecisionRun
			}
			if i.Catchup {
				d.Overlap = "queue_all" // catching up means that they wait for each other
			}
			out = append(out, d)
		}
	}
	return out, events
}

// Next lists the next n occurrences after a time, of one job or of all (""), in the order
// in which they start.
func (s *Scheduler) Next(name string, n int, after time.Time) []Upcoming {
	type cursor struct {
		Upcoming
		schedule *schedule.Schedule
	}
	order := func(a, b cursor) int {
		return cmp.Or(a.Actual.Compare(b.Actual), strings.Compare(a.Job, b.Job), strings.Compare(a.Source, b.Source))
	}
	var cursors []cursor
	read := func(job string, sch *schedule.Schedule, after time.Time) (cursor, bool) {
		at := sch.Next(after)
		if at.IsZero() {
			return cursor{}, false
		}
		return cursor{Upcoming{job, sch.Source(), at, sch.Actual(at)}, sch}, true
	}
	for _, j := range s.named(name) {
		for _, sch := range j.Schedules {
			if c, ok := read(j.Name, sch, after); ok {
				cursors = append(cursors, c)
			}
		}
	}
	slices.SortFunc(cursors, order)
	var out []Upcoming
	for len(cursors) > 0 && len(out) < n {
		first := cursors[0]
		cursors = cursors[1:]
		out = append(out, first.Upcoming)
		if c, ok := read(first.Job, first.schedule, first.Nominal); ok {
			i, _ := slices.BinarySearchFunc(cursors, c, order)
			cursors = slices.Insert(cursors, i, c)
		}
	}
	return out
}

// named are the jobs of a name, or all.
func (s *Scheduler) named(name string) []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Job
	if name != "" {
		if j := s.jobs[name]; j != nil {
			out = append(out, j.Job)
		}
		return out
	}
	for _, j := range s.jobs {
		out = append(out, j.Job)
	}
	return out
}

// queue is a heap of jobs by their next instant.
type queue []*job

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	j := x.(*job)
	*q = append(*q, j)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	j := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return j
}
