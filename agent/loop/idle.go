package loop

import (
	"sync"
	"time"
)

// idle ends a run in which nothing happens for too long. While a call runs, or a turn that
// failed waits to be asked again, it stands still: those have limits of their own, and
// the timeout of a call is to reach the model before the run is over.
type idle struct {
	after time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil without a bound
	held  int
}

func newIdle(after time.Duration, end func()) *idle {
	i := &idle{after: after}
	if after > 0 {
		i.timer = time.AfterFunc(after, end)
	}
	return i
}

// touch starts the clock anew.
func (i *idle) touch() { i.change(0) }

// hold stops the clock until as many releases.
func (i *idle) hold() { i.change(1) }

func (i *idle) release() { i.change(-1) }

func (i *idle) change(by int) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.held += by
	switch {
	case i.timer == nil:
	case i.held > 0:
		i.timer.Stop()
	default:
		i.timer.Reset(i.after)
	}
}

// stop ends the clock.
func (i *idle) stop() { i.hold() }
