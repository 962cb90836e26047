package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
)

// Provider calls the current model. It starts with the first model. When the model fails
// permanently, the loop switches to the next one.
type Provider struct {
	models []*plan.Model
	now    int

	health  *Health       // nil for a replay, which does not record failures of models
	attempt *plan.Attempt // set with health
	note    string        // why the first model was skipped, or ""
	failure error         // of the last request
}

// New returns a provider that calls a model and its fallbacks, or nil if models is empty.
func New(models []*plan.Model) *Provider {
	if len(models) == 0 {
		return nil
	}
	return &Provider{models: models}
}

// Begin chooses the first model that is neither paused nor behind an open circuit. If there is no
// such model, it chooses the first that is not paused, or else the first. A run that a user started
// or retried also calls a paused model. From then on, h records the answers and failures of the
// models.
func (r *Provider) Begin(ctx context.Context, h *Health, t *plan.Attempt, now time.Time) {
	r.health, r.attempt = h, t
	choice, why := -1, ""
	for i := range r.models {
		p, paused := h.AllPaused(r.models[i:i+1], now)
		if paused && !t.IgnorePause {
			why = cmp.Or(why, p.Reason)
			continue
		}

		if choice < 0 {
			choice = i
		}

		open := ""
		if i < len(r.models)-1 { // the last model has no replacement
			open = h.open(r.models[i])
		}
		if open == "" {
			choice = i
			break
		}
		why = cmp.Or(why, open)
	}

	if r.now = max(choice, 0); r.now > 0 {
		r.note = fmt.Sprintf("[Fallback] %s answers in the place of %s, which is not asked now: %s", r.Model().Name, r.models[0].Name, why)
	}
	askContexts(ctx, r.models)
}

// StartAt makes the model with the given name the current model. It does nothing if there is no
// such model.
func (r *Provider) StartAt(name string) {
	if i := slices.IndexFunc(r.models, func(m *plan.Model) bool { return m.Name == name }); i > 0 {
		r.now = i
	}
}

// Fail records that the current model failed permanently.
func (r *Provider) Fail(ctx context.Context, failure error) {
	// A model with an exhausted quota is paused, which lasts longer.
	e, ok := errors.AsType[*model.Error](failure)
	if ok && e.AllowsFallback() && !quotaSpent(e) && r.health != nil && r.now < len(r.models)-1 {
		r.health.trip(r.Model(), failure)
	}
	if r.health != nil {
		r.health.ModelFailed(ctx, r.attempt, r.Model(), failure)
	}
}

// Stream implements model.Provider.
func (r *Provider) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		r.failure = nil
		for e, err := range r.Model().Provider.Stream(ctx, req) {
			r.failure = err
			if !yield(e, err) {
				return
			}
		}

		if r.failure == nil && ctx.Err() == nil && r.health != nil {
			r.health.ModelAnswered(ctx, r.Model())
		}
	}
}

// Model returns the current model.
func (r *Provider) Model() *plan.Model { return r.models[r.now] }

// Fallback returns the fallbacks for the loop. It returns nil if there are no fallbacks and no
// note.
func (r *Provider) Fallback(ctx context.Context) *loop.Fallback {
	rest := r.models[r.now+1:]
	if len(rest) == 0 && r.note == "" {
		return nil
	}

	first := r.now + 1
	f := &loop.Fallback{Note: r.note, Switch: func(i int) {
		r.Fail(ctx, r.failure)
		r.now = first + i
	}}
	for _, m := range rest {
		f.Next = append(f.Next, loop.ModelInfo{Name: m.Name, MaxOutput: m.MaxOutput, Window: m.ContextSize(), Temperature: m.Temperature})
	}
	return f
}
