package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agent"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/cmd/internal/web"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

// pruneEvery is how often history that is too old is removed.
const pruneEvery = 6 * time.Hour

// Options say what to open.
type Options struct {
	Home     string
	FlagHome string // of --home
	Config   *config.Config
	Problem  error              // why config is empty: then history can be read, and nothing runs
	Wanted   []config.SecretRef // what asks for secrets where there is a problem
	Adopt    bool
	Serves   bool // serves, as against a command that works on the home by itself
	Logger   *slog.Logger
	Level    *slog.LevelVar // of logger, if it can be changed
}

// Daemon is all parts wired together on one home. A test starts it as main does.
type Daemon struct {
	home      *home
	log       *slog.Logger
	startedAt time.Time
	ready     atomic.Bool
	setup     atomic.Pointer[Setup]
	reloads   *reloader // nil in a command

	ledger     *ledger.Ledger
	databases  *agentdb.Pool
	runner     *agent.Runner
	scheduler  *scheduler.Scheduler
	watcher    *watcher.Watcher // nil in a command
	notifier   *notify.Notifier
	dispatcher dispatch.Options
	Handler    http.Handler
}

// Current is the setup that holds now. What needs more than one look at it asks once.
func (d *Daemon) Current() *Setup { return d.setup.Load() }

// Open takes the home and opens its parts; nothing runs yet.
func Open(ctx context.Context, o Options) (_ *Daemon, err error) {
	d := &Daemon{log: o.Logger, startedAt: time.Now()}
	self := Holder{PID: os.Getpid(), Version: Version(), StartedAt: d.startedAt, Daemon: o.Serves}
	if len(o.Config.Files) > 0 {
		self.Config = o.Config.Files[0]
	}
	if d.home, err = OpenHome(o.Home, self); err != nil {
		return nil, err
	}

	defer func() {
		if err != nil {
			d.Close()
		}
	}()

	if o.Serves {
		if err := d.home.adopt(self.Config, o.Adopt); err != nil {
			return nil, err
		}
	}

	if d.ledger, err = ledger.Open(ctx, ledger.Options{Path: filepath.Join(o.Home, "ledger.db"), Blobs: filepath.Join(o.Home, "blobs")}); err != nil {
		return nil, fmt.Errorf("the history cannot be opened: %w", err)
	}
	if err := d.openParts(ctx, o); err != nil {
		return nil, err
	}

	if o.Serves {
		d.reloads = newReloader(d, o)
	}

	d.Handler, err = web.NewHandler(web.Options{Ledger: d.ledger, Host: d, Jobs: d, Runs: d, Databases: d, Pauses: d, Wakes: d, Explainer: d, Logger: d.log})
	return d, err
}

func (d *Daemon) openParts(ctx context.Context, o Options) (err error) {
	p, err := NewPlan(o.Config, d.log)
	if err != nil {
		return err
	}

	d.setup.Store(&Setup{Config: o.Config, plan: p, problem: o.Problem, wanted: o.Wanted, at: d.startedAt})
	if d.databases, err = agentdb.NewPool(agentdb.PoolOptions{Dir: filepath.Join(d.home.Dir, "agents"), Quota: d.quota, Backups: agentdb.KeepBackups, Logger: d.log}); err != nil {
		return err
	}
	if d.runner, err = agent.New(agent.Options{Ledger: d.ledger, Databases: d.databases, Manifests: filepath.Join(d.home.Dir, "manifests"), Recordings: filepath.Join(d.home.Dir, "recordings"), Logger: d.log}); err != nil {
		return err
	}

	d.runner.Set(p.Plan)
	if d.scheduler, err = scheduler.New(scheduler.Options{Ledger: d.ledger, Logger: d.log, Lanes: o.Config.Limits.Runs}); err != nil {
		return err
	}

	switch {
	case o.Problem != nil:
	case o.Serves:
		err = d.scheduler.Set(ctx, p.Jobs, p.selfScheduling)
	default: // a command that asks what comes next does not move anything
		err = d.scheduler.Load(ctx, p.Jobs)
	}
	if err != nil {
		return err
	}
	if d.notifier, err = notify.New(notify.Options{Ledger: d.ledger, Channels: p.channels, Logger: d.log}); err != nil {
		return err
	}

	d.dispatcher = dispatch.Options{
		Ledger: d.ledger, Executor: executor{d.runner, d}, Logger: d.log,
		Runs: o.Config.Limits.Runs, RunsPerAgent: o.Config.Limits.RunsPerAgent, Drain: time.Duration(o.Config.Limits.Drain),
	}
	if !o.Serves {
		return nil
	}
	if d.watcher, err = watcher.New(watcher.Options{Ledger: d.ledger, Logger: d.log, BreakerNotices: d.runner.LoopNotices}); err != nil {
		return err
	}

	return d.watcher.Set(ctx, p.watches)
}

// Dir is the home folder.
func (d *Daemon) Dir() string { return d.home.Dir }

// ReloadSoon has the configuration read again; what becomes of it is in the log and in the status.
func (d *Daemon) ReloadSoon() { d.reloads.readSoon() }

// executor is the runner, with the policies of the configuration.
type executor struct {
	*agent.Runner
	d *Daemon
}

// Policy implements dispatch.Executor; a reload changes it for runs that have started, too.
func (e executor) Policy(job string) dispatch.Policy { return e.d.Current().plan.Policy(job) }

// quota asks the setup that holds when it is asked.
func (d *Daemon) quota(agent string) int64 { return d.Current().plan.quota(agent) }

