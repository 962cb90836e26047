package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rouse/agentdb/ledger"
)

const (
	minPage         = 16 // runs read from the ledger at once
	maxPage         = 512
	maxInterrupted  = 3 // interrupted attempts of a run, beside its retries
	defaultRuns     = 4
	defaultPerAgent = 1
	defaultDrain    = 30 * time.Second
)

// Executor does the work of one attempt. An error means that the host could not, and
// counts as outcome error.
type Executor interface {
	Execute(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error)
}

// Policy is what a job wants of its runs.
type Policy struct {
	Attempts            int // 0 and 1: no retry
	Backoff, MaxBackoff time.Duration
	On                  []ledger.Outcome // which outcomes are tried again
	Resume              bool             // go on after an interruption
	Concurrency         int              // of the job's runs; 0 means 1, below 0 unlimited
	StartDeadline       time.Duration    // longest wait in the queue; 0 means none
}

// Options are the dispatcher's parts and bounds.
type Options struct {
	Ledger             *ledger.Ledger
	Executor           Executor
	Logger             *slog.Logger
	Runs, RunsPerAgent int           // lanes; 0 means 4 and 1
	Drain              time.Duration // how long running attempts may finish at the end; 0 means 30s
	// Policy and Notices may be nil: then nothing is retried, and nobody is told.
	Policy  func(job string) Policy
	Notices func(run ledger.Run, res ledger.Result) []ledger.Notice
	// Hold says why a run must stay queued, "" when it may start.
	Hold func(run ledger.Run) string
	// Only, when set, restricts the dispatcher to one run and lets Run end with it.
	Only int64
}

// Stop is the cause of an attempt's context: why it has to end.
type Stop struct {
	outcome ledger.Outcome
	reason  string
}

func (s *Stop) Error() string { return s.reason }

// Outcome is what the stop makes of the run: cancelled, or interrupted when the daemon ends.
func (s *Stop) Outcome() string { return string(s.outcome) }

// Dispatcher is the local engine.
type Dispatcher struct {
	o    Options
	log  *slog.Logger
	wake chan struct{} // capacity 1: an attempt has ended
	// stopping is closed when Drain is over: what cannot be written now is left to the next start.
	stopping chan struct{}

	mu      sync.Mutex
	running map[int64]*lane
	agents  map[string]int
	jobs    map[string]int
	held    map[int64]string
	all     sync.WaitGroup
}

type lane struct {
	run     ledger.Run
	attempt ledger.Attempt
	cancel  context.CancelCauseFunc
}

// New checks the options and fills in their defaults.
func New(o Options) (*Dispatcher, error) {
	if o.Ledger == nil || o.Executor == nil {
		return nil, errors.New("dispatch: a ledger and an executor are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Runs <= 0 {
		o.Runs = defaultRuns
	}
	if o.RunsPerAgent <= 0 {
		o.RunsPerAgent = defaultPerAgent
	}
	if o.Drain <= 0 {
		o.Drain = defaultDrain
	}
	if o.Policy == nil {
		o.Policy = func(string) Policy { return Policy{Resume: true} }
	}
	if o.Notices == nil {
		o.Notices = func(ledger.Run, ledger.Result) []ledger.Notice { return nil }
	}
	if o.Hold == nil {
		o.Hold = func(ledger.Run) string { return "" }
	}
	return &Dispatcher{
		o: o, log: o.Logger, wake: make(chan struct{}, 1), stopping: make(chan struct{}),
		running: map[int64]*lane{}, agents: map[string]int{}, jobs: map[string]int{}, held: map[int64]string{},
	}, nil
}

// Run rescues what a dead process left, then dispatches until ctx ends; then it lets
// running attempts finish within Drain and parks the rest. With Only it also ends when
// that run is finished or waits.
func (d *Dispatcher) Run(ctx context.Context) error {
	// What has begun is written down even while ctx ends.
	writing := context.WithoutCancel(ctx)
	if err := d.rescue(writing); err != nil {
		return fmt.Errorf("rescuing the runs that were on: %w", err)
	}
	defer d.all.Wait()
	for {
		changed := d.o.Ledger.Changed()
		over, next, err := d.turn(ctx, writing)
		if err != nil && ctx.Err() == nil {
			d.log.Error("the queue could not be read; it is tried again", "error", err)
			next = time.Now().Add(time.Second)
		}
		if over {
			return nil
		}
		if d.sleep(ctx, changed, next) {
			d.drain()
			return nil
		}
	}
}

// sleep waits for something to do; it reports that ctx has ended.
func (d *Dispatcher) sleep(ctx context.Context, changed <-chan struct{}, next time.Time) bool {
	var timer <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
		return true
	case <-changed:
	case <-d.wake:
	case <-timer:
	}
	return false
}

