package dispatch

import (
	"context"
	"sync"
	"time"

	"rouse/internal/domain"
)

// Stop is the reason for ending an attempt. It is the cause of the attempt's cancelled context.
type Stop struct {
	outcome domain.Outcome
	reason  string
}

func (s *Stop) Error() string { return s.reason }

// Outcome returns the outcome of a stopped run: cancelled, or interrupted if the daemon ends.
func (s *Stop) Outcome() domain.Outcome { return s.outcome }

// attempts holds the attempts in this process.
type attempts struct {
	o     *Options
	group sync.WaitGroup

	mu       sync.Mutex
	cancels  map[int64]context.CancelCauseFunc
	at       map[int64]struct{} // runs that an engine has sent to this process
	stopping *Stop              // set when all attempts have to end
}

// stopCancelled stops running attempts after a request to cancel their runs.
func (a *attempts) stopCancelled(ctx context.Context) error {
	a.mu.Lock()
	none := len(a.cancels) == 0
	a.mu.Unlock()
	if none {
		return nil
	}

	asked, err := a.o.Ledger.Runs.Cancelling(ctx)
	if err != nil {
		return err
	}

	for id, reason := range asked {
		a.stop(id, &Stop{domain.OutcomeCancelled, reason})
	}

	return nil
}

func (a *attempts) stop(id int64, cause *Stop) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.cancels[id]; cancel != nil {
		cancel(cause)
	}
}

// stopAll stops all attempts, including those that begin later.
func (a *attempts) stopAll(cause *Stop) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopping = cause
	for _, cancel := range a.cancels {
		cancel(cause)
	}
}

// drain waits for running attempts to finish. It stops those that are cancelled in the meantime,
// and finally the rest.
func (d *Dispatcher) drain(writing context.Context) {
	ended := make(chan struct{})
	go func() {
		if err := d.o.Engine.Close(writing); err != nil {
			d.log.Error("the engine of runs did not end well", "error", err)
		}
		close(ended)
	}()
	d.mu.Lock()
	most := d.drainFor
	d.mu.Unlock()
	if n := d.here.count(); n > 0 {
		d.log.Info("waiting for running attempts", "running", n, "at_most", most)
	}

	timer := time.NewTimer(most)
	defer timer.Stop()

	for over := false; !over; {
		changed := d.o.Ledger.Changed()
		if d.recorder.leaseLost() != nil { // results can no longer be recorded
			break
		}
		if err := d.here.stopCancelled(writing); err != nil {
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

// stopAll stops all attempts and gives up on results that cannot be written.
func (d *Dispatcher) stopAll(why string) {
	d.here.stopAll(&Stop{domain.OutcomeInterrupted, why})
	close(d.recorder.drained)
}
