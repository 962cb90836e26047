package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/wake"
	"rouse/scheduler/schedule"
)

const (
	// maxSleep is the maximum time between two checks of the clock. It limits the delay until a
	// suspend or clock step is detected.
	maxSleep = 30 * time.Second
	// retryAfter is the delay before recording is retried.
	retryAfter = time.Second
	// slowRecord is the duration from which on recording counts as delayed.
	slowRecord = time.Second
)

// MinClockStep is the minimum difference between wall clock and monotonic clock that counts as a
// clock step.
const MinClockStep = 2 * time.Second

// SourceStart is the source of an occurrence that is due because the daemon started. Other
// occurrences have the source of their schedule.
const SourceStart = "start"

// Job is a job with its schedules.
type Job struct {
	Name, Agent string
	Schedules   []*schedule.Schedule
	Policy      schedule.Policy
	Overlap     domain.Overlap
	RunOnStart  bool
}

// Options configure a Scheduler.
type Options struct {
	Ledger *ledger.Ledger
	Logger *slog.Logger
	// Lanes is the maximum number of concurrent runs. Zero means that wakes of low priority are
	// never deferred for lack of a lane.
	Lanes int
	Now   func() time.Time // wall clock; the default is time.Now
	// EndMissedHolds ends delayed runs that are too late. It is called before newer instants are
	// recorded. See dispatch.Dispatcher.EndMissedHolds. Optional.
	EndMissedHolds func(ctx context.Context, now time.Time) error
}

// Scheduler queues the runs of jobs and planned wakes when they are due.
type Scheduler struct {
	ledger         *ledger.Ledger
	log            *slog.Logger
	now            func() time.Time
	endMissedHolds func(ctx context.Context, now time.Time) error
	ready          chan struct{}
	once           sync.Once
	rearm          chan struct{}        // capacity 1: the head of the heap may have changed
	asked          chan chan<- struct{} // requests of Answers to the loop

	// The following fields are used only by the loop.
	failing     bool // the last attempt to record failed
	lastReading clockReading
	// The last period in which the ledger was not writable or was too slow.
	unwritableFrom, unwritableTo time.Time

	mu        sync.Mutex
	lanes     int
	startedAt time.Time // start of the loop; set only by the loop
	table     *Timetable
	pauses    []pause.Pause
	jump      jump
}

// clockReading is a simultaneous reading of the wall clock and the monotonic clock.
type clockReading struct{ wall, monotonic time.Time }

// New returns a Scheduler. It returns an error if the options are invalid.
func New(o Options) (*Scheduler, error) {
	if o.Ledger == nil {
		return nil, errors.New("scheduler: a ledger is needed")
	}

	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	if o.Now == nil {
		o.Now = time.Now
	}

	if o.EndMissedHolds == nil {
		o.EndMissedHolds = func(context.Context, time.Time) error { return nil }
	}

	return &Scheduler{
		ledger: o.Ledger, endMissedHolds: o.EndMissedHolds, log: o.Logger, lanes: o.Lanes, table: NewTimetable(),
		// Drop the monotonic reading, because it stops while the machine is suspended.
		now:   func() time.Time { return o.Now().UTC().Round(0) },
		ready: make(chan struct{}), rearm: make(chan struct{}, 1),
		asked: make(chan chan<- struct{}),
	}, nil
}

// Ready returns a channel that is closed when every schedule is armed.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Set replaces the jobs and the agents that may plan their own runs. It deletes planned wakes of
// other agents. A job with unchanged schedules keeps its watermark.
func (s *Scheduler) Set(ctx context.Context, jobs []Job, selfScheduling []string) error {
	now := s.now()
	specs := make([]ledger.JobSpec, len(jobs))
	for i, j := range jobs {
		specs[i] = ledger.JobSpec{Name: j.Name, Agent: j.Agent, ScheduleHash: Hash(j)}
	}

	states, err := s.ledger.SyncJobs(ctx, now, specs)
	if err != nil {
		return err
	}
	if err := s.ledger.Wakes.CancelExcept(ctx, selfScheduling); err != nil {
		return err
	}

	return s.rebuild(ctx, now, jobs, states)
}

