package agent_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/budget"
)

// pipedPaid returns the bench of paid in a synctest bubble.
func pipedPaid(t *testing.T, turns ...modeltest.Turn) *bench {
	t.Helper()
	b := piped(t, "openai", turns...)
	clerk := b.plan.Agents["clerk"]
	clerk.Database, clerk.Model.Price, clerk.Model.MaxOutput = false, price, 10_000
	clerk.Allow = []string{"todo", "complete"}
	b.plan.Agents["clerk"] = clerk
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Do the books."}
	return b
}

// TestOutageIsEstimated checks that a server that accepts requests but does not answer costs at
// most their input, once for each request. All of it is marked as estimated. Later refusals begin
// with the original error.
func TestOutageIsEstimated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := pipedPaid(t, modeltest.Turn{Close: true})
		id := b.triggered(domain.TriggerManual)
		res := b.run(id)
		asked := int64(len(b.server.Requests()))
		if u := res.Usage; asked != 4 || u.TokensOut != 0 || u.TokensIn < 50*asked || u.TokensIn > 1000*asked || u.EstimatedTokens != u.TokensIn || u.EstimatedMicroUSD != u.CostMicroUSD {
			t.Fatalf("%d requests: %+v", asked, u)
		}

		s := b.spent(b.ledger, budget.ScopeDaemon, "")
		if s.EstimatedTokens != res.Usage.TokensIn || s.EstimatedTokens != s.Tokens || s.EstimatedMicroUSD != s.CostMicroUSD || s.ReservedTokens != 0 || !strings.Contains(s.EstimatedWhy, "cannot be reached") {
			t.Errorf("the day: %+v", s)
		}
		if steps, err := b.ledger.Steps.List(t.Context(), id); err != nil || len(steps) != 1 || steps[0].Usage.EstimatedTokens != s.Tokens {
			t.Errorf("steps: %+v (%v)", steps, err)
		}

		if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
			t.Fatal(err)
		}
		if run, err := b.ledger.Runs.Get(t.Context(), id); err != nil || run.Usage.EstimatedMicroUSD != s.CostMicroUSD {
			t.Errorf("the run: %+v (%v)", run.Usage, err)
		}

		// The next run has no room because of the estimate.
		b.plan.Budget = plan.Budget{Tokens: 10_000 + s.Tokens - 1}
		next := b.run(b.triggered(domain.TriggerManual))
		if next.Outcome != domain.OutcomeBudget || !strings.HasPrefix(next.Error, "run 1: the model server") || !strings.Contains(next.Error, "without them there would be room: the day's budget of the daemon") {
			t.Errorf("%+v", next)
		}

		// A budget that is exhausted even without the estimate is reported first.
		b.plan.Budget = plan.Budget{Tokens: 100}
		next = b.run(b.triggered(domain.TriggerManual))
		if next.Outcome != domain.OutcomeBudget || !strings.HasPrefix(next.Error, "the day's budget of the daemon") || !strings.Contains(next.Error, "are estimated") {
			t.Errorf("%+v", next)
		}
	})
}

// TestFailureBeforeBudget checks that the run reports the failure first if there is no room for a
// retry.
func TestFailureBeforeBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := pipedPaid(t, modeltest.Turn{Close: true})
		b.plan.Budget = plan.Budget{Tokens: 10_600}
		res := b.run(b.triggered(domain.TriggerManual))
		if len(b.server.Requests()) == 4 || res.Outcome != domain.OutcomeBudget || !strings.HasPrefix(res.Error, "the model server ") ||
			!strings.Contains(res.Error, "and there is no budget to ask again: ") {
			t.Errorf("%d requests: %+v", len(b.server.Requests()), res)
		}
	})
}

// TestTimeoutWithinAnAnswer checks that an answer that is still arriving at the run's timeout is
// not an outage, even after earlier failures.
func TestTimeoutWithinAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := pipedPaid(t, append(times(4, busy(503, "")), modeltest.Turn{Text: "Well", RepeatEvery: time.Second})...)
		clerk := b.plan.Agents["clerk"]
		clerk.Bounds.Wall = time.Minute
		b.plan.Agents["clerk"] = clerk
		res := b.run(b.triggered(domain.TriggerManual))
		if n := len(b.server.Requests()); n != 5 || res.Outcome != domain.OutcomeTimeout || res.Error != "the run took longer than its wall time of 1m0s" {
			t.Errorf("%d requests: %+v", n, res)
		}
	})
}

// TestOutageAfterABeginning checks that the input that a server reported before it broke off is
// used. The output is counted from the received part of the answer.
func TestOutageAfterABeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("word ", 40)
		cut := func(stream []byte) ([]byte, bool) {
			return stream[:bytes.Index(stream, []byte("event: message_delta"))], true
		}
		b := piped(t, "anthropic", modeltest.Turn{Text: text, Usage: model.Usage{Input: 77, Output: 3}, Damage: cut})
		clerk := b.plan.Agents["clerk"]
		clerk.Database, clerk.Model.MaxOutput = false, 10_000
		b.plan.Agents["clerk"] = clerk
		b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Do the books."}
		res := b.run(b.triggered(domain.TriggerManual))
		if n := int64(len(b.server.Requests())); n != 4 || res.Usage.TokensIn != n*77 || res.Usage.TokensOut != n*int64(len(text)/4) || res.Usage.EstimatedTokens != res.Usage.TokensIn+res.Usage.TokensOut {
			t.Errorf("%d requests: %+v", n, res.Usage)
		}
	})
}
