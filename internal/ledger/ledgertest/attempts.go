package ledgertest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/steps"
)

// anyText tests that a run can end even if texts and file names are not valid UTF-8 or contain zero
// bytes.
func anyText(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	const said = "a\x00b\xffc"
	run := enqueue(t, l, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerWatch, Claim: &claim.Claim{Job: "j", Path: "/in/" + said, Hash: "h"}})[0].Run
	if c, found, err := l.Claims.Of(ctx, "j", "/in/"+said, "h"); err != nil || !found || c.Run != run {
		t.Errorf("the claim: %+v %v %v", c, found, err)
	}

	a := start(t, l, run)
	ok(t, l.Steps.StartStep(ctx, a, steps.Step{Number: 1, StartedAt: now}))
	ok(t, l.Steps.FinishStep(ctx, a, steps.Step{Number: 1, Text: said, Message: json.RawMessage(`{"text":"a\u0000"}`), Notices: []string{said}, FinishedAt: now}))
	ok(t, l.Steps.StartCall(ctx, a, ledger.Call{Step: 1, ID: said, Key: said, Tool: said, Args: json.RawMessage(said), Effect: domain.EffectRead, StartedAt: now}))
	ok(t, l.Steps.FinishCall(ctx, a, ledger.Call{Step: 1, Tool: said, State: domain.CallDone, Envelope: json.RawMessage(said), FinishedAt: now}))
	ok(t, l.Events.Append(ctx, ledger.Event{Kind: "watch.degraded", Job: "j", Data: json.RawMessage(said)}))
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeError, Summary: said, Error: said, Exit: said,
		Notices: []ledger.Notice{{Channel: "desktop", Title: said, Body: said}}}))
	if r := get(t, l, run); r.State != domain.StateFinished || !strings.HasPrefix(r.Error, "a") || !strings.HasSuffix(r.Summary, "c") {
		t.Errorf("run: %+v", r)
	}
	recorded(t, l, run, "run.finished", `"outcome":"error"`)
}

// cancelIsKept tests that a requested cancellation takes effect if the running attempt fails or is
// interrupted.
func cancelIsKept(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for name, end := range map[string]func(a ledger.Attempt) error{
		"retry": func(a ledger.Attempt) error {
			return l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeError, Error: "flaky", RetryAt: time.Now().Add(time.Hour)})
		},
		"interrupt": func(a ledger.Attempt) error { return l.Interrupt(ctx, a, "killed", nil) },
	} {
		run := enqueue(t, l, manual(name))[0].Run
		a := start(t, l, run)
		must[ledger.Run](t)(l.RequestCancel(ctx, run, "no need"))
		ok(t, end(a))
		if r := get(t, l, run); r.Outcome != domain.OutcomeCancelled || r.Error != "no need" {
			t.Errorf("%s: %+v", name, r)
		}
		if r := must[ledger.Run](t)(l.Retry(ctx, run)); r.CancelReason != "" {
			t.Errorf("%s: a run that was queued again is still to be cancelled: %+v", name, r)
		}
	}

	// An attempt that succeeds before the cancellation keeps its outcome.
	done := enqueue(t, l, manual("done"))[0].Run
	a := start(t, l, done)
	must[ledger.Run](t)(l.RequestCancel(ctx, done, "no need"))
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	if r := get(t, l, done); r.Outcome != domain.OutcomeSuccess || r.Error != "" {
		t.Errorf("%+v", r)
	}
}

// finishUnstarted tests that a run that ends before it started has no attempt and no start time. A
// running or finished run cannot be ended this way.
func finishUnstarted(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	late := enqueue(t, l, manual("j"))[0].Run
	ok(t, l.FinishUnstarted(ctx, late, ledger.Result{Outcome: domain.OutcomeSkipped, Error: "too late"}))
	r := get(t, l, late)
	if r.State != domain.StateFinished || r.Outcome != domain.OutcomeSkipped || r.Error != "too late" || r.Attempt != 0 || !r.StartedAt.IsZero() || r.FinishedAt.IsZero() {
		t.Errorf("%+v", r)
	}
	if attempts := must[[]ledger.Attempt](t)(l.Runs.Attempts(ctx, late)); len(attempts) != 0 {
		t.Errorf("attempts: %+v", attempts)
	}

	// A retried run has started before.
	again := enqueue(t, l, manual("j"))[0].Run
	ok(t, l.Interrupt(ctx, start(t, l, again), "killed", nil))
	ok(t, l.FinishUnstarted(ctx, again, ledger.Result{Outcome: domain.OutcomeError, Error: "no"}))
	if r := get(t, l, again); r.Outcome != domain.OutcomeError || r.StartedAt.IsZero() || r.Attempt != 1 {
		t.Errorf("%+v", r)
	}

	on := enqueue(t, l, manual("j"))[0].Run
	start(t, l, on)
	for _, run := range []int64{late, on} {
		if err := l.FinishUnstarted(ctx, run, ledger.Result{Outcome: domain.OutcomeSkipped}); !errors.Is(err, ledger.ErrNotClaimable) {
			t.Errorf("run %d: %v", run, err)
		}
	}
}

