// Package supervision checks that a daemon is working and reports its state to systemd.
package supervision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/why"
	"rouse/internal/text"
)

const (
	// checkWellEvery is the interval between health checks, unless the watchdog needs a shorter
	// one.
	checkWellEvery = time.Minute
	// moreTime is the stop timeout requested from systemd while runs drain. It is renewed after
	// half of that time.
	moreTime = 20 * time.Second
	// drainSlack is the time beyond limits.drain for a stop: recording interrupted runs and
	// sending notices.
	drainSlack = time.Minute
	// maxStatus is the maximum length of the status line in bytes. systemd ignores messages over 4
	// KiB.
	maxStatus = 2 << 10
)

// Supervision reports the state of the daemon to systemd. It has no effect if another process
// started the daemon.
type Supervision struct {
	On bool // systemd waits for notifications

	setup     func() *plan.Setup // returns the configuration in force
	explainer *why.Explainer
	log       *slog.Logger
}

// New returns the supervision of a daemon (serves) or of a command, which systemd does not
// supervise.
func New(serves bool, setup func() *plan.Setup, explainer *why.Explainer, log *slog.Logger) *Supervision {
	return &Supervision{On: serves && os.Getenv("NOTIFY_SOCKET") != "", setup: setup, explainer: explainer, log: log}
}

// notify sends assignments of sd_notify(3). It only logs errors, because the daemon works without
// systemd.
func (s *Supervision) notify(assignments ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil {
		s.log.Warn("cannot notify systemd", "error", err)
	}
}

func statusLine(said string) string { return "STATUS=" + text.HeadBytes(text.OneLine(said), maxStatus) }

// Ready reports that every trigger is ready.
func (s *Supervision) Ready(ctx context.Context) {
	if s.On {
		s.notify(daemon.SdNotifyReady, statusLine(s.line(ctx)))
	}
}

// Reload reports a reload to systemd while do runs.
func (s *Supervision) Reload(ctx context.Context, do func()) {
	if !s.On {
		do()
		return
	}
	s.notify(daemon.SdNotifyReloading, statusLine("reads the configuration again"))
	do()
	s.Ready(ctx)
}

// Run pings the systemd watchdog while the daemon is healthy.
func (s *Supervision) Run(ctx context.Context, well *Liveness) error {
	if !s.On {
		return nil
	}

	every := checkWellEvery
	w, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("the watchdog interval of systemd cannot be read", "error", err)
	}
	if w > 0 {
		every = min(every, w/3) // one late or lost ping must not end the daemon
	}
	tick := time.NewTicker(every)
	defer tick.Stop()

	ill := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		checking, cancel := context.WithTimeout(ctx, every)
		err := well.Ask(checking)
		cancel()
		if ctx.Err() != nil {
			return nil
		}

		switch {
		case err != nil && !ill:
			s.log.Error("the daemon does not do its work", "problem", err)
		case err == nil && ill:
			s.log.Info("the daemon does its work again")
		}
		ill = err != nil
		s.Report(ctx, err)
	}
}

// Report sends the result of a health check to systemd. If a part hangs, it does not ping the
// watchdog, so that systemd restarts the daemon. If the ledger refuses writes, as on a full disk,
// a restart does not help. The daemon then keeps running, and its pages and commands show the
// problem.
func (s *Supervision) Report(ctx context.Context, err error) {
	switch {
	case err == nil:
		s.notify(daemon.SdNotifyWatchdog, statusLine(s.line(ctx)))
	case errors.Is(err, context.DeadlineExceeded):
		s.notify(statusLine("hangs: " + err.Error()))
	default:
		s.notify(daemon.SdNotifyWatchdog, statusLine("cannot work: "+err.Error()))
	}
}

// line describes the work of the daemon for systemctl status.
func (s *Supervision) line(ctx context.Context) string {
	said := "serves " + text.Plural(len(s.setup().Config.Jobs), "job")
	if coming, err := s.explainer.Next(ctx, "", 1); err == nil && len(coming) > 0 {
		said += fmt.Sprintf(", next %s at %s", coming[0].Job, coming[0].Actual.In(s.setup().Config.Zone()).Format("Mon 15:04 MST"))
	}
	return said
}

// Stopping reports that the daemon is stopping. It extends the stop timeout until drained is
// called.
func (s *Supervision) Stopping(ctx context.Context) (drained func()) {
	if !s.On {
		return func() {}
	}

	drain := time.Duration(s.setup().Config.Limits.Drain)
	s.notify(daemon.SdNotifyStopping, statusLine("lets running jobs finish, for up to "+drain.String()))
	// The extension is limited, so that systemd ends a daemon that hangs.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain+drainSlack)
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(moreTime / 2)
		defer tick.Stop()
		for {
			s.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", moreTime.Microseconds()))
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); asking.Wait() }
}

// Liveness checks that the daemon works: each loop completes a round and the ledger accepts
// writes.
type Liveness struct {
	Parts []Part
}

// Part is a part of the daemon that must keep working for runs to start.
type Part struct {
	Name string
	Ask  func(context.Context) error // returns after the part has completed a round
	idle chan struct{}               // capacity 1; holds a token unless Ask is running
}

// NewLiveness returns a Liveness for parts.
func NewLiveness(parts ...Part) *Liveness {
	for i := range parts {
		parts[i].idle = make(chan struct{}, 1)
		parts[i].idle <- struct{}{}
	}
	return &Liveness{Parts: parts}
}

// Ask asks all parts to complete a round before ctx ends. The error names the parts that did not.
func (l *Liveness) Ask(ctx context.Context) error {
	errs := make([]error, len(l.Parts))
	var all sync.WaitGroup
	for i, c := range l.Parts {
		all.Go(func() { errs[i] = c.run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// run checks one part until ctx ends. It does not start a second check while one hangs.
func (c Part) run(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case <-c.idle:
		go func() {
			answer <- c.Ask(ctx)
			c.idle <- struct{}{}
		}()
	case <-ctx.Done():
	}

	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the %s does not answer: %w", c.Name, ctx.Err())
	}
}
