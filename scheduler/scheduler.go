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
	"rouse/scheduler/schedule"
)

const (
	// maxSleep is the longest wait between two checks of the clock: how late a suspend or a
	// clock step can be noticed.
	maxSleep = 30 * time.Second
	// retryAfter is when what could not be recorded is tried again.
	retryAfter = time.Second
	// slowRecord is how long recording may take before it counts as a delay.
	slowRecord = time.Second
)

// MinClockStep is how far the wall clock and the time that has passed must drift apart between
// two checks to count as a step of the clock.
const MinClockStep = 2 * time.Second

// SourceStart is the source of an occurrence that is due because the daemon started;
// schedules have their own names.
const SourceStart = "start"

// Job is a job with its schedules.
type Job struct {
	Name, Agent string
	Schedules   []*schedule.Schedule
	Policy      schedule.Policy
	Overlap     domain.Overlap
	RunOnStart  bool
}

// Options are the scheduler's parts.
type Options struct {
	Ledger *ledger.Ledger
	Logger *slog.Logger
	Lanes  int              // how many runs may execute at once; 0: wakes of low priority always find a lane
	Now    func() time.Time // the wall clock; nil means the system's
	// EndMissedHolds ends delayed runs that are too late before newer instants are decided: see
	// dispatch.Dispatcher.EndMissedHolds. Optional.
	EndMissedHolds func(ctx context.Context, now time.Time) error
}

// Scheduler starts all jobs and planned wakes when they are due.
type Scheduler struct {
	ledger         *ledger.Ledger
	log            *slog.Logger
	now            func() time.Time
	endMissedHolds func(ctx context.Context, now time.Time) error
	ready          chan struct{}
	once           sync.Once
	rearm          chan struct{}        // capacity 1: the head of the heap may have changed
	asked          chan chan<- struct{} // who asks whether the loop goes round

	// Used by the loop alone.
	failing     bool // whether what is due could not be recorded when last tried
	lastReading clockReading
	// The last time for which the ledger could not be written, or only so slowly that others were
	// late.
	unwritableFrom, unwritableTo time.Time

	mu        sync.Mutex
	lanes     int
	startedAt time.Time // when the loop began; only the loop sets it
	table     *Timetable
	pauses    []ledger.Pause
	jump      jump
}

// clockReading is the wall clock and the monotonic clock, read together.
type clockReading struct{ wall, monotonic time.Time }

// New checks the options.
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
		// The wall clock leaves the monotonic one out: that stops while a machine is suspended.
		now:   func() time.Time { return o.Now().UTC().Round(0) },
		ready: make(chan struct{}), rearm: make(chan struct{}, 1),
		asked: make(chan chan<- struct{}),
	}, nil
}

// Ready is closed when every schedule is armed.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Set replaces the jobs, and names the agents that may plan their own runs; wakes that other
// agents had planned are deleted. A job whose schedules did not change keeps its watermark.
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
	if err := s.ledger.CancelWakesExcept(ctx, selfScheduling); err != nil {
		return err
	}

	return s.rebuild(ctx, now, jobs, states)
}

// Load is Set for a command that only wants to know what comes next: it writes nothing to the
// ledger.
func (s *Scheduler) Load(ctx context.Context, jobs []Job) error {
	known, err := s.ledger.Jobs(ctx)
	if err != nil {
		return err
	}

	states := map[string]ledger.JobState{}
	for _, st := range known {
		states[st.Name] = st
	}

	now := s.now().Truncate(time.Millisecond) // as the ledger would keep it
	for _, j := range jobs {
		// As SyncJobs has it: a new job, or one with other schedules, begins now.
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
		if st.Watermark.After(now) { // the clock ran ahead and was set back meanwhile
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

// SetLanes says how many runs may be on at once; see Options.
func (s *Scheduler) SetLanes(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = n
}

// loadPausesAndWakes reads the pauses and planned wakes of the ledger.
func (s *Scheduler) loadPausesAndWakes(ctx context.Context) error {
	pauses, err := s.ledger.Pauses(ctx, time.Time{})
	if err != nil {
		return err
	}

	wakes, err := s.ledger.Wakes(ctx)
	if err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.pauses = pauses
	s.table.PutWakes(wakes)
	return nil
}

// Hash changes when the instants that a job means change.
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

// Run starts what comes due until ctx ends. What came due while no daemon ran is decided first.
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
	stale := true                 // something may have been written since Set
	var replanned <-chan struct{} // closed when something was written since it was last read
	for {
		// Whatever the loop was woken for: what was written meanwhile counts for what is due now, and is not told again.
		select {
		case <-replanned:
			stale = true
		default:
		}

		if stale {
			replanned = s.ledger.PlanChanged() // before reading, so that no change falls between
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

// Answers returns once the loop has gone round: it has recorded what was due and waits for more. An error says that it
// did not before ctx ended, because it hangs, has not begun or is over.
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

// untilCheck returns how long to wait before the clock is checked again. It is maxSleep at most, because a timer stops while the
// machine is suspended, and does not hear of a clock that is set.
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

// recordEvent records something about the clock or the daemon. The scheduler goes on when that
// fails.
func (s *Scheduler) recordEvent(ctx context.Context, kind string, data map[string]any) {
	text, err := json.Marshal(data)
	if err == nil {
		err = s.ledger.AppendEvents(ctx, ledger.Event{Kind: kind, At: s.now(), Data: text})
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("an event could not be recorded", "event", kind, "error", err)
	}
}

// checkClock compares the wall clock with the time that has passed since the last check: it
// notices a machine that slept, and a clock that was set.
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
		// Watermarks in the future would silence schedules until the clock has caught up.
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

// recordDue records every instant that has come. What cannot be recorded now stays due.
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

	// Without the lock: a slow ledger must not block those who ask what comes next.
	var recorded []ledger.Occurrence
	err := s.endMissedHolds(ctx, now)
	if err == nil {
		recorded, err = s.ledger.RecordDue(ctx, now, batch.Due, batch.Marks)
	}
	for _, o := range recorded {
		if err == nil && o.Decision != domain.DecisionRun {
			s.log.Info("an occurrence does not run", "job", o.Job, "nominal", o.Nominal, "decision", o.Decision, "reason", o.Reason)
		}
	}

	var wakes []ledger.WakeDecision
	if err == nil && len(batch.Wakes) > 0 {
		wakes, err = s.ledger.FireWakes(ctx, now, lanes, batch.Wakes...)
	}

	if ctx.Err() == nil {
		s.noteRecorded(c.LastCheck, err, len(batch.Marks)+len(batch.Wakes))
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if err != nil {
		table.Postpone(batch, s.now().Add(retryAfter)) // a locked ledger may have taken its time to fail
		return
	}

	table.Advance(batch)
	for _, d := range wakes {
		table.SettleWake(d)
		if d.Decision != ledger.WakeRun && d.Reason != "" {
			s.log.Info("a planned wake does not run now", "agent", d.Wake.Agent, "at", d.Wake.At, "decision", d.Decision, "reason", d.Reason)
		}
	}
}

// noteRecorded remembers since when, and until when, what is due could not be recorded: that
// includes all that has come since the check before. It logs the first failure and its end,
// because recording is tried each second and a full disk stays full for long.
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
