package ledger

import (
	"context"
	"time"
)

// EachEvent calls do with all events that fit a filter, oldest first, until do returns an error.
func EachEvent(ctx context.Context, l *Ledger, f EventFilter, do func(Event) error) error {
	f.Limit = 500 // of a page
	for {
		events, err := l.Events(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := do(e); err != nil {
				return err
			}
			f.After = e.ID
		}
		if len(events) < f.Limit {
			return nil
		}
	}
}

// Poll calls do at once and after changes of the ledger, at most once per interval, until ctx ends.
func Poll(ctx context.Context, l *Ledger, every time.Duration, do func()) {
	for ctx.Err() == nil {
		changed := l.Changed() // before do, so that no change is missed
		do()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
}
