// Package river executes runs on the nodes that share a ledger in PostgreSQL. River
// (riverqueue.com) elects the leader and brings each run to a node. The leader's dispatcher decides
// which runs start.
package river

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"rouse/internal/ledger"
	"rouse/internal/ledger/node"
	"rouse/scheduler/dispatch"
)

const (
	// pollEvery is the interval at which River polls for jobs, in case a notification was lost.
	pollEvery = 100 * time.Millisecond
	// keepJobs is how long River keeps finished jobs. The ledger keeps the history.
	keepJobs = 24 * time.Hour
	// stopFor is how long a stop waits for the database.
	stopFor = 5 * time.Second
)

// Options holds the dependencies of an engine.
type Options struct {
	Ledger *ledger.Ledger
	Pool   *pgxpool.Pool // connections to the ledger's database
	Logger *slog.Logger
}

// Engine is the River client of this process.
type Engine struct {
	o      Options
	member *node.Membership
	client *river.Client[pgx.Tx]
}

// New returns an engine. The process must have joined the nodes of its ledger.
func New(o Options) *Engine { return &Engine{o: o, member: o.Ledger.Nodes.Membership()} }

// worker executes the runs that River brings to this process.
type worker struct {
	river.WorkerDefaults[node.RiverJob]
	d *dispatch.Dispatcher
}

// Work implements river.Worker.
func (w *worker) Work(ctx context.Context, job *river.Job[node.RiverJob]) error {
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely) {
			w.d.Cancel(context.WithoutCancel(ctx), job.Args.Run)
		}
	})()
	return w.d.Work(ctx, job.Args.Run, job.ID)
}

// Open implements dispatch.Engine.
func (e *Engine) Open(ctx context.Context, d *dispatch.Dispatcher) error {
	self := e.member.Node()
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{d: d})
	queues := map[string]river.QueueConfig{node.Queue(self.Name): {MaxWorkers: max(self.Lanes, 1)}}
	if self.Lanes > 0 {
		queues[node.AnyQueue] = river.QueueConfig{MaxWorkers: self.Lanes}
	}

	var err error
	e.client, err = river.NewClient(riverpgxv5.New(e.o.Pool), &river.Config{
		ID: e.member.RiverClient(), Schema: e.o.Ledger.Nodes.RiverSchema(), Logger: slog.New(&quiet{Handler: e.o.Logger.Handler(), said: &said{at: map[string]time.Time{}}}), Queues: queues, Workers: workers,
		FetchCooldown: node.RiverFetchCooldown, FetchPollInterval: pollEvery, FetchOnlyKnownKinds: true, LeaderElectionDisabled: !self.Triggers,
		// Runs may take hours. The ledger's nodes find the runs of dead processes.
		JobTimeout: -1, RescueStuckJobsAfter: 100 * 365 * 24 * time.Hour,
		CancelledJobRetentionPeriod: keepJobs, CompletedJobRetentionPeriod: keepJobs, DiscardedJobRetentionPeriod: keepJobs,
	})
	if err != nil {
		return fmt.Errorf("river: %w", err)
	}
	for { // the database may be unreachable for a moment
		if err = e.client.Start(ctx); err == nil {
			return nil
		}
		select {
		case <-e.member.Lost():
			return fmt.Errorf("river: %w", errors.Join(err, e.member.Err()))
		case <-time.After(pollEvery):
		}
	}
}

// Start implements dispatch.Engine.
func (e *Engine) Start(ctx context.Context, runs []node.RunFor) error {
	return e.o.Ledger.Nodes.SendRuns(ctx, runs)
}

// Close implements dispatch.Engine. It returns an error if River does not stop in time.
func (e *Engine) Close(ctx context.Context) error {
	if e.member.Err() == nil {
		telling, cancel := context.WithTimeout(ctx, stopFor)
		defer cancel()
		if err := e.member.SetLanes(telling, 0); err != nil {
			e.o.Logger.Warn("the other nodes were not told that this one takes no more runs", "error", err)
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- e.client.Stop(ctx) }()
	select {
	case err := <-stopped:
		return err
	case <-e.member.Lost():
	}
	select { // other nodes have taken over the runs
	case err := <-stopped:
		return err
	case <-time.After(stopFor):
		return errors.New("the parts of river do not end")
	}
}

// quiet logs only warnings and errors, because River retries all the time. It logs the same message
// at most once in 10 seconds.
type quiet struct {
	slog.Handler
	said *said
}

type said struct {
	mu sync.Mutex
	at map[string]time.Time
}

// sayEvery is the minimum time between two equal messages.
const sayEvery = 10 * time.Second

// Enabled implements slog.Handler.
func (q *quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	q.said.mu.Lock()
	defer q.said.mu.Unlock()
	if r.Time.Sub(q.said.at[r.Message]) < sayEvery {
		return nil
	}
	q.said.at[r.Message] = r.Time
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{q.Handler.WithAttrs(attrs), q.said}
}

// WithGroup implements slog.Handler.
func (q *quiet) WithGroup(name string) slog.Handler { return &quiet{q.Handler.WithGroup(name), q.said} }
