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

// Provider asks the model that answers now: the first, until it has failed for good and the loop
// switches to the next one.
type Provider struct {
	models []*plan.Model
	now    int

	health  *Health       // nil for a replay, which records nothing about models
	attempt *plan.Attempt // set with health
	note    string        // why the first model was passed over, or ""
	failure error         // of the last request
}

// New returns a provider that asks a model and its fallbacks, or nil without a model.
func New(models []*plan.Model) *Provider {
	if len(models) == 0 {
		return nil
	}
	return &Provider{models: models}
}

// Begin chooses the first model that is neither paused nor behind an open circuit, else the first
// that is not paused, else the first. A run that a person started or retried also asks a paused
// model. From then on, health records how the models answer this attempt.
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
		if i < len(r.models)-1 { // no other model could answer in place of the last one
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

// StartAt lets a model answer first, by its name; one that is not among them changes nothing.
func (r *Provider) StartAt(name string) {
	if i := slices.IndexFunc(r.models, func(m *plan.Model) bool { return m.Name == name }); i > 0 {
		r.now = i
	}
}

// Fail records that the model that answers now has failed for good.
func (r *Provider) Fail(ctx context.Context, failure error) {
	// A model whose quota is spent is paused, which is longer.
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

// Model returns the model that answers now.
func (r *Provider) Model() *plan.Model { return r.models[r.now] }

// Fallback tells the loop who may take over, nil when nobody may.
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
