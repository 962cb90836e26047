// Package river has runs done by the processes that share a ledger in PostgreSQL. River (riverqueue.com) brings each run to one of them,
// and elects the one that decides which runs start. What is decided, and what becomes of a run, is the dispatcher's and the ledger's.
package river

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"rouse/agentdb/ledger"
	"rouse/scheduler/dispatch"
)

const (
	// pollEvery is how soon a job is found whose notification was lost.
	pollEvery = 100 * time.Millisecond
	// keepJobs is how long River keeps what is over; the ledger has its history.
	keepJobs = 24 * time.Hour
	// stopFor is how long River may take to end after all runs have: it may be waiting for a database that is away.
	stopFor = 5 * time.Second
)

// Options are the parts of an engine.
type Options struct {
	Ledger *ledger.Ledger
	Pool   *pgxpool.Pool // of the ledger's database
	Logger *slog.Logger
}

// Engine is River in this process.
type Engine struct {
	o      Options
	member *ledger.Membership
	client *river.Client[pgx.Tx]
}

// New makes the engine of a process that has joined the nodes of its ledger.
func New(o Options) *Engine { return &Engine{o: o, member: o.Ledger.Membership()} }

// worker does the runs that River brings here.
type worker struct {
	river.WorkerDefaults[ledger.RiverJob]
	d *dispatch.Dispatcher
}

// Work implements river.Worker.
func (w *worker) Work(ctx context.Context, job *river.Job[ledger.RiverJob]) error {
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), river.ErrJobCancelledRemotely) {
			w.d.Cancel(context.WithoutCancel(ctx), job.Args.Run)
		}
	})()
	again, err := w.d.Work(ctx, job.Args.Run, job.ID)
	if err == nil && again > 0 {
		return river.JobSnooze(again)
	}
	return err
}

// Open implements dispatch.Engine.
func (e *Engine) Open(ctx context.Context, d *dispatch.Dispatcher) error {
	node := e.member.Node()
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{d: d})
	queues := map[string]river.QueueConfig{ledger.Queue(node.Name): {MaxWorkers: max(node.Lanes, 1)}}
	if node.Lanes > 0 {
		queues[ledger.AnyQueue] = river.QueueConfig{MaxWorkers: node.Lanes}
	}

	var err error
	e.client, err = river.NewClient(riverpgxv5.New(e.o.Pool), &river.Config{
		ID: e.member.RiverClient(), Logger: slog.New(atLeast{e.o.Logger.Handler(), slog.LevelWarn}), Queues: queues, Workers: workers,
		FetchCooldown: ledger.RiverFetchCooldown, FetchPollInterval: pollEvery, FetchOnlyKnownKinds: true, LeaderElectionDisabled: !node.Triggers,
		// A run takes as long as it takes; one whose process is gone is found by the ledger's nodes.
		JobTimeout:                  -1,
		CancelledJobRetentionPeriod: keepJobs, CompletedJobRetentionPeriod: keepJobs, DiscardedJobRetentionPeriod: keepJobs,
	})
	if err != nil {
		return fmt.Errorf("River: %w", err)
	}
	if err := e.client.Start(ctx); err != nil {
		return fmt.Errorf("River: %w", err)
	}
	return nil
}

// Start implements dispatch.Engine.
func (e *Engine) Start(ctx context.Context, runs []ledger.RunFor) error {
	return e.o.Ledger.SendRuns(ctx, runs)
}

// Close implements dispatch.Engine.
func (e *Engine) Close(ctx context.Context) error {
	if e.member.Err() == nil {
		if err := e.member.SetLanes(ctx, 0); err != nil {
			e.o.Logger.Warn("the other nodes were not told that this one takes no more runs", "error", err)
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- e.client.Stop(ctx) }()
	select {
	case err := <-stopped:
		return err
	case <-e.member.Lost(): // what is on here is others' by now, and nothing of it can be recorded
	}

	ctx, cancel := context.WithTimeout(ctx, stopFor)
	defer cancel()
	return e.client.StopAndCancel(ctx)
}

// atLeast leaves out what is below a level.
type atLeast struct {
	slog.Handler
	level slog.Level
}

// Enabled implements slog.Handler.
func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup implements slog.Handler.
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}
