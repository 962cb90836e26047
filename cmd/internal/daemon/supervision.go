package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

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

// supervision reports the state of the daemon to the systemd that started it. If another process started the daemon, it does nothing.
type supervision struct {
	d  *Daemon
	on bool // systemd waits for notifications
}

func newSupervision(d *Daemon, serves bool) *supervision {
	return &supervision{d: d, on: serves && os.Getenv("NOTIFY_SOCKET") != ""}
}

// Supervised reports whether systemd started the daemon and waits for its notifications.
func (d *Daemon) Supervised() bool { return d.supervision.on }

// notify sends assignments of sd_notify(3). It logs an error: the daemon works without systemd too.
func (s *supervision) notify(assignments ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(assignments, "\n")); err != nil {
		s.d.log.Warn("cannot notify systemd", "error", err)
	}
}

func statusLine(said string) string { return "STATUS=" + text.HeadBytes(text.OneLine(said), maxStatus) }

// ready reports that every trigger is armed.
func (s *supervision) ready(ctx context.Context) {
	if s.on {
		s.notify(daemon.SdNotifyReady, statusLine(s.line(ctx)))
	}
}

// reload reports a reload to systemd while do runs.
func (s *supervision) reload(ctx context.Context, do func()) {
	if !s.on {
		do()
		return
	}
	s.notify(daemon.SdNotifyReloading, statusLine("reads the configuration again"))
	do()
	s.ready(ctx)
}

// run pings the watchdog of systemd while the daemon does its work.
func (s *supervision) run(ctx context.Context, well *liveness) error {
	if !s.on {
		return nil
	}

	every := checkWellEvery
	w, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.d.log.Warn("the watchdog interval of systemd cannot be read", "error", err)
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
		err := well.ask(checking)
		cancel()
		if ctx.Err() != nil {
			return nil
		}

		switch {
		case err != nil && !ill:
			s.d.log.Error("the daemon does not do its work", "problem", err)
		case err == nil && ill:
			s.d.log.Info("the daemon does its work again")
		}
		ill = err != nil
		s.report(ctx, err)
	}
}

// report tells systemd the result of a check. A part that hangs is what a restart cures, so that the watchdog hears nothing then.
// A ledger that refuses what is written is not cured by it, as when the disk is full: the daemon stays, and its pages and
// commands say what is wrong.
func (s *supervision) report(ctx context.Context, err error) {
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
func (s *supervision) line(ctx context.Context) string {
	said := "serves " + text.Plural(len(s.d.Current().Config.Jobs), "job")
	if coming, err := s.d.Next(ctx, "", 1); err == nil && len(coming) > 0 {
		said += fmt.Sprintf(", next %s at %s", coming[0].Job, coming[0].Actual.In(s.d.Zone()).Format("Mon 15:04 MST"))
	}
	return said
}

// stopping says that the daemon ends, and asks for the time that it takes to let runs finish until drained is called.
func (s *supervision) stopping(ctx context.Context) (drained func()) {
	if !s.on {
		return func() {}
	}

	drain := time.Duration(s.d.Current().Config.Limits.Drain)
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

// liveness finds out whether the daemon works: each loop does a round, and the ledger writes.
type liveness struct {
	checks []livenessCheck
}

type livenessCheck struct {
	name string
	ask  func(context.Context) error
	idle chan struct{} // capacity 1: holds a token unless the check is under way
}

// newLiveness asks the parts whose standstill would keep runs from starting.
func (d *Daemon) newLiveness(dispatcher answerer) *liveness {
	l := &liveness{}
	add := func(name string, ask func(context.Context) error) {
		c := livenessCheck{name, ask, make(chan struct{}, 1)}
		c.idle <- struct{}{}
		l.checks = append(l.checks, c)
	}
	add("ledger", d.ledger.Touch)
	add("scheduler", func(ctx context.Context) error {
		if !d.Nodes.Leading() { // it rests
			return nil
		}
		return d.scheduler.Answers(ctx)
	})
	add("dispatcher", dispatcher.Answers)
	return l
}

// answerer has a loop that answers once it has gone round.
type answerer interface {
	Answers(ctx context.Context) error
}

// ask makes all of them do a round before ctx ends. The error names those that did not.
func (l *liveness) ask(ctx context.Context) error {
	errs := make([]error, len(l.checks))
	var all sync.WaitGroup
	for i, c := range l.checks {
		all.Go(func() { errs[i] = c.run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// run makes one check until ctx ends. A check that hangs is not started a second time.
func (c livenessCheck) run(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case <-c.idle:
		go func() {
			answer <- c.ask(ctx)
			c.idle <- struct{}{}
		}()
	case <-ctx.Done():
	}

	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the %s does not answer: %w", c.name, ctx.Err())
	}
}
