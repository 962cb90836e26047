// Package control implements the operations of a home for the API, the dashboard, the MCP server
// and the commands. Service has one group of methods for each subject, such as runs, pauses,
// budgets or skills.
package control

import (
	"log/slog"
	"sync"

	"rouse/agent"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
	"rouse/scheduler"
)

// Parts holds the parts of a process that Service uses.
type Parts struct {
	Setup     func() *plan.Setup // returns the current configuration
	Ledger    *ledger.Ledger
	Runner    *agent.Runner
	Scheduler *scheduler.Scheduler
	Databases *pool.Pool
	Notifier  *notify.Notifier
	Explainer *why.Explainer
	Logger    *slog.Logger

	Serves          bool                     // this process is a daemon
	TakesTriggers   bool                     // this process accepts webhooks
	RefuseElsewhere func(job string) error   // returns an error if the files of a job are on another node
	Wake            func()                   // makes the dispatcher consider all queued runs again
	URL             func(path string) string // returns the URL of a page, or an empty string without a dashboard
	DesktopExists   func() bool              // reports whether there is a desktop session
}

// Service implements all operations of a home.
type Service struct {
	*Catalog
	*Runs
	*Schedule
	*Costs
	*Storage
	*Checkouts
	*Extensions
}

// New returns a Service.
func New(p *Parts) *Service {
	return &Service{Catalog: &Catalog{p}, Runs: &Runs{Parts: p, refused: map[string]refusals{}}, Schedule: &Schedule{p}, Costs: &Costs{p},
		Storage: &Storage{p}, Checkouts: &Checkouts{p}, Extensions: &Extensions{p}}
}

// Catalog lists jobs, agents and channels, and shows their definitions.
type Catalog struct{ *Parts }

// Runs starts, undoes, exports and replays runs, for requests and webhooks.
type Runs struct {
	*Parts

	refusedMu sync.Mutex
	refused   map[string]refusals // refused webhook requests by job, and refused run requests
	throttle  throttle
}

// Schedule pauses jobs and agents, and plans wakes.
type Schedule struct{ *Parts }

// Costs reports budgets and forecasts.
type Costs struct{ *Parts }

// Storage provides access to the databases of agents.
type Storage struct{ *Parts }

// Checkouts applies and discards the branches of runs.
type Checkouts struct{ *Parts }

// Extensions lists skills and MCP servers, and manages their sign-ins.
type Extensions struct{ *Parts }
