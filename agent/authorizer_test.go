package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
)

// post is a tool that sends letters. Each call needs an approval. It keeps the letters that it
// sent.
type post struct {
	mu    sync.Mutex
	sent  []string
	need  tool.Access // access of each letter, in addition to the action
	fails bool
	key   string // changes the action of a letter
}

type letter struct {
	To string `json:"to"`
}

func (p *post) tools(t *testing.T) []tool.Tool {
	t.Helper()
	send, err := tool.Define(tool.Spec{Name: "send", Description: "sends a letter", Effect: domain.EffectExternal, Class: tool.ClassOther, Access: tool.AccessOf(func(_ context.Context, _ tool.Invocation, l letter) (tool.Access, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := p.need
		n.Action, n.Shown = l.To+p.key, "a letter to "+l.To
		return n, nil
	})}, func(_ context.Context, _ tool.Invocation, l letter) (tool.Envelope, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent = append(p.sent, l.To)
		if p.fails {
			return tool.Failure(tool.KindExecutionError, "the box is full"), nil
		}
		return tool.Success(map[string]string{"to": l.To}), nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return []tool.Tool{send}
}

func (p *post) all() string { return strings.Join(p.sent, " ") }

// office returns a bench with agents that can send letters after an approval.
func office(t *testing.T, turns ...modeltest.Turn) (*bench, *post) {
	t.Helper()
	b, p := setup(t, turns...), &post{need: tool.Access{MissingGrant: "no grant covers letters"}}
	b.restart(p)
	return b, p
}

// restart simulates a new process on the same ledger.
func (b *bench) restart(p *post) {
	b.t.Helper()
	var err error
	b.tools = p.tools(b.t)
	if b.runner, err = agent.New(agent.Options{Ledger: b.ledger, Databases: b.pool, Manifests: b.dir + "/manifests", Recordings: b.dir + "/recordings", Tools: b.tools}); err != nil {
		b.t.Fatal(err)
	}
}

func send(id, to string) model.Call {
	return model.Call{ID: id, Name: "send", Args: json.RawMessage(fmt.Sprintf(`{"to":%q}`, to))}
}

func (b *bench) adhoc(text string) int64 {
	return b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: text}})
}

// heard returns the last request to the model.
func (b *bench) heard() string {
	all := b.server.Requests()
	return string(all[len(all)-1])
}

// TestApproved checks UNI-06 and UNI-09: a call without a grant waits in the inbox, exactly as it
// would be made. It is made once after the owner's approval, even after a long wait and crashes.
func TestApproved(t *testing.T) {
	t.Parallel()
	b, p := office(t, modeltest.Turn{Calls: []model.Call{insertCall("1", "row"), send("2", "bob")}}, modeltest.Turn{Text: "Sent."})
	b.table()
	b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Notify: plan.Notify{On: []string{"waiting"}, Channels: []string{"desktop"}}}
	b.plan.Secrets = append(b.plan.Secrets, "letter")
	id := b.adhoc("Write to Bob.")
	res := b.ends(id)
	told := b.runner.Notices.QuestionNotices(ledger.Run{ID: id, Job: "books", Attempt: 1}, res)
	if len(told) != 1 || !strings.Contains(told[0].Body, "a [secret] to bob\nrouse approve "+inbox.ItemPlaceholder+"\nrouse deny "+inbox.ItemPlaceholder) {
		t.Errorf("notices: %+v", told)
	}
	if res.Wait == nil || res.Wait.Kind != inbox.KindApproval || res.Wait.Expires != time.Hour && res.Wait.Expires != inbox.ApprovalExpires {
		t.Fatalf("%+v", res)
	}

	item := b.open()
	if item.Title != "clerk asks for send" || item.Action.Tool != "send" || item.Action.Description != "a [secret] to bob" || !strings.Contains(item.Message, "no grant covers [secret]s") || item.Call != "m1.1.2" {
		t.Errorf("item: %+v", item)
	}
	if n := b.count(); n != 0 || p.all() != "" {
		t.Errorf("%d rows and %q before the answer: no call of a batch is made before all are decided", n, p.all())
	}

	b.restart(p)
	b.say(inbox.ApprovalOnce)

	// The process dies between the answer and the call.
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err == nil {
		err = b.ledger.Interrupt(t.Context(), a, "killed", nil)
	}
	if err != nil {
		t.Fatal(err)
	}

	b.restart(p)
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || res.Summary != "Sent." || p.all() != "bob" || b.count() != 1 {
		t.Errorf("%+v, sent %q, %d rows", res, p.all(), b.count())
	}
	if item, err := b.ledger.Inbox.Get(t.Context(), item.ID); err != nil || item.Used != "m1.1.2" {
		t.Errorf("item: %+v %v", item, err)
	}
}

