package dispatch

import (
	"context"
	"time"

	"rouse/internal/domain"
)

// Stop is the cause of an attempt's context: why it has to end.
type Stop struct {
	outcome domain.Outcome
	reason  string
}

func (s *Stop) Error() string { return s.reason }

// Outcome is what the stop makes of the run: cancelled, or interrupted when the daemon ends.
func (s *Stop) Outcome() domain.Outcome { return s.outcome }

// stopCancelled stops running attempts whose cancellation was requested.
func (d *Dispatcher) stopCancelled(ctx context.Context) error {
	d.mu.Lock()
	none := len(d.cancels) == 0
	d.mu.Unlock()
	if none {
		return nil
	}

	asked, err := d.o.Ledger.Runs.Cancelling(ctx)
	if err != nil {
		return err
	}

	for id, reason := range asked {
		d.stop(id, &Stop{domain.OutcomeCancelled, reason})
	}

	return nil
}

func (d *Dispatcher) stop(id int64, cause *Stop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.cancels[id]; cancel != nil {
		cancel(cause)
	}
}

// drain waits for running attempts to finish, stops those that are cancelled meanwhile, and then
// the rest.
func (d *Dispatcher) drain(writing context.Context) {
	ended := make(chan struct{})
	go func() {
		if err := d.o.Engine.Close(writing); err != nil {
			d.log.Error("the engine of runs did not end well", "error", err)
		}
		close(ended)
	}()
	d.mu.Lock()
	n, most := len(d.cancels), d.drainFor
	d.mu.Unlock()
	if n > 0 {
		d.log.Info("waiting for running attempts", "running", n, "at_most", most)
	}

	timer := time.NewTimer(most)
	defer timer.Stop()

	for over := false; !over; {
		changed := d.o.Ledger.Changed()
		if d.leaseLost() != nil { // nothing can be recorded any more
			break
		}
		if err := d.stopCancelled(writing); err != nil {
			d.log.Error("cancellations could not be read", "error", err)
		}

		select {
		case <-ended:
			return
		case <-changed:
		case <-timer.C:
			over = true
		}
	}

	d.stopAll("the daemon was stopped")
	<-ended
}

// stopAll stops what is on, and gives up writing what cannot be written.
func (d *Dispatcher) stopAll(why string) {
	d.mu.Lock()
	d.stopping = &Stop{domain.OutcomeInterrupted, why}
	for _, cancel := range d.cancels {
		cancel(d.stopping)
	}
	d.mu.Unlock()
	close(d.drained)
}
