package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"rouse/cmd/internal/heartbeat"
	"rouse/cmd/internal/supervision"
	"rouse/scheduler/dispatch"
)

// Serve runs every part until ctx ends, then drains. It calls onReady once every trigger is ready.
func (d *Daemon) Serve(ctx context.Context, onReady func(context.Context) error) error {
	server, err := d.openServer(ctx)
	if err != nil {
		return err
	}

	if why := tooFewFiles(); why != "" {
		d.log.Warn(why)
	}

	// Before the first run starts.
	d.runner.Models.ProbeLocal(ctx)
	if err := d.upkeep.RestoreObstacles(ctx); err != nil {
		return errors.Join(err, server.listener.Close())
	}

	if d.Nodes.Leading() {
		d.dispatcher.After = d.scheduler.Ready()
	}
	if err := d.openEngine(ctx); err != nil {
		return errors.Join(err, server.listener.Close())
	}
	dispatcher, err := dispatch.New(d.dispatcher)
	if err != nil {
		return errors.Join(err, server.listener.Close())
	}

	d.dispatching.Store(dispatcher)
	well := d.newLiveness(dispatcher)
	beats := heartbeat.New(heartbeat.Options{URL: func() string { return d.Current().Config.HeartbeatURL }, Well: well.Ask, Logger: d.log})
	d.status.SetHeartbeat(beats)

	// Triggers end first, then attempts drain, then the parts that attempts still need.
	triggers, stopTriggers := context.WithCancel(ctx)
	defer stopTriggers()

	rest, stopRest := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRest()

	var group group
	group.run("http", server.run)
	pages := d.openDashboard(ctx)
	if pages != nil {
		group.run("dashboard", pages.server.run)
	}
	start := func(name string, ctx context.Context, run func(context.Context) error) {
		group.run(name, func() error { return run(ctx) })
	}
	leading := rest
	if d.Nodes.Shared() { // another node becomes the leader when this one drains
		leading = triggers
	}
	startLeading := func(name string, run func(context.Context) error) {
		group.run(name, func() error { return d.Nodes.OnceLeading(leading, run) })
	}
	start("metrics", rest, d.metrics.Run)
	if d.roaming != nil {
		start("homes", rest, func(ctx context.Context) error { d.roaming.AcquireAll(ctx); return nil })
	}
	if d.replicator != nil {
		start("replicate", rest, d.replicator.Run)
	}
	if d.traces != nil {
		startLeading("traces", d.traces.Run)
	}
	startLeading("notify", d.notifier.Run)
	startLeading("overdue", d.upkeep.WatchOverdue)
	start("lease", rest, func(ctx context.Context) error { return d.Nodes.WatchLease(ctx, dispatcher) })
	start("ledger", rest, d.upkeep.WatchLedger)
	start("files", triggers, d.upkeep.WatchFiles)
	start("calendars", triggers, d.upkeep.FollowCalendars)
	start("sign-ins", triggers, d.redirects.Run)
	start("room", triggers, func(ctx context.Context) error { return d.upkeep.KeepRoom(ctx, dispatcher.Reconsider) })
	start("obstacles", triggers, func(ctx context.Context) error { return d.upkeep.WatchObstacles(ctx, dispatcher.Reconsider) })
	ready := d.startTriggers(triggers, &group, dispatcher)
	onceReady := func(name string, ctx context.Context, run func(context.Context) error) {
		group.run(name, func() error {
			select {
			case <-ready:
				return run(ctx)
			case <-ctx.Done():
				return nil
			}
		})
	}
	onceReady("retention", rest, d.upkeep.Maintain) // it reads the runs of each job, which must not delay the start
	onceReady("heartbeat", triggers, func(ctx context.Context) error { return d.Nodes.OnceLeading(ctx, beats.Run) })
	onceReady("supervision", triggers, func(ctx context.Context) error { return d.supervision.Run(ctx, well) })

	err = d.serveUntil(ctx, &group, ready, onReady)

	// From here on, status reports the daemon as not ready, although its socket still responds.
	d.status.SetReady(false)
	drained := d.supervision.Stopping(ctx)
	stopTriggers()
	group.wait("dispatch", "scheduler", "watcher", "reload", "heartbeat", "supervision")
	drained()
	stopRest()
	group.wait("homes")
	if err := server.stop(ctx); err != nil {
		d.log.Warn("a command was cut off", "error", err)
	}
	if pages != nil {
		if err := pages.server.stop(ctx); err != nil {
			d.log.Warn("a page was cut off", "error", err)
		}
	}
	group.wait()
	return errors.Join(err, group.err())
}

