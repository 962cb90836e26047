package shell

import (
	"context"
	"fmt"
)

// Limiter limits the number of commands that run at once; others wait in order (OSL-20).
type Limiter struct{ running chan struct{} }

// NewLimiter allows n commands at once.
func NewLimiter(n int) (*Limiter, error) {
	if n < 1 {
		return nil, fmt.Errorf("shell: the limit of commands at once is %d; it must be at least 1", n)
	}
	return &Limiter{make(chan struct{}, n)}, nil
}

// acquire waits for a free place. It returns the cause of ctx if ctx ends first.
func (l *Limiter) acquire(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case l.running <- struct{}{}:
		return func() { <-l.running }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
