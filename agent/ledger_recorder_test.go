package agent_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// TestRecorderHoldsBack checks that the start of a call with an effect and the end of a call that
// cannot be repeated are written at once. The end of a step or of a repeatable call is written with
// the next of these entries, within 100 ms, or at the end of the run.
func TestRecorderHoldsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testRecorderHoldsBack) // virtual time does not pass while it writes
}

func testRecorderHoldsBack(t *testing.T) {
	ctx := t.Context()
	l, err := ledger.Open(ctx, ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = l.Close() })
	accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI})
	if err != nil {
		t.Fatal(err)
	}

	_, a, err := l.StartAttempt(ctx, accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}

	r := agent.NewRecorder(l, a, []string{"canary"}, true)
	now := time.Now()
	step := loop.Step{Number: 1, Text: "a canary", Message: json.RawMessage(`{"role":"assistant"}`), StartedAt: now, FinishedAt: now}
	call := func(i int, effect domain.Effect) loop.Call {
		return loop.Call{Step: 1, Index: i, ID: "c", Key: string(rune('a' + i)), Tool: "t", Args: json.RawMessage(`{}`), Effect: effect, State: "done", Envelope: json.RawMessage(`{"ok":true}`), StartedAt: now, FinishedAt: now}
	}
	told := 0
	for _, s := range []struct {
		what string
		do   func() error
		want []string // new events
	}{
		{"a step begins", func() error { return r.StartStep(ctx, step) }, []string{"step.started"}},
		{"it ends", func() error { return r.FinishStep(ctx, step) }, nil},
		{"a read begins", func() error { return r.StartCall(ctx, call(0, domain.EffectRead)) }, nil},
		{"it ends", func() error { return r.FinishCall(ctx, call(0, domain.EffectRead)) }, nil},
		{"a command begins", func() error { return r.StartCall(ctx, call(1, domain.EffectExternal)) }, []string{"step.finished", "call.started", "call.finished", "call.started"}},
		{"it ends", func() error { return r.FinishCall(ctx, call(1, domain.EffectExternal)) }, []string{"call.finished"}},
		{"a write begins", func() error { return r.StartCall(ctx, call(2, domain.EffectDatabase)) }, []string{"call.started"}},
		{"another begins", func() error { return r.StartCall(ctx, call(3, domain.EffectDatabase)) }, []string{"call.started"}},
		{"the first ends", func() error { return r.FinishCall(ctx, call(2, domain.EffectDatabase)) }, nil},
		{"the other ends", func() error { return r.FinishCall(ctx, call(3, domain.EffectDatabase)) }, nil},
		{"one is answered without being made", func() error { return r.AnswerCall(ctx, call(4, domain.EffectExternal)) }, nil},
		{"the run is over", func() error { return r.Flush(ctx) }, []string{"call.finished", "call.finished", "call.started", "call.finished"}},
		{"nothing is left", func() error { return r.Flush(ctx) }, nil},
		{"a read begins", func() error { return r.StartCall(ctx, call(5, domain.EffectRead)) }, nil},
		{"it takes a while", func() error {
			time.Sleep(time.Second)
			synctest.Wait()
			return nil
		}, []string{"call.started"}},
		{"it ends", func() error { return r.FinishCall(ctx, call(5, domain.EffectRead)) }, nil},
		{"a step begins", func() error { return r.StartStep(ctx, loop.Step{Number: 2, StartedAt: now}) }, []string{"call.finished", "step.started"}},
	} {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}

		events, err := l.Events.List(ctx, event.Filter{Run: a.Run})
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, e := range events {
			if e.Kind != "run.queued" && e.Kind != "run.started" {
				got = append(got, e.Kind)
			}
		}
		if fresh := got[told:]; !slices.Equal(fresh, s.want) {
			t.Errorf("%s: %v, want %v", s.what, fresh, s.want)
		}

		told = len(got)
	}

	steps, err := l.Steps.List(ctx, a.Run)
	if err != nil || len(steps) != 2 || steps[0].Text != "a [secret]" {
		t.Errorf("%+v, %v", steps, err)
	}
}

