package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// liveness finds out whether the daemon does its work: each of its loops goes round, and the ledger takes what is written.
// That a process is there and has timers proves neither, so that each is made to do a round.
type liveness struct {
	checks map[string]func(context.Context) error

	mu  sync.Mutex
	out map[string]chan struct{} // of the checks that have not come back; closed when they do
}

// newLiveness asks the parts whose standstill would keep runs from starting.
func (d *Daemon) newLiveness(dispatcher answerer) *liveness {
	return &liveness{out: map[string]chan struct{}{}, checks: map[string]func(context.Context) error{
		"ledger": d.ledger.Touch,
		"scheduler": func(ctx context.Context) error {
			if !d.leading() { // it rests
				return nil
			}
			return d.scheduler.Answers(ctx)
		},
		"dispatcher": dispatcher.Answers,
	}}
}

// answerer has a loop that answers once it has gone round.
type answerer interface {
	Answers(ctx context.Context) error
}

// ask makes all of them do a round before ctx ends. The error says which did not.
func (l *liveness) ask(ctx context.Context) error {
	var mu sync.Mutex
	failed := map[string]error{}
	var all sync.WaitGroup
	for name, check := range l.checks {
		all.Go(func() {
			err := l.one(ctx, name, check)
			mu.Lock()
			defer mu.Unlock()
			failed[name] = err
		})
	}
	all.Wait()

	var errs []error
	for _, name := range []string{"ledger", "scheduler", "dispatcher"} {
		errs = append(errs, failed[name])
	}
	return errors.Join(errs...)
}

// one makes one check, and gives it up when ctx ends: a disk that hangs takes no notice of a context. What hangs is not
// started a second time, or each minute would add a goroutine to it.
func (l *liveness) one(ctx context.Context, name string, check func(context.Context) error) error {
	stuck := func() error { return fmt.Errorf("the %s does not answer: %w", name, ctx.Err()) }

	l.mu.Lock()
	before := l.out[name]
	l.mu.Unlock()
	if before != nil {
		select {
		case <-before:
		case <-ctx.Done():
			return stuck()
		}
	}

	back, answer := make(chan struct{}), make(chan error, 1)
	l.mu.Lock()
	l.out[name] = back
	l.mu.Unlock()
	go func() {
		defer close(back)
		answer <- check(ctx)
	}()

	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return stuck()
	}
}
