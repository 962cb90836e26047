// Package why explains jobs and runs for rouse why, rouse next and rouse simulate. It reads the
// ledger, the plan and the schedules, and changes nothing.
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
	Setup     func() *plan.Setup // returns the current configuration
	Ledger    *ledger.Ledger
	Runner    *agent.Runner
	Scheduler *scheduler.Scheduler
	Watcher   *watcher.Watcher                          // nil without a daemon
	Live      *progress.Tracker                         // current activity of the runs of this process
	Nodes     func(context.Context) (api.Engine, error) // nodes that share the ledger; nil if it is not shared
	StartedAt time.Time                                 // start time of this process
}