// Load is like Set but does not write to the ledger. It is for commands that only list upcoming
// occurrences.
func (s *Scheduler) Load(ctx context.Context, jobs []Job) error {
	known, err := s.ledger.Jobs(ctx)
	if err != nil {
		return err
	}

	states := map[string]ledger.JobState{}
	for _, st := range known {
		states[st.Name] = st
	}

	now := s.now().Truncate(time.Millisecond) // precision of the ledger
	for _, j := range jobs {
		// Like SyncJobs: a new job, or a job with changed schedules, starts now.
		if st, ok := states[j.Name]; !ok || st.ScheduleHash != Hash(j) {
			states[j.Name] = ledger.JobState{Anchor: now, Watermark: now}
		}
	}

	return s.rebuild(ctx, now, jobs, states)
}

// rebuild replaces the timetable.
func (s *Scheduler) rebuild(ctx context.Context, now time.Time, jobs []Job, states map[string]ledger.JobState) error {
	table := NewTimetable()
	s.mu.Lock()
	before := s.table
	s.mu.Unlock()
	jumped := jump{to: now}
	for _, j := range jobs {
		st := states[j.Name]
		if st.Watermark.After(now) { // the clock was ahead and has been set back
			st.Watermark = now
		}
		if e := before.jobs[j.Name]; e != nil && Hash(e.job) == Hash(j) {
			if first := jumped.first(e.job.Schedules, anchored(j.Schedules, st.Anchor), st.Anchor); !first.IsZero() && !first.After(st.Watermark) {
				st.Watermark = first.Add(-time.Millisecond)
			}
		}
		table.Put(j, st.Anchor, st.Watermark)
	}

	s.mu.Lock()
	s.table = table
	if !jumped.from.IsZero() {
		s.jump = jumped
	}
	s.mu.Unlock()
	if err := s.loadPausesAndWakes(ctx); err != nil {
		return err
	}

	notify(s.rearm)
	return nil
}

// SetLanes sets the maximum number of concurrent runs. See Options.
func (s *Scheduler) SetLanes(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = n
}

// loadPausesAndWakes reads the pauses and planned wakes from the ledger.
func (s *Scheduler) loadPausesAndWakes(ctx context.Context) error {
	pauses, err := s.ledger.Pauses.List(ctx, time.Time{})
	if err != nil {
		return err
	}

	wakes, err := s.ledger.Wakes.List(ctx)
	if err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.pauses = pauses
	s.table.PutWakes(wakes)
	return nil
}

// Hash returns a hash of the job's schedules. It changes if the instants of the job change.
func Hash(j Job) string {
	var parts []string
	for _, s := range j.Schedules {
		parts = append(parts, s.Hash())
	}
	return strings.Join(parts, "+")
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run records due instants until ctx ends. It first decides about instants that were due while no
// daemon was running.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	s.startedAt = s.now()
	s.table.Start(s.startedAt)
	s.mu.Unlock()
	s.lastReading = clockReading{s.startedAt, time.Now()}
	s.recordEvent(ctx, "daemon.started", nil)
	defer s.recordEvent(context.WithoutCancel(ctx), "daemon.stopped", nil)

	timer := time.NewTimer(0)
	defer timer.Stop()
	stale := true                 // the ledger may have changed since Set
	var replanned <-chan struct{} // closed when the plan changes after the last read
	for {
		// Check for changes even if the loop woke for another reason, because they affect what is
		// due now. There is no second notification.
		select {
		case <-replanned:
			stale = true
		default:
		}

		if stale {
			// Subscribe before reading, so that no change is lost.
			replanned = s.ledger.PlanChanged()
			if err := s.loadPausesAndWakes(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("pauses and planned wakes could not be read; they are read again", "error", err)
			} else {
				stale = false
			}
		}

		s.recordDue(ctx)
		s.once.Do(func() { close(s.ready) })
		timer.Reset(s.untilCheck(stale))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.rearm:
		case <-replanned:
		case answer := <-s.asked:
			answer <- struct{}{}
		}
	}
}

// Answers waits until the loop has recorded everything due and waits for its timer. It returns an
// error if that does not happen before ctx ends. The loop may hang, or may not be running.
func (s *Scheduler) Answers(ctx context.Context) error {
	answer := make(chan struct{}, 1)
	select {
	case s.asked <- answer:
		<-answer
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the scheduler does not go on: %w", ctx.Err())
	}
}

// untilCheck returns the time until the next check of the clock. It is at most maxSleep, because a
// timer stops during a suspend and ignores clock changes.
func (s *Scheduler) untilCheck(stale bool) time.Duration {
	wait := maxSleep
	if stale {
		wait = retryAfter
	}

	s.mu.Lock()
	head := s.table.Head()
	s.mu.Unlock()
	if !head.IsZero() {
		wait = min(wait, head.Sub(s.now()))
	}
	return wait
}

