package agent_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/steps"
)

// cutOff starts an attempt that ends during a call, which may have taken effect. It ends by a kill,
// or with a result.
func (b *bench) cutOff(id int64, c ledger.Call, message json.RawMessage, res *ledger.Result) {
	b.t.Helper()
	_, a, err := b.ledger.StartAttempt(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}

	c.Step, c.StartedAt = 1, time.Now()
	for _, err := range []error{
		b.ledger.Steps.StartStep(b.t.Context(), a, steps.Step{Number: 1, StartedAt: c.StartedAt}),
		b.ledger.Steps.FinishStep(b.t.Context(), a, steps.Step{Number: 1, Message: message, FinishedAt: c.StartedAt}),
		b.ledger.Steps.StartCall(b.t.Context(), a, c),
	} {
		if err != nil {
			b.t.Fatal(err)
		}
	}

	if res == nil {
		err = b.ledger.Interrupt(b.t.Context(), a, "killed", nil)
	} else {
		c.State, c.FinishedAt = domain.CallUncertain, c.StartedAt
		err = errors.Join(b.ledger.Steps.FinishCall(b.t.Context(), a, c), b.ledger.Finish(b.t.Context(), a, *res))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// open returns the only inbox item.
func (b *bench) open() inbox.Item {
	b.t.Helper()
	items, err := b.ledger.Inbox.List(b.t.Context())
	if err != nil || len(items) != 1 {
		b.t.Fatalf("inbox: %+v (%v)", items, err)
	}
	return items[0]
}

// ends runs the next attempt and records its end.
func (b *bench) ends(id int64) ledger.Result {
	b.t.Helper()
	res := b.run(id)
	if res.Wait != nil {
		res.Wait.Expires = time.Hour
	}

	run, err := b.ledger.Runs.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.ledger.Finish(b.t.Context(), ledger.Attempt{Run: id, Number: run.Attempt}, res); err != nil {
		b.t.Fatal(err)
	}

	return res
}

func (b *bench) say(answer string) {
	b.t.Helper()
	if _, err := b.ledger.Answer(b.t.Context(), b.open().ID, answer); err != nil {
		b.t.Fatal(err)
	}
}

// text returns the content of a file in the agent's folder, or "" if the file does not exist.
func (b *bench) text(agent, name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, agent, name))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return string(text)
}

// appends adds a playbook that appends a, b and c to a file.
func (b *bench) appends() {
	var calls []playbook.Call
	for _, letter := range []string{"a", "b", "c"} {
		calls = append(calls, playbook.Call{Name: "file_write", With: map[string]any{"path": "out.txt", "content": letter, "mode": "append"}, Save: "last"})
	}
	calls = append(calls, playbook.Call{Name: "file_write", With: map[string]any{"path": "last.txt", "content": "{{ .last.path }}"}})
	b.plan.Jobs["letters"] = plan.Job{Name: "letters", Agent: "plain", Playbook: calls}
}

var bCall = ledger.Call{ID: "p2", Key: "p2", Tool: "file_write", Args: json.RawMessage(`{"content":"b","mode":"append","path":"out.txt"}`), Effect: domain.EffectWrite}

// TestRecovery checks UNI-09: an interrupted call of a playbook that may have changed something is
// neither repeated nor skipped without its owner. The owner's decision is executed once, even after
// more interruptions.
func TestRecovery(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		text    string
		outcome domain.Outcome
		summary string
	}{
		"done":  {"ac", "success", "file_write; file_write"},
		"again": {"abc", "success", "file_write"},
		"skip":  {"ac", "success", "file_write skipped"},
		"stop":  {"", "cancelled", ""},
	} {
		t.Run(answer, func(t *testing.T) {
			b := setup(t)
			b.appends()
			id := b.enqueue(ledger.Request{Job: "letters", Agent: "plain"})
			b.cutOff(id, bCall, nil, nil)
			res := b.ends(id)
			item := b.open()
			if res.Wait == nil || b.text("plain", "out.txt") != "" || item.Kind != inbox.KindRecovery || item.Title != "letters was cut off" {
				t.Fatalf("%+v, %+v, and the file holds %q", res, item, b.text("plain", "out.txt"))
			}

			for _, part := range []string{"call 2,", `file_write {"content":"b","mode":"append","path":"out.txt"}`, "done if it took effect"} {
				if !strings.Contains(item.Message, part) {
					t.Errorf("%q is not in %s", part, item.Message)
				}
			}

			b.say(answer)
			if answer == "stop" {
				if run, err := b.ledger.Runs.Get(t.Context(), id); err != nil || run.Outcome != domain.OutcomeCancelled || !strings.Contains(run.Error, "its owner stopped it") {
					t.Errorf("%+v (%v)", run, err)
				}
				return
			}

			for range 2 { // the daemon dies before it has recorded the end
				res = b.run(id)
				run, err := b.ledger.Runs.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: run.Attempt}, "killed", nil); err != nil {
					t.Fatal(err)
				}
			}
			if res.Outcome != want.outcome || !strings.Contains(res.Summary, want.summary) || b.text("plain", "out.txt") != want.text || b.text("plain", "last.txt") != "out.txt" {
				t.Errorf("%+v, the file holds %q", res, b.text("plain", "out.txt"))
			}
		})
	}
}

