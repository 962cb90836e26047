package scheduler

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"maps"
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

	mu    sync.Mutex
	jobs  map[string]*job
	heads queue
}

// job is a configured job with how far it has been dealt with.
type job struct {
	Job
	watermark time.Time
	next      time.Time // of all its schedules; zero: never again
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
	if err := s.onStart(ctx); err != nil {
		return err
	}
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

// onStart gives the jobs that ask for it a run of their own at each start.
func (s *Scheduler) onStart(ctx context.Context) error {
	now := time.Now()
	var reqs []ledger.Request
	s.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(s.jobs)) {
		if j := s.jobs[name]; j.RunOnStart {
			reqs = append(reqs, ledger.Request{Job: j.Name, Agent: j.Agent, Trigger: ledger.TriggerSchedule,
				ScheduledAt: now, Detail: ledger.Detail{Source: "start"}})
		}
	}
	s.mu.Unlock()
	if len(reqs) == 0 {
		return nil
	}
	_, err := s.ledger.Enqueue(ctx, reqs...)
	return err
}

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
	now := time.Now().UTC().Round(0) // the wall clock alone: the monotonic one stops in suspend
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
	recorded, err := s.ledger.RecordDue(ctx, now, due, marks)
	if err == nil && len(events) > 0 {
		err = s.ledger.AppendEvents(ctx, events...)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("due jobs could not be recorded; they are tried again", "jobs", len(touched), "error", err)
	}
	for _, o := range recorded {
		if o.Decision != ledger.DecisionRun {
			s.log.Info("an occurrence does not run", "job", o.Job, "nominal", o.Nominal, "decision", o.Decision, "reason", o.Reason)
		}
	}
	s.putBack(touched, now, err)
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
			j.watermark = now
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

// Next lists the next n occurrences after a time, of one job or of all ("").
func (s *Scheduler) Next(name string, n int, after time.Time) []Upcoming {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Upcoming
	jobs := s.jobs
	if j := s.jobs[name]; name != "" {
		if j == nil {
			return nil
		}
		jobs = map[string]*job{name: j}
	}
	for _, j := range jobs {
		for _, sch := range j.Schedules {
			at := after
			for range n {
				if at = sch.Next(at); at.IsZero() {
					break
				}
				out = append(out, Upcoming{j.Name, sch.Source(), at, sch.Actual(at)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Upcoming) int {
		if c := a.Actual.Compare(b.Actual); c != 0 {
			return c
		}
		return strings.Compare(a.Job, b.Job)
	})
	return out[:min(n, len(out))]
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