// turn starts what can be started and hears cancellations. next is when time alone makes
// more claimable.
func (d *Dispatcher) turn(ctx, writing context.Context) (over bool, next time.Time, err error) {
	if err := d.hearCancels(ctx); err != nil {
		return false, time.Time{}, err
	}
	now := time.Now()
	if d.o.Only != 0 {
		return d.turnOnly(ctx, writing, now)
	}
	var after int64
	for {
		free := d.free()
		if free <= 0 {
			break
		}
		// A page that is a few times what can start: lanes of one agent may be taken.
		page := min(max(8*free, minPage), maxPage)
		runs, err := d.o.Ledger.Claimable(ctx, now, after, page)
		if err != nil {
			return false, time.Time{}, err
		}
		var starting []int64
		for _, r := range runs {
			after = r.ID
			if ctx.Err() != nil {
				break
			}
			take, err := d.consider(writing, r, now)
			if err != nil {
				return false, time.Time{}, err
			}
			if take {
				starting = append(starting, r.ID)
			}
		}
		if err := d.start(writing, starting); err != nil {
			return false, time.Time{}, err
		}
		if len(runs) < page {
			break
		}
	}
	next, err = d.o.Ledger.NextDue(ctx, now)
	return false, next, err
}

// turnOnly serves one run, whatever else is queued.
func (d *Dispatcher) turnOnly(ctx, writing context.Context, now time.Time) (over bool, next time.Time, err error) {
	r, err := d.o.Ledger.Run(ctx, d.o.Only)
	if err != nil {
		return false, time.Time{}, err
	}
	switch {
	case r.State == ledger.StateFinished:
		return true, time.Time{}, nil
	case r.State == ledger.StateRunning:
		return false, time.Time{}, nil
	case r.NotBefore.After(now):
		return false, r.NotBefore, nil
	}
	if why := d.o.Hold(r); why != "" {
		return false, time.Time{}, d.finishUnstarted(writing, r, ledger.Result{Outcome: ledger.OutcomeError, Error: why})
	}
	take, err := d.consider(writing, r, now)
	if err != nil || !take {
		return false, time.Time{}, err
	}
	return false, time.Time{}, d.start(writing, []int64{r.ID})
}

// free is how many lanes the daemon has left.
func (d *Dispatcher) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.o.Runs - len(d.running)
}

// laneFor takes the lanes that a run needs, if all are free.
func (d *Dispatcher) laneFor(r ledger.Run, p Policy) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	most := max(p.Concurrency, 1)
	if len(d.running) >= d.o.Runs || d.agents[r.Agent] >= d.o.RunsPerAgent || d.running[r.ID] != nil {
		return false
	}
	if r.Job != "" && p.Concurrency >= 0 && d.jobs[r.Job] >= most {
		return false
	}
	d.running[r.ID] = &lane{run: r}
	d.agents[r.Agent]++
	d.jobs[r.Job]++
	return true
}

func (d *Dispatcher) release(r ledger.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.running, r.ID)
	d.agents[r.Agent]--
	d.jobs[r.Job]--
}

// consider decides about a claimable run: true when it has its lanes and is to be started.
func (d *Dispatcher) consider(writing context.Context, r ledger.Run, now time.Time) (bool, error) {
	why := d.o.Hold(r)
	d.noteHeld(r, why)
	if why != "" {
		return false, nil
	}
	p := d.o.Policy(r.Job)
	if p.StartDeadline > 0 && r.State == ledger.StateQueued && r.Attempt == 0 {
		if late := now.Sub(latest(r.QueuedAt, r.NotBefore)); late > p.StartDeadline {
			return false, d.finishUnstarted(writing, r, ledger.Result{Outcome: ledger.OutcomeSkipped,
				Error: fmt.Sprintf("waited %s in the queue, longer than start_deadline %s", late.Round(time.Second), p.StartDeadline)})
		}
	}
	return d.laneFor(r, p), nil
}

