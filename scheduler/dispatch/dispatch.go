package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
)

const (
	maxInterrupted    = 3 // interrupted attempts of a run, beside its retries
	defaultRuns       = 4
	defaultPerAgent   = 1
	defaultDrain      = 30 * time.Second
	maxSleep          = 30 * time.Second
	defaultAnswerWait = 72 * time.Hour // for an answer
	defaultCatchup    = 24 * time.Hour // for a model that cannot be asked
)

// Options are the dispatcher's parts and bounds.
type Options struct {
	Ledger             *ledger.Ledger
	Executor           Executor
	Logger             *slog.Logger
	Runs, RunsPerAgent int           // lanes; 0 means 4 and 1
	Drain              time.Duration // how long running attempts may finish at the end; 0 means 30s
	// After, when set, is waited for between rescuing and the first start: what came due
	// while nobody ran is decided on runs that wait to go on, not on a race with them.
	After <-chan struct{}
	// Only, when set, restricts the dispatcher to one run and lets Run end with it.
	Only int64
	// Engine executes the runs. If nil, this process does.
	Engine Engine
	// PinnedNode, if set, returns the only node for the runs of an agent, or "" for any. The policy of a job has priority.
	PinnedNode func(agent string) string
	Now        func() time.Time // the wall clock; nil means the system's
}

// Dispatcher decides when runs start. An Engine executes them.
type Dispatcher struct {
	o          *Options
	log        *slog.Logger
	recorder   *recorder
	holds      *holds
	here       *attempts
	lanesFreed chan struct{} // capacity 1: there may be lanes for queued runs
	// rereadWanted, of capacity 1, asks for the whole queue to be read again.
	rereadWanted chan struct{}

	rescued chan struct{}
	asked   chan chan<- struct{} // who asks whether the loop goes round

	// Used by the goroutine of Run alone.
	queue             backlog
	pauses            []pause.Pause
	nodes             *nodes    // nil unless this process leads a shared ledger
	nodesRead         time.Time // when they were last read
	unconfirmedStarts []int64   // runs whose start failed, and may have been written

	leads atomic.Bool // result of the last check

	// Used by the goroutines of attempts, too.
	mu       sync.Mutex
	lanes    *FairQueue
	drainFor time.Duration
}

// New checks the options and fills in their defaults.
func New(o Options) (*Dispatcher, error) {
	if o.Ledger == nil || o.Executor == nil {
		return nil, errors.New("dispatch: a ledger and an executor are needed")
	}

	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	if o.Now == nil {
		o.Now = time.Now
	}

	e := &recorder{o: &o, log: o.Logger, drained: make(chan struct{})}
	d := &Dispatcher{
		o: &o, recorder: e, holds: &holds{o: &o, log: o.Logger, recorder: e, blocked: map[int64]string{}},
		here: &attempts{o: &o, cancels: map[int64]context.CancelCauseFunc{}, at: map[int64]struct{}{}},
		log:  o.Logger, lanesFreed: make(chan struct{}, 1), rereadWanted: make(chan struct{}, 1), rescued: make(chan struct{}), asked: make(chan chan<- struct{}),
		lanes: NewFairQueue(o.Runs, o.RunsPerAgent, o.Executor.Policy),
	}
	if d.o.Engine == nil {
		d.o.Engine = local{d}
	}
	d.leads.Store(o.Ledger.Nodes.Membership() == nil)
	d.SetDrain(o.Drain)
	return d, nil
}

// SetLanes changes how many runs may be on at once, and of one agent; 0 means 4 and 1.
func (d *Dispatcher) SetLanes(runs, perAgent int) {
	d.mu.Lock()
	d.lanes.SetLanes(runs, perAgent)
	d.mu.Unlock()
	d.notify()
}

// SetDrain changes how long running attempts may finish at the end; 0 means 30s.
func (d *Dispatcher) SetDrain(drain time.Duration) {
	if drain <= 0 {
		drain = defaultDrain
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drainFor = drain
}

// Reconsider reads the whole queue again, because what the Executor says of a run that is
// blocked, or of a job's policy, may have changed.
func (d *Dispatcher) Reconsider() {
	select {
	case d.rereadWanted <- struct{}{}:
	default:
	}
}

// notify wakes the loop.
func (d *Dispatcher) notify() {
	select {
	case d.lanesFreed <- struct{}{}:
	default:
	}
}

// Rescued is closed when no attempt of a dead process is left running. Until then overlap
// policies count such attempts, so triggers do well to wait for it.
func (d *Dispatcher) Rescued() <-chan struct{} { return d.rescued }

// Run rescues what a dead process left, then dispatches until ctx ends; then it lets
// running attempts finish within Drain and parks the rest. With Only it also ends when
// that run is finished or waits.
func (d *Dispatcher) Run(ctx context.Context) error {
	// What has begun is written down even while ctx ends.
	writing := context.WithoutCancel(ctx)
	if err := d.recorder.rescueFirst(ctx, writing); err != nil {
		return fmt.Errorf("rescuing the runs that were on: %w", err)
	}

	close(d.rescued)
	if d.o.After != nil {
		select {
		case <-d.o.After:
		case <-ctx.Done():
			return nil
		}
	}

	if err := d.o.Engine.Open(writing, d); err != nil {
		return err
	}
	defer func() { _ = d.o.Engine.Close(writing) }() // drain has logged its error

	changed := d.o.Ledger.Changed()
	for {
		// The next channel is asked for before the last one is looked at, and both before the pass: no change falls in between,
		// and what is written while the pass reads wakes the loop again.
		last := changed
		changed = d.o.Ledger.Changed()
		select {
		case <-last:
			d.queue.stale = true
		default:
		}
		over, next, err := d.pass(ctx, writing)
		if err != nil && ctx.Err() == nil {
			d.log.Error("the queue could not be read; it is tried again", "error", err)
			next = d.o.Now().Add(time.Second)
		}

		if over {
			return nil
		}

		if d.sleep(ctx, changed, next) {
			d.drain(writing)
			return nil
		}
		if why := d.recorder.leaseLost(); why != nil {
			d.stopAll("this node has lost its lease")
			return why
		}
	}
}

// leaseLost says why this process may not go on, nil when it may.
func (e *recorder) leaseLost() error {
	if m := e.o.Ledger.Nodes.Membership(); m != nil {
		return m.Err()
	}
	return nil
}

// sleep waits for something to do; it reports that ctx has ended.
func (d *Dispatcher) sleep(ctx context.Context, changed <-chan struct{}, next time.Time) bool {
	var timer <-chan time.Time
	if !next.IsZero() {
		// No single long timer: a machine that sleeps would add its sleep to the wait.
		t := time.NewTimer(min(next.Sub(d.o.Now()), maxSleep))
		defer t.Stop()
		timer = t.C
	}

	select {
	case <-ctx.Done():
		return true
	case <-changed:
	case <-timer:
		d.queue.stale = true
	case <-d.lanesFreed: // nothing to read again: what the attempt wrote comes as changed, too
	case <-d.rereadWanted:
		d.queue.stale = true
	case answer := <-d.asked:
		answer <- struct{}{}
	}
	return false
}

// Answers returns once the loop has gone round: it has read the queue, started what can start, and waits for more. An error
// says that it did not before ctx ended, because it hangs, has not begun or is over.
func (d *Dispatcher) Answers(ctx context.Context) error {
	answer := make(chan struct{}, 1)
	select {
	case d.asked <- answer:
		<-answer
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the dispatcher does not go on: %w", ctx.Err())
	}
}
