package shell

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// Limiter limit how many commands of all runs are executed at once; the others wait, first come first served
// (OSL-20).
type Limiter struct{ free *semaphore.Weighted }

// NewLimiter allows n commands at once.
func NewLimiter(n int) (*Limiter, error) {
	if n < 1 {
		return nil, fmt.Errorf("shell: the limit of commands at once is %d; it must be at least 1", n)
	}
	return &Limiter{semaphore.NewWeighted(int64(n))}, nil
}

// acquire waits for a free place. The error is the cause for which ctx ended.
func (l *Limiter) acquire(ctx context.Context) (release func(), err error) {
	if err := l.free.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { l.free.Release(1) }, nil
}
