package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
)

// scripted answers with one turn after the other.
type scripted struct {
	turns    []func(model.Request) []any // string, model.Call, model.Usage or error
	requests []model.Request
}

func (s *scripted) Stream(_ context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		s.requests = append(s.requests, r)
		turn := s.turns[min(len(s.requests), len(s.turns))-1]
		for _, part := range turn(r) {
			var e model.Event
			var err error
			switch p := part.(type) {
			case string:
				e.Text = p
			case model.Call:
				e.Call = &p
			case model.Usage:
				e.Usage = &p
			case error:
				err = p
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func say(parts ...any) func(model.Request) []any {
	return func(model.Request) []any { return parts }
}

func call(name, args string) model.Call { return model.Call{Name: name, Args: json.RawMessage(args)} }

// journal is a Recorder that keeps what it was told.
type journal struct {
	mu    sync.Mutex
	lines []string
	steps []loop.Step
	calls []loop.Call
}

func (j *journal) add(format string, args ...any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	return nil
}

func (j *journal) StartStep(_ context.Context, s loop.Step) error {
	return j.add("step %d begins", s.Number)
}

func (j *journal) FinishStep(_ context.Context, s loop.Step) error {
	j.steps = append(j.steps, s)
	return j.add("step %d ends", s.Number)
}

func (j *journal) StartCall(_ context.Context, c loop.Call) error { return j.add("%s begins", c.Tool) }

func (j *journal) FinishCall(_ context.Context, c loop.Call) error {
	j.mu.Lock()
	j.calls = append(j.calls, c)
	j.mu.Unlock()
	return j.add("%s is %s", c.Tool, c.State)
}

type bench struct {
	model *scripted
	log   *journal
	o     loop.Options
	mu    sync.Mutex
	done  []string // what tools did, in order
}

type noArgs struct {
	Text    string `json:"text,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

func setup(t *testing.T, turns ...func(model.Request) []any) *bench {
	t.Helper()
	b := &bench{model: &scripted{turns: turns}, log: &journal{}}
	define := func(name string, effect tool.Effect, ends bool, run func(ctx context.Context, a noArgs) tool.Envelope) tool.Tool {
		d, err := tool.Define(tool.Spec{Name: name, Effect: effect, Ends: ends}, func(ctx context.Context, in tool.Invocation, a noArgs) (tool.Envelope, error) {
			b.mu.Lock()
			b.done = append(b.done, name+" "+in.Key)
			b.mu.Unlock()
			return run(ctx, a), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	ok := func(context.Context, noArgs) tool.Envelope { return tool.Success("fine") }
	r, err := tool.NewRegistry(
		define("read", tool.Read, false, ok), define("change", tool.Database, false, ok),
		define("slow", tool.Read, false, func(ctx context.Context, _ noArgs) tool.Envelope {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
			return tool.Success("fine")
		}),
		define("refuse", tool.Write, false, func(context.Context, noArgs) tool.Envelope { return tool.Failure(tool.KindRejected, "no") }),
		define("complete", tool.Read, true, func(_ context.Context, a noArgs) tool.Envelope {
			if a.Text == "" {
				return tool.Failure(tool.KindInvalidArgs, "say something")
			}
			return tool.Success(map[string]string{"summary": a.Text, "outcome": a.Outcome})
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	b.o = loop.Options{Provider: b.model, Registry: r, Recorder: b.log, Policy: loop.Headless(), Invocation: tool.Invocation{Run: 1, Attempt: 1},
		Messages: []model.Message{{Role: model.RoleUser, Text: "go"}}}
	return b
}

func (b *bench) run(t *testing.T, ctx context.Context) loop.Result {
	t.Helper()
	res, err := loop.Run(ctx, b.o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestExits: OSA-02 and the table of states, each way a run can end, by one loop whose
// surfaces differ in a policy (OSA-01). A rejection does not end a headless run (C-11).
func TestExits(t *testing.T) {
	truncated := &model.Error{Kind: model.KindTruncated, Message: "broke off", Retryable: true}
	for name, c := range map[string]struct {
		turns   []func(model.Request) []any
		change  func(*loop.Options)
		exit    loop.Exit
		outcome string
		say     string
	}{
		"text":                        {[]func(model.Request) []any{say("all", " good")}, nil, loop.FinalResponse, "success", "all good"},
		"text after a failed change":  {[]func(model.Request) []any{say(call("refuse", `{}`)), say("hm")}, nil, loop.FinalResponse, "partial", "hm"},
		"complete":                    {[]func(model.Request) []any{say(call("complete", `{"text":"did it","outcome":"nothing"}`))}, nil, loop.Ended, "nothing", "did it"},
		"complete, refused at first":  {[]func(model.Request) []any{say(call("complete", `{}`)), say(call("complete", `{"text":"did it"}`))}, nil, loop.Ended, "success", "did it"},
		"steps":                       {[]func(model.Request) []any{say(call("read", `{}`)), say(call("read", `{}`)), say("half of it")}, func(o *loop.Options) { o.Bounds.Steps = 2 }, loop.IterationCap, "budget_exceeded", "half of it"},
		"calls":                       {[]func(model.Request) []any{say(call("read", `{}`), call("read", `{}`))}, func(o *loop.Options) { o.Bounds.Calls = 3 }, loop.Cancelled, "budget_exceeded", "3 calls"},
		"tokens":                      {[]func(model.Request) []any{say(call("read", `{}`), model.Usage{Input: 90, Output: 20})}, func(o *loop.Options) { o.Bounds.Tokens = 100 }, loop.Cancelled, "budget_exceeded", "110 tokens"},
		"output":                      {[]func(model.Request) []any{say(strings.Repeat("x", 2000), call("read", `{}`))}, func(o *loop.Options) { o.Bounds.Output = 1000 }, loop.Cancelled, "budget_exceeded", "more than the 1000"},
		"wall":                        {[]func(model.Request) []any{say(call("slow", `{}`))}, func(o *loop.Options) { o.Bounds.Wall = 3 * time.Second }, loop.Cancelled, "timeout", "wall time"},
		"idle":                        {[]func(model.Request) []any{say(call("slow", `{}`))}, func(o *loop.Options) { o.Bounds.Idle = 3 * time.Second }, loop.Cancelled, "timeout", "nothing happened"},
		"a rejection where it counts": {[]func(model.Request) []any{say(call("refuse", `{}`))}, func(o *loop.Options) { o.Policy.StopOnRejection = true }, loop.ToolRejected, "error", "rejected"},
		"empty":                       {[]func(model.Request) []any{say()}, nil, loop.EmptyResponse, "error", "empty"},
		"empty after work":            {[]func(model.Request) []any{say(call("read", `{}`)), say(" ")}, nil, loop.EmptyResponse, "partial", "empty"},
		"the model fails":             {[]func(model.Request) []any{say(&model.Error{Kind: model.KindAuth, Message: "bad key"})}, nil, loop.Ended, "error", "bad key"},
		"a broken stream, repeated":   {[]func(model.Request) []any{say("par", truncated), say(call("read", `{}`), truncated), say("whole")}, nil, loop.FinalResponse, "success", "whole"},
		"broken for good":             {[]func(model.Request) []any{say(truncated)}, nil, loop.Ended, "error", "broke off"},
		"nonsense":                    {[]func(model.Request) []any{say(call("raed", `{}`), call("read", `"{"`), call("read", `{"what":1}`)), say("sorry")}, nil, loop.FinalResponse, "success", "sorry"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, c.turns...)
				if c.change != nil {
					c.change(&b.o)
				}
				res := b.run(t, t.Context())
				if res.Exit != c.exit || res.Outcome != c.outcome || !strings.Contains(res.Summary+res.Error, c.say) {
					t.Errorf("%+v, want %s, %s, %q", res, c.exit, c.outcome, c.say)
				}
			})
		})
	}
}

// TestOrder: OSA-03, each thing is recorded before and after it happens; the last allowed
// step's calls still execute.
func TestOrder(t *testing.T) {
	b := setup(t, say(call("read", `{}`)), say(call("change", `{}`)), say("end"))
	b.o.Bounds.Steps = 2
	b.run(t, t.Context())
	want := "step 1 begins|step 1 ends|read begins|read is done|step 2 begins|step 2 ends|change begins|change is done|step 3 begins|step 3 ends"
	if got := strings.Join(b.log.lines, "|"); got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
}

// TestBatch: OSA-07, calls run together, results come back in the model's order, and what
// touches the database keeps it. OSA-09: ids are minted where the model gave none.
func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(call("slow", `{}`), call("change", `{"text":"1"}`), call("slow", `{}`), call("change", `{"text":"2"}`)), say("end"))
		start := time.Now()
		b.run(t, t.Context())
		if d := time.Since(start); d != time.Minute {
			t.Errorf("two slow calls took %s, want a minute", d)
		}
		last := b.model.requests[1].Messages
		var order []string
		for _, m := range last {
			if m.Role == model.RoleTool {
				order = append(order, m.Name)
				if !strings.HasPrefix(m.CallID, "call_") || len(m.CallID) != 29 {
					t.Errorf("id %q", m.CallID)
				}
			}
		}
		if got := strings.Join(order, " "); got != "slow change slow change" {
			t.Errorf("results in the order %s", got)
		}
		var changes []string
		for _, d := range b.done {
			if strings.HasPrefix(d, "change") {
				changes = append(changes, d)
			}
		}
		if got := strings.Join(changes, " "); got != "change m1.1.2 change m1.1.4" {
			t.Errorf("changes in the order %s", got)
		}
	})
}

// TestEndingBatch: OSA-06, a batch that ends the run stops at its end.
func TestEndingBatch(t *testing.T) {
	b := setup(t, say(call("read", `{}`), call("complete", `{"text":"x"}`), call("change", `{}`)))
	b.run(t, t.Context())
	if got := strings.Join(b.done, " "); got != "read m1.1.1 complete m1.1.2" {
		t.Errorf("executed %s", got)
	}
}

// TestEmptyTurns: OSA-04, at most two nudges in a row, not charged; OSA-05, notices ride
// once and are not kept.
func TestEmptyTurns(t *testing.T) {
	b := setup(t, say(), say(), say(call("read", `{}`)), say(), say("end"))
	b.o.Bounds.Steps = 2
	res := b.run(t, t.Context())
	if res.Exit != loop.FinalResponse || res.Steps != 5 {
		t.Errorf("%+v", res)
	}
	for i, r := range b.model.requests {
		notices := 0
		for _, m := range r.Messages {
			notices += strings.Count(m.Text, "[System Notice] Your last answer was empty")
		}
		if want := map[int]int{1: 1, 2: 1, 4: 1}[i]; notices != want {
			t.Errorf("request %d holds %d nudges, want %d", i, notices, want)
		}
	}
}

// TestBudgetNotice: OSA-05, the last steps are announced.
func TestBudgetNotice(t *testing.T) {
	b := setup(t, say(call("read", `{}`)))
	b.o.Bounds.Steps = 5
	b.run(t, t.Context())
	var seen []string
	for _, s := range b.log.steps {
		seen = append(seen, fmt.Sprint(len(s.Notices)))
		for _, n := range s.Notices {
			if !strings.HasPrefix(n, "[System Notice] ") {
				t.Errorf("notice %q", n)
			}
		}
	}
	if got := strings.Join(seen, " "); got != "0 0 1 1 1 1" {
		t.Errorf("notices per step: %s", got)
	}
	if !strings.Contains(b.log.steps[4].Notices[0], "1 of 5 steps remaining") {
		t.Errorf("notice %q", b.log.steps[4].Notices[0])
	}
}

type cause struct{ outcome string }

func (c cause) Error() string   { return "stopped" }
func (c cause) Outcome() string { return c.outcome }

// A stop ends the run with its reason; calls that had not begun are told so.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(call("slow", `{}`)), say("never"))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause{"interrupted"}) })
		res := b.run(t, ctx)
		if res.Exit != loop.Cancelled || res.Outcome != "interrupted" || len(b.model.requests) != 1 {
			t.Errorf("%+v after %d requests", res, len(b.model.requests))
		}
	})
}

// What an earlier attempt did is not done again.
func TestPast(t *testing.T) {
	b := setup(t, say(model.Call{Name: "change", Key: "p1", Args: json.RawMessage(`{}`)}), say(model.Call{Name: "refuse", Key: "p2", Args: json.RawMessage(`{}`)}),
		say(model.Call{Name: "read", Key: "p3", Args: json.RawMessage(`{}`)}), say("end"))
	b.o.Past = map[string]loop.Past{"p1": {Envelope: json.RawMessage(`{"ok":true,"result":{"text":"recorded"}}`)}, "p2": {Uncertain: true}, "p3": {}}
	b.run(t, t.Context())
	if got := strings.Join(b.done, " "); got != "read p3" {
		t.Errorf("executed %s", got)
	}
	if b.log.calls[0].State != "replayed" || !strings.Contains(string(b.log.calls[0].Envelope), "recorded") {
		t.Errorf("first call: %+v", b.log.calls[0])
	}
	if !strings.Contains(string(b.log.calls[1].Envelope), "unknown") {
		t.Errorf("uncertain call: %s", b.log.calls[1].Envelope)
	}
}

func TestPending(t *testing.T) {
	b := setup(t, say("end"))
	b.o.Pending = []model.Call{{ID: "a", Key: "m1.1.1", Name: "change", Args: json.RawMessage(`{}`)}}
	b.run(t, t.Context())
	if got := strings.Join(b.done, " "); got != "change m1.1.1" {
		t.Errorf("executed %s", got)
	}
	if m := b.model.requests[0].Messages; m[len(m)-1].CallID != "a" {
		t.Errorf("the result is not in the history: %+v", m)
	}
}

func TestHostBroken(t *testing.T) {
	b := setup(t, say("hi"))
	b.o.Recorder = brokenRecorder{}
	if _, err := loop.Run(t.Context(), b.o); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
}

var errBroken = errors.New("the disk is full")

type brokenRecorder struct{ loop.Recorder }

func (brokenRecorder) StartStep(context.Context, loop.Step) error { return errBroken }
