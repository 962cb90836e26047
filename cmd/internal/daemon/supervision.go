package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rouse/cmd/internal/systemd"
	"rouse/internal/text"
)

const (
	// checkWellEvery is how often the daemon shows that it does its work, unless systemd wants to know sooner.
	checkWellEvery = time.Minute
	// moreTime is what is asked for at a time while runs drain; it is asked for again twice as often.
	moreTime = 20 * time.Second
	// drainSlack is how much longer than limits.drain a stop may take: what was cut off is written down, notices go out.
	drainSlack = time.Minute
)

// supervision tells the systemd that started the daemon what it does, and has it keep the sockets over a restart. Where nobody
// supervises, it does nothing.
type supervision struct {
	d    *Daemon
	link *systemd.Link

	mu     sync.Mutex
	stored []string // names of what systemd keeps
}

// Supervised says whether systemd started this process and waits for word of it.
func (d *Daemon) Supervised() bool { return d.supervision.keeps() }

// tell logs what could not be said; the daemon goes on without.
func (s *supervision) tell(err error) {
	if err != nil {
		s.d.log.Warn("systemd was not told how the daemon is", "error", err)
	}
}

// ready says that every trigger is armed.
func (s *supervision) ready(ctx context.Context) {
	if s.link != nil {
		s.tell(s.link.Ready(s.line(ctx)))
	}
}

// reload says that a reload is on while it is.
func (s *supervision) reload(ctx context.Context, do func()) {
	if s.link == nil {
		do()
		return
	}
	s.tell(s.link.Reloading())
	do()
	s.ready(ctx)
}

// run says again and again that the daemon does its work, for as long as it does.
func (s *supervision) run(ctx context.Context, well *liveness) error {
	if s.link == nil {
		return nil
	}

	every := checkWellEvery
	if w := s.link.Watchdog(); w > 0 {
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

		if changed := (err != nil) != ill; changed && err != nil {
			s.d.log.Error("the daemon does not do its work", "problem", err)
		} else if changed {
			s.d.log.Info("the daemon does its work again")
		}
		ill = err != nil
		s.tell(s.report(ctx, err))
	}
}

// report tells systemd the result of a check. A part that hangs is what a restart cures, so that the watchdog hears nothing then.
// A ledger that refuses what is written is not cured by it, as when the disk is full: the daemon stays, and its pages and
// commands say what is wrong.
func (s *supervision) report(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return s.link.Well(s.line(ctx))
	case errors.Is(err, context.DeadlineExceeded):
		return s.link.Status("hangs: " + text.OneLine(err.Error()))
	default:
		return s.link.Well("cannot work: " + text.OneLine(err.Error()))
	}
}

// line says what the daemon does, for systemctl status.
func (s *supervision) line(ctx context.Context) string {
	jobs, err := s.d.Jobs(ctx)
	if err != nil {
		return "serves " + s.d.home.Dir
	}

	var next time.Time
	var name string
	for _, j := range jobs {
		if !j.Next.IsZero() && (next.IsZero() || j.Next.Before(next)) {
			next, name = j.Next.Time, j.Name
		}
	}
	said := "serves " + text.Plural(len(jobs), "job")
	if name != "" {
		said += fmt.Sprintf(", next %s at %s", name, next.In(s.d.Zone()).Format("Mon 15:04 MST"))
	}
	return said
}

// stopping says that the daemon ends, and asks for the time that it takes to let runs finish until drained is called.
func (s *supervision) stopping() (drained func()) {
	if s.link == nil {
		return func() {}
	}

	drain := time.Duration(s.d.Current().Config.Limits.Drain)
	s.tell(s.link.Stopping("lets running jobs finish, for up to " + drain.String()))
	over := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		// Not for ever: what hangs here is ended by systemd.
		enough := time.NewTimer(drain + drainSlack)
		defer enough.Stop()
		tick := time.NewTicker(moreTime / 2)
		defer tick.Stop()

		for {
			s.tell(s.link.MoreTime(moreTime))
			select {
			case <-over:
				return
			case <-enough.C:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(over); asking.Wait() }
}
