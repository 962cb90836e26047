package ledgertest

import (
	"testing"

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
	two := enqueue(t, l, drop)[0]
	if !two.New || two.Run == one.Run {
		t.Fatalf("a failed claim blocks: %+v", two)
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

	// The same path with other content is another file.
	other := drop
	other.Claim = &ledger.Claim{Job: "inbox", Path: "/in/a.csv", Hash: "h2"}
	if changed := enqueue(t, l, other)[0]; !changed.New {
		t.Errorf("changed bytes did not run: %+v", changed)
	}
}