// startTriggers starts the triggers and the dispatcher. ready is closed once every trigger is
// ready.
func (d *Daemon) startTriggers(ctx context.Context, group *group, dispatcher *dispatch.Dispatcher) (ready <-chan struct{}) {
	group.run("dispatch", func() error { return dispatcher.Run(ctx) })
	group.run("scheduler", func() error {
		// Overlap depends on the runs in the ledger, so first finish the runs of a dead process.
		select {
		case <-dispatcher.Rescued():
			if d.Nodes.AwaitLead(ctx, dispatcher) {
				return d.scheduler.Run(ctx)
			}
			return nil
		case <-ctx.Done():
			return nil
		}
	})

	group.run("watcher", func() error { return d.watcher.Run(ctx) })
	ready = d.watcher.Ready()
	if d.Nodes.Leading() { // otherwise the scheduler waits
		ready = allReady(d.scheduler.Ready(), d.watcher.Ready())
	}
	group.run("reload", func() error {
		d.Reloader.Run(ctx, ready)
		return nil
	})

	return ready
}

// serveUntil calls onReady once every trigger is ready. It returns when ctx ends or a part fails.
func (d *Daemon) serveUntil(ctx context.Context, group *group, ready <-chan struct{}, onReady func(context.Context) error) error {
	select {
	case <-ready:
		d.status.SetReady(true)
		d.supervision.Ready(ctx)
		if err := onReady(ctx); err != nil && ctx.Err() == nil {
			return err // ignore an error of onReady during a stop
		}
	case <-ctx.Done():
		return nil
	case <-group.failed():
		return nil // the group returns the error
	}

	select {
	case <-ctx.Done():
	case <-group.failed():
	}
	return nil
}

// allReady returns a channel that is closed once all of channels are closed.
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

// group runs the parts and stores the first error.
type group struct {
	mu       sync.Mutex
	done     map[string]chan struct{} // closed when the part with that name has returned
	firstErr error
	failure  chan struct{} // closed with firstErr
}

func (g *group) run(name string, f func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.done == nil {
		g.done, g.failure = map[string]chan struct{}{}, make(chan struct{})
	}

	ended := make(chan struct{})
	g.done[name] = ended
	go func() {
		defer close(ended)
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			// Keep only the first error, because the failure of a part often causes others.
			if g.firstErr == nil {
				g.firstErr = fmt.Errorf("%s: %w", name, err)
				close(g.failure)
			}
		}
	}()
}

func (g *group) failed() <-chan struct{} { return g.failure }

// wait waits until the named parts that were started have returned, or all parts if there are no
// names.
func (g *group) wait(names ...string) {
	g.mu.Lock()
	started := maps.Clone(g.done)
	g.mu.Unlock()
	for name, done := range started {
		if len(names) == 0 || slices.Contains(names, name) {
			<-done
		}
	}
}

func (g *group) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.firstErr
}

// newLiveness returns the health check of the parts that must work for runs to start.
func (d *Daemon) newLiveness(dispatcher *dispatch.Dispatcher) *supervision.Liveness {
	return supervision.NewLiveness(
		supervision.Part{Name: "ledger", Ask: d.ledger.Touch},
		supervision.Part{Name: "scheduler", Ask: func(ctx context.Context) error {
			if !d.Nodes.Leading() { // the scheduler waits
				return nil
			}
			return d.scheduler.Answers(ctx)
		}},
		supervision.Part{Name: "dispatcher", Ask: dispatcher.Answers})
}
