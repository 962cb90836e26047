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
	maxInterrupted    = 3 // maximum interrupted attempts of a run, in addition to its retries
	defaultRuns       = 4
	defaultPerAgent   = 1
	defaultDrain      = 30 * time.Second
	maxSleep          = 30 * time.Second
	defaultAnswerWait = 72 * time.Hour // wait for an answer
	defaultCatchup    = 24 * time.Hour // wait for an unavailable model
)

// Options holds the dispatcher's dependencies and limits.
type Options struct {
	Ledger             *ledger.Ledger
	Executor           Executor
	Logger             *slog.Logger
	Runs, RunsPerAgent int           // lanes; zero means 4 and 1
	Drain              time.Duration // grace period of running attempts at the end; zero means 30s
	// After, if set, delays the first start until the channel is closed, but not the rescue of
	// runs. The scheduler uses it to decide about missed occurrences before runs start.
	After <-chan struct{}
	// Only, if set, restricts the dispatcher to one run. Run returns when that run ends or waits.
	Only int64
	// Engine executes the runs. If nil, this process executes them.
	Engine Engine
	// PinnedNode, if set, returns the only node for the runs of an agent, or "" for any node. The
	// policy of a job takes precedence.
	PinnedNode func(agent string) string
	Now        func() time.Time // wall clock; nil means time.Now
}

// Dispatcher decides when runs start. An Engine executes them.
type Dispatcher struct {
	o          *Options
	log        *slog.Logger
	recorder   *recorder
	holds      *holds
	here       *attempts
	lanesFreed chan struct{} // capacity 1: lanes may be free for queued runs
	// rereadWanted requests a new read of the whole queue. Its capacity is 1.
	rereadWanted chan struct{}

	rescued chan struct{}
	asked   chan chan<- struct{} // requests of Answers

	// The fields below are used only by the goroutine of Run.
	queue             backlog
	pauses            []pause.Pause
	nodes             *nodes    // nil unless this process leads a shared ledger
	nodesRead         time.Time // time of the last read of the nodes
	unconfirmedStarts []int64   // runs with a failed start that may have been committed

	leads atomic.Bool // result of the last leadership check

	// The fields below are also used by the goroutines of attempts.
	mu       sync.Mutex
	lanes    *FairQueue
	drainFor time.Duration
}

// New returns a Dispatcher. It fills in the defaults of the options. It returns an error if the
// ledger or the executor is missing.
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

// SetLanes sets how many runs may run at once, in total and per agent. Zero means 4 and 1.
func (d *Dispatcher) SetLanes(runs, perAgent int) {
	d.mu.Lock()
	d.lanes.SetLanes(runs, perAgent)
	d.mu.Unlock()
	d.notify()
}

// SetDrain sets how long running attempts may take to finish at the end. Zero means 30s.
func (d *Dispatcher) SetDrain(drain time.Duration) {
	if drain <= 0 {
		drain = defaultDrain
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drainFor = drain
}

// Reconsider requests a new read of the whole queue. Callers use it if the Executor's policies or
// obstacles may have changed.
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

// Rescued returns a channel that is closed when the attempts of dead processes have been ended.
// Until then overlap policies count such attempts, so triggers should wait for it.
func (d *Dispatcher) Rescued() <-chan struct{} { return d.rescued }

// Run rescues the runs of dead processes, then dispatches until ctx ends. Then it lets running
// attempts finish within Drain and parks the rest. With Only, it also ends when that run is
// finished or waits. It returns an error if the rescue fails, the engine cannot be opened, or this
// node loses its lease.
func (d *Dispatcher) Run(ctx context.Context) error {
	// Attempts that have begun are recorded even after ctx has ended.
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
	defer func() { _ = d.o.Engine.Close(writing) }() // drain has logged the error

	changed := d.o.Ledger.Changed()
	for {
		// Get the next channel before checking the previous one, and do both before the pass.
		// Otherwise a change in between, or one written while the pass reads, would not wake the
		// loop.
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

// leaseLost returns the reason why this process must stop, or nil if it may go on.
func (e *recorder) leaseLost() error {
	if m := e.o.Ledger.Nodes.Membership(); m != nil {
		return m.Err()
	}
	return nil
}

// sleep waits for something to do. It reports whether ctx has ended.
func (d *Dispatcher) sleep(ctx context.Context, changed <-chan struct{}, next time.Time) bool {
	var timer <-chan time.Time
	if !next.IsZero() {
		// The timer is short: with a long timer, the time that the machine sleeps would be added to
		// the wait.
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
	case <-d.lanesFreed: // no new read is needed: writes of the attempt also close changed
	case <-d.rereadWanted:
		d.queue.stale = true
	case answer := <-d.asked:
		answer <- struct{}{}
	}
	return false
}

// Answers waits until the loop has finished a pass: it has read the queue and started the runs that
// can start. It returns an error if ctx ends first, because the loop hangs, has not begun or is
// over.
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