// TestStepsWithoutModel checks that a step without a model request is durable when its first call
// begins. A step within a call, which asks a model, is durable at once.
func TestStepsWithoutModel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(ledger.Request{Job: "note", Agent: "clerk"})
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	r := agent.NewRecorder(b.ledger, a, nil, false)
	now := time.Now()
	recorded := func(what string, want int, errs ...error) {
		t.Helper()
		steps, err := b.ledger.Steps.List(t.Context(), id)
		if err = errors.Join(append(errs, err)...); err != nil || len(steps) != want {
			t.Errorf("%s: %d steps, want %d (%v)", what, len(steps), want, err)
		}
	}
	recorded("a step begins", 0, r.StartStep(t.Context(), loop.Step{Number: 1, StartedAt: now}))
	recorded("its call begins", 1, r.StartCall(t.Context(), loop.Call{Step: 1, ID: "c", Key: "k", Tool: "t", Effect: domain.EffectDatabase, StartedAt: now}))
	recorded("a model is asked within it", 2, r.StartStep(t.Context(), loop.Step{Number: 2, ParentCall: "k", StartedAt: now}))
}

// TestRecordOfStorageComesBehind checks that writes of a module to its own storage may be recorded
// later, in one transaction. Results that the module received earlier are durable before it writes,
// because they can change a later attempt.
func TestRecordOfStorageComesBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(ledger.Request{Job: "note", Agent: "clerk"})
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now()
	call := func(i int, what string) loop.Call {
		c := loop.Call{Step: 1, Index: i, ID: "c", Key: string(rune('a' + i)), Tool: what, Effect: domain.EffectRead, State: domain.CallDone, Envelope: json.RawMessage(`{"ok":true}`), StartedAt: now, FinishedAt: now}
		if what == "store" {
			c.Effect, c.Once = domain.EffectDatabase, true
		}
		return c
	}
	calls := func() (n int) {
		t.Helper()
		events, err := b.ledger.Events.List(t.Context(), event.Filter{Run: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind == "call.started" || e.Kind == "call.finished" {
				n++
			}
		}
		return n
	}

	ctx := t.Context()
	r := agent.NewRecorder(b.ledger, a, nil, false)
	failed := call(4, "store")
	failed.State = domain.CallFailed
	for _, s := range []struct {
		what string
		do   func() error
		most int // recorded entries of calls
		all  bool
	}{
		{"a step begins", func() error { return r.StartStep(ctx, loop.Step{Number: 1, StartedAt: now}) }, 0, true},
		{"a write begins", func() error { return r.StartCall(ctx, call(0, "store")) }, 1, false},
		{"it ends", func() error { return r.FinishCall(ctx, call(0, "store")) }, 2, false},
		{"a read begins", func() error { return r.StartCall(ctx, call(1, "read")) }, 3, false},
		{"it ends, and tells something", func() error { return r.FinishCall(ctx, call(1, "read")) }, 4, false},
		{"a write begins with what was told", func() error { return r.StartCall(ctx, call(2, "store")) }, 5, true},
		{"it ends", func() error { return r.FinishCall(ctx, call(2, "store")) }, 6, false},
		{"one is answered from the record", func() error {
			c := call(3, "store")
			c.State = domain.CallReplayed
			return r.AnswerCall(ctx, c)
		}, 8, false},
		{"another begins", func() error { return r.StartCall(ctx, call(4, "store")) }, 9, false},
		{"it fails, which tells something", func() error { return r.FinishCall(ctx, failed) }, 10, true},
		{"the last one", func() error {
			return errors.Join(r.StartCall(ctx, call(5, "store")), r.FinishCall(ctx, call(5, "store")))
		}, 12, false},
	} {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		if n := calls(); n > s.most || s.all && n < s.most {
			t.Errorf("%s: %d entries of calls are on record, want %d", s.what, n, s.most)
		}
	}

	for deadline := time.Now().Add(time.Minute); calls() < 12; { // written without a barrier
		if time.Now().After(deadline) {
			t.Fatalf("%d entries are on record after a minute", calls())
		}
	}
	if err := b.ledger.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
		t.Fatal(err)
	}

	// The recorder reports that the attempt is over, in this call or in a later one.
	err = r.StartCall(ctx, call(6, "store"))
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); {
		err = r.FinishCall(ctx, call(6, "store"))
	}
	if err == nil {
		t.Error("calls go on after the attempt is over")
	}
}
