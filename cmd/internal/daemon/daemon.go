package daemon

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"rouse/agent"
	"rouse/agent/servers"
	"rouse/agentdb"
	"rouse/agentdb/placement"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/access"
	"rouse/cmd/internal/buildinfo"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/dashboard"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/homebackup"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/metrics"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/reload"
	"rouse/cmd/internal/replicate"
	"rouse/cmd/internal/signin"
	"rouse/cmd/internal/status"
	"rouse/cmd/internal/supervision"
	"rouse/cmd/internal/traces"
	"rouse/cmd/internal/upkeep"
	"rouse/cmd/internal/web"
	"rouse/cmd/internal/why"
	"rouse/internal/ledger"
	"rouse/internal/progress"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

// Options configures Open.
type Options struct {
	Home     string
	FlagHome string // value of --home
	Config   *config.Config
	Problem  error              // why Config is empty; history is readable, but runs cannot start
	Wanted   []config.SecretRef // secrets that a configuration with a problem refers to
	Adopt    bool
	Serves   bool // a daemon, not a command that works without one

	// For a daemon that shares its ledger: its node name, by default from the configuration, and
	// the work that it leaves to other nodes.
	Node               string
	NoTriggers, NoWork bool

	Now    func() time.Time // clock of the ledger; if nil, the system clock
	Logger *slog.Logger
	LogVar *logging.Var // settings of Logger; nil if they cannot be changed
}

// Daemon holds all parts of rouse for one home.
type Daemon struct {
	answers
	services
	storage
	execution
	endpoints

	log         *slog.Logger
	setup       atomic.Pointer[plan.Setup]
	Reloader    *reload.Reloader // nil in a command
	Nodes       *cluster.Self
	Door        access.Door // access over the network
	supervision *supervision.Supervision
	redirects   *signin.Redirects
	notifier    *notify.Notifier
	session     notify.Session   // desktop session
	live        progress.Tracker // current activity of the runs of this process
	traces      *traces.Traces   // nil if no traces are sent

	stopFollowing context.CancelFunc // ends the event streams of Handler
	stopping      <-chan struct{}    // closed when stopFollowing is called
}

// answers are the parts that handle requests about jobs, runs and the home.
type answers struct {
	*why.Explainer
	*doctor.Checker
	*control.Service
}

// services are the parts that maintain the process and its home.
type services struct {
	status  *status.Reporter
	upkeep  *upkeep.Keeper
	backups *homebackup.Maker
}

// storage holds the parts that store data in the home.
type storage struct {
	home       *homedir.Home
	ledger     *ledger.Ledger
	db         *sql.DB       // database of the ledger in PostgreSQL; nil if it is a file
	jobs       *pgxpool.Pool // connections of River; nil if this process does not execute runs for others
	databases  *pool.Pool
	roaming    *placement.Manager    // nil if the ledger is a file
	replicator *replicate.Replicator // nil without continuous copies
}

// execution holds the parts that start and execute runs.
type execution struct {
	runner     *agent.Runner
	scheduler  *scheduler.Scheduler
	watcher    *watcher.Watcher // nil in a command
	dispatcher dispatch.Options
	// dispatching is the dispatcher of a daemon that serves. It is nil before, and in a command.
	dispatching atomic.Pointer[dispatch.Dispatcher]
}

// endpoints are the handlers of HTTP requests.
type endpoints struct {
	Handler http.Handler     // the API
	Pages   http.Handler     // dashboard; nil in a command; the caller must check access
	metrics *metrics.Metrics // nil in a command
}

// Current returns the setup in force. Call it once per request, because a reload can replace it.
func (d *Daemon) Current() *plan.Setup { return d.setup.Load() }

