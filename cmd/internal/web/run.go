package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/steps"
	"rouse/internal/text"
)

// maxShownBody is the maximum number of characters shown of a webhook request.
const maxShownBody = 4000

// Run returns a run with its attempts, steps, calls and events.
func (s *Runs) Run(ctx context.Context, id int64) (api.RunDetail, error) {
	run, err := s.ledger.Runs.Get(ctx, id)
	if err != nil {
		return api.RunDetail{}, err
	}

	attempts, e1 := s.ledger.Runs.Attempts(ctx, id)
	steps, e2 := s.ledger.Steps.List(ctx, id)
	calls, e3 := s.ledger.Steps.Calls(ctx, id)
	events, e4 := s.ledger.Events.List(ctx, event.Filter{Run: id, Limit: maxRuns})
	items, e5 := s.ledger.Inbox.OfRun(ctx, id)
	shared, e6 := s.ledger.Artifacts.List(ctx, id)
	body, e7 := s.ledger.Runs.DeliveryBody(ctx, id)
	nodes, e8 := s.ledger.Nodes.OfAttempts(ctx, id)
	checkout, e9 := s.checkouts.Checkout(ctx, run, false)
	if err := cmp.Or(e1, e2, e3, e4, e5, e6, e7, e8, e9); err != nil {
		return api.RunDetail{}, err
	}

	d := api.RunDetail{Run: newRun(run, shared), Body: text.Truncate(body, maxShownBody), ArtifactsDetail: newArtifacts(shared), Checkout: checkout,
		Inbox: convert(items, newItem), StepsDetail: newSteps(steps, calls), Events: convert(events, newEvent)}
	d.Node = nodes[run.Attempt]
	d.Attempts = convert(attempts, func(a ledger.Attempt) api.Attempt {
		return api.Attempt{Node: nodes[a.Number], Number: a.Number, State: a.State, StartedAt: api.At(a.StartedAt), FinishedAt: api.At(a.FinishedAt), Error: a.Error}
	})
	return d, nil
}

func newRun(r ledger.Run, shared []artifact.Artifact) api.Run {
	return api.Run{
		ID: api.ID(r.ID), Job: r.Job, Agent: r.Agent, Trigger: r.Trigger, TriggerDetail: object(r.Detail),
		State: r.State, WaitingFor: r.WaitingFor, Outcome: r.Outcome, Exit: r.Exit, Verified: r.Verified, Attempt: r.Attempt,
		ScheduledAt: api.At(r.ScheduledAt), QueuedAt: api.At(r.QueuedAt), StartedAt: api.At(r.StartedAt), FinishedAt: api.At(r.FinishedAt),
		Summary: r.Summary, Error: r.Error, Steps: r.Steps, Calls: r.Calls,
		TokensIn: r.Usage.TokensIn, TokensOut: r.Usage.TokensOut, CostUSD: float64(r.Usage.CostMicroUSD) / 1e6,
		EstimatedTokens: r.Usage.EstimatedTokens, EstimatedUSD: float64(r.Usage.EstimatedMicroUSD) / 1e6,
		Artifacts: artifactNames(shared), Workspace: api.OptionalID(r.Workspace), Tier: r.Tier, Taint: letters(r.Taint),
	}
}

// letters splits a text into its letters.
func letters(text string) []string { return orEmpty(strings.Split(text, "")) }

// newSteps nests calls in their steps in chronological order, and steps made by a call in that
// call.
func newSteps(steps []steps.Step, calls []ledger.Call) []api.Step {
	type key struct{ attempt, step int }
	under := map[key][]ledger.Call{}
	for _, c := range calls {
		k := key{c.Attempt, c.Step}
		under[k] = append(under[k], c)
	}

	type call struct {
		attempt int
		key     string
	}
	own := call{} // the run's own steps
	within := map[call][]api.Step{own: {}}

	// Iterate backward, because the steps within a call follow the step that made it. When a step
	// is reached, everything below its calls is complete.
	for _, st := range slices.Backward(steps) {
		made := []api.Call{}
		for _, c := range under[key{st.Attempt, st.Number}] {
			one := newCall(c)
			one.StepsDetail = within[call{c.Attempt, c.Key}]
			slices.Reverse(one.StepsDetail)
			made = append(made, one)
		}

		at := own
		if st.ParentCall != "" {
			at = call{st.Attempt, st.ParentCall}
		}

		within[at] = append(within[at], api.Step{Step: st.Number, Attempt: st.Attempt, Text: st.Text, Model: st.Model, Calls: made, Notices: orEmpty(st.Notices),
			CostUSD: float64(st.Usage.CostMicroUSD) / 1e6, EstimatedTokens: st.Usage.EstimatedTokens, EstimatedUSD: float64(st.Usage.EstimatedMicroUSD) / 1e6})
	}

	slices.Reverse(within[own])
	return within[own]
}

func newCall(c ledger.Call) api.Call {
	var envelope struct {
		OK      bool            `json:"ok"`
		Kind    string          `json:"kind"`
		Message string          `json:"message"`
		Result  json.RawMessage `json:"result"`
	}

	// A failed call has no result, so show its message.
	result := json.RawMessage("null")
	if len(c.Envelope) > 0 && json.Unmarshal(c.Envelope, &envelope) == nil {
		switch {
		case envelope.OK && len(envelope.Result) > 0:
			result = envelope.Result
		case !envelope.OK:
			if text, err := json.Marshal(envelope.Message); err == nil {
				result = text
			}
		}
	}

	// A call that was interrupted has no envelope, and an empty RawMessage is not valid JSON.
	if len(c.Envelope) == 0 {
		c.Envelope = json.RawMessage("null")
	}

	out := api.Call{Tool: c.Tool, Args: object(c.Args), OK: envelope.OK, Kind: envelope.Kind, State: c.State, Result: result, Envelope: summarizeImages(c.Envelope), StartedAt: api.At(c.StartedAt), Deduped: c.State == domain.CallDeduped}
	if !c.FinishedAt.IsZero() {
		out.DurationMS = c.FinishedAt.Sub(c.StartedAt).Milliseconds()
	}

	return out
}

// summarizeImages replaces the images in a recorded envelope by their types and sizes, because
// base64 is not readable.
func summarizeImages(envelope json.RawMessage) json.RawMessage {
	// Skip decoding for most envelopes, which have no images.
	if !bytes.Contains(envelope, []byte(`"images":`)) {
		return envelope
	}

	var e map[string]json.RawMessage
	var images []struct {
		Type string `json:"media_type"`
		Data []byte `json:"data"`
	}
	if json.Unmarshal(envelope, &e) != nil || json.Unmarshal(e["images"], &images) != nil {
		return envelope // images of another shape belong to the tool's own result
	}

	var named []any
	for _, i := range images {
		named = append(named, map[string]any{"media_type": i.Type, "bytes": len(i.Data)})
	}
	summary, err := json.Marshal(named)
	e["images"] = summary
	text, again := json.Marshal(e)
	if err != nil || again != nil {
		return envelope
	}
	return text
}

func newEvent(e ledger.Event) api.Event {
	return api.Event{ID: api.OptionalID(e.ID), Run: api.OptionalID(e.Run), Job: e.Job, At: api.At(e.At), Kind: e.Kind, Dispatch: dispatchOf(e), Data: object(e.Data)}
}

// object returns a JSON value, or an empty object if raw is empty.
func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}