// interruptedUsage tests that the usage of an interrupted attempt is counted although the attempt
// cannot report it.
func interruptedUsage(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	ok(t, l.Steps.StartStep(ctx, a, steps.Step{Number: 1, StartedAt: now}))
	ok(t, l.Steps.FinishStep(ctx, a, steps.Step{Number: 1, Usage: ledger.Usage{TokensIn: 100, TokensOut: 10, TokensCached: 1}, FinishedAt: now}))
	ok(t, l.Steps.StartCall(ctx, a, ledger.Call{Step: 1, Key: "k", Tool: "t", Effect: domain.EffectRead, StartedAt: now}))
	within := steps.Step{Number: 2, ParentCall: "k", Usage: ledger.Usage{TokensIn: 30}, StartedAt: now, FinishedAt: now}
	ok(t, l.Steps.StartStep(ctx, a, within))
	ok(t, l.Steps.FinishStep(ctx, a, within))
	if steps := must[[]steps.Step](t)(l.Steps.List(ctx, run)); len(steps) != 2 || steps[1].ParentCall != "k" {
		t.Errorf("steps: %+v", steps)
	}

	// The first attempt cannot report its usage, so its recorded steps and calls count.
	ok(t, l.Interrupt(ctx, a, "killed", nil))
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSuccess, Steps: 2, Calls: 3, Usage: ledger.Usage{TokensIn: 5}}))
	if r := get(t, l, run); r.Steps != 4 || r.Calls != 4 || r.Usage != (ledger.Usage{TokensIn: 135, TokensOut: 10, TokensCached: 1}) {
		t.Errorf("run: %+v", r)
	}

	// A usage reported by the caller replaces the recorded usage of the last attempt. An empty
	// report does not count as zero.
	for _, c := range []struct{ final, want ledger.Result }{
		{ledger.Result{Steps: 1, Calls: 1, Usage: ledger.Usage{TokensIn: 9}}, ledger.Result{Steps: 1, Calls: 1, Usage: ledger.Usage{TokensIn: 9}}},
		{ledger.Result{}, ledger.Result{Steps: 1, Usage: ledger.Usage{TokensIn: 100}}},
	} {
		a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
		ok(t, l.Steps.StartStep(ctx, a, steps.Step{Number: 1, StartedAt: now}))
		ok(t, l.Steps.FinishStep(ctx, a, steps.Step{Number: 1, Usage: ledger.Usage{TokensIn: 100}, FinishedAt: now}))
		c.final.Outcome = domain.OutcomeInterrupted
		ok(t, l.Interrupt(ctx, a, "killed", &c.final))
		if r := get(t, l, a.Run); r.Steps != c.want.Steps || r.Calls != c.want.Calls || r.Usage != c.want.Usage {
			t.Errorf("with %+v: %+v", c.final, r)
		}
	}

	// Only steps for which the model was asked count. A step in which an attempt just finished the
	// open calls of the previous attempt does not count.
	run = enqueue(t, l, manual("j"))[0].Run
	for _, models := range [][]string{{"m"}, {"", "m", "killed"}} {
		a := start(t, l, run)
		for i, model := range models {
			s := steps.Step{Number: i + 1, Model: model, StartedAt: now, FinishedAt: now}
			ok(t, l.Steps.StartStep(ctx, a, s))
			if model != "killed" {
				ok(t, l.Steps.FinishStep(ctx, a, s))
			}
		}
		ok(t, l.Interrupt(ctx, a, "killed", nil))
	}

	if r := get(t, l, run); r.Steps != 3 {
		t.Errorf("%d steps of a model count, want 3", r.Steps)
	}
}

// endWithoutStart tests that ending a step or call that has not started returns an error.
func endWithoutStart(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	if err := l.Steps.FinishStep(ctx, a, steps.Step{Number: 7}); err == nil || !strings.Contains(err.Error(), "step 7") {
		t.Errorf("a step: %v", err)
	}
	if err := l.Steps.FinishCall(ctx, a, ledger.Call{Step: 7, Index: 2}); err == nil || !strings.Contains(err.Error(), "call 2 in step 7") {
		t.Errorf("a call: %v", err)
	}
}
