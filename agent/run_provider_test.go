package agent_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger/budget"
)

// spent is the response of a provider without credit.
var spent = modeltest.Turn{Status: http.StatusTooManyRequests, Header: map[string]string{"Retry-After": "0"}, Raw: `{"error":{"code":"insufficient_quota","message":"You exceeded your current quota."}}`}

// TestFallback checks that a run continues with the model of another provider, at its price and
// without data that only the first model understands. The record has the model of each answer and
// the reason. The next attempt tries the first model again.
func TestFallback(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 500, Output: 5}})
	first := modeltest.New(t, modeltest.Turn{Text: "I plan.", Calls: []model.Call{todo("1")}, Opaque: "c2lnbmVk", Usage: model.Usage{Input: 1000, Output: 20}}, spent)
	p, err := anthropic.New(anthropic.Options{BaseURL: first.URL, Model: "big", APIKey: "sk-canary"})
	if err != nil {
		t.Fatal(err)
	}

	b.change(func(a *plan.Agent, _ *plan.Job) {
		a.Model = &plan.Model{Name: "big", Provider: p, MaxOutput: 100, Price: model.Price{Input: 100, Output: 1000}, Fallback: a.Model}
	})
	id := b.triggered(domain.TriggerManual)
	res := b.run(id)
	const one, two = 1000*100 + 4*25 + 20*1000, 500 + 50 // four tokens were written to a cache
	if res.Outcome != domain.OutcomeSuccess || res.Summary != "Done." || res.Usage.CostMicroUSD != one+two {
		t.Fatalf("%+v", res)
	}

	steps, err := b.ledger.Steps.List(t.Context(), id)
	if err != nil || len(steps) != 2 || steps[0].Model != "big" || steps[1].Model != "scripted" || steps[1].Usage.CostMicroUSD != two {
		t.Fatalf("steps: %+v (%v)", steps, err)
	}
	if why := strings.Join(steps[1].Notices, "\n"); !strings.Contains(why, "[Fallback] scripted answers from here on in the place of big: ") || !strings.Contains(why, "You exceeded your current quota.") {
		t.Errorf("why: %s", why)
	}

	asked := first.Requests()
	if sent := string(asked[len(asked)-1]); !strings.Contains(sent, "c2lnbmVk") {
		t.Errorf("the first did not get back what is its own: %s", sent)
	}

	sent := string(b.server.Requests()[0])
	if strings.Contains(sent, "c2lnbmVk") || !strings.Contains(sent, "I plan.") || !strings.Contains(sent, `"tool_calls"`) {
		t.Errorf("the fallback was sent %s", sent)
	}
	if s := b.spent(b.ledger, budget.ScopeDaemon, ""); s.CostMicroUSD != one+two || s.ReservedMicroUSD != 0 {
		t.Errorf("%+v", s)
	}

	again := b.triggered(domain.TriggerManual)
	if res := b.run(again); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v", res)
	}
	if n := len(first.Requests()) - len(asked); n == 0 {
		t.Error("the next run did not ask the first model")
	}
}

// TestFallbackNotForAWrongKey checks that a wrong key is reported to the owner, and that no
// fallback hides it.
func TestFallbackNotForAWrongKey(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Done."})
	first := modeltest.New(t, modeltest.Turn{Fail: model.KindAuth})
	p, err := anthropic.New(anthropic.Options{BaseURL: first.URL, Model: "big", APIKey: "sk-canary"})
	if err != nil {
		t.Fatal(err)
	}

	b.change(func(a *plan.Agent, _ *plan.Job) {
		a.Model = &plan.Model{Name: "big", Provider: p, Fallback: a.Model}
	})
	if res := b.run(b.triggered(domain.TriggerManual)); res.Outcome != domain.OutcomeError || len(b.server.Requests()) != 0 || !strings.Contains(res.Error, "api_key") {
		t.Errorf("%+v", res)
	}
}

// TestFallbackInAReduction checks that a reduction and its run use the same model in each attempt.
func TestFallbackInAReduction(t *testing.T) {
	t.Parallel()
	b := paid(t, modeltest.Turn{Text: "Found it.", Usage: model.Usage{Input: 10, Output: 1}}, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 20, Output: 1}})
	first := modeltest.New(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "reduce", Args: json.RawMessage(`{"task":"find it"}`)}}, Usage: model.Usage{Input: 1000, Output: 20}}, spent)
	p, err := anthropic.New(anthropic.Options{BaseURL: first.URL, Model: "big", APIKey: "sk-canary"})
	if err != nil {
		t.Fatal(err)
	}

	b.change(func(a *plan.Agent, _ *plan.Job) {
		a.Allow = nil
		a.Model = &plan.Model{Name: "big", Provider: p, MaxOutput: 100, Price: model.Price{Input: 100}, Fallback: a.Model}
	})
	id := b.triggered(domain.TriggerManual)
	res := b.run(id)
	steps, err := b.ledger.Steps.List(t.Context(), id)
	if err != nil || res.Outcome != domain.OutcomeSuccess || res.Usage.CostMicroUSD != 1000*100+4*25+10+10+20+10 {
		t.Fatalf("%+v %+v (%v)", res, steps, err)
	}

	for i, want := range []string{"big", "scripted", "scripted"} {
		if steps[i].Model != want {
			t.Errorf("step %d was answered by %s", i+1, steps[i].Model)
		}
	}
}
