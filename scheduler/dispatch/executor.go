package dispatch

import (
	"context"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
)

// Executor does the work of runs, and knows what is configured for them. Everything that it
// answers may change from one call to the next: a configuration is reloaded while runs are on.
type Executor interface {
	// Policy is what a job wants of its runs; those without a job ask with "".
	Policy(job string) Policy
	// Obstacles are what keeps a queued run from starting, none when it may. They are asked for at each look at the queue, so that
	// the answer must be cheap.
	Obstacles(ctx context.Context, run ledger.Run) []ledger.Obstacle
	// Freeze returns a function that does the work of one attempt by the current configuration.
	// The dispatcher calls Freeze before it records attempts as running, so that a later
	// configuration does not change or end a started run. An error of the function means that
	// the host could not do the work, and counts as outcome error.
	Freeze() func(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error)
	// OnFinalize does what remains to be done for a run that was not brought to its end: it was
	// cut off for the last time, nobody answered it, or its function failed. It may add to what
	// the record says of the end.
	OnFinalize(ctx context.Context, run ledger.Run, res ledger.Result) ledger.Result
	// QuestionNotices tells people that a run waits for one of them.
	QuestionNotices(run ledger.Run, res ledger.Result) []ledger.Notice
	// EndNotices returns the notices of the end of a run, or nil if it causes no notices and changes no incidents.
	EndNotices(run ledger.Run, res ledger.Result) *incident.EndNotices
	// PauseNotices tell them that this end is one failure too many, and pauses the job.
	PauseNotices(run ledger.Run, res ledger.Result, failures int) []ledger.Notice
	// ObstacleNotices tell them what keeps a run from starting; of each obstacle the first such notices are sent.
	ObstacleNotices(run ledger.Run, o ledger.Obstacle) []ledger.Notice
}

// Policy is what a job wants of its runs.
type Policy struct {
	Attempts            int // 0 and 1: no retry
	Backoff, MaxBackoff time.Duration
	On                  []domain.Outcome // which outcomes are tried again
	Resume              bool             // go on after an interruption
	Concurrency         int              // of the job's runs; 0 means 1, below 0 unlimited
	StartDeadline       time.Duration    // longest wait in the queue; 0 means none
	OnMiss              domain.OnMiss    // of an instant whose run was blocked; "" means run_once
	CatchupWindow       time.Duration    // longest wait for a model that cannot be asked, and longest block of an instant; 0 means 24h
	PauseAfter          int              // failed runs in a row that pause the job; 0: never
	Node                string           // the one that may do the job's runs, where there are several; "": any
}

// ExecutorFunc executes runs for which nothing is configured: they are resumed and not retried,
// nothing blocks them, and nobody is told of their end.
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
