package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestShared checks OSA-19: the notice of a run's end lists its artifacts, with any template.
// Another attempt does not share an artifact twice.
func TestShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var calls []playbook.Call
	for i := range 7 {
		calls = append(calls, playbook.Call{Name: "share_artifact", With: map[string]any{"filename": fmt.Sprintf("%d.md", i), "content": "x\n", "description": "part {{ .Job }}"}})
	}

	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: append(calls, playbook.Call{Name: "file_read", With: map[string]any{"path": "none"}}),
		Notify: plan.Notify{On: []string{"error"}, Channels: []string{"desktop"}, Body: "worded"}}
	b.runner.Set(b.plan)
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeError {
		t.Fatalf("%+v", res)
	}

	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	n := b.told(run, res)
	if len(n) != 1 || !strings.HasPrefix(n[0].Body, "worded\nshared 0.md (version 1): part j\n") || !strings.HasSuffix(n[0].Body, fmt.Sprintf("\nand 2 more shared files: rouse show %d", id)) {
		t.Errorf("%+v", n)
	}

	b.end(id, res)
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}

	b.run(id)
	if all, err := b.ledger.Artifacts.List(t.Context(), id); err != nil || len(all) != len(calls) {
		t.Errorf("after another attempt: %+v %v", all, err)
	}
}
