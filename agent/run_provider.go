package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// relay asks the model that answers now: the first, until it has failed for good and the
// loop has the next one take over. What only the first understands of the transcript its
// adapter alone sends back.
type relay struct {
	models []*Model
	now    int
}

// newRelay follows the fallbacks of a model. A circle, which the configuration refuses, ends
// where it would begin again.
func newRelay(m *Model) *relay {
	r := &relay{}
	for seen := map[*Model]bool{}; m != nil && !seen[m]; m = m.Fallback {
		seen[m] = true
		r.models = append(r.models, m)
	}
	return r
}

// Stream implements model.Provider.
func (r *relay) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return r.model().Provider.Stream(ctx, req)
}

// model is who answers now.
func (r *relay) model() *Model { return r.models[r.now] }

// fallback tells the loop who may take over, nil when nobody may.
func (r *relay) fallback() *loop.Fallback {
	if len(r.models) < 2 {
		return nil
	}

	f := &loop.Fallback{Switch: func(i int) { r.now = i + 1 }}
	for _, m := range r.models[1:] {
		f.Next = append(f.Next, loop.ModelInfo{Name: m.Name, MaxOutput: m.MaxOutput, Window: m.Window, Temperature: m.Temperature})
	}
	return f
}

// setProvider chooses who answers in the loop: a manual call, a playbook, or a model.
func (r *Runner) setProvider(o *loop.Options, t task, data map[string]any, past history) error {
	switch {
	case t.detail.Tool != "":
		o.Provider, o.Policy, o.PriorCalls = manualCall{t.detail}, loop.Playbook(), past.calls
	case t.job.Playbook != nil:
		p, err := playbook.New(playbook.Options{Calls: t.job.Playbook, Data: data, Recorded: func(key string) bool {
			_, ok := past.calls[key]
			return ok
		}, Skipped: func(key string) bool { return past.skipped[key] }})
		if err != nil {
			return err
		}
		o.Provider, o.Policy, o.PriorCalls = p, loop.Playbook(), past.calls
	case t.model == nil:
		return fmt.Errorf("agent %s has no model; add one under models: in the configuration", t.agent.Name)
	default:
		prompt := t.job.Prompt
		if t.detail.Prompt == "" && t.detail.Wake == nil { // only a job's prompt is a template
			var err error
			if prompt, err = playbook.Expand("prompt", t.job.Prompt, data); err != nil {
				return err
			}
		}

		o.Provider, o.Policy, o.Fallback = t.relay, loop.Headless(), t.relay.fallback()
		o.Model, o.MaxOutput, o.Window, o.Temperature = t.model.Name, t.model.MaxOutput, t.model.Window, t.model.Temperature
		o.System = systemPrompt(t)
		o.Messages = append([]model.Message{{Role: model.RoleUser, Text: prompt}}, past.messages...)
		o.PriorCalls, o.PendingCalls, o.Interrupted = past.calls, past.pending, past.cutOff
		o.Exhausted = !past.cutOff && o.Bounds.Exhausted(past.used.steps, past.used.tokens)
		o.Bounds = o.Bounds.After(past.used.steps, past.used.calls, past.used.tokens)
		if t.agent.Phased {
			o.Policy, o.PriorDurations, o.PriorSteps = loop.Phased(), past.durations, past.used.steps
			o.Exhausted = o.Exhausted || !past.cutOff && past.used.steps >= o.Policy.Phases.MaxSteps
		}
	}
	return nil
}

// manualCall is a provider that makes the one call its owner typed.
type manualCall struct{ detail ledger.Detail }

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
		}
		end := model.End{Outcome: domain.OutcomeSuccess, Summary: b.detail.Tool + " was called manually"}
		if err := json.Unmarshal(r.Results[0].Envelope, &e); err != nil || !e.OK {
			end = model.End{Outcome: domain.OutcomeError, Error: e.Kind + ": " + e.Message}
		}

		yield(model.Event{End: &end}, nil)
	}
}
