// Package why explains jobs from the ledger, the plan and the schedules: why a job or a file was or was not processed
// (rouse why), what a run waits for, what starts next (rouse next), what would start (rouse simulate), what keeps a job
// from starting, and which jobs are overdue. It only reads.
package why

import (
	"context"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger"
	"rouse/internal/progress"
	"rouse/scheduler"
	"rouse/watcher"
)

// Explainer answers questions about jobs and runs of one home.
type Explainer struct {
	Setup     func() *plan.Setup // the configuration in force
	Ledger    *ledger.Ledger
	Runner    *agent.Runner
	Scheduler *scheduler.Scheduler
	Watcher   *watcher.Watcher                          // nil without a daemon
	Live      *progress.Tracker                         // current activity of the runs of this process
	Nodes     func(context.Context) (api.Engine, error) // nodes that share the ledger; nil if it is not shared
	StartedAt time.Time                                 // of this process
}
