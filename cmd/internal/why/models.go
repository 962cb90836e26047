package why

import (
	"time"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger/pause"
)

// ModelPauses returns the paused models.
func (x *Explainer) ModelPauses(now time.Time) []api.ModelPause {
	out := []api.ModelPause{}
	for _, p := range x.Runner.Models.Paused(now) {
		out = append(out, newModelPause(p))
	}
	return out
}

func newModelPause(p pause.ModelPause) api.ModelPause {
	return api.ModelPause{Model: p.Model, Since: api.At(p.Since), Until: api.At(p.Until), Reason: p.Reason}
}