// TestApprovedIsNoInterruption checks that a run that waited for an answer gets no notice of an
// interruption.
func TestApprovedIsNoInterruption(t *testing.T) {
	t.Parallel()
	b, p := office(t, modeltest.Turn{Calls: []model.Call{send("1", "bob")}}, modeltest.Turn{Text: "Sent."})
	id := b.adhoc("Write to Bob.")
	b.ends(id)
	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || p.all() != "bob" || strings.Contains(b.heard(), "interrupted") {
		t.Errorf("%+v, sent %q, told %s", res, p.all(), b.heard())
	}
	if run, err := b.ledger.Runs.Get(t.Context(), id); err != nil || run.Calls != 1 || run.Parks != 1 {
		t.Errorf("%+v %v", run, err)
	}
}

// TestApprovedAndCutOff checks that a letter is not sent again after a crash during the call, even
// if it was approved.
func TestApprovedAndCutOff(t *testing.T) {
	t.Parallel()
	b, p := office(t)
	b.plan.Jobs["mail"] = plan.Job{Name: "mail", Agent: "plain", Playbook: []playbook.Call{{Name: "send", With: map[string]any{"to": "bob"}}}}
	id := b.enqueue(ledger.Request{Job: "mail", Agent: "plain"})
	b.ends(id)
	b.say(inbox.ApprovalOnce)
	b.cutOff(id, ledger.Call{ID: "p1", Key: "p1", Tool: "send", Args: json.RawMessage(`{"to":"bob"}`), Effect: domain.EffectExternal}, nil, nil)
	if res := b.ends(id); res.Wait == nil || res.Wait.Kind != inbox.KindRecovery || p.all() != "" {
		t.Fatalf("%+v, sent %q", res, p.all())
	}

	b.say(inbox.RecoveryAgain)
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || p.all() != "bob" {
		t.Errorf("%+v, sent %q", res, p.all())
	}
}

