// Package supervision finds out whether a daemon does its work, and reports that to systemd.
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
	// checkWellEvery is how often the daemon shows that it does its work, unless systemd wants to know sooner.
	checkWellEvery = time.Minute
	// moreTime is what is asked for at a time while runs drain; it is asked for again twice as often.
	moreTime = 20 * time.Second
	// drainSlack is how much longer than limits.drain a stop may take: what was cut off is written down, notices go out.
	drainSlack = time.Minute
	// maxStatus is the longest status line, in bytes. systemd ignores messages of more than 4 KiB.
	maxStatus = 2 << 10
)

// Supervision reports the state of the daemon to the systemd that started it. If another process started the daemon, it does nothing.
type Supervision struct {
	On bool // systemd waits for notifications

	setup     func() *plan.Setup // the configuration in force
	explainer *why.Explainer
	log       *slog.Logger
}

// New returns the supervision of a daemon (serves) or of a command, which systemd does not supervise.
func New(serves bool, setup func() *plan.Setup, explainer *why.Explainer, log *slog.Logger) *Supervision {
	return &Supervision{On: serves && os.Getenv("NOTIFY_SOCKET") != "", setup: setup, explainer: explainer, log: log}
}

// notify sends assignments of sd_notify(3). It logs an error: the daemon works without systemd too.
func (s *Supervision) notify(assignments ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil {
		s.log.Warn("cannot notify systemd", "error", err)
	}
}

func statusLine(said string) string { return "STATUS=" + text.HeadBytes(text.OneLine(said), maxStatus) }

// Ready reports that every trigger is armed.
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

// Run pings the watchdog of systemd while the daemon does its work.
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
		every = min(every, w/3) // one that comes late, or is lost, must not end the daemon
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

// Report tells systemd the result of a check. A part that hangs is what a restart cures, so that the watchdog hears nothing then.
// A ledger that refuses what is written is not cured by it, as when the disk is full: the daemon stays, and its pages and
// commands say what is wrong.
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

// Stopping says that the daemon ends, and asks for the time that it takes to let runs finish until drained is called.
func (s *Supervision) Stopping(ctx context.Context) (drained func()) {
	if !s.On {
		return func() {}
	}

	drain := time.Duration(s.setup().Config.Limits.Drain)
	s.notify(daemon.SdNotifyStopping, statusLine("lets running jobs finish, for up to "+drain.String()))
	// Not for ever: systemd ends a daemon that hangs here.
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

// Liveness finds out whether the daemon works: each loop does a round, and the ledger writes.
type Liveness struct {
	Parts []Part
}

// Part is a part of the daemon whose standstill would keep runs from starting.
type Part struct {
	Name string
	Ask  func(context.Context) error // returns once the part has done a round
	idle chan struct{}               // capacity 1: holds a token unless Ask is under way
}

// NewLiveness returns the Liveness of parts.
func NewLiveness(parts ...Part) *Liveness {
	for i := range parts {
		parts[i].idle = make(chan struct{}, 1)
		parts[i].idle <- struct{}{}
	}
	return &Liveness{Parts: parts}
}

// Ask makes all parts do a round before ctx ends. The error names those that did not.
func (l *Liveness) Ask(ctx context.Context) error {
	errs := make([]error, len(l.Parts))
	var all sync.WaitGroup
	for i, c := range l.Parts {
		all.Go(func() { errs[i] = c.run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// run makes one check until ctx ends. A check that hangs is not started a second time.
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
