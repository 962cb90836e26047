package dispatch

import (
	"context"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
)

// Executor executes runs and knows their configuration. Its answers may differ from one call to the
// next, because the configuration can be reloaded while runs are running.
type Executor interface {
	// Policy returns the policy of a job. The job is "" for runs without one.
	Policy(job string) Policy
	// Obstacles returns the obstacles that keep a queued run from starting, or nil if it may start.
	// It is called whenever the queue is read, so it must be cheap.
	Obstacles(ctx context.Context, run ledger.Run) []ledger.Obstacle
	// Freeze returns a function that executes one attempt with the current configuration. The
	// dispatcher calls Freeze before it records attempts as running, so that a later configuration
	// does not change or end a started run. If the function returns an error, the host could not
	// execute the attempt, and the run ends with outcome error.
	Freeze() func(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error)
	// OnFinalize completes a run that did not end by itself: it was interrupted for the last time,
	// its question was not answered, or its function failed. It may extend the result.
	OnFinalize(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result
	// QuestionNotices returns the notices that ask people for an answer.
	QuestionNotices(run ledger.Run, res ledger.Result) []ledger.Notice
	// EndNotices returns the notices of the end of a run. It returns nil if the end causes no
	// notices and changes no incidents.
	EndNotices(run ledger.Run, res ledger.Result) *incident.EndNotices
	// PauseNotices returns the notices of a failure that pauses the job.
	PauseNotices(run ledger.Run, res ledger.Result, failures int) []ledger.Notice
	// ObstacleNotices returns the notices of an obstacle that keeps a run from starting. Only the
	// first notices of each obstacle are sent.
	ObstacleNotices(run ledger.Run, o ledger.Obstacle) []ledger.Notice
}

// Policy holds a job's settings for its runs.
type Policy struct {
	Attempts            int // 0 and 1 mean no retry
	Backoff, MaxBackoff time.Duration
	On                  []domain.Outcome // outcomes that are retried
	Resume              bool             // whether a run continues after an interruption
	Concurrency         int              // maximum concurrent runs; 0 means 1, below 0 unlimited
	StartDeadline       time.Duration    // longest wait in the queue; zero means no limit
	// OnMiss applies to a scheduled run that was blocked for too long. Empty means run_once.
	OnMiss domain.OnMiss
	// CatchupWindow limits the wait for an unavailable model and the time a scheduled run may be
	// blocked. Zero means 24h.
	CatchupWindow time.Duration
	PauseAfter    int    // failed runs in a row that pause the job; zero means never
	Node          string // only node for the job's runs; "" means any node
}

// ExecutorFunc executes runs without a configuration. They are resumed but not retried, they have
// no obstacles, and their end causes no notices.
type ExecutorFunc func(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error)

// Policy implements Executor.
func (ExecutorFunc) Policy(string) Policy { return Policy{Resume: true} }

// Obstacles implements Executor.
func (ExecutorFunc) Obstacles(context.Context, ledger.Run) []ledger.Obstacle { return nil }

// Freeze implements Executor.
func (f ExecutorFunc) Freeze() func(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
	return f
}

// OnFinalize implements Executor.
func (ExecutorFunc) OnFinalize(_ context.Context, _ ledger.Run, res ledger.Result) ledger.Result {
	return res
}

// QuestionNotices implements Executor.
func (ExecutorFunc) QuestionNotices(ledger.Run, ledger.Result) []ledger.Notice { return nil }

// EndNotices implements Executor.
func (ExecutorFunc) EndNotices(ledger.Run, ledger.Result) *incident.EndNotices { return nil }

// PauseNotices implements Executor.
func (ExecutorFunc) PauseNotices(ledger.Run, ledger.Result, int) []ledger.Notice { return nil }

// ObstacleNotices implements Executor.
func (ExecutorFunc) ObstacleNotices(ledger.Run, ledger.Obstacle) []ledger.Notice { return nil }