// TestDenied checks OSA-07: the model is told of a denial and its reason, and the denial holds for
// the run. Later calls of the same answer are not made, but earlier ones are.
func TestDenied(t *testing.T) {
	t.Parallel()
	b, p := office(t, modeltest.Turn{Calls: []model.Call{insertCall("1", "before"), send("2", "bob"), insertCall("3", "after")}},
		modeltest.Turn{Calls: []model.Call{send("4", "bob")}}, modeltest.Turn{Text: "Then not."})
	b.table()
	id := b.adhoc("Write to Bob.")
	b.ends(id)
	if _, err := b.ledger.Deny(t.Context(), b.open().ID, "he has moved"); err != nil {
		t.Fatal(err)
	}
	if res := b.ends(id); res.Outcome != domain.OutcomePartial && res.Outcome != domain.OutcomeSuccess || res.Summary != "Then not." || p.all() != "" || b.count() != 1 {
		t.Errorf("%+v, sent %q, %d rows", res, p.all(), b.count())
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 4 {
		t.Fatalf("%+v %v", calls, err)
	}

	for i, want := range []string{`"ok":true`, `"kind":"user_denied","message":"the owner of this agent does not allow it: he has moved"`, `"kind":"rejected"`, `"kind":"user_denied"`} {
		if !strings.Contains(string(calls[i].Envelope), want) {
			t.Errorf("call %d: %s, want %s", i+1, calls[i].Envelope, want)
		}
	}
}

// TestOnceIsForOneCall checks that a single approval covers one call. The owner is asked again
// about the same letter in the same run, and about two equal letters of one answer one after the
// other.
func TestOnceIsForOneCall(t *testing.T) {
	t.Parallel()
	b, p := office(t, modeltest.Turn{Calls: []model.Call{send("1", "bob"), send("2", "bob")}}, modeltest.Turn{Text: "Sent."})
	id := b.adhoc("Write to Bob, twice.")
	for i := range 2 {
		if res := b.ends(id); res.Wait == nil || p.all() != "" {
			t.Fatalf("%d: %+v, sent %q", i, res, p.all())
		}
		b.say(inbox.ApprovalOnce)
	}

	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || p.all() != "bob bob" {
		t.Errorf("%+v, sent %q", res, p.all())
	}
}

// TestOnceIsNotForARetry checks that a single approval does not cover the next attempt if the call
// was made.
func TestOnceIsNotForARetry(t *testing.T) {
	t.Parallel()
	b, p := office(t)
	p.fails = true
	b.plan.Jobs["mail"] = plan.Job{Name: "mail", Agent: "plain", Playbook: []playbook.Call{{Name: "send", With: map[string]any{"to": "bob"}}}}
	id := b.enqueue(ledger.Request{Job: "mail", Agent: "plain"})
	b.ends(id)
	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Outcome != domain.OutcomeError || p.all() != "bob" {
		t.Fatalf("%+v, sent %q", res, p.all())
	}
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if res := b.ends(id); res.Wait == nil || p.all() != "bob" {
		t.Errorf("%+v, sent %q", res, p.all())
	}
}

// TestAlways checks that a standing approval covers this exact action in later runs of the agent,
// until it is revoked.
func TestAlways(t *testing.T) {
	t.Parallel()
	b, p := office(t)
	b.plan.Jobs["mail"] = plan.Job{Name: "mail", Agent: "plain", Playbook: []playbook.Call{{Name: "send", With: map[string]any{"to": "{{ .Input.to }}"}}}}
	mail := func(to string) int64 {
		return b.enqueue(ledger.Request{Job: "mail", Agent: "plain", Detail: ledger.TriggerDetail{Input: map[string]string{"to": to}}})
	}
	id := mail("bob")
	b.ends(id)
	b.say(inbox.ApprovalAlways)
	b.ends(id)
	if res := b.ends(mail("bob")); res.Outcome != domain.OutcomeSuccess || p.all() != "bob bob" {
		t.Errorf("%+v, sent %q", res, p.all())
	}
	if res := b.ends(mail("eve")); res.Wait == nil {
		t.Errorf("a letter to somebody else: %+v", res)
	}

	given, err := b.ledger.Inbox.StandingApprovals(t.Context())
	if err != nil || len(given) != 1 || given[0].Action.Description != "a letter to bob" {
		t.Fatalf("%+v %v", given, err)
	}
	if _, err := b.ledger.Inbox.RevokeApproval(t.Context(), given[0].ID); err != nil {
		t.Fatal(err)
	}
	if res := b.ends(mail("bob")); res.Wait == nil || p.all() != "bob bob" {
		t.Errorf("after it was undone: %+v, sent %q", res, p.all())
	}
}

// TestAnotherActionIsAskedAgain checks that the owner is asked again if the same call would do
// something different from the approved action.
func TestAnotherActionIsAskedAgain(t *testing.T) {
	t.Parallel()
	b, p := office(t, modeltest.Turn{Calls: []model.Call{send("1", "bob")}}, modeltest.Turn{Text: "Sent."})
	id := b.adhoc("Write to Bob.")
	b.ends(id)
	b.say(inbox.ApprovalOnce)
	p.key = ", by express"
	if res := b.ends(id); res.Wait == nil || p.all() != "" {
		t.Errorf("%+v, sent %q", res, p.all())
	}

	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || p.all() != "bob" {
		t.Errorf("%+v, sent %q", res, p.all())
	}
}

// TestOnDenied checks UNI-06: on_denied selects how a call that needs an approval is handled.
func TestOnDenied(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		onDenied string
		outcome  domain.Outcome
		exit     domain.Exit
		requests int
	}{{tool.OnDeniedFail, "error", "tool_rejected", 1}, {tool.OnDeniedContinue, "partial", "final_response", 2}} {
		b, p := office(t, modeltest.Turn{Calls: []model.Call{send("1", "bob"), send("2", "eve")}}, modeltest.Turn{Text: "I could not."})
		clerk := b.plan.Agents["clerk"]
		clerk.OnDenied = c.onDenied
		b.plan.Agents["clerk"] = clerk
		id := b.adhoc("Write to Bob.")
		res := b.ends(id)
		if res.Outcome != c.outcome || res.Exit != c.exit || p.all() != "" || len(b.server.Requests()) != c.requests {
			t.Errorf("%s: %+v, sent %q", c.onDenied, res, p.all())
		}

		calls, err := b.ledger.Steps.Calls(t.Context(), id)
		if err != nil || len(calls) != 2 {
			t.Fatalf("%s: %+v %v", c.onDenied, calls, err)
		}

		behind := strings.Contains(string(calls[1].Envelope), "a call before this one")
		if !strings.Contains(string(calls[0].Envelope), `"kind":"rejected"`) || behind != (c.onDenied == tool.OnDeniedFail) {
			t.Errorf("%s: %s, %s", c.onDenied, calls[0].Envelope, calls[1].Envelope)
		}
	}
}

