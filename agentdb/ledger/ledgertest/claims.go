package ledgertest

import (
	"testing"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// claims follows one content through its life: taken, done, seen again, failed, taken over.
func claims(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	drop := ledger.Request{Job: "inbox", Agent: "a", Trigger: domain.TriggerWatch,
		Claim: &ledger.Claim{Job: "inbox", Path: "/in/a.csv", Hash: "h1", Size: 3}}
	one := enqueue(t, l, drop)[0]
	if again := enqueue(t, l, drop)[0]; !again.Blocked || again.Run != one.Run || again.Outcome != "" {
		t.Errorf("an unfinished claim does not block: %+v", again)
	}

	ok(t, l.Finish(ctx, start(t, l, one.Run), ledger.Result{Outcome: domain.OutcomeError, Error: "no"}))
	pending := must[[]ledger.ClaimStatus](t)(l.PendingAfterMoves(ctx, 10))
	if len(pending) != 1 || pending[0].Run != one.Run || pending[0].Outcome != domain.OutcomeError {
		t.Fatalf("the after-move of a finished run is not pending: %+v", pending)
	}

	moved(t, l, pending[0], "/in/failed/a.csv")
	if same := enqueue(t, l, drop)[0]; !same.Blocked || same.Run != one.Run || same.Outcome != domain.OutcomeError {
		t.Errorf("what failed runs again under the same definition: %+v", same)
	}
	changed := drop
	changed.Detail.Definition = "another"
	two := enqueue(t, l, changed)[0]
	if !two.New || two.Run == one.Run {
		t.Fatalf("a failed claim blocks under another definition: %+v", two)
	}

	ok(t, l.Finish(ctx, start(t, l, two.Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	for _, c := range must[[]ledger.ClaimStatus](t)(l.PendingAfterMoves(ctx, 10)) {
		moved(t, l, c, "/in/done/a.csv")
	}

	if third := enqueue(t, l, drop)[0]; !third.Blocked || third.Outcome != domain.OutcomeSuccess {
		t.Errorf("a done claim does not block: %+v", third)
	}
	if again := must[[]ledger.ClaimStatus](t)(l.PendingAfterMoves(ctx, 10)); len(again) != 1 {
		t.Errorf("the same bytes dropped again get no after-move: %+v", again)
	}

	blocked := 0
	for _, e := range must[[]ledger.Event](t)(l.Events(ctx, ledger.EventFilter{Job: "inbox"})) {
		if e.Kind == "file.blocked" {
			blocked++
		}
	}

	if blocked != 1 {
		t.Errorf("%d file.blocked events, want 1", blocked)
	}

	named := drop
	named.Claim = &ledger.Claim{Job: "inbox", Path: "/in/named.csv", Hash: "h1"}
	failed := enqueue(t, l, named)[0]
	ok(t, l.Finish(ctx, start(t, l, failed.Run), ledger.Result{Outcome: domain.OutcomeTimeout}))
	named.Named = true
	if again := enqueue(t, l, named)[0]; !again.New {
		t.Errorf("what failed cannot be run by its name: %+v", again)
	}

	// The same path with other content is another file.
	other := drop
	other.Claim = &ledger.Claim{Job: "inbox", Path: "/in/a.csv", Hash: "h2"}
	if changed := enqueue(t, l, other)[0]; !changed.New {
		t.Errorf("changed bytes did not run: %+v", changed)
	}
}

// claimsBack: contents that are there again after they failed wait, and their owner is told of the first of a job.
func claimsBack(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	told := 0
	failed := func(path string) (ledger.ClaimStatus, int64) {
		t.Helper()
		run := enqueue(t, l, ledger.Request{Job: "in", Agent: "a", Trigger: domain.TriggerWatch, Detail: ledger.Detail{Definition: "d"}, Claim: &ledger.Claim{Job: "in", Path: path, Hash: "h"}})[0].Run
		ok(t, l.Finish(t.Context(), start(t, l, run), ledger.Result{Outcome: domain.OutcomeError}))
		for _, c := range must[[]ledger.ClaimStatus](t)(l.PendingAfterMoves(t.Context(), 10)) {
			moved(t, l, c, "/failed"+path)
		}
		c, _, err := l.ClaimOf(t.Context(), "in", path, "h")
		ok(t, err)
		return c, run
	}
	mark := func(c ledger.ClaimStatus, definition string, want bool) time.Time {
		t.Helper()
		since, back, err := l.MarkBack(ctx, c, ledger.Claim{ModTime: time.UnixMilli(7)}, definition, func() []ledger.Notice {
			told++
			return []ledger.Notice{{Job: "in", Channel: "desktop", Title: "back"}}
		})
		if err != nil || back != want {
			t.Errorf("%s is back: %v (%v)", c.Path, back, err)
		}
		return since
	}
	state := func(c ledger.ClaimStatus) string {
		t.Helper()
		now, _, err := l.ClaimOf(ctx, "in", c.Path, "h")
		ok(t, err)
		return now.After
	}

	a, run := failed("/a")
	mark(a, "another", false)
	if got := state(a); got != ledger.AfterDone || told != 0 {
		t.Errorf("under another definition it is %s, told %d times", got, told)
	}

	since := mark(a, "d", true)
	b, _ := failed("/b")
	mark(b, "d", true)
	a, _, err := l.ClaimOf(ctx, "in", "/a", "h")
	ok(t, err)
	if again := mark(a, "d", true); !again.Equal(since) || a.After != ledger.AfterBack || a.ModTime.UnixMilli() != 7 || told != 1 {
		t.Errorf("%+v since %s, first %s, told %d times", a, again, since, told)
	}
	if notices := must[[]ledger.Notice](t)(l.PendingNotices(ctx, time.Now().Add(time.Hour), 10)); len(notices) != 1 {
		t.Errorf("%d notices", len(notices))
	}

	// A retry takes it; what is read before that marks nothing any more.
	must[ledger.Run](t)(l.Retry(ctx, run))
	if got := state(a); got != ledger.AfterNone {
		t.Errorf("after a retry it is %q", got)
	}
	ok(t, l.BackGone(ctx, a))
	stale := a
	stale.After = ledger.AfterDone
	mark(stale, "d", true)
	if got := state(a); got != ledger.AfterNone {
		t.Errorf("a retried claim was marked: %q", got)
	}

	b, _, err = l.ClaimOf(ctx, "in", "/b", "h")
	ok(t, err)
	ok(t, l.BackGone(ctx, b))
	if got := state(b); got != ledger.AfterDone {
		t.Errorf("what has gone is %q", got)
	}
}
