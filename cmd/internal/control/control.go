// Package control answers what the API, the pages, the MCP server and the commands ask of a home: run, pause, wake, backfill,
// budgets, replay, databases, checkouts, skills, sign-ins. Service has all of it, in one group of methods for each subject.
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

// Parts are the parts of a process that Service works with.
type Parts struct {
	Setup     func() *plan.Setup // the configuration in force
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
	Wake            func()                   // has the dispatcher consider all queued runs again
	URL             func(path string) string // address of a page, "" if there are no pages
	DesktopExists   func() bool              // reports whether there is a desktop session
}

// Service answers all questions.
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

// Runs starts runs, for requests and webhooks, and undoes, exports and replays them.
type Runs struct {
	*Parts

	refusedMu sync.Mutex
	refused   map[string]refusals // requests to webhooks by job, and runs that were asked for
	throttle  throttle
}

// Schedule pauses jobs and agents, and plans wakes.
type Schedule struct{ *Parts }

// Costs reports budgets and forecasts.
type Costs struct{ *Parts }

// Storage opens the databases of agents.
type Storage struct{ *Parts }

// Checkouts applies and discards the branches of runs.
type Checkouts struct{ *Parts }

// Extensions shows skills and MCP servers, and signs in for them.
type Extensions struct{ *Parts }
