package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// with adds a tool to the run that calls do.
func (b *bench) with(t *testing.T, name string, do func(context.Context, tool.Invocation) (tool.Envelope, error)) {
	t.Helper()
	d, err := tool.Define(tool.Spec{Name: name, Description: name, Effect: domain.EffectRead, Class: tool.ClassOther, Nests: true},
		func(ctx context.Context, in tool.Invocation, _ noArgs) (tool.Envelope, error) { return do(ctx, in) })
	if err == nil {
		b.o.Registry, err = b.o.Registry.With(d)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reducing returns a bench with a run that has the reduce tool.
func reducing(t *testing.T, turns ...func(model.Request) []any) *bench {
	t.Helper()
	b := setup(t, turns...)
	b.o.Reducer = &loop.Reducer{System: "Find it."}
	d, _, err := b.o.Reducer.Tool(b.o.Registry, "Reads much and returns little.")
	if err == nil {
		b.o.Registry, err = b.o.Registry.With(d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// answered returns the recorded envelope of the last call of a tool.
func (b *bench) answered(name string) (envelope string) {
	for _, c := range b.log.calls {
		if c.Tool == name {
			envelope = string(c.Envelope)
		}
	}
	return envelope
}

// TestReductionWithinItsRun: OSA-24, a reduction has the remaining tokens and output of its run,
// and at least one of each. The run is charged for the reduction.
func TestReductionWithinItsRun(t *testing.T) {
	const task = `{"task":"t"}`
	for name, c := range map[string]struct {
		bounds  loop.Bounds
		read    model.Usage // of the first nested turn
		outcome domain.Outcome
		within  string // in the result of the call
		says    string // in the error of the run
	}{
		"all tokens that are left": {loop.Bounds{Tokens: 1000}, model.Usage{Input: 500, Output: 100}, domain.OutcomeSuccess, `"digest":"digest"`, ""},
		"a token more":             {loop.Bounds{Tokens: 1000}, model.Usage{Input: 500, Output: 101}, domain.OutcomeBudget, "used 601 tokens, more than its 600", "used 1001 tokens, more than its 1000"},
		"no token is left":         {loop.Bounds{Tokens: 400}, model.Usage{Input: 1, Output: 1}, domain.OutcomeBudget, "used 2 tokens, more than its 1", "used 402 tokens"},
		"all that may be written":  {loop.Bounds{Output: int64(len("12345" + task + "{}" + "digest" + "end"))}, model.Usage{}, domain.OutcomeSuccess, `"digest":"digest"`, ""},
		"a byte less":              {loop.Bounds{Output: int64(len("12345" + task + "{}" + "digest" + "en"))}, model.Usage{}, domain.OutcomeBudget, `"digest":"digest"`, "more than the 27 bytes"},
		"less than it writes":      {loop.Bounds{Output: int64(len("12345" + task + "{}" + "dig"))}, model.Usage{}, domain.OutcomeBudget, "wrote more than the 5 bytes", "more than the 22 bytes"},
		"nothing may be written":   {loop.Bounds{Output: int64(len("12345" + task))}, model.Usage{}, domain.OutcomeBudget, "wrote more than the 1 bytes", "more than the 17 bytes"},
		"no bound":                 {loop.Bounds{Output: -1}, model.Usage{Input: 1 << 40}, domain.OutcomeSuccess, `"digest":"digest"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := reducing(t, say("12345", call("reduce", task), model.Usage{Input: 300, Output: 100}), say(call("read", `{}`), c.read), say("digest"), say("end"))
			b.o.Bounds = c.bounds
			res := b.run(t, t.Context())
			if got := b.answered("reduce"); res.Outcome != c.outcome || !strings.Contains(got, c.within) || !strings.Contains(res.Error, c.says) {
				t.Errorf("%s: %q after %s", res.Outcome, res.Error, got)
			}
		})
	}
}

// TestReductionsShareCalls checks that the reductions of one answer run one after the other, and
// share the remaining calls.
func TestReductionsShareCalls(t *testing.T) {
	b := reducing(t, say(call("reduce", `{"task":"a"}`), call("reduce", `{"task":"b"}`)),
		say(call("read", `{"text":"1"}`), call("read", `{"text":"2"}`)), say("one"), say(call("read", `{"text":"3"}`), call("read", `{"text":"4"}`)), say("end"))
	b.o.Bounds.Calls = 5
	res := b.run(t, t.Context())
	if len(b.done) != 3 || res.Calls != 5 || res.Summary != "end" || !strings.Contains(b.answered("reduce"), "the calls that were left to this run were used up") {
		t.Errorf("%+v made %v: %s", res, b.done, b.answered("reduce"))
	}
}

// TestReductionDoesNotWait checks that a call that needs an approval is refused within a reduction,
// because a reduction always starts from the beginning.
func TestReductionDoesNotWait(t *testing.T) {
	b := reducing(t, say(call("reduce", `{"task":"t"}`)), say(call("read", `{}`)), say("It may not be read."), say("end"))
	b.o.Authorizer = &fakeAuthorizer{verdicts: map[string]tool.Verdict{"read": {Ask: &tool.ApprovalRequest{Tool: "read"}}}}
	if res := b.run(t, t.Context()); res.Summary != "end" || len(b.done) > 0 || !strings.Contains(b.answered("read"), "cannot wait for here") || !strings.Contains(b.answered("reduce"), "It may not be read.") {
		t.Errorf("%+v: %s", res, b.answered("reduce"))
	}
}

// TestCompletion checks that a completion uses the smaller of two output limits, and the requested
// temperature.
func TestCompletion(t *testing.T) {
	cold, warm := 0.1, 0.9
	for name, c := range map[string]struct {
		model     loop.ModelInfo
		asks      loop.Completion
		maxOutput int
		how       *float64
	}{
		"nothing said":    {loop.ModelInfo{}, loop.Completion{}, 16_000, nil},
		"as the model":    {loop.ModelInfo{MaxOutput: 100, Temperature: &cold}, loop.Completion{}, 100, &cold},
		"less":            {loop.ModelInfo{MaxOutput: 100, Temperature: &cold}, loop.Completion{MaxOutput: 50, Temperature: &warm}, 50, &warm},
		"more":            {loop.ModelInfo{MaxOutput: 100}, loop.Completion{MaxOutput: 200, Temperature: &warm}, 100, &warm},
		"the model's own": {loop.ModelInfo{}, loop.Completion{MaxOutput: 50}, 50, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, other := setup(t, say(call("ask", `{}`)), say("end")), &scriptedModel{turns: []func(model.Request) []any{say("a word", model.Usage{Input: 7})}}
			b.o.Completer = &loop.Completer{Provider: other, Model: c.model}
			b.with(t, "ask", func(ctx context.Context, in tool.Invocation) (tool.Envelope, error) {
				res, err := b.o.Completer.Complete(ctx, in, c.asks)
				return tool.Success(res.Summary), err
			})

			res := b.run(t, t.Context())
			if got := b.answered("ask"); res.Steps != 3 || res.Usage.Input != 7 || !strings.Contains(got, "a word") {
				t.Errorf("%+v: %s", res, got)
			}
			if got := other.requests[0]; got.MaxOutput != c.maxOutput || got.Temperature != c.how || len(got.Tools) > 0 {
				t.Errorf("%+v, want at most %d tokens", got, c.maxOutput)
			}
		})
	}
}

// skilled returns a bench with a model that calls a skill. The skill starts an inner run that makes
// the calls with the given keys in one answer. With a completer their tool asks a model, otherwise
// it reads.
func skilled(t *testing.T, completer *loop.Completer, keys ...string) *bench {
	t.Helper()
	b, within := setup(t, say(call("skill", `{}`)), say("end")), setup(t)
	within.with(t, "ask", func(ctx context.Context, in tool.Invocation) (tool.Envelope, error) {
		res, err := completer.Complete(ctx, in, loop.Completion{Messages: []model.Message{{Role: model.RoleUser, Text: "Sum up."}}})
		if err != nil || res.Summary == "" {
			return tool.Failure(tool.KindExecutionError, "no text: %s", res.Error), err
		}
		return tool.Success(res.Summary), nil
	})
	within.with(t, "look", func(_ context.Context, in tool.Invocation) (tool.Envelope, error) {
		b.done = append(b.done, in.Key)
		return tool.Success("seen"), nil
	})

	b.o.Inner = &loop.Inner{}
	b.with(t, "skill", func(ctx context.Context, in tool.Invocation) (tool.Envelope, error) {
		var calls []any
		for _, key := range keys {
			name := "look"
			if completer != nil {
				name = "ask"
			}
			calls = append(calls, model.Call{Name: name, Key: loop.InnerKey(in.Key, key), Args: json.RawMessage(`{}`)})
		}

		script := &scriptedModel{turns: []func(model.Request) []any{say(calls...), say(model.End{Outcome: domain.OutcomeSuccess})}}
		res, err := b.o.Inner.Run(ctx, in, loop.InnerRun{Provider: script, Registry: within.o.Registry, Completer: completer})
		return tool.Success(fmt.Sprint(res.Outcome, " ", res.Error)), err
	})
	return b
}

// TestInnerRunGoesOn checks that a repeated inner run has the remaining calls of its run in
// addition to the calls already made and counted.
func TestInnerRunGoesOn(t *testing.T) {
	b := skilled(t, nil, "known", "known too", "cut off", "new", "one too many")
	outer := "m1.1.1"
	b.o.PendingCalls = []model.Call{{ID: "x", Key: outer, Name: "skill", Args: json.RawMessage(`{}`)}}
	known := loop.PriorCall{Envelope: json.RawMessage(`{"ok":true,"result":"seen"}`)}
	b.o.PriorCalls = map[string]loop.PriorCall{outer: {}, loop.InnerKey(outer, "known"): known, loop.InnerKey(outer, "known too"): known, loop.InnerKey(outer, "cut off"): {}}
	b.o.Bounds.Calls, b.model.turns = 3, b.model.turns[1:]
	res := b.run(t, t.Context())
	if !slices.Equal(b.done, []string{loop.InnerKey(outer, "cut off"), loop.InnerKey(outer, "new")}) || res.Calls != 3 {
		t.Errorf("%+v made %v", res, b.done)
	}
	if got := b.answered("skill"); !strings.Contains(got, "the calls that were left to this run were used up") {
		t.Errorf("it came to %s", got)
	}
}

// TestInnerRunTakesSteps checks that each model question of an inner run takes a remaining step of
// its run, free steps first. Without a remaining step the model is not asked.
func TestInnerRunTakesSteps(t *testing.T) {
	empty, skill := say(), say(call("skill", `{}`))
	for name, c := range map[string]struct {
		turns       []func(model.Request) []any
		steps, free int
		asked       int
		exit        domain.Exit
	}{
		"none is left":           {[]func(model.Request) []any{skill, say("end")}, 1, 0, 0, domain.ExitIterationCap},
		"one is left":            {[]func(model.Request) []any{skill, say("end")}, 2, 0, 1, domain.ExitIterationCap},
		"some are free":          {[]func(model.Request) []any{skill, say("end")}, 2, 1, 2, domain.ExitIterationCap},
		"an empty answer":        {[]func(model.Request) []any{empty, skill, say("end")}, 2, 2, 3, domain.ExitIterationCap},
		"more than it takes":     {[]func(model.Request) []any{skill, say("end")}, 5, 0, 3, domain.ExitFinalResponse},
		"as many as it may need": {[]func(model.Request) []any{skill, say("end")}, -1, 0, 3, domain.ExitFinalResponse},
	} {
		other := &scriptedModel{turns: []func(model.Request) []any{say("a word")}}
		b := skilled(t, &loop.Completer{Provider: other}, "a", "b", "c")
		b.model.turns, b.o.Bounds.Steps, b.o.Policy.FreeSteps = c.turns, c.steps, c.free
		res := b.run(t, t.Context())
		if got := b.answered("ask"); res.Exit != c.exit || len(other.requests) != c.asked || (c.asked < 3) != strings.Contains(got, "the steps of this run are used up") {
			t.Errorf("%s: asked %d times, want %d: %+v, %s", name, len(other.requests), c.asked, res, got)
		}
	}
}

// TestInnerRunWaits checks that if the owner must be asked about a nested call, the run waits with
// all enclosing calls. They have no results, and no call is made.
func TestInnerRunWaits(t *testing.T) {
	b := skilled(t, nil, "a")
	b.model.turns[0] = say(call("skill", `{"text":"1"}`), call("skill", `{"text":"2"}`))
	g := &fakeAuthorizer{verdicts: map[string]tool.Verdict{"look": {Ask: &tool.ApprovalRequest{Tool: "look"}}}}
	b.o.Authorizer = g
	res := b.run(t, t.Context())
	if res.Approval == nil || res.Approval.Call != loop.InnerKey("m1.1.1", "a") || res.Outcome != "" || len(b.done) > 0 || len(b.model.requests) != 1 {
		t.Errorf("%+v made %v", res, b.done)
	}
	if got := strings.Join(g.judged, ", "); got != "skill m1.1.1, skill m1.1.2, admit, look m1.1.1~a" {
		t.Errorf("judged %s", got)
	}
	for _, c := range b.log.calls {
		if c.State != domain.CallInterrupted || len(c.Envelope) > 0 {
			t.Errorf("%s is %s with %s", c.Key, c.State, c.Envelope)
		}
	}
}

// TestInnerRunSharesFallbacks checks that the fallbacks of a run also apply to its inner runs.
// Without them, a completer uses its own.
func TestInnerRunSharesFallbacks(t *testing.T) {
	for name, c := range map[string]struct{ run, own, took string }{
		"of the run":        {"the run's", "its own", "the run's"},
		"of its own":        {"", "its own", "its own"},
		"of the run, alone": {"the run's", "", "the run's"},
	} {
		t.Run(name, func(t *testing.T) {
			var took []string
			fallback := func(name string) *loop.Fallback {
				if name == "" {
					return nil
				}
				return &loop.Fallback{Next: []loop.ModelInfo{{Name: "second"}}, Switch: func(int) { took = append(took, name) }}
			}

			b := skilled(t, &loop.Completer{Provider: &scriptedModel{turns: []func(model.Request) []any{down(model.KindRateLimited, false), say("a word")}}, Fallback: fallback(c.own)}, "a")
			b.o.Fallback = fallback(c.run)
			b.run(t, t.Context())
			if got := strings.Join(took, ", "); got != c.took || !strings.Contains(b.answered("ask"), "a word") {
				t.Errorf("%q took over: %s", got, b.answered("ask"))
			}
		})
	}

	b := skilled(t, nil, "a") // does not ask a model
	b.o.Fallback = &loop.Fallback{Next: []loop.ModelInfo{{Name: "second"}}}
	if res := b.run(t, t.Context()); res.Summary != "end" || len(b.done) != 1 {
		t.Errorf("%+v made %v", res, b.done)
	}
}

// TestPlaybookEnds checks that the end of a playbook ends its run. A success is verified.
func TestPlaybookEnds(t *testing.T) {
	for _, end := range []model.End{{Outcome: domain.OutcomeSuccess, Summary: "did it"}, {Outcome: domain.OutcomeError, Error: "it failed", Kind: "odd"}} {
		const calls = 40 // each call is a step, and there is no default bound
		b := setup(t, append(slices.Repeat([]func(model.Request) []any{say(call("read", `{}`))}, calls), say(end))...)
		b.o.Policy = loop.Playbook()
		res := b.run(t, t.Context())
		if len(b.done) != calls || res.Exit != domain.ExitEnded || res.Outcome != end.Outcome || res.Summary != end.Summary || res.Error != end.Error || res.Kind != end.Kind || res.Verified != (end.Outcome == domain.OutcomeSuccess) {
			t.Errorf("%+v after %d calls", res, len(b.done))
		}
	}
}
