package agent

import (
	"context"
	"iter"

	"rouse/agent/loop"
	"rouse/agent/model"
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
		f.Next = append(f.Next, loop.Speaker{Name: m.Name, MaxOutput: m.MaxOutput, Window: m.Window, Temperature: m.Temperature})
	}
	return f
}