// Open locks the home and opens its parts without starting them. The caller must call Close.
func Open(ctx context.Context, o Options) (_ *Daemon, err error) {
	d, startedAt := &Daemon{log: o.Logger}, time.Now()
	d.Nodes = cluster.New(o.Serves, !o.NoTriggers, !o.NoWork, d.Current, d.log)
	self := homedir.Holder{PID: os.Getpid(), Version: buildinfo.Version(), StartedAt: startedAt.In(o.Config.Zone()), Daemon: o.Serves}
	if len(o.Config.Files) > 0 {
		self.Config = o.Config.Files[0]
	}
	if d.home, err = homedir.Open(o.Home, self); err != nil {
		return nil, err
	}

	defer func() { //nolint:contextcheck // release the lease even if the start is interrupted
		if err != nil {
			d.Close()
		}
	}()

	switch {
	case !o.Serves:
		d.home.SayMended(os.Stderr)
	case d.home.Mended != "":
		d.log.Warn("the home could be read by others, and is its user's alone from now on; what lies in it is mended by rouse doctor --fix", "home", d.home.Dir, "was", d.home.Mended)
	}

	if err := homedir.FindConfigured(ctx, d.home.Dir, o.Config, o.Problem); err != nil {
		return nil, err
	}
	if o.Serves && d.home.ReadOnly == nil {
		if err := d.home.Adopt(self.Config, o.Adopt); err != nil {
			return nil, err
		}
	}

	err = d.openLedger(ctx, o)
	d.Nodes.Ledger = d.ledger
	if err != nil {
		return nil, err
	}
	if err := d.Nodes.Join(ctx, o.Config); err != nil {
		return nil, err
	}
	following, stopFollowing := context.WithCancel(context.WithoutCancel(ctx))
	d.stopFollowing, d.stopping = stopFollowing, following.Done()
	if err := d.openParts(ctx, o, startedAt); err != nil {
		return nil, err
	}
	if o.Serves {
		d.Reloader = reload.New(reload.Options{ // after openParts, which stores the setup
			Home: d.home.Dir, FlagHome: o.FlagHome, Started: o.Config, LogVar: o.LogVar, Logger: d.log, Setup: &d.setup, Ledger: d.ledger, Runner: d.runner, Watcher: d.watcher,
			Scheduler: d.scheduler, Dispatcher: &d.dispatching, Notifier: d.notifier, Session: &d.session, Nodes: d.Nodes, Supervision: d.supervision,
		})
		d.status.Reloader, d.upkeep.Reloader = d.Reloader, d.Reloader
		d.Serves, d.ProblemsOnDisk, d.WantedSecrets = true, d.Reloader.ProblemsOnDisk, d.Reloader.WantedSecrets
	}

	api := web.Options{Ledger: d.ledger, Control: d.Service, Why: d.Explainer, Doctor: d.Checker, Nodes: d.Nodes, Reloader: d.Reloader, Status: d.status, Backups: d.backups, Door: &d.Door, Network: o.Serves, Live: &d.live, Stopping: d.stopping, Logger: d.log, Redact: d.runner.Plan.RedactAnswer}
	if o.Serves {
		var metricsErr, tracesErr, pagesErr error
		d.metrics, metricsErr = metrics.New(metrics.Options{Ledger: d.ledger, Now: d.status.Snapshot, Version: buildinfo.Version(), Logger: d.log})
		d.traces, tracesErr = d.newTraces(ctx)
		d.status.Traces = d.traces
		d.Pages, pagesErr = dashboard.New(dashboard.Options{API: api, Version: buildinfo.Version()})
		if err := errors.Join(metricsErr, tracesErr, pagesErr); err != nil {
			return nil, err
		}
	}
	d.Handler, err = web.NewHandler(api)
	return d, err
}