// TestRecoveryIsForOneTry checks that the owner's decision applies to one interruption of a call.
// After the next interruption the owner is asked again. The decision does not apply to another tool
// at the same position.
func TestRecoveryIsForOneTry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.appends()
	id := b.enqueue(ledger.Request{Job: "letters", Agent: "plain"})
	for range 2 {
		b.cutOff(id, bCall, nil, nil)
		if res := b.ends(id); res.Wait == nil {
			t.Fatalf("it is not asked about: %+v", res)
		}
		b.say("again")
	}

	job := b.plan.Jobs["letters"]
	job.Playbook[1].Name, job.Playbook[1].With = "todo", map[string]any{"markdown": "- [ ] b"}
	if res := b.ends(id); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "called file_write here, and the playbook was changed since") {
		t.Errorf("%+v", res)
	}
	if b.text("plain", "out.txt") != "a" {
		t.Errorf("the file holds %q", b.text("plain", "out.txt"))
	}
}

// TestRecoveryAfterAFailure checks that only the owner decides, even if the attempt failed or
// another user retries the run. A missing answer is not a decision.
func TestRecoveryAfterAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.appends()
	id := b.enqueue(ledger.Request{Job: "letters", Agent: "plain"})
	b.cutOff(id, bCall, nil, &ledger.Result{Outcome: domain.OutcomeTimeout, Error: "too long"})
	if item := b.open(); item.Kind != inbox.KindInfo || !strings.Contains(item.Message, "during a call of file_write") {
		t.Errorf("its owner is not told: %+v", item)
	}

	for round := range 2 {
		if _, err := b.ledger.Retry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if res := b.ends(id); res.Wait == nil || b.open().Kind != inbox.KindRecovery {
			t.Fatalf("round %d: %+v, %+v", round, res, b.open())
		}

		if round == 0 {
			if err := b.ledger.ExpireItem(t.Context(), b.open().ID, ledger.Result{Outcome: domain.OutcomeTimeout, Error: "nobody answered"}); err != nil {
				t.Fatal(err)
			}
		}
	}

	b.say("done")
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || b.text("plain", "out.txt") != "ac" {
		t.Errorf("%+v, the file holds %q", res, b.text("plain", "out.txt"))
	}
}

// TestRecoveryOfAManualCall checks that a manual call cannot be skipped, because it is the only
// call.
func TestRecoveryOfAManualCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Tool: "file_write", Args: bCall.Args}})
	c := bCall
	c.ID, c.Key, c.Args = "p1", "p1", json.RawMessage(`{"content":"`+strings.Repeat("ä", 3000)+`"}`)
	b.cutOff(id, c, nil, nil)
	b.ends(id)
	item := b.open()
	if strings.Join(item.Options, " ") != "done again stop" || !strings.Contains(item.Message, "the manual call") || !strings.Contains(item.Message, "(6014 bytes; all of them: rouse show 1 --json)") {
		t.Errorf("%+v", item)
	}

	b.say("again")
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || b.text("plain", "out.txt") != "b" {
		t.Errorf("%+v", res)
	}
}

// TestModelIsToldOfTheUnknown checks that a model is told that the effect of its call is unknown,
// so that it can check. Its owner is informed once. A failed attempt is handled in the same way: an
// unknown effect is not reported as failed.
func TestModelIsToldOfTheUnknown(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]*ledger.Result{"interrupted": nil, "failed": {Outcome: domain.OutcomeTimeout, Error: "too long", RetryAt: time.Now()}} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, modeltest.Turn{Fail: model.KindAuth}, modeltest.Turn{Text: "I looked: it is there."})
			id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Write b."}})
			c := bCall
			c.ID, c.Key = "1", "m1.1.1"
			message, err := json.Marshal(model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: "1", Key: c.Key, Name: c.Tool, Args: c.Args}}})
			if err != nil {
				t.Fatal(err)
			}

			b.cutOff(id, c, message, ended)
			refused := b.run(id)
			refused.RetryAt = time.Now()
			if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 2}, refused); err != nil {
				t.Fatal(err)
			}
			if res := b.ends(id); res.Outcome != domain.OutcomePartial || b.text("work", "out.txt") != "" {
				t.Errorf("%+v, the file holds %q", res, b.text("work", "out.txt"))
			}

			requests := b.server.Requests()
			for _, r := range requests {
				if strings.Count(string(r), "Whether it took effect is unknown, and it was not made again") != 1 {
					t.Errorf("the model was told %s", r)
				}
			}

			if item := b.open(); item.Kind != inbox.KindInfo || !strings.Contains(item.Message, `file_write, which began at`) || !strings.Contains(item.Message, `"content":"b"`) || !item.ExpiresAt.IsZero() {
				t.Errorf("%+v", item)
			}

			b.say("seen")
			if run, err := b.ledger.Runs.Get(t.Context(), id); err != nil || run.State != domain.StateFinished || run.Outcome != domain.OutcomePartial {
				t.Errorf("%+v (%v)", run, err)
			}
		})
	}
}
