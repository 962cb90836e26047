package ledgertest

import (
	"errors"
	"testing"
	"time"

	"rouse/agentdb/ledger"
)

func question(text string, options ...string) *ledger.Question {
	return &ledger.Question{Title: "j asks", Message: text, Options: options, Expires: time.Hour}
}

// inbox: a run that asks gives its lane back and waits for one answer, over a restart; the
// second answer comes too late.
func inbox(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	ok(t, l.Finish(ctx, a, ledger.Result{Wait: question("Which \x00 one?", "a", "b"), Steps: 2, Notices: []ledger.Notice{{Channel: "desktop", Title: "j asks"}}}))
	r := get(t, l, run)
	if r.State != ledger.StateWaiting || r.WaitingFor != ledger.WaitInput || r.Outcome != "" || r.Parks != 1 || r.Steps != 2 || !r.FinishedAt.IsZero() {
		t.Fatalf("run: %+v", r)
	}
	if can := must[[]ledger.Run](t)(l.Claimable(ctx, time.Now().Add(1000*time.Hour), 0, 10)); len(can) != 0 {
		t.Errorf("claimable without an answer: %+v", can)
	}
	if running := must[[]ledger.Run](t)(l.Running(ctx)); len(running) != 0 {
		t.Errorf("still running: %+v", running)
	}
	items := must[[]ledger.Item](t)(l.Inbox(ctx))
	if len(items) != 1 || items[0].Run != run || items[0].Attempt != 1 || len(items[0].Options) != 2 || items[0].Multiple || items[0].ExpiresAt.Sub(items[0].CreatedAt) != time.Hour {
		t.Fatalf("inbox: %+v", items)
	}
	if at := must[time.Time](t)(l.NextDue(ctx, time.Now())); !at.Equal(items[0].ExpiresAt) {
		t.Errorf("the next look is at %s", at)
	}
	if n := must[[]ledger.Notice](t)(l.PendingNotices(ctx, time.Now(), 10)); len(n) != 1 {
		t.Errorf("notices: %+v", n)
	}

	l = open(t)
	if _, err := l.Answer(ctx, items[0].ID, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Answer(ctx, items[0].ID, "a"); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("a second answer: %v", err)
	}
	if _, err := l.Answer(ctx, 99, "a"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("an answer to nothing: %v", err)
	}
	if can := must[[]ledger.Run](t)(l.Claimable(ctx, time.Now(), 0, 10)); len(can) != 1 {
		t.Errorf("claimable with an answer: %+v", can)
	}
	second := start(t, l, run)
	attempts := must[[]ledger.Attempt](t)(l.Attempts(ctx, run))
	of := must[[]ledger.Item](t)(l.ItemsOf(ctx, run))
	if second.Number != 2 || attempts[0].State != ledger.AttemptWaiting || len(of) != 1 || of[0].State != ledger.ItemAnswered || of[0].Answer != "b" {
		t.Errorf("attempts %+v, items %+v", attempts, of)
	}
	ok(t, l.Finish(ctx, second, ledger.Result{Outcome: ledger.OutcomeSuccess}))
	if left := must[[]ledger.Item](t)(l.Inbox(ctx)); len(left) != 0 {
		t.Errorf("still in the inbox: %+v", left)
	}
}

// inboxEnds: what nobody answers, and what is not wanted any more, leaves the inbox.
func inboxEnds(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	var runs []int64
	for range 3 {
		run := enqueue(t, l, manual("j"))[0].Run
		a := start(t, l, run)
		if len(runs) == 2 { // somebody asked for its end before it could ask
			must[ledger.Run](t)(l.RequestCancel(ctx, run, "not needed"))
		}
		ok(t, l.Finish(ctx, a, ledger.Result{Wait: question("Go on?")}))
		runs = append(runs, run)
	}
	if r := get(t, l, runs[2]); r.Outcome != ledger.OutcomeCancelled {
		t.Errorf("cancelled while it worked: %+v", r)
	}
	must[ledger.Run](t)(l.RequestCancel(ctx, runs[1], "not needed"))
	items := must[[]ledger.Item](t)(l.Inbox(ctx))
	if len(items) != 1 || items[0].Run != runs[0] {
		t.Fatalf("inbox: %+v", items)
	}
	if due := must[[]ledger.Item](t)(l.Overdue(ctx, time.Now())); len(due) != 0 {
		t.Errorf("overdue at once: %+v", due)
	}
	due := must[[]ledger.Item](t)(l.Overdue(ctx, items[0].ExpiresAt))
	if len(due) != 1 {
		t.Fatalf("overdue: %+v", due)
	}
	for range 2 { // the second changes nothing
		ok(t, l.Expire(ctx, due[0].ID, ledger.Result{Outcome: ledger.OutcomeTimeout, Error: "nobody answered"}))
	}
	if r := get(t, l, runs[0]); r.State != ledger.StateFinished || r.Outcome != ledger.OutcomeTimeout {
		t.Errorf("expired: %+v", r)
	}
	if _, err := l.Answer(ctx, due[0].ID, "late"); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("a late answer: %v", err)
	}
	if n := must[int](t)(l.Prune(ctx, time.Now().Add(1000*time.Hour), func(string) time.Duration { return time.Hour })); n != 3 {
		t.Errorf("%d runs were removed", n)
	}
	if of := must[[]ledger.Item](t)(l.ItemsOf(ctx, runs[0])); len(of) != 0 {
		t.Errorf("items of a removed run: %+v", of)
	}
}