func (d *Daemon) openParts(ctx context.Context, o Options, startedAt time.Time) (err error) {
	p, err := plan.New(o.Config, d.log)
	if err != nil {
		return err
	}

	// Store it first, because the parts below read quotas and policies through Current.
	d.setup.Store(&plan.Setup{Config: o.Config, Plan: p, Problem: o.Problem, Wanted: o.Wanted, At: startedAt})
	if d.databases, err = pool.New(pool.Options{Dir: filepath.Join(d.home.Dir, "agents"), Quota: d.quota, Backups: agentdb.KeepBackups, Logger: d.log, Ledger: d.ledger}); err != nil {
		return err
	}
	if d.Nodes.Shared() && d.ledger.ReadOnly() == nil {
		d.roaming = placement.New(ctx, d.databases, homedir.PlacementOptions(d.home.Dir, d.Nodes.Name, d.ledger, d.log))
	}
	d.backups = &homebackup.Maker{Home: d.home.Dir, Setup: d.Current, Ledger: d.ledger, Databases: d.databases, Nodes: d.Nodes, Stopping: d.stopping, Logger: d.log}
	writable := d.ledger.ReadOnly() == nil
	if o.Serves {
		err = d.Nodes.ClaimValues(ctx, o.Adopt)
	}
	if err == nil && o.Serves && writable && o.Config.Replicate != nil {
		d.replicator, err = d.backups.Replicator(ctx)
	}
	if err == nil && writable { // with a read-only ledger no runs start, so the databases need no check
		err = d.identify(ctx, d.Current().AgentNames(), d.Nodes.Shared(), d.log)
	}
	if err != nil {
		return err
	}
	d.redirects = &signin.Redirects{Listens: o.Serves, Setup: d.Current, Logger: d.log}
	part := func(name string) string { return filepath.Join(d.home.Dir, name) }
	var homes agent.Placement
	if d.roaming != nil {
		homes = d.roaming
	}
	d.runner, err = agent.New(agent.Options{ //nolint:contextcheck // it cleans up after a dead process, also when a start is interrupted
		Ledger: d.ledger, Databases: d.databases, Locks: part("locks"), Manifests: part("manifests"), Recordings: part("recordings"),
		Scratch: part("commands"), Before: part("before"), Storage: part("storage"), Checkouts: part("checkouts"), Servers: part("mcp"), Version: buildinfo.Version(), Live: &d.live, Logger: d.log, Placement: homes,
		SignIns: &servers.SignInOptions{Store: &signin.Store{Home: d.home.Dir}, Listen: d.redirects.Address},
		Desktop: d.session.Exists, CanDeliver: d.canDeliver,
	})
	if err != nil {
		return err
	}

	d.redirects.Runner = d.runner
	d.runner.Set(p.Runner)
	if d.scheduler, err = scheduler.New(scheduler.Options{Ledger: d.ledger, Logger: d.log, Lanes: o.Config.Limits.Runs, Now: d.ledger.Now,
		// The scheduler runs only together with a dispatcher.
		EndMissedHolds: func(ctx context.Context, now time.Time) error { return d.dispatching.Load().EndMissedHolds(ctx, now) }}); err != nil {
		return err
	}

	d.Nodes.Scheduler = d.scheduler

	switch {
	case o.Problem != nil:
	case o.Serves:
		var lead bool
		if lead, err = d.Nodes.TryLead(ctx, p); err == nil && !lead {
			err = d.Nodes.SetSchedules(ctx, p)
		}
	default: // a command may read the next runs, but must not advance a watermark
		err = d.scheduler.Load(ctx, p.Jobs)
	}
	if err != nil {
		return err
	}
	d.Explainer = &why.Explainer{Setup: d.Current, Ledger: d.ledger, Runner: d.runner, Scheduler: d.scheduler, Live: &d.live, StartedAt: startedAt}
	if d.Nodes.Shared() {
		d.Explainer.Nodes = d.Nodes.Engine
	}
	d.supervision = supervision.New(o.Serves, d.Current, d.Explainer, d.log)
	d.notifier = notify.New(notify.Options{Ledger: d.ledger, Channels: p.Channels, Rules: plan.ChannelRules(d.Current().Config, &d.session), Link: d.noticeLink, Logger: d.log, Now: d.ledger.Now})
	d.status = &status.Reporter{Home: d.home.Dir, StartedAt: startedAt, Serves: o.Serves, Setup: d.Current, Ledger: d.ledger, Runner: d.runner, Explainer: d.Explainer,
		Nodes: d.Nodes, Door: &d.Door, Replicator: d.replicator}
	d.upkeep = &upkeep.Keeper{Home: d.home.Dir, Setup: d.Current, Ledger: d.ledger, Databases: d.databases, Runner: d.runner, Notifier: d.notifier, Explainer: d.Explainer,
		Nodes: d.Nodes, Logger: d.log}
	d.Checker = d.newChecker()
	d.status.Checker, d.upkeep.Checker = d.Checker, d.Checker
	d.Service = control.New(&control.Parts{Setup: d.Current, Ledger: d.ledger, Runner: d.runner, Scheduler: d.scheduler, Databases: d.databases, Notifier: d.notifier,
		Explainer: d.Explainer, Logger: d.log, Serves: o.Serves, TakesTriggers: d.Nodes.Triggers, RefuseElsewhere: d.Nodes.RefuseElsewhere, Wake: d.wakeDispatcher, URL: d.Door.URL,
		DesktopExists: d.session.Exists})

	d.dispatcher = dispatch.Options{
		Ledger: d.ledger, Executor: executor{d.runner.Executor(), d}, Logger: d.log, Now: d.ledger.Now,
		Runs: o.Config.Limits.Runs, RunsPerAgent: o.Config.Limits.RunsPerAgent, Drain: time.Duration(o.Config.Limits.Drain),
	}
	if d.Nodes.Shared() {
		d.dispatcher.PinnedNode = func(agent string) string { return d.Current().Plan.NodeOfAgent(agent) }
	}
	if !o.Serves {
		return nil
	}
	if d.watcher, err = watcher.New(d.watching()); err != nil {
		return err
	}
	d.Watcher = d.watcher

	return d.watcher.Set(ctx, d.Nodes.OwnWatches(p))
}

