package agent_test

import (
	"testing"
	"time"

	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agentdb"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestTemplateTimes checks C-3: the times of a template have milliseconds in every argument of a
// call. So two runs in one second differ, and a row can be compared with a run in the same second.
func TestTemplateTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Playbook: []playbook.Call{
		{Name: "db_insert", With: map[string]any{"table": "log", "rows": []any{map[string]any{"what": "{{ .Scheduled }}"}, map[string]any{"what": "= Scheduled"}}}},
	}}
	at := time.Date(2026, 11, 21, 7, 0, 0, 20_000_000, time.UTC)
	for _, scheduled := range []time.Time{at, at.Truncate(time.Second)} {
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk", ScheduledAt: scheduled})
		if res := b.execute(id); res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%+v", res)
		}
	}

	db, release, err := b.pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	defer release()

	rows, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select group_concat(what, ' ') what from log"})
	if want := "2026-11-21T07:00:00.020Z 2026-11-21T07:00:00.020Z 2026-11-21T07:00:00.000Z 2026-11-21T07:00:00.000Z"; err != nil || rows.Rows[0]["what"] != want {
		t.Errorf("%v (%v), want %s", rows.Rows, err, want)
	}
}