// TestListsAreAuthorized checks that playbooks and manual calls pass the same authorizer. A denied
// call counts as failed.
func TestListsAreAuthorized(t *testing.T) {
	t.Parallel()
	b, p := office(t)
	b.plan.Jobs["mail"] = plan.Job{Name: "mail", Agent: "plain", Playbook: []playbook.Call{
		{Name: "send", With: map[string]any{"to": "{{ .item }}"}, Each: []any{"bob", "eve"}, OnError: "continue"}}}
	hand := ledger.Request{Agent: "plain", Detail: ledger.TriggerDetail{Tool: "send", Args: json.RawMessage(`{"to":"zoe"}`)}}
	id := b.enqueue(ledger.Request{Job: "mail", Agent: "plain"})
	b.ends(id)
	b.say(inbox.ApprovalDeny)
	b.ends(id)
	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Wait != nil || p.all() != "eve" {
		t.Errorf("%+v, sent %q", res, p.all())
	}

	id = b.enqueue(hand)
	if res := b.ends(id); res.Wait == nil || p.all() != "eve" {
		t.Fatalf("%+v, sent %q", res, p.all())
	}

	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || p.all() != "eve zoe" {
		t.Errorf("%+v, sent %q", res, p.all())
	}

	id = b.enqueue(hand)
	b.ends(id)
	b.say(inbox.ApprovalDeny)
	if res := b.ends(id); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "user_denied") || p.all() != "eve zoe" {
		t.Errorf("%+v, sent %q", res, p.all())
	}
}

