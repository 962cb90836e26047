package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// TestResumedRequestIsTheSame checks that a run that continues after an interruption repeats its
// requests byte for byte, however the model wrote its arguments. Otherwise the provider's cache
// does not match.
func TestResumedRequestIsTheSame(t *testing.T) {
	t.Parallel()
	odd := todo("1")
	odd.Args = []byte("{ \"items\": [\n {\"status\": \"pending\",  \"title\": \"a <b> & \\u00fc \\/ ü\u2028 1\"} ] }")
	for _, dialect := range dialects() {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				opaque := ""
				if dialect != "openai" && dialect != "ollama" {
					opaque = "c2lnbmVk"
				}

				b := piped(t, dialect, modeltest.Turn{Text: "I <plan>.", Calls: []model.Call{odd}, Opaque: opaque, Usage: model.Usage{Input: 10, Output: 1}},
					modeltest.Turn{Fail: model.KindAuth}, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 10, Output: 1}})
				b.change(func(a *plan.Agent, j *plan.Job) { a.Database, a.Allow = false, []string{"todo", "complete"} })
				b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Do the <books> & so on."}
				id := b.triggered(domain.TriggerManual)
				b.run(id)
				if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
					t.Fatal(err)
				}
				if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
					t.Fatalf("%+v", res)
				}

				sent := b.server.Requests()
				if len(sent) != 3 || string(sent[1]) != string(sent[2]) {
					t.Errorf("%d requests:\n%s\nand after the interruption\n%s", len(sent), sent[1], sent[len(sent)-1])
				}
			})
		})
	}
}

// TestRecoveredRetryIsAnEvent checks that a retry that succeeded is an event of the run.
func TestRecoveredRetryIsAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := pipedPaid(t, modeltest.Turn{Status: 503, Raw: "starting"}, modeltest.Turn{Text: "Let me", Close: true}, modeltest.Turn{Text: "Done.", Usage: model.Usage{Input: 10, Output: 1}})
		id := b.triggered(domain.TriggerManual)
		if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%+v", res)
		}

		events, err := b.ledger.Events.List(t.Context(), event.Filter{Run: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind == "step.retried" {
				if said := string(e.Data); !strings.Contains(said, `"times":1`) || !strings.Contains(said, "cannot be reached") {
					t.Errorf("%s", said)
				}
				return
			}
		}
		t.Errorf("no event in %+v", events)
	})
}