// Supervised reports whether systemd started the daemon and waits for its notifications.
func (d *Daemon) Supervised() bool { return d.supervision.On }

// wakeDispatcher makes the dispatcher reconsider all queued runs. In a command it has no effect;
// the next daemon considers them.
func (e *execution) wakeDispatcher() {
	if dispatcher := e.dispatching.Load(); dispatcher != nil {
		dispatcher.Reconsider()
	}
}

// executor adds the policies of the configuration to the runner.
type executor struct {
	agent.Executor
	d *Daemon
}

// Policy implements dispatch.Executor. A reload changes the policy of started runs too.
func (e executor) Policy(job string) dispatch.Policy { return e.d.Current().Plan.Policy(job) }

// quota returns the quota of an agent's database according to the current setup.
func (d *Daemon) quota(agent string) int64 { return d.Current().Plan.Quota(agent) }

// Close closes the parts that Open opened. Open calls it if it fails.
func (d *Daemon) Close() {
	var errs []error
	if d.stopFollowing != nil {
		d.stopFollowing()
		if d.backups != nil {
			d.backups.Wait() // they have the databases open
		}
	}
	if d.redirects != nil {
		errs = append(errs, d.redirects.Stop(context.Background()))
	}
	if d.replicator != nil {
		d.replicator.Finish(context.Background())
	}
	if d.databases != nil {
		errs = append(errs, d.databases.Close())
	}
	if d.roaming != nil {
		d.roaming.Close()
	}

	if d.ledger != nil {
		d.Nodes.Leave()
		errs = append(errs, d.ledger.Close())
	}
	if d.replicator != nil {
		d.replicator.LedgerClosed()
	}
	if d.jobs != nil {
		go d.jobs.Close() // do not wait, because a connection may be dead
	}
	if d.db != nil {
		errs = append(errs, d.db.Close())
	}

	// Release the lock last. Until then no other process may open these parts.
	if d.home != nil {
		errs = append(errs, d.home.Close())
	}
	if err := errors.Join(errs...); err != nil {
		d.log.Error("the home did not close cleanly", "error", err)
	}
}

// OpenWaiting opens a daemon. It waits for a command that holds the home, but not for a daemon.
func OpenWaiting(ctx context.Context, o Options, say func(*homedir.HeldError)) (d *Daemon, err error) {
	err = homedir.Wait(ctx, say, func() (err error) {
		d, err = Open(ctx, o)
		if errors.As(err, new(*homedir.HeldError)) && homedir.Answers(ctx, o.Home) {
			return &homedir.ServedError{Held: err}
		}
		return err
	})
	return d, err
}

// Dir returns the home folder.
func (s *storage) Dir() string { return s.home.Dir }