// TestApprovalExpires checks that a run ends if its approval expires. If the run is retried
// manually, it asks again.
func TestApprovalExpires(t *testing.T) {
	t.Parallel()
	b, p := office(t, modeltest.Turn{Calls: []model.Call{send("1", "bob")}}, modeltest.Turn{Calls: []model.Call{send("2", "bob")}})
	id := b.adhoc("Write to Bob.")
	b.ends(id)
	if err := b.ledger.ExpireItem(t.Context(), b.open().ID, ledger.Result{Outcome: domain.OutcomeTimeout, Error: "nobody answered"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if res := b.ends(id); res.Wait == nil || p.all() != "" {
		t.Errorf("%+v, sent %q", res, p.all())
	}
}

// TestPhasesAreAuthorized checks that an agent in phases asks for the approval of a call of its
// step, and then continues with the call.
func TestPhasesAreAuthorized(t *testing.T) {
	t.Parallel()
	act := model.Call{ID: "1", Name: "agent_step", Args: json.RawMessage(`{"phase":"act","thinking":"t","summary":"s","action":{"tool_name":"send","tool_input":{"to":"bob"}}}`)}
	end := model.Call{ID: "2", Name: "agent_step", Args: json.RawMessage(`{"phase":"end","thinking":"t","summary":"s","end_status":"solved","end_message":"Sent."}`)}
	for answer, sent := range map[string]string{inbox.ApprovalOnce: "bob", inbox.ApprovalDeny: ""} {
		b, p := office(t, modeltest.Turn{Calls: []model.Call{act}}, modeltest.Turn{Calls: []model.Call{end}})
		clerk := b.plan.Agents["clerk"]
		clerk.Phased = true
		b.plan.Agents["clerk"] = clerk
		id := b.adhoc("Write to Bob.")
		if res := b.ends(id); res.Wait == nil || p.all() != "" {
			t.Fatalf("%+v, sent %q", res, p.all())
		}

		b.say(answer)
		if res := b.ends(id); res.Outcome != domain.OutcomeSuccess || p.all() != sent {
			t.Errorf("%s: %+v, sent %q", answer, res, p.all())
		}
	}
}

// TestThirdLabel checks that the call that would bring the third label needs the approval, and that
// the labels of a run are recorded before the call.
func TestThirdLabel(t *testing.T) {
	t.Parallel()
	b, p := office(t)
	b.plan.Jobs["mail"] = plan.Job{Name: "mail", Agent: "plain", Playbook: []playbook.Call{
		{Name: "send", With: map[string]any{"to": "bob"}}, {Name: "send", With: map[string]any{"to": "eve"}}}}
	id := b.enqueue(ledger.Request{Job: "mail", Agent: "plain"})
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err == nil {
		err = b.ledger.Labels.RecordTaint(t.Context(), a, label.TaintUpdate{Taint: "A"})
	}

	if err == nil {
		err = b.ledger.Interrupt(t.Context(), a, "killed", nil)
	}
	if err != nil {
		t.Fatal(err)
	}

	p.need = tool.Access{AddsTaint: tool.Private | tool.Outward, Tier: "A", WritesMemory: true}
	if res := b.ends(id); res.Wait == nil || !strings.Contains(res.Wait.Message, "together") {
		t.Fatalf("%+v", res)
	}
	if run, err := b.ledger.Runs.Get(t.Context(), id); err != nil || run.Taint != "A" || run.Tier != "" {
		t.Errorf("before the answer: %+v %v", run, err)
	}

	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Wait == nil || p.all() != "bob" {
		t.Fatalf("each further effect is asked about: %+v, sent %q", res, p.all())
	}

	run, err := b.ledger.Runs.Get(t.Context(), id)
	labels, err2 := b.ledger.Labels.Of(t.Context(), label.TablePlace("plain", ""))
	if err != nil || err2 != nil || run.Taint != "ABC" || run.Tier != "A" || labels != "AB" {
		t.Errorf("%+v, its database has the labels %q: %v %v", run, labels, err, err2)
	}

	p.need.Tier = "B"
	b.say(inbox.ApprovalOnce)
	if res := b.ends(id); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "tier B here") || p.all() != "bob" {
		t.Errorf("a weaker tier: %+v, sent %q", res, p.all())
	}
}

// TestReplayOfApprovals checks that a replay of a run with approvals uses the recorded answers and
// sends nothing.
func TestReplayOfApprovals(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{inbox.ApprovalOnce: "bob", inbox.ApprovalDeny: ""} {
		b, p := office(t, modeltest.Turn{Calls: []model.Call{insertCall("1", "before"), send("2", "bob"), insertCall("3", "after")}}, modeltest.Turn{Text: "That was it."})
		b.table()
		b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Write to Bob.", Record: true}
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		b.ends(id)
		b.say(answer)
		if res := b.ends(id); res.Wait != nil || p.all() != want {
			t.Fatalf("%+v, sent %q", res, p.all())
		}
		if _, played := b.play(id); !played.Same() || p.all() != want {
			t.Errorf("%s: %+v, sent %q", answer, played, p.all())
		}
	}
}