// recordEvent records an event of the clock or the daemon. It only logs an error.
func (s *Scheduler) recordEvent(ctx context.Context, kind string, data map[string]any) {
	text, err := json.Marshal(data)
	if err == nil {
		err = s.ledger.Events.Append(ctx, ledger.Event{Kind: kind, At: s.now(), Data: text})
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("an event could not be recorded", "event", kind, "error", err)
	}
}

// checkClock compares the wall clock with the monotonic clock since the last check. It detects a
// suspended machine and a clock that was set.
func (s *Scheduler) checkClock(ctx context.Context) DueContext {
	was, is := s.lastReading, clockReading{s.now(), time.Now()}
	s.lastReading = is
	stepped := is.wall.Sub(was.wall) - is.monotonic.Sub(was.monotonic)
	c := DueContext{StartedAt: s.startedAt, ClockStep: stepped, LastCheck: was.wall}

	switch {
	case stepped >= MinClockStep:
		s.log.Warn("the machine slept, or its clock was set forward", "by", stepped.Round(time.Millisecond), "from", was.wall, "to", is.wall)
		s.recordEvent(ctx, "clock.stepped", map[string]any{"seconds": stepped.Seconds(), "from": was.wall})
	case stepped <= -MinClockStep:
		// Watermarks in the future would stop schedules until the clock has caught up.
		s.log.Warn("the clock was set back; what ran before does not run again", "by", -stepped.Round(time.Millisecond), "from", was.wall, "to", is.wall)
		s.recordEvent(ctx, "clock.stepped", map[string]any{"seconds": stepped.Seconds(), "from": was.wall})
		if err := s.ledger.RewindWatermarks(ctx, is.wall); err != nil && ctx.Err() == nil {
			s.log.Error("the watermarks could not be set back", "error", err)
		}

		s.mu.Lock()
		s.table.Rewind(is.wall)
		s.mu.Unlock()
	}

	return c
}

// recordDue records every due instant. Instants that cannot be recorded remain due.
func (s *Scheduler) recordDue(ctx context.Context) {
	c := s.checkClock(ctx)
	now := s.lastReading.wall
	s.mu.Lock()
	table, lanes := s.table, s.lanes
	c.Jump = s.jump
	c.Pauses, c.UnwritableFrom, c.UnwritableTo = s.pauses, s.unwritableFrom, s.unwritableTo
	batch := table.PopDue(now, c)
	s.mu.Unlock()
	if len(batch.entries) == 0 {
		return
	}

	// Release the lock, because a slow ledger must not block callers of Next.
	var recorded []runs.Occurrence
	err := s.endMissedHolds(ctx, now)
	if err == nil {
		recorded, err = s.ledger.RecordDue(ctx, now, batch.Due, batch.Marks)
	}
	for _, o := range recorded {
		if err == nil && o.Decision != domain.DecisionRun {
			s.log.Info("an occurrence does not run", "job", o.Job, "nominal", o.Nominal, "decision", o.Decision, "reason", o.Reason)
		}
	}

	var wakes []wake.Decision
	if err == nil && len(batch.Wakes) > 0 {
		wakes, err = s.ledger.FireWakes(ctx, now, lanes, batch.Wakes...)
	}

	if ctx.Err() == nil {
		s.noteRecorded(c.LastCheck, err, len(batch.Marks)+len(batch.Wakes))
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if err != nil {
		// Use the current time, because the failed write may have been slow.
		table.Postpone(batch, s.now().Add(retryAfter))
		return
	}

	table.Advance(batch)
	for _, d := range wakes {
		table.SettleWake(d)
		if d.Decision != wake.Run && d.Reason != "" {
			s.log.Info("a planned wake does not run now", "agent", d.Wake.Agent, "at", d.Wake.At, "decision", d.Decision, "reason", d.Reason)
		}
	}
}

// noteRecorded updates the period in which due instants could not be recorded. before is the time
// of the previous check. It logs only the first failure and the recovery, because recording is
// retried every second.
func (s *Scheduler) noteRecorded(before time.Time, err error, due int) {
	now := s.now()
	if err != nil || now.Sub(s.lastReading.wall) >= slowRecord {
		if !s.failing {
			s.unwritableFrom = before
		}
		s.unwritableTo = now
	}

	switch {
	case err != nil && !s.failing:
		s.log.Error("what is due could not be recorded; it is tried again each second", "due", due, "error", err)
	case err == nil && s.failing:
		s.log.Info("what is due is recorded again", "due", due)
	}
	s.failing = err != nil
}
