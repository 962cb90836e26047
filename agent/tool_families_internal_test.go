package agent

import (
	"log/slog"
	"slices"
	"testing"

	"rouse/agent/model/playbook"
	"rouse/agent/preflight"
	"rouse/agentdb/ledger"
)

// A list of calls has the tools that it names, which is what they cost; a call of one that is not there is told of all that are.
func TestListedCalls(t *testing.T) {
	programs, err := newPrograms("")
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{log: slog.New(slog.DiscardHandler), programs: programs, families: families(), specs: Specs(), prober: preflight.New(), health: newModelHealth(nil)}
	calls := func(names ...string) (out []playbook.Call) {
		for _, name := range names {
			out = append(out, playbook.Call{Name: name})
		}
		return out
	}
	r.Set(Plan{
		Agents: map[string]Agent{"a": {Name: "a", Workdir: t.TempDir(), Deny: []string{"file_undo"}}},
		Jobs: map[string]Job{
			"reads": {Name: "reads", Agent: "a", Playbook: calls("file_read", "notify", "file_read")}, "denied": {Name: "denied", Agent: "a", Playbook: calls("file_read", "file_undo")},
			"asks": {Name: "asks", Agent: "a", Prompt: "Read it."},
		},
	})

	for job, all := range map[string]bool{"reads": false, "denied": true, "asks": true} {
		task, err := r.task(ledger.Run{Job: job, Agent: "a"})
		if err != nil {
			t.Fatal(err)
		}
		granted, err := r.tools(newAttempt(task, ledger.Attempt{}))
		if err != nil {
			t.Fatal(err)
		}

		names := granted.Names()
		if !all && !slices.Equal(names, []string{"file_read", "notify"}) {
			t.Errorf("%s: %q", job, names)
		}
		if all && (slices.Contains(names, "file_undo") || !slices.Contains(names, "file_write") || !slices.Contains(names, "complete")) {
			t.Errorf("%s: %q", job, names)
		}
	}
}
