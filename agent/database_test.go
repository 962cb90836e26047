package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agentdb/changelog"
	"rouse/agentdb/view"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestQuotaNotice checks OSA-62: the owner is notified once if 80 % of a quota is used, and again
// after the usage was below. Beyond the quota, a write is refused with the remedy.
func TestQuotaNotice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.table()
	b.quota = 1 << 20
	b.plan.Channels = []string{"desktop", "ops"}
	write := func(name string, kib int, channels ...string) ledger.Result {
		t.Helper()
		b.plan.Jobs[name] = plan.Job{Name: name, Agent: "clerk", Notify: plan.Notify{Channels: channels}, Playbook: []playbook.Call{
			{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": strings.Repeat("x", kib<<10)}}},
		}}
		return b.run(b.enqueue(ledger.Request{Job: name, Agent: "clerk"}))
	}

	told := func(want int) []ledger.Notice {
		t.Helper()
		got := b.notices()
		if len(got) != want {
			t.Fatalf("%d notices, want %d: %+v", len(got), want, got)
		}
		return got
	}

	write("small", 10)
	told(0)
	write("books", 380, "ops") // the row and its image in the changelog
	n := told(1)[0]
	if n.Channel != "ops" || n.Job != "books" || !strings.HasPrefix(n.Title, "clerk: ") || !strings.HasSuffix(n.Title, " % of its database's quota is used") ||
		!strings.Contains(n.Body, "rouse db clerk") || !strings.Contains(n.Body, "database.quota") {
		t.Errorf("%+v", n)
	}

	write("small", 10)
	told(1)
	b.quota = 8 << 20
	write("small", 10)
	told(1)
	b.quota = 1 << 20
	if res := write("full", 200); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("the write that goes over the quota: %+v", res)
	}
	if n := told(2)[1]; n.Channel != "desktop" || n.Job != "full" {
		t.Errorf("without a channel of the job: %+v", n)
	}
	if res := write("more", 1); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "nothing more is written") || !strings.Contains(res.Error, "can raise database.quota") {
		t.Errorf("the next write: %+v", res)
	}

	told(2)
}

// TestDatabaseSwitchedOff checks OSA-50: an agent without a database has no database tools. Its
// data is still there if the database is switched on again.
func TestDatabaseSwitchedOff(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "Done."}, modeltest.Turn{Text: "Done."})
	b.table()
	has := func(on bool) {
		t.Helper()
		a := b.plan.Agents["clerk"]
		a.Database = on
		b.plan.Agents["clerk"] = a
		id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Look."}})
		if res := b.execute(id); res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%+v", res)
		}
		all := b.server.Requests()
		if asked := string(all[len(all)-1]); strings.Contains(asked, `"db_`) != on || strings.Contains(asked, "What was done") != on {
			t.Errorf("with a database: %t; the model was asked %s", on, asked)
		}
	}

	b.plan.Jobs["write"] = plan.Job{Name: "write", Agent: "clerk", Playbook: []playbook.Call{{Name: "db_insert", With: map[string]any{"table": "log", "row": map[string]any{"what": "x"}}}}}
	if res := b.execute(b.enqueue(ledger.Request{Job: "write", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}
	has(false)
	if res := b.execute(b.enqueue(ledger.Request{Job: "write", Agent: "clerk"})); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "tool_not_found") {
		t.Errorf("without a database: %+v", res)
	}
	has(true)
	if n := b.count(); n != 1 {
		t.Errorf("%d rows, want the one of before", n)
	}
}

// TestPromptHasTheDatabase checks OSA-63 and OSA-60: the first request to a model contains the
// tables, the SQL of the views, and the rows of the views that the job requests, with the defaults
// of their parameters.
func TestPromptHasTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "Done."})
	b.table()
	db, release, err := b.pool.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Insert(t.Context(), changelog.By{}, "log", []map[string]any{{"what": "the-first-row"}, {"what": "other"}}); err != nil {
		t.Fatal(err)
	}

	for _, v := range []view.View{
		{Name: "begun", SQL: "select what from log where what like :like", RenderHint: "table", Refresh: "on_run", Params: []view.Param{{Name: "like", Default: "the-%"}}},
		{Name: "open", SQL: "select what from log where what = :it", RenderHint: "table", Refresh: "manual", Params: []view.Param{{Name: "it"}}},
	} {
		if _, err := db.Views.Save(t.Context(), changelog.By{}, v); err != nil {
			t.Fatal(err)
		}
	}

	release()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Look.", ContextViews: []string{"begun", "open", "none"}}
	if res := b.run(b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	var request struct{ Messages []struct{ Content any } }
	if err := json.Unmarshal(b.server.Requests()[0], &request); err != nil {
		t.Fatal(err)
	}

	var text strings.Builder
	for _, m := range request.Messages {
		if s, ok := m.Content.(string); ok {
			text.WriteString(s + "\n")
		}
	}

	for _, want := range []string{
		"log (2 rows): What was done", "view begun(like) (saved):\n  select what from log where what like :like",
		"View begun, read ", "\n" + `{"what":"the-first-row"}` + "\n", "View open: the view open needs a value for it", `View none: there is no saved view "none"`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the prompt:\n%s", want, &text)
		}
	}

	if strings.Contains(text.String(), "other") {
		t.Error("a row of another parameter is in the prompt")
	}
}
