package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"rouse/scheduler/dispatch"
)

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
