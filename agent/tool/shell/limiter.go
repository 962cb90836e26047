package shell

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// Lanes bound how many commands of all runs are executed at once; the others wait in the order
// in which they came (OSL-20).
type Lanes struct{ free *semaphore.Weighted }

// NewLanes lets n commands run at once.
func NewLanes(n int) (*Lanes, error) {
	if n < 1 {
		return nil, fmt.Errorf("shell: %d commands at once are none", n)
	}
	return &Lanes{semaphore.NewWeighted(int64(n))}, nil
}

// acquire waits for a lane. The error is the cause for which ctx ended.
func (l *Lanes) acquire(ctx context.Context) (release func(), err error) {
	if err := l.free.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { l.free.Release(1) }, nil
}