// start gives runs that have their lanes an attempt, all in one commit, and executes them.
func (d *Dispatcher) start(writing context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	started, err := d.o.Ledger.StartAttempts(writing, ids...)
	for i, id := range ids {
		d.mu.Lock()
		l := d.running[id]
		d.mu.Unlock()
		if err != nil || started[i].Err != nil { // or cancelled meanwhile
			d.release(l.run)
			continue
		}
		work, cancel := context.WithCancelCause(writing)
		d.mu.Lock()
		l.attempt, l.cancel = started[i].Attempt, cancel
		d.mu.Unlock()
		d.all.Go(func() { d.execute(work, writing, started[i].Run, started[i].Attempt, cancel) })
	}
	return err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// finishUnstarted ends a run that never got to work. It takes an attempt for a moment, so
// that the end is fenced like any other.
func (d *Dispatcher) finishUnstarted(writing context.Context, r ledger.Run, res ledger.Result) error {
	run, a, err := d.o.Ledger.StartAttempt(writing, r.ID)
	if errors.Is(err, ledger.ErrNotClaimable) {
		return nil
	}
	if err != nil {
		return err
	}
	res.Notices = d.o.Notices(run, res)
	return d.o.Ledger.Finish(writing, a, res)
}

// noteHeld logs why a run stays queued, once for each reason.
func (d *Dispatcher) noteHeld(r ledger.Run, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held[r.ID] == why {
		return
	}
	if why == "" {
		delete(d.held, r.ID)
		return
	}
	d.held[r.ID] = why
	d.log.Warn("a run stays queued", "job", r.Job, "run", r.ID, "reason", why)
}

// execute runs one attempt to its end and records it.
func (d *Dispatcher) execute(work, writing context.Context, run ledger.Run, a ledger.Attempt, cancel context.CancelCauseFunc) {
	defer func() {
		cancel(nil)
		d.release(run)
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}()
	d.log.Debug("a run starts", "job", run.Job, "run", run.ID, "attempt", a.Number)
	res, err := d.guarded(work, run, a)
	if err != nil {
		res.Outcome, res.Error = ledger.OutcomeError, err.Error()
	}
	var stop *Stop
	if errors.As(context.Cause(work), &stop) && stop.outcome == ledger.OutcomeInterrupted && !res.Outcome.Done() {
		d.record(run, func() error { return d.park(writing, run, a, stop, res) })
		return
	}
	d.record(run, func() error { return d.finish(writing, run, a, res) })
}

// record writes the end of an attempt. While that fails (a full disk), the attempt keeps
// its lane, so nothing new begins, and writing is tried again until the daemon ends; then
// the attempt is rescued at the next start.
func (d *Dispatcher) record(run ledger.Run, write func() error) {
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		err := write()
		switch {
		case err == nil:
			return
		case errors.Is(err, ledger.ErrFenced):
			d.log.Warn("a late result was dropped", "job", run.Job, "run", run.ID, "error", err)
			return
		}
		d.log.Error("the end of a run could not be recorded; it is tried again", "job", run.Job, "run", run.ID, "in", wait, "error", err)
		select {
		case <-time.After(wait):
		case <-d.stopping:
			return
		}
	}
}

// guarded turns a panic of the executor into an error, so that the daemon lives.
func (d *Dispatcher) guarded(ctx context.Context, run ledger.Run, a ledger.Attempt) (res ledger.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = ledger.Result{}, fmt.Errorf("the run failed by a defect of rouse: %v", p)
		}
	}()
	return d.o.Executor.Execute(ctx, run, a)
}

func (d *Dispatcher) finish(ctx context.Context, run ledger.Run, a ledger.Attempt, res ledger.Result) error {
	p := d.o.Policy(run.Job)
	tries := a.Number - run.Interruptions
	if tries < p.Attempts && slices.Contains(p.On, res.Outcome) {
		res.RetryAt = time.Now().Add(backoff(p, run.ID, tries))
	}
	if res.RetryAt.IsZero() {
		res.Notices = append(res.Notices, d.o.Notices(run, res)...)
	}
	level := slog.LevelInfo
	if res.Outcome.Failed() {
		level = slog.LevelWarn
	}
	said := res.Summary
	if res.Error != "" {
		said = res.Error
	}
	log := d.log.With("job", run.Job, "run", run.ID, "attempt", a.Number, "outcome", string(res.Outcome), "summary", said)
	if res.RetryAt.IsZero() {
		log.Log(ctx, level, "run finished")
	} else {
		log.Log(ctx, level, "a run is tried again", "at", res.RetryAt)
	}
	return d.o.Ledger.Finish(ctx, a, res)
}

// hearCancels tells running attempts that their end was asked for.
func (d *Dispatcher) hearCancels(ctx context.Context) error {
	d.mu.Lock()
	none := len(d.running) == 0
	d.mu.Unlock()
	if none {
		return nil
	}
	asked, err := d.o.Ledger.Cancelling(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, reason := range asked {
		if l := d.running[id]; l != nil && l.cancel != nil {
			l.cancel(&Stop{ledger.OutcomeCancelled, reason})
		}
	}
	return nil
}

// drain lets running attempts finish, then stops the rest.
func (d *Dispatcher) drain() {
	ended := make(chan struct{})
	go func() { d.all.Wait(); close(ended) }()
	d.mu.Lock()
	n := len(d.running)
	d.mu.Unlock()
	if n > 0 {
		d.log.Info("waiting for running attempts", "running", n, "at_most", d.o.Drain)
	}
	timer := time.NewTimer(d.o.Drain)
	defer timer.Stop()
	select {
	case <-ended:
		return
	case <-timer.C:
	}
	d.mu.Lock()
	for _, l := range d.running {
		if l.cancel != nil {
			l.cancel(&Stop{ledger.OutcomeInterrupted, "the daemon was stopped"})
		}
	}
	d.mu.Unlock()
	close(d.stopping)
	<-ended
}