func (d *Daemon) Close() {
	var errs []error
	if d.databases != nil {
		errs = append(errs, d.databases.Close())
	}

	if d.ledger != nil {
		errs = append(errs, d.ledger.Close())
	}

	if d.home != nil {
		errs = append(errs, d.home.Close())
	}
	if err := errors.Join(errs...); err != nil {
		d.log.Error("the home did not close cleanly", "error", err)
	}
}

// Serve runs every part until ctx ends, then drains. onReady is called once the socket
// and every trigger are armed.
func (d *Daemon) Serve(ctx context.Context, onReady func(context.Context) error) error {
	listener, err := listen(SocketPath(d.home.Dir))
	if err != nil {
		return err
	}

	server := &http.Server{Handler: d.Handler, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }}
	d.dispatcher.After = d.scheduler.Ready()
	dispatcher, err := dispatch.New(d.dispatcher)
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	d.reloads.dispatcher = dispatcher
	// Triggers end first, then running attempts drain, then the rest.
	triggers, stopTriggers := context.WithCancel(ctx)
	defer stopTriggers()

	rest, stopRest := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRest()

	var group group
	group.run("http", func() error { return ignoreClosed(server.Serve(listener)) })
	group.run("notify", func() error { return d.notifier.Run(rest) })
	group.run("retention", func() error { return d.prune(rest) })
	armed := d.startTriggers(triggers, &group, dispatcher)

	err = d.serveUntil(ctx, &group, armed, onReady)

	d.ready.Store(false)
	stopTriggers()
	group.wait("dispatch", "scheduler", "watcher", "reload")
	stopRest()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()

	if server.Shutdown(closing) != nil {
		_ = server.Close() // somebody follows the log; the end of the stream tells them
	}

	group.wait("http", "notify", "retention")
	return errors.Join(err, group.err())
}

// startTriggers starts what asks for runs and what executes them. The channel is closed once every
// trigger is armed.
func (d *Daemon) startTriggers(ctx context.Context, group *group, dispatcher *dispatch.Dispatcher) (armed <-chan struct{}) {
	group.run("dispatch", func() error { return dispatcher.Run(ctx) })
	group.run("scheduler", func() error {
		// Overlap is decided on the ledger's runs: what a dead process left comes first.
		select {
		case <-dispatcher.Rescued():
			return d.scheduler.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	})

	group.run("watcher", func() error { return d.watcher.Run(ctx) })
	armed = allReady(d.scheduler.Ready(), d.watcher.Ready())
	group.run("reload", func() error {
		defer close(d.reloads.stopped)
		// A reload replaces what the triggers are armed with, so that has to be there first.
		select {
		case <-armed:
			d.reloads.run(ctx)
		case <-ctx.Done():
		}
		return nil
	})

	return armed
}

// serveUntil tells onReady once every trigger is armed, and returns when ctx ends or a part fails.
func (d *Daemon) serveUntil(ctx context.Context, group *group, armed <-chan struct{}, onReady func(context.Context) error) error {
	select {
	case <-armed:
		d.ready.Store(true)
		if err := onReady(ctx); err != nil && ctx.Err() == nil {
			return err // not one of being stopped while the first screen was written
		}
	case <-ctx.Done():
		return nil
	case <-group.failed():
		return nil // its error is in the group
	}

	select {
	case <-ctx.Done():
	case <-group.failed():
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func allReady(channels ...<-chan struct{}) <-chan struct{} {
	all := make(chan struct{})
	go func() {
		for _, c := range channels {
			<-c
		}
		close(all)
	}()

	return all
}

// listen opens the socket for its owner alone. One that a dead process left is replaced:
// the home's lock says that nobody else serves it.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the old socket: %w", err)
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}

	return l, nil
}

// prune removes history that is older than its job keeps it, and what runs left lying.
func (d *Daemon) prune(ctx context.Context) error {
	for {
		n, err := d.ledger.Prune(ctx, time.Now(), d.Current().Config.KeepOf)
		switch {
		case err != nil && ctx.Err() == nil:
			d.log.Error("old history could not be removed; it is tried again", "error", err)
		case n > 0:
			d.log.Info("old history was removed", "runs", n)
		}

		if err := d.runner.Sweep(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("lists of files of runs that are over could not be removed; it is tried again", "error", err)
		}

		t := time.NewTimer(pruneEvery)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// RunOnly executes one run in this process, for a command without a daemon.
func (d *Daemon) RunOnly(ctx context.Context, id string) error {
	run, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return err
	}

	o := d.dispatcher
	o.Only = run
	dispatcher, err := dispatch.New(o)
	if err != nil {
		return err
	}

	// Ctrl-C cancels the run instead of parking it: its owner is here.
	running := context.WithoutCancel(ctx)
	stop := context.AfterFunc(ctx, func() {
		if _, err := d.ledger.RequestCancel(running, run, "cancelled at the keyboard"); err != nil {
			d.log.Error("the run could not be cancelled", "run", run, "error", err)
		}
	})

	defer stop()

	return dispatcher.Run(running)
}

// group runs the parts and remembers the first that failed.
type group struct {
	mu    sync.Mutex
	done  map[string]chan struct{}
	first error
	fail  chan struct{}
}

func (g *group) run(name string, f func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.done == nil {
		g.done, g.fail = map[string]chan struct{}{}, make(chan struct{})
	}

	ended := make(chan struct{})
	g.done[name] = ended
	go func() {
		defer close(ended)
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.first == nil {
				g.first = fmt.Errorf("%s: %w", name, err)
				close(g.fail)
			}
		}
	}()
}

func (g *group) failed() <-chan struct{} { return g.fail }

func (g *group) wait(names ...string) {
	for _, n := range names {
		<-g.done[n]
	}
}

func (g *group) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first
}
