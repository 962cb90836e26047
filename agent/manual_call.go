package agent

import (
	"context"
	"encoding/json"
	"iter"

	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// manualCall is a provider that makes one call, which the owner entered.
type manualCall struct {
	detail ledger.TriggerDetail
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
