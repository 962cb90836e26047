package loop

import (
	"context"
	"errors"
	"fmt"

	"rouse/agent/model"
)

// ModelInfo is a model that answers in a run, and what it can take.
type ModelInfo struct {
	Name        string // as it is configured
	MaxOutput   int    // tokens, 0: its own
	Window      int    // tokens that its context holds, 0: as many as are assumed
	Temperature *float64
}

// Fallback are the models that take over, one after the other, when the one that answers has
// failed for good. A model that took over stays until the end of the attempt: switching back and
// forth would pay for the history each time. A run and its reductions share one Fallback.
type Fallback struct {
	Next []ModelInfo
	// Switch makes Options.Provider and Options.Budget continue with Next[i].
	Switch func(i int)
	// Note says why the run begins with another model than its first; it is recorded with the first step.
	Note  string
	taken int // how many have taken over
}

// followFallback continues with the model that answers now: a reduction may have switched to it.
func (r *run) followFallback() {
	if r.Fallback == nil || r.fallbacksSeen == r.Fallback.taken {
		return
	}

	r.fallbacksSeen = r.Fallback.taken
	s := r.Fallback.Next[r.fallbacksSeen-1]
	r.Model, r.MaxOutput, r.Window, r.Temperature = s.Name, s.MaxOutput, s.Window, s.Temperature
	w := newWindow(r.Options)
	r.window.budget, r.window.listed = w.budget, w.listed
	r.window.sent = 0 // this model has nothing in its cache that should stay as it is
}

// switchToFallback lets the next model take over after a failure that it need not share. It returns
// nil when it did, else why the run fails.
func (r *run) switchToFallback(ctx context.Context, failure error) error {
	var e *model.Error
	if ctx.Err() != nil || r.Fallback == nil || r.Fallback.taken == len(r.Fallback.Next) || !errors.As(failure, &e) || !e.AllowsFallback() {
		return failure
	}

	failed := r.Model
	r.Fallback.Switch(r.Fallback.taken)
	r.Fallback.taken++
	r.followFallback()
	// fitHistory ends the run when the history does not fit. Here the run ends because the first
	// model failed, so that result is restored, and the error names both reasons.
	before := r.result
	if !r.fitHistory() {
		err := fmt.Errorf("%w; and its fallback %s cannot go on: %s", failure, r.Model, r.result.Error)
		r.result = before
		return err
	}

	r.switchNotices = append(r.switchNotices, fmt.Sprintf("[Fallback] %s answers from here on in the place of %s: %s", r.Model, failed, failure))
	return nil
}
