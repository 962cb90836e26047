package agent_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestPromptTellsTheTime checks that the prompt contains the start of the run, in the zone of the
// job, and its trigger.
func TestPromptTellsTheTime(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "Nothing to do today."})
	zone := time.FixedZone("Europe/Berlin", 3600)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Do it.", Zone: zone}
	due := time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)
	out, err := b.ledger.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "clerk", Trigger: domain.TriggerSchedule, ScheduledAt: due})
	if err != nil {
		t.Fatal(err)
	}
	run := out[0].Run
	if res := b.run(run); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	r, err := b.ledger.Runs.Get(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	want := "This run started on " + r.StartedAt.In(zone).Format("Monday 2006-01-02 15:04:05") +
		" Europe/Berlin (Europe/Berlin, UTC+01:00), by its schedule, scheduled for Monday 2026-11-30 08:00:00 Europe/Berlin.\n"
	if system := b.asked(0).Messages[0].Content; !strings.Contains(system, want) {
		t.Errorf("the model was told\n%s\nwant\n%s", system, want)
	}
}

// TestTimeOfResults checks that the results of a short run contain no time.
func TestTimeOfResults(t *testing.T) {
	t.Parallel()
	b := setup(t, turn("1", "file_read", `{"path":"a.txt"}`), turn("2", "file_read", `{"path":"a.txt"}`), done)
	b.write("work/a.txt", "one")
	run := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Read it."}})
	if res := b.run(run); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}
	calls, err := b.ledger.Steps.Calls(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		var e struct{ Now *string }
		if err := json.Unmarshal(c.Envelope, &e); err != nil || e.Now != nil {
			t.Errorf("%s of a run that began just now holds a time: %s (%v)", c.Tool, c.Envelope, err)
		}
	}
}
