package agent_test

import (
	"testing"

	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestStartedRunKeepsItsPlan removes a job after its run was recorded as started, but before the
// run executes.
func TestStartedRunKeepsItsPlan(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "It went well."})
	b.plan.Jobs["ask"] = plan.Job{Name: "ask", Agent: "clerk", Prompt: "Well?"}
	b.runner.Set(b.plan)
	run, a, err := b.ledger.StartAttempt(t.Context(), b.enqueue(ledger.Request{Job: "ask", Agent: "clerk"}))
	if err != nil {
		t.Fatal(err)
	}

	execute := b.runner.Freeze()
	without := b.plan
	without.Jobs = map[string]plan.Job{}
	b.runner.Set(without)
	if res, err := execute(t.Context(), run, a); err != nil || res.Outcome != domain.OutcomeSuccess {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := b.runner.Execute(t.Context(), run, a); err != nil || res.Outcome != domain.OutcomeError {
		t.Errorf("without the job: %+v, %v", res, err)
	}
}
