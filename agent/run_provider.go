package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// relay asks the model that answers now: the first, until it has failed for good and the loop
// switches to the next one.
type relay struct {
	models []*plan.Model
	now    int

	health  *modelHealth                       // nil: nobody asks how the models are, or is told
	note    string                             // why the first model was passed over, "" when it was not
	on      func(ctx context.Context)          // the model that answers now has answered
	failed  func(m *plan.Model, failure error) // a model has failed for good
	failure error                              // of the last request
}

// begin chooses the first model that is neither paused nor behind an open circuit, else the first
// that is not paused, else the first. A run that a person started or retried (insists) also asks a
// paused model.
func (r *relay) begin(h *modelHealth, insists bool, now time.Time) {
	r.health = h
	choice, why := -1, ""
	for i := range r.models {
		p, paused := h.pausedModel(r.models[i:i+1], now)
		if paused && !insists {
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
		r.note = fmt.Sprintf("[Fallback] %s answers in the place of %s, which is not asked now: %s", r.model().Name, r.models[0].Name, why)
	}
}

// startAt lets a model answer first, by its name; one that is not among them changes nothing.
func (r *relay) startAt(name string) {
	if i := slices.IndexFunc(r.models, func(m *plan.Model) bool { return m.Name == name }); i > 0 {
		r.now = i
	}
}

func (r *relay) fail(failure error) {
	// A model whose quota is spent is paused, which is longer.
	e, ok := errors.AsType[*model.Error](failure)
	if ok && e.AllowsFallback() && !quotaSpent(e) && r.health != nil && r.now < len(r.models)-1 {
		r.health.trip(r.model(), failure)
	}
	if r.failed != nil {
		r.failed(r.model(), failure)
	}
}

// Stream implements model.Provider.
func (r *relay) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		r.failure = nil
		for e, err := range r.model().Provider.Stream(ctx, req) {
			r.failure = err
			if !yield(e, err) {
				return
			}
		}

		if r.failure == nil && ctx.Err() == nil && r.on != nil {
			r.on(ctx)
		}
	}
}

func (r *relay) model() *plan.Model { return r.models[r.now] }

// fallback tells the loop who may take over, nil when nobody may.
func (r *relay) fallback() *loop.Fallback {
	rest := r.models[r.now+1:]
	if len(rest) == 0 && r.note == "" {
		return nil
	}

	first := r.now + 1
	f := &loop.Fallback{Note: r.note, Switch: func(i int) {
		r.fail(r.failure)
		r.now = first + i
	}}
	for _, m := range rest {
		f.Next = append(f.Next, loop.ModelInfo{Name: m.Name, MaxOutput: m.MaxOutput, Window: m.ContextSize(), Temperature: m.Temperature})
	}
	return f
}

// manualCall is a provider that makes the one call its owner typed.
type manualCall struct {
	detail ledger.Detail
	redact func(string) string
}

// Stream implements model.Provider.
func (b manualCall) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if len(r.Results) == 0 {
			yield(model.Event{Call: &model.Call{ID: "p1", Key: "p1", Name: b.detail.Tool, Args: b.detail.Args}}, nil)
			return
		}

		var e struct {
			OK            bool
			Kind, Message string
			Result        json.RawMessage
		}
		err := json.Unmarshal(r.Results[0].Envelope, &e)
		end := model.End{Outcome: domain.OutcomeSuccess, Summary: "called manually: " + playbook.Describe(b.detail.Tool, e.Result, b.redact)}
		if err != nil || !e.OK {
			end = model.End{Outcome: domain.OutcomeError, Error: e.Kind + ": " + e.Message}
		}

		yield(model.Event{End: &end}, nil)
	}
}
