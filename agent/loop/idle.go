package loop

import (
	"sync"
	"time"
)

// idleTimer ends a run in which nothing happens for too long. It stands still while a call runs or
// a retry waits: those have limits of their own, and the timeout of a call should reach the model
// before the run is over.
type idleTimer struct {
	after time.Duration

	mu        sync.Mutex
	timer     *time.Timer // nil without a bound
	suspended int
}

func newIdleTimer(after time.Duration, end func()) *idleTimer {
	i := &idleTimer{after: after}
	if after > 0 {
		i.timer = time.AfterFunc(after, end)
	}
	return i
}

// restart starts the clock from zero, unless it is suspended.
func (i *idleTimer) restart() { i.change(0) }

// suspend stops the clock until resume was called as often: calls run at the same time.
func (i *idleTimer) suspend() { i.change(1) }

func (i *idleTimer) resume() { i.change(-1) }

func (i *idleTimer) change(by int) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.suspended += by
	switch {
	case i.timer == nil:
	case i.suspended > 0:
		i.timer.Stop()
	default:
		i.timer.Reset(i.after)
	}
}

// stop stops the clock for good.
func (i *idleTimer) stop() { i.suspend() }
