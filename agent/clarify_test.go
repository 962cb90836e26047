package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestClarify checks OSA-06 and OSA-18: a question ends the attempt but not the run. The next
// attempt continues with the answer as the next turn, and repeats no calls.
func TestClarify(t *testing.T) {
	t.Parallel()
	ask := model.Call{ID: "2", Name: "clarify", Args: json.RawMessage(`{"question":" Which account? ","options":["GLS"," gls ","","Sparkasse"],"allowMultiple":true}`)}
	b := setup(t, modeltest.Turn{Calls: []model.Call{insertCall("1", "before"), ask}}, modeltest.Turn{Calls: []model.Call{insertCall("3", "after")}}, modeltest.Turn{Text: "Both are written."})
	b.table()
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Prompt: "Do the books.", Notify: plan.Notify{On: []string{"waiting"}, Channels: []string{"desktop"}}}
	id := b.enqueue(ledger.Request{Job: "books", Agent: "clerk"})
	res := b.run(id)
	if res.Wait == nil || res.Outcome != "" || res.Wait.Message != "Which account?" || strings.Join(res.Wait.Options, "|") != "GLS|Sparkasse" || !res.Wait.Multiple {
		t.Fatalf("the first attempt: %+v %+v", res, res.Wait)
	}

	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	notices := b.runner.Notices.QuestionNotices(run, res)
	if len(notices) != 1 || notices[0].Title != "books asks" || !strings.Contains(notices[0].Body, "Which account?") || !strings.Contains(notices[0].Body, "Sparkasse") {
		t.Errorf("notices: %+v", notices)
	}
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}

	items, err := b.ledger.Inbox.List(t.Context())
	if err != nil || len(items) != 1 {
		t.Fatalf("inbox: %+v (%v)", items, err)
	}
	e, found, err := b.ledger.Events.Last(t.Context(), id, "run.waiting")
	if want := fmt.Sprintf(`{"allow_multiple":true,"item":%d,"kind":"input","options":["GLS","Sparkasse"],"question":"Which account?"}`, items[0].ID); err != nil || !found || string(e.Data) != want {
		t.Errorf("event %s, want %s (%v)", e.Data, want, err)
	}
	if _, err := b.ledger.Answer(t.Context(), items[0].ID, "Sparkasse"); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || res.Summary != "Both are written." {
		t.Errorf("the second attempt: %+v", res)
	}

	if n := b.count(); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}

	var sent struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(b.server.Requests()[1], &sent); err != nil {
		t.Fatal(err)
	}
	if last := sent.Messages[len(sent.Messages)-1]; last.Role != "user" || last.Content != "Your owner answers: Sparkasse" {
		t.Errorf("the next turn begins with %+v", last)
	}
}

// TestBehindAQuestion checks OSA-06: calls after the question are not made, not even after the
// answer, because the answer may be a reason against them.
func TestBehindAQuestion(t *testing.T) {
	t.Parallel()
	ask := model.Call{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Go on?"}`)}
	b := setup(t, modeltest.Turn{Calls: []model.Call{ask, insertCall("2", "behind")}}, modeltest.Turn{Text: "Then I end here."})
	b.table()
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do it."}})
	res := b.run(id)
	b.answer(id, res, "no")
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 0 {
		t.Errorf("%+v, %d rows", res, b.count())
	}
	if strings.Contains(string(b.server.Requests()[1]), "behind") {
		t.Error("the model is shown a call that was not made")
	}
}

// answer records that a run waits for an answer, and answers it.
func (b *bench) answer(id int64, res ledger.Result, text string) {
	b.t.Helper()
	if err := b.ledger.Finish(b.t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		b.t.Fatal(err)
	}

	items, err := b.ledger.Inbox.List(b.t.Context())
	if err != nil || len(items) != 1 {
		b.t.Fatalf("inbox: %+v (%v)", items, err)
	}
	if _, err := b.ledger.Answer(b.t.Context(), items[0].ID, text); err != nil {
		b.t.Fatal(err)
	}
}

// TestQuestionOutlivesAKill checks that the next attempt repeats a question without the model if
// the daemon was killed before it could record that the run waits.
func TestQuestionOutlivesAKill(t *testing.T) {
	t.Parallel()
	ask := model.Call{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Go on?"}`)}
	b := setup(t, modeltest.Turn{Calls: []model.Call{ask}}, modeltest.Turn{Text: "I make it up."})
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do it."}})
	b.run(id)
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Wait == nil || res.Wait.Message != "Go on?" || len(b.server.Requests()) != 1 {
		t.Errorf("%+v, %d requests", res, len(b.server.Requests()))
	}
}

// TestClarifyUnanswered checks that a retried run is told if its question was not answered.
func TestClarifyUnanswered(t *testing.T) {
	t.Parallel()
	ask := model.Call{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Go on?"}`)}
	b := setup(t, modeltest.Turn{Calls: []model.Call{ask}}, modeltest.Turn{Text: "Then I end here."})
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do it."}})
	res := b.run(id)
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}

	items, err := b.ledger.Inbox.List(t.Context())
	if err != nil || len(items) != 1 || items[0].Title != "clerk asks" {
		t.Fatalf("inbox: %+v (%v)", items, err)
	}
	if err := b.ledger.ExpireItem(t.Context(), items[0].ID, ledger.Result{Outcome: domain.OutcomeTimeout}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}

	if res := b.run(id); res.Outcome != domain.OutcomeSuccess {
		t.Errorf("the second attempt: %+v", res)
	}
	if !strings.Contains(string(b.server.Requests()[1]), "Nobody answered your question in time") {
		t.Error("the model was not told that nobody answered")
	}
}
