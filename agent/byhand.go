package agent

import (
	"context"
	"encoding/json"
	"iter"

	"rouse/agent/model"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// byHand is a provider that makes the one call its owner typed.
type byHand struct{ detail ledger.Detail }

// Stream implements model.Provider.
func (b byHand) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if len(r.Results) == 0 {
			yield(model.Event{Call: &model.Call{ID: "p1", Key: "p1", Name: b.detail.Tool, Args: b.detail.Args}}, nil)
			return
		}

		var e struct {
			OK            bool
			Kind, Message string
		}
		end := model.End{Outcome: domain.OutcomeSuccess, Summary: b.detail.Tool + " was called by hand"}
		if err := json.Unmarshal(r.Results[0].Envelope, &e); err != nil || !e.OK {
			end = model.End{Outcome: domain.OutcomeError, Error: e.Kind + ": " + e.Message}
		}

		yield(model.Event{End: &end}, nil)
	}
}
