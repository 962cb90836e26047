package ledgertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
)

// claims tests the life of a file content: claimed, finished, seen again, failed, claimed by a
// retry.
func claims(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	drop := ledger.Request{Job: "inbox", Agent: "a", Trigger: domain.TriggerWatch,
		Claim: &claim.Claim{Job: "inbox", Path: "/in/a.csv", Hash: "h1", Size: 3}}
	one := enqueue(t, l, drop)[0]
	if one.BreakerTripped {
		t.Errorf("there is no breaker: %+v", one)
	}
	if again := enqueue(t, l, drop)[0]; !again.Blocked || again.Run != one.Run || again.Outcome != "" {
		t.Errorf("an unfinished claim does not block: %+v", again)
	}

	ok(t, l.Finish(ctx, start(t, l, one.Run), ledger.Result{Outcome: domain.OutcomeError, Error: "no"}))
	pending := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10))
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
	for _, c := range must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10)) {
		moved(t, l, c, "/in/done/a.csv")
	}

	if third := enqueue(t, l, drop)[0]; !third.Blocked || third.Outcome != domain.OutcomeSuccess {
		t.Errorf("a done claim does not block: %+v", third)
	}
	if again := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10)); len(again) != 1 {
		t.Errorf("the same bytes dropped again get no after-move: %+v", again)
	}

	if n := len(eventsOf(t, l, "inbox", "file.blocked")); n != 1 {
		t.Errorf("%d file.blocked events, want 1", n)
	}

	named := drop
	named.Trigger, named.Claim = domain.TriggerManual, &claim.Claim{Job: "inbox", Path: "/in/named.csv", Hash: "h1"}
	failed := enqueue(t, l, named)[0]
	ok(t, l.Finish(ctx, start(t, l, failed.Run), ledger.Result{Outcome: domain.OutcomeTimeout}))
	named.Named = true
	if again := enqueue(t, l, named)[0]; !again.New {
		t.Errorf("what failed cannot be run by its name: %+v", again)
	}

	// A cancelled run has not failed. If its file is dropped again, it starts a new run.
	cancelled := drop
	cancelled.Claim = &claim.Claim{Job: "inbox", Path: "/in/cancelled.csv", Hash: "h1"}
	must[ledger.Run](t)(l.RequestCancel(ctx, enqueue(t, l, cancelled)[0].Run, "not now"))
	if again := enqueue(t, l, cancelled)[0]; !again.New {
		t.Errorf("what was cancelled is not run again: %+v", again)
	}

	// The content of an undone run starts a run when it is dropped again. The file that is at the
	// path after the undo does not.
	taken := drop
	taken.Claim = &claim.Claim{Job: "inbox", Path: "/in/undone.csv", Hash: "h1", ModTime: time.UnixMilli(1000)}
	first := enqueue(t, l, taken)[0]
	ok(t, l.Claims.LeaveFiles(ctx, first.Run))
	ok(t, l.Claims.DisownFiles(ctx, must[[]claim.Status](t)(l.Claims.OfRun(ctx, first.Run))))
	if busy := enqueue(t, l, taken)[0]; !busy.Blocked || busy.Outcome != "" {
		t.Errorf("a run at work does not own its file: %+v", busy)
	}
	ok(t, l.Finish(ctx, start(t, l, first.Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	ok(t, l.Claims.LeaveFiles(ctx, first.Run))
	if c, _, err := l.Claims.Of(ctx, "inbox", taken.Claim.Path, "h1"); err != nil || c.After != claim.AfterLeft {
		t.Errorf("the file of a run that is being undone is moved: %+v, %v", c, err)
	}
	ok(t, l.Claims.DisownFiles(ctx, must[[]claim.Status](t)(l.Claims.OfRun(ctx, first.Run))))
	if lies := enqueue(t, l, taken)[0]; !lies.Blocked || lies.Run != first.Run {
		t.Errorf("a file that lies there after the undo of its run gets another run by itself: %+v", lies)
	}
	dropped := taken
	dropped.Claim = &claim.Claim{Job: "inbox", Path: "/in/undone.csv", Hash: "h1", ModTime: time.UnixMilli(2000)}
	second := enqueue(t, l, dropped)[0]
	if !second.New {
		t.Fatalf("the file of an undone run does not run when it is dropped again: %+v", second)
	}

	// A user can request another run of a finished file, but not two runs at once.
	again := dropped
	again.Again = true
	if busy := enqueue(t, l, again)[0]; !busy.Blocked || busy.Run != second.Run {
		t.Errorf("two runs have one file: %+v", busy)
	}
	ok(t, l.Finish(ctx, start(t, l, second.Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	if third := enqueue(t, l, again)[0]; !third.New {
		t.Errorf("a finished file does not run again on purpose: %+v", third)
	}

	// Other content at the same path counts as another file.
	other := drop
	other.Claim = &claim.Claim{Job: "inbox", Path: "/in/a.csv", Hash: "h2"}
	if changed := enqueue(t, l, other)[0]; !changed.New {
		t.Errorf("changed bytes did not run: %+v", changed)
	}
}

// claimsStuck tests a file that could not be moved away. It stays blocked by its failed run until
// it is written again.
func claimsStuck(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	drop := ledger.Request{Job: "in", Agent: "a", Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{Definition: "d"}, Claim: &claim.Claim{Job: "in", Path: "/in/a", Hash: "h", ModTime: now}}
	first := enqueue(t, l, drop)[0]
	ok(t, l.Finish(ctx, start(t, l, first.Run), ledger.Result{Outcome: domain.OutcomeError}))
	fail := func() {
		t.Helper()
		pending := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(t.Context(), 10))
		if len(pending) != 1 || !must[bool](t)(l.Claims.FinishAfterMove(t.Context(), pending[0], claim.AfterFailed, "", "no room")) {
			t.Fatalf("%+v", pending)
		}
	}
	fail()

	drop.Detail.Definition = "another" // a failed file normally runs again under another definition
	if seen := enqueue(t, l, drop)[0]; !seen.Blocked || seen.Run != first.Run || seen.Outcome != domain.OutcomeError {
		t.Errorf("seen again: %+v", seen)
	}
	fail() // the move is retried
	if events := eventsOf(t, l, "in", "file.blocked"); len(events) != 0 {
		t.Errorf("the file is told of each time that it is seen: %+v", events)
	}

	drop.Claim = &claim.Claim{Job: "in", Path: "/in/a", Hash: "h", ModTime: now.Add(time.Second)}
	if written := enqueue(t, l, drop)[0]; !written.New {
		t.Errorf("written again: %+v", written)
	}
}

// eventsOf returns the events of a kind and a job.
func eventsOf(t *testing.T, l *ledger.Ledger, job, kind string) []ledger.Event {
	t.Helper()
	all := must[[]ledger.Event](t)(l.Events.List(t.Context(), event.Filter{Job: job}))
	return slices.DeleteFunc(all, func(e ledger.Event) bool { return e.Kind != kind })
}

// releaseClaims tests that a file released by its run starts a new run when it is dropped again.
func releaseClaims(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, drops("in", "a", "b", "c"))[0].Run
	a := start(t, l, run)
	gone := drops("in", "a", "b").Claims
	if err := l.Claims.Release(ctx, ledger.Attempt{Run: run, Number: a.Number + 1}, gone...); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("by an attempt that is not the running one: %v", err)
	}
	if again := enqueue(t, l, drops("in", "a"))[0]; !again.Blocked {
		t.Errorf("a file in work was taken: %+v", again)
	}

	ok(t, l.Claims.Release(ctx, a, gone...))
	if again := enqueue(t, l, drops("in", "a", "b", "c"))[0]; !again.New || !slices.Equal(filesOf(t, l, again.Run), []string{"a", "b"}) {
		t.Errorf("%+v of %v", again, filesOf(t, l, again.Run))
	}
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if due := must[[]claim.Status](t)(l.Claims.PendingAfterMoves(ctx, 10)); len(due) != 1 || due[0].Path != "/in/c" {
		t.Errorf("due: %+v", due)
	}
}

// claimsBack tests that a failed content that reappears waits. Only the first such content of a job
// causes a notice.
func claimsBack(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	told := 0
	failed := func(path string) (claim.Status, int64) {
		t.Helper()
		run := enqueue(t, l, ledger.Request{Job: "in", Agent: "a", Trigger: domain.TriggerWatch, Detail: ledger.TriggerDetail{Definition: "d"}, Claim: &claim.Claim{Job: "in", Path: path, Hash: "h"}})[0].Run
		ok(t, l.Finish(t.Context(), start(t, l, run), ledger.Result{Outcome: domain.OutcomeError}))
		for _, c := range must[[]claim.Status](t)(l.Claims.PendingAfterMoves(t.Context(), 10)) {
			moved(t, l, c, "/failed"+path)
		}
		c, _, err := l.Claims.Of(t.Context(), "in", path, "h")
		ok(t, err)
		return c, run
	}
	mark := func(c claim.Status, definition string, want bool) time.Time {
		t.Helper()
		since, back, err := l.Claims.MarkReappeared(ctx, c, time.UnixMilli(7), definition, []ledger.Notice{{Job: "in", Channel: "desktop", Title: "back"}})
		if err != nil || back != want {
			t.Errorf("%s is back: %v (%v)", c.Path, back, err)
		}
		told = len(must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now().Add(time.Hour), 10)))
		return since
	}
	state := func(c claim.Status) string {
		t.Helper()
		now, _, err := l.Claims.Of(ctx, "in", c.Path, "h")
		ok(t, err)
		return now.After
	}

	a, run := failed("/a")
	mark(a, "another", false)
	if got := state(a); got != claim.AfterDone || told != 0 {
		t.Errorf("under another definition it is %s, told %d times", got, told)
	}

	since := mark(a, "d", true)
	if told != 1 {
		t.Errorf("of the first that is back its owner was told %d times", told)
	}
	b, _ := failed("/b")
	mark(b, "d", true)
	a, _, err := l.Claims.Of(ctx, "in", "/a", "h")
	ok(t, err)
	if again := mark(a, "d", true); !again.Equal(since) || a.After != claim.AfterBack || a.ModTime.UnixMilli() != 7 || told != 1 {
		t.Errorf("%+v since %s, first %s, told %d times", a, again, since, told)
	}
	if notices := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now().Add(time.Hour), 10)); len(notices) != 1 {
		t.Errorf("%d notices", len(notices))
	}

	// A retry takes the claim back. A stale claim no longer marks it.
	must[ledger.Run](t)(l.Retry(ctx, run))
	if got := state(a); got != claim.AfterNone {
		t.Errorf("after a retry it is %q", got)
	}
	ok(t, l.Claims.BackGone(ctx, a))
	stale := a
	stale.After = claim.AfterDone
	mark(stale, "d", true)
	if got := state(a); got != claim.AfterNone {
		t.Errorf("a retried claim was marked: %q", got)
	}
	if n := len(eventsOf(t, l, "in", claim.FileBack)); n != 2 {
		t.Errorf("%d events tell of two files that are back", n)
	}

	b, _, err = l.Claims.Of(ctx, "in", "/b", "h")
	ok(t, err)
	ok(t, l.Claims.BackGone(ctx, b))
	if got := state(b); got != claim.AfterDone {
		t.Errorf("what has gone is %q", got)
	}
}
