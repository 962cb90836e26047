package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

// scriptedModel answers with one turn after another.
type scriptedModel struct {
	// turns return values of type string, model.Call, model.Usage, stop, json.RawMessage,
	// model.End, error, or time.Duration for a pause.
	turns    []func(model.Request) []any
	requests []model.Request
	sent     int // parts
}

type stop string

func (s *scriptedModel) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
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
			case model.Retried:
				e.Retried = &p
			case model.Unreported:
				e.Unreported = &p
			case model.End:
				e.End = &p
			case stop:
				e.Stop = string(p)
			case json.RawMessage:
				e.Raw = p
			case error:
				err = p
			case time.Duration:
				select {
				case <-time.After(p):
					continue
				case <-ctx.Done():
					return
				}
			}

			s.sent++
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

// fakeRecorder is a Recorder that stores its arguments.
type fakeRecorder struct {
	mu    sync.Mutex
	lines []string
	steps []loop.Step
	calls []loop.Call
}

func (j *fakeRecorder) add(format string, args ...any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	return nil
}

func (j *fakeRecorder) StartStep(_ context.Context, s loop.Step) error {
	return j.add("step %d begins", s.Number)
}

func (j *fakeRecorder) FinishStep(_ context.Context, s loop.Step) error {
	j.steps = append(j.steps, s)
	return j.add("step %d ends", s.Number)
}

func (j *fakeRecorder) StartCall(_ context.Context, c loop.Call) error {
	return j.add("%s begins", c.Tool)
}

func (j *fakeRecorder) FinishCall(_ context.Context, c loop.Call) error {
	j.mu.Lock()
	j.calls = append(j.calls, c)
	j.mu.Unlock()
	return j.add("%s is %s", c.Tool, c.State)
}

func (j *fakeRecorder) AnswerCall(ctx context.Context, c loop.Call) error {
	return errors.Join(j.StartCall(ctx, c), j.FinishCall(ctx, c))
}

func (j *fakeRecorder) Flush(context.Context) error { return nil }

type bench struct {
	model *scriptedModel
	log   *fakeRecorder
	o     loop.Options
	mu    sync.Mutex
	done  []string // actions of tools, in order
}

type noArgs struct {
	Text    string `json:"text,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

func setup(t *testing.T, turns ...func(model.Request) []any) *bench {
	t.Helper()
	b := &bench{model: &scriptedModel{turns: turns}, log: &fakeRecorder{}}
	define := func(name string, effect domain.Effect, ends bool, run func(ctx context.Context, a noArgs) tool.Envelope) tool.Tool {
		d, err := tool.Define(tool.Spec{Name: name, Description: name, Effect: effect, Class: tool.ClassOther, Ends: ends}, func(ctx context.Context, in tool.Invocation, a noArgs) (tool.Envelope, error) {
			b.mu.Lock()
			b.done = append(b.done, strings.TrimSpace(name+" "+in.Key+" "+in.Approved))
			b.mu.Unlock()
			return run(ctx, a), nil
		})
		if err != nil {
			t.Fatal(err)
		}

		return d
	}

	ok := func(context.Context, noArgs) tool.Envelope { return tool.Success("fine") }
	patient := func(ctx context.Context, _ noArgs) tool.Envelope { // returns when its context ends
		select {
		case <-time.After(time.Minute):
			return tool.Success("fine")
		case <-ctx.Done():
			return tool.Failure(tool.KindExecutionError, "given up")
		}
	}

	r, err := tool.NewRegistry(
		define("read", domain.EffectRead, false, ok), define("change", domain.EffectDatabase, false, ok),
		define("slow", domain.EffectRead, false, func(ctx context.Context, _ noArgs) tool.Envelope {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
			return tool.Success("fine")
		}),
		define("refuse", domain.EffectWrite, false, func(context.Context, noArgs) tool.Envelope { return tool.Failure(tool.KindRejected, "no") }),
		define("complete", domain.EffectRead, true, func(_ context.Context, a noArgs) tool.Envelope {
			if a.Text == "" {
				return tool.Failure(tool.KindInvalidArgs, "say something")
			}
			return tool.Success(map[string]string{"summary": a.Text, "outcome": a.Outcome})
		}),
		define("judge", domain.EffectExternal, false, func(ctx context.Context, _ noArgs) tool.Envelope {
			<-ctx.Done()
			return tool.Failure(tool.KindNotFound, "there is no such thing")
		}),
		define("crawl", domain.EffectDatabase, false, patient), define("send", domain.EffectExternal, false, patient),
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

// TestExits: OSA-02 and the table of states (UNI-11), each way a run can end. The same loop is used
// for all policies (OSA-01). A rejection does not end a headless run (C-11).
func TestExits(t *testing.T) {
	row, ends, rejected := contract.Of(t, "OSA-02"), contract.Of(t, "UNI-11"), domain.Exit(contract.Of(t, "C-11").Quote("tool_rejected"))
	truncated := &model.Error{Kind: model.KindTruncated, Message: "broke off", Retryable: true}
	seen, pairs := map[string]bool{}, map[string]bool{}
	for name, c := range map[string]struct {
		turns   []func(model.Request) []any
		change  func(*loop.Options)
		exit    domain.Exit
		outcome domain.Outcome
		say     string
	}{
		"text":                        {[]func(model.Request) []any{say("all", " good")}, nil, domain.ExitFinalResponse, "success", "all good"},
		"text after a failed change":  {[]func(model.Request) []any{say(call("refuse", `{}`)), say("hm")}, nil, domain.ExitFinalResponse, "partial", "hm"},
		"complete":                    {[]func(model.Request) []any{say(call("complete", `{"text":"did it","outcome":"nothing"}`))}, nil, domain.ExitEnded, "nothing", "did it"},
		"complete, refused at first":  {[]func(model.Request) []any{say(call("complete", `{}`)), say(call("complete", `{"text":"did it"}`))}, nil, domain.ExitEnded, "success", "did it"},
		"an end of the provider's":    {[]func(model.Request) []any{say(model.End{Outcome: domain.OutcomePartial, Summary: "half of it"})}, nil, domain.ExitEnded, "partial", "half of it"},
		"steps":                       {[]func(model.Request) []any{say(call("read", `{}`)), say(call("read", `{}`)), say("half of it")}, func(o *loop.Options) { o.Bounds.Steps = 2 }, domain.ExitIterationCap, "budget_exceeded", "half of it"},
		"calls":                       {[]func(model.Request) []any{say(call("read", `{}`), call("read", `{}`))}, func(o *loop.Options) { o.Bounds.Calls = 3 }, domain.ExitCancelled, "budget_exceeded", "3 calls"},
		"tokens":                      {[]func(model.Request) []any{say(call("read", `{}`), model.Usage{Input: 90, Output: 20})}, func(o *loop.Options) { o.Bounds.Tokens = 100 }, domain.ExitCancelled, "budget_exceeded", "110 tokens"},
		"output":                      {[]func(model.Request) []any{say(strings.Repeat("x", 2000), call("read", `{}`))}, func(o *loop.Options) { o.Bounds.Output = 1000 }, domain.ExitCancelled, "budget_exceeded", "more than the 1000"},
		"output of a last word":       {[]func(model.Request) []any{say(strings.Repeat("x", 2000))}, func(o *loop.Options) { o.Bounds.Output = 1000 }, domain.ExitCancelled, "budget_exceeded", "more than the 1000"},
		"text that is cut off":        {[]func(model.Request) []any{say("all go", stop(model.StopLength))}, nil, domain.ExitFinalResponse, "partial", "greatest length"},
		"text that is withheld":       {[]func(model.Request) []any{say("all go", stop(model.StopFilter))}, nil, domain.ExitFinalResponse, "partial", "withheld"},
		"a text that declines":        {[]func(model.Request) []any{say("I will not.", stop(model.StopRefusal))}, nil, domain.ExitFinalResponse, "partial", "declined"},
		"wall":                        {[]func(model.Request) []any{say(call("slow", `{}`))}, func(o *loop.Options) { o.Bounds.Wall = 3 * time.Second }, domain.ExitCancelled, "timeout", "wall time"},
		"idle":                        {[]func(model.Request) []any{say("hm", time.Hour)}, func(o *loop.Options) { o.Bounds.Idle = 3 * time.Second }, domain.ExitCancelled, "timeout", "nothing happened"},
		"a rejection where it counts": {[]func(model.Request) []any{say(call("refuse", `{}`))}, func(o *loop.Options) { o.Policy.StopOnRejection = true }, rejected, "error", "rejected"},
		"a rejection in a chat":       {[]func(model.Request) []any{say(call("refuse", `{}`))}, func(o *loop.Options) { o.Policy = loop.Chat() }, rejected, "error", "rejected"},
		"as many steps as a run has":  {[]func(model.Request) []any{func(r model.Request) []any { return []any{call("read", fmt.Sprintf(`{"text":"%d"}`, len(r.Messages)))} }}, nil, domain.ExitIterationCap, "budget_exceeded", "the 30 steps of this run"},
		"empty":                       {[]func(model.Request) []any{say()}, nil, domain.ExitFinalResponse, "error", "empty"},
		"empty after work":            {[]func(model.Request) []any{say(call("read", `{}`)), say(" ")}, nil, domain.ExitEmptyResponse, "partial", "empty"},
		"a task that does not fit":    {[]func(model.Request) []any{say("all good")}, func(o *loop.Options) { o.Window, o.System = 4096, strings.Repeat("s", 20_000) }, domain.ExitOverBudget, "error", ""},
		"the model fails":             {[]func(model.Request) []any{say(&model.Error{Kind: model.KindAuth, Message: "bad key"})}, nil, domain.ExitEnded, "error", "bad key"},
		"a broken stream, repeated":   {[]func(model.Request) []any{say("par", truncated), say(call("read", `{}`), truncated), say("whole")}, nil, domain.ExitFinalResponse, "success", "whole"},
		"broken for good":             {[]func(model.Request) []any{say(truncated)}, nil, domain.ExitEnded, "error", "broke off"},
		"nonsense":                    {[]func(model.Request) []any{say(call("raed", `{}`), call("read", `"{"`), call("read", `{"what":1}`), call("read", `{"te`), call("read", `[]`), call("", ``)), say("sorry")}, nil, domain.ExitFinalResponse, "success", "sorry"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, c.turns...)
				if c.change != nil {
					c.change(&b.o)
				}

				res := b.run(t, t.Context())
				seen[string(res.Exit)], pairs[string(res.Exit)+" "+string(res.Outcome)] = true, true
				if res.Exit != c.exit || res.Outcome != c.outcome || !strings.Contains(res.Summary+res.Error, c.say) {
					t.Errorf("%+v, want %s, %s, %q", res, c.exit, c.outcome, c.say)
				}
			})
		})
	}
	for _, exit := range row.Between("these exits: ", " after only") {
		if !seen[exit] {
			t.Errorf("no run ended with %s", exit)
		}
		delete(seen, exit)
	}
	for _, pair := range ends.Between("pairs of a loop are ", ".") {
		if !pairs[pair] {
			t.Errorf("no run ended with %s", pair)
		}
		delete(pairs, pair)
	}
	if len(pairs) > 0 {
		t.Errorf("ends that the contract does not list: %v", pairs)
	}
	if len(seen) > 0 {
		t.Errorf("exits that the contract does not list: %v", seen)
	}
}

// TestBoundsOfTimeByDefault checks the default limits of ten minutes in total and five minutes
// without an event.
func TestBoundsOfTimeByDefault(t *testing.T) {
	for name, c := range map[string]struct {
		turn []any
		took time.Duration
		why  string
	}{
		"silence":            {[]any{"hm", time.Hour}, 5 * time.Minute, "nothing happened for 5m0s"},
		"a word each minute": {slices.Repeat([]any{"word ", time.Minute}, 30), 10 * time.Minute, "wall time of 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				res := setup(t, say(c.turn...)).run(t, t.Context())
				if took := time.Since(began); res.Outcome != domain.OutcomeTimeout || took != c.took || !strings.Contains(res.Error, c.why) {
					t.Errorf("%s after %s: %s", res.Outcome, took, res.Error)
				}
			})
		})
	}
}

// TestAnswersAsTheyAreKept checks that a model gets its answers back as recorded: arguments without
// blanks, invalid JSON arguments as a string, and no empty answers.
func TestAnswersAsTheyAreKept(t *testing.T) {
	b := setup(t, say(), say(call("read", ` { "text" : "x" } `), call("read", `{"te`)), say("end"))
	res := b.run(t, t.Context())
	if res.Exit != domain.ExitFinalResponse || res.Answered != 3 {
		t.Fatalf("%s after %d answers: %s", res.Exit, res.Answered, res.Error)
	}

	for _, m := range b.model.requests[1].Messages {
		if m.Role == model.RoleAssistant {
			t.Errorf("the empty answer is sent: %+v", m)
		}
	}
	var sent []string
	for _, m := range b.model.requests[2].Messages {
		for _, c := range m.Calls {
			sent = append(sent, string(c.Args))
		}
	}
	var kept []string
	slices.SortFunc(b.log.calls, func(a, b loop.Call) int { return a.Index - b.Index })
	for _, c := range b.log.calls {
		kept = append(kept, string(c.Args))
	}
	if want := []string{`{"text":"x"}`, `"{\"te"`}; !slices.Equal(sent, want) || !slices.Equal(kept, want) {
		t.Errorf("sent %s, recorded %s", sent, kept)
	}
}

// TestRunNeedsItsParts checks that a run without a provider, tools or a recorder is an error of the
// host.
func TestRunNeedsItsParts(t *testing.T) {
	for _, without := range []func(*loop.Options){func(o *loop.Options) { o.Provider = nil }, func(o *loop.Options) { o.Registry = nil }, func(o *loop.Options) { o.Recorder = nil }} {
		b := setup(t, say("end"))
		without(&b.o)
		if _, err := loop.Run(t.Context(), b.o); err == nil || !strings.Contains(err.Error(), "are needed") {
			t.Errorf("%v", err)
		}
	}
}

// TestOrder: OSA-03, each action is recorded before and after it happens. The calls of the last
// allowed step still run. A run cancelled before a step does not take it.
func TestOrder(t *testing.T) {
	b := setup(t, say(call("read", `{}`)), say(call("change", `{}`)), say("end"))
	b.o.Bounds.Steps, b.o.Recorder = 2, countingRecorder{b.log, b}
	b.run(t, t.Context())
	row := contract.Of(t, "OSA-03")
	first := []string{row.Quote("step 1 begins"), row.Quote("step 1 ends"), "1 asked, 0 made", row.Quote("read begins"), row.Quote("read is done")}
	want := "0 asked, 0 made|" + strings.Join(first, "|") + "|1 asked, 1 made|step 2 begins|step 2 ends|" +
		"2 asked, 1 made|change begins|change is done|2 asked, 2 made|step 3 begins|step 3 ends"
	if got := strings.Join(b.log.lines, "|"); got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}

	b = setup(t, say("end"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := b.run(t, ctx); res.Exit != domain.ExitCancelled || len(b.model.requests) != 0 || len(b.log.lines) != 0 {
		t.Errorf("cancelled before it began: %+v, recorded %v", res, b.log.lines)
	}
}

// countingRecorder also records how much has happened when an action begins.
type countingRecorder struct {
	*fakeRecorder
	b *bench
}

func (c countingRecorder) count() error {
	return c.add("%d asked, %d made", len(c.b.model.requests), len(c.b.done))
}

func (c countingRecorder) StartStep(ctx context.Context, s loop.Step) error {
	return errors.Join(c.count(), c.fakeRecorder.StartStep(ctx, s))
}

func (c countingRecorder) StartCall(ctx context.Context, one loop.Call) error {
	return errors.Join(c.count(), c.fakeRecorder.StartCall(ctx, one))
}

// TestBatch: OSA-07, calls run at the same time, results are returned in the model's order, and
// database calls run in that order. OSA-09: ids of the model are kept, and missing ids are created.
func TestBatch(t *testing.T) {
	row := contract.Of(t, "OSA-09")
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(call("slow", `{}`), call("change", `{"text":"1"}`), model.Call{ID: "mine", Name: "slow"}, call("change", `{"text":"2"}`)), say("end"))
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
				if digits, minted := strings.CutPrefix(m.CallID, row.Quote("call_")); minted && len(digits) != row.Number("24") || minted == (len(order) == 3) || !minted && m.CallID != "mine" {
					t.Errorf("id %q of the result %d", m.CallID, len(order))
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

// TestWritesOfOneFileInOrder: OSA-07, calls that write the same file run in the model's order,
// whatever name they use for it. Other calls do not wait.
func TestWritesOfOneFileInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type args struct {
			Path string `json:"path"`
			Wait int    `json:"wait"`
		}
		var mu sync.Mutex
		var order []string
		start := time.Now()
		write, err := tool.Define(tool.Spec{Name: "write", Description: "writes", Effect: domain.EffectWrite, Class: tool.ClassOther, Path: "path", Canonical: path.Clean}, func(_ context.Context, _ tool.Invocation, a args) (tool.Envelope, error) {
			time.Sleep(time.Duration(a.Wait) * time.Second)
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprintf("%s@%d", a.Path, int(time.Since(start).Seconds())))
			return tool.Success("written"), nil
		})
		if err != nil {
			t.Fatal(err)
		}

		b := setup(t, say(call("write", `{"path":"a","wait":9}`), call("write", `{"path":"b","wait":5}`), call("write", `{"path":"./a","wait":1}`)), say("end"))
		if b.o.Registry, err = tool.NewRegistry(write); err != nil {
			t.Fatal(err)
		}

		b.run(t, t.Context())
		if got := strings.Join(order, " "); got != "b@5 a@9 ./a@10" {
			t.Errorf("written in the order %s", got)
		}
	})
}

// TestEndingBatch: OSA-06, a batch with an ending call stops after that call. A refused call does
// not end the run and is returned to the model.
func TestEndingBatch(t *testing.T) {
	complete := contract.Of(t, "OSA-06").Quote("complete")
	b := setup(t, say(call("read", `{}`), call(complete, `{"text":"x"}`), call("change", `{}`)))
	b.run(t, t.Context())
	if got := strings.Join(b.done, " "); got != "read m1.1.1 complete m1.1.2" {
		t.Errorf("executed %s", got)
	}

	b = setup(t, say(call(complete, `{}`), call("change", `{}`)), say(call(complete, `{"text":"x"}`)))
	res := b.run(t, t.Context())
	if got := strings.Join(b.done, " "); got != "complete m1.1.1 change m1.1.2 complete m1.2.1" || res.Summary != "x" {
		t.Errorf("behind a refusal it executed %s: %+v", got, res)
	}
	if m := b.model.requests[1].Messages; !strings.Contains(m[len(m)-2].Text, "say something") {
		t.Errorf("the model does not read why: %+v", m)
	}
}

// TestNothingToAsk checks that a tool that may ask the owner ends the run only with a question. Its
// other results are returned to the model.
func TestNothingToAsk(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		exit   domain.Exit
		asks   bool
	}{
		"a question": {map[string]string{"question": "Which?"}, domain.ExitEnded, true},
		"none":       {map[string]string{"state": "signed in"}, domain.ExitFinalResponse, false},
		"a text":     {"signed in", domain.ExitFinalResponse, false},
	} {
		b := setup(t, say(call("sign_in", `{}`)), say("end"))
		signIn, err := tool.Define(tool.Spec{Name: "sign_in", Description: "signs in", Effect: domain.EffectRead, Class: tool.ClassOther, Ends: true, Waits: true},
			func(context.Context, tool.Invocation, noArgs) (tool.Envelope, error) {
				return tool.Success(c.answer), nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if b.o.Registry, err = b.o.Registry.With(signIn); err != nil {
			t.Fatal(err)
		}

		if res := b.run(t, t.Context()); res.Exit != c.exit || (res.Wait != nil) != c.asks {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestEmptyTurns: OSA-04, there are at most two consecutive nudges, which are not charged. OSA-05:
// notices are sent once and not stored.
func TestEmptyTurns(t *testing.T) {
	row := contract.Of(t, "OSA-04")
	nudge, most := "[System Notice] "+row.Quote("Your last answer was empty"), row.Number("2")
	nothing, final := row.Quote("The model gave only empty answers and called no tool."), domain.Exit(row.Quote("final_response"))
	silent, empty := row.Quote("The model ended without a word after its tool calls; see what they did."), domain.Exit(row.Quote("empty_response"))
	b := setup(t, say(), say(), say(call("read", `{}`)), say(), say("end"))
	b.o.Bounds.Steps = 3
	res := b.run(t, t.Context())
	if res.Exit != domain.ExitFinalResponse || res.Steps != 5 {
		t.Errorf("%+v", res)
	}

	for i, r := range b.model.requests {
		notices := 0
		for _, m := range r.Messages {
			notices += strings.Count(m.Text, nudge)
		}
		if want := map[int]int{1: 1, 2: 1, 4: 1}[i]; notices != want {
			t.Errorf("request %d holds %d nudges, want %d", i, notices, want)
		}
	}

	// They are not charged, whatever the bound. After a tool result the summary differs.
	for name, c := range map[string]struct {
		turns []func(model.Request) []any
		exit  domain.Exit
		text  string
		steps int
	}{
		"nothing else":        {[]func(model.Request) []any{say()}, final, nothing, 1 + most},
		"after a result":      {[]func(model.Request) []any{say(), say(), say(call("read", `{}`)), say()}, empty, silent, 4 + most},
		"after a failed call": {[]func(model.Request) []any{say(call("refuse", `{}`)), say()}, empty, silent, 2 + most},
	} {
		b = setup(t, c.turns...)
		b.o.Bounds.Steps = 2
		if res := b.run(t, t.Context()); res.Exit != c.exit || res.Summary != c.text || res.Steps != c.steps {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestBudgetNotice: OSA-05, the last steps are announced.
func TestBudgetNotice(t *testing.T) {
	row := contract.Of(t, "OSA-05")
	b := setup(t, say(call("read", `{}`)))
	b.o.Bounds.Steps, b.o.Policy.Advice = 5, false // repetitions have their own test
	b.run(t, t.Context())
	var seen []string
	for _, s := range b.log.steps {
		seen = append(seen, fmt.Sprint(len(s.Notices)))
		for _, n := range s.Notices {
			if !strings.HasPrefix(n, row.Quote("[System Notice]")+" ") {
				t.Errorf("notice %q", n)
			}
		}
	}
	if got := strings.Join(seen, " "); got != "0 0"+strings.Repeat(" 1", row.Number("3")+1) { // the last is the closing text
		t.Errorf("notices per step: %s", got)
	}
	if !strings.Contains(b.log.steps[4].Notices[0], row.Quote("1 of 5 steps remaining")) {
		t.Errorf("notice %q", b.log.steps[4].Notices[0])
	}
}

// TestCallBound checks that exactly the allowed number of calls is made. The others are answered
// without being made.
func TestCallBound(t *testing.T) {
	b := setup(t, say(call("change", `{}`), call("read", `{}`)), say(call("change", `{}`), call("change", `{}`), call("complete", `{"text":"x"}`)))
	b.o.Bounds.Calls, b.o.Policy.StopOnRejection = 3, true
	res := b.run(t, t.Context())
	if res.Outcome != "budget_exceeded" || res.Exit != domain.ExitCancelled || res.Calls != 3 || len(b.done) != 3 || len(b.log.calls) != 3 {
		t.Errorf("%+v after %v", res, b.done)
	}
}

// TestNoticePlace: OSA-05, a notice is part of the tool result at the end of the history, or else a
// user message. It is never stored in the history.
func TestNoticePlace(t *testing.T) {
	b := setup(t, say(call("read", `{}`)))
	b.o.Bounds.Steps = 2
	b.run(t, t.Context())

	for i, want := range []struct {
		role model.Role
		text string
	}{{model.RoleUser, "2 of 2"}, {model.RoleTool, "1 of 2"}, {model.RoleTool, "All steps are used up"}} {
		messages := b.model.requests[i].Messages
		last := len(messages) - 1
		if m := messages[last]; m.Role != want.role || !strings.Contains(m.Text, "[System Notice] "+want.text) || (m.Role == model.RoleTool) != (m.CallID != "") {
			t.Errorf("request %d ends with %+v", i, m)
		}

		for _, m := range messages[:last] {
			if strings.Contains(m.Text, "[System Notice]") {
				t.Errorf("request %d keeps %+v", i, m)
			}
		}
		if messages[0].Text != "go" {
			t.Errorf("in request %d the task is %q", i, messages[0].Text)
		}
	}
}

// TestClosingPrompt checks that a run without remaining steps is asked for the final text with the
// prompt of its policy.
func TestClosingPrompt(t *testing.T) {
	for prompt, want := range map[string]string{"": "Say in a few sentences what was done and what is missing.", "Write the digest now.": "Write the digest now."} {
		b := setup(t, say(call("read", `{}`)))
		b.o.Bounds.Steps, b.o.Policy.ClosingPrompt = 1, prompt
		b.run(t, t.Context())
		want = "[System Notice] All steps are used up, and no tool can be called any more. " + want
		if text := readingResult(b.model.requests[1]); !strings.HasSuffix(text, want) {
			t.Errorf("%q: %q", prompt, text)
		}
	}
}

type cause struct{ outcome domain.Outcome }

func (c cause) Error() string           { return "stopped" }
func (c cause) Outcome() domain.Outcome { return c.outcome }

// TestCancel checks that a stop ends the run with its reason. An interrupted call is recorded
// without a result, so that a later attempt can repeat it or report its effect as unknown. A call
// that had not started is recorded as cancelled (OSA-07).
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		tool     string
		state    domain.CallState
		envelope bool
	}{
		"a reader that ends anyway": {"slow", "done", true}, "a journalled change": {"crawl", "interrupted", false}, "an effect outside": {"send", "uncertain", false},
		"a verdict": {"judge", "failed", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, say(call(c.tool, `{}`), call("crawl", `{}`), call("change", `{}`)), say("never"))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause{"interrupted"}) })
				res := b.run(t, ctx)
				if res.Exit != domain.ExitCancelled || res.Outcome != "interrupted" || res.Error != "stopped" || len(b.model.requests) != 1 {
					t.Errorf("%+v after %d requests", res, len(b.model.requests))
				}

				states := map[int]loop.Call{}
				for _, c := range b.log.calls {
					states[c.Index] = c
				}
				if got := states[0]; got.State != c.state || (len(got.Envelope) > 0) != c.envelope {
					t.Errorf("cut off: %s %s, want %s", got.State, got.Envelope, c.state)
				}
				if got := states[2]; got.State != "cancelled" || !strings.Contains(string(got.Envelope), `"kind":"execution_error","message":"cancelled: stopped"`) {
					t.Errorf("not begun: %s %s", got.State, got.Envelope)
				}
				if strings.Contains(strings.Join(b.done, " "), "change") {
					t.Errorf("executed %v", b.done)
				}
			})
		})
	}
}

// TestIdleTimerStandsStill checks that a run is not idle during a call or a wait for a retry.
func TestIdleTimerStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &model.Error{Kind: model.KindRateLimited, Message: "busy", Retryable: true, RetryAfter: time.Minute}
		b := setup(t, say(call("slow", `{}`), call("crawl", `{}`)), say(busy), say(2*time.Second, "a", 2*time.Second, "b"))
		b.o.Bounds.Idle = 3 * time.Second
		if res := b.run(t, t.Context()); res.Outcome != "success" {
			t.Errorf("%+v", res)
		}
	})
}

// TestRunawayModel checks that a model that writes without end is stopped. Its output is charged.
func TestRunawayModel(t *testing.T) {
	parts := []any{model.Usage{Input: 7, Output: 3}}
	for range 100_000 {
		parts = append(parts, "blah ")
	}

	b := setup(t, say(parts...))
	b.o.Bounds.Output = 1000
	if res := b.run(t, t.Context()); res.Outcome != "budget_exceeded" || res.Usage.Input != 7 || b.model.sent > 300 {
		t.Errorf("%+v after %d parts", res, b.model.sent)
	}
}

// TestUsage: a failed try is charged and belongs to the turn.
func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(model.Usage{Input: 5, Output: 1, Cached: 2}, &model.Error{Kind: model.KindTruncated, Message: "broke off", Retryable: true}), say("end", model.Usage{Input: 6, Output: 2, Cached: 5}))
		want := model.Usage{Input: 11, Output: 3, Cached: 7}
		if res := b.run(t, t.Context()); res.Usage != want || b.log.steps[0].Usage != want || res.Steps != 1 {
			t.Errorf("run %+v, step %+v", res, b.log.steps[0].Usage)
		}
	})
}

// TestRawGoesBack checks that the raw data of an adapter is recorded and sent back with its answer.
// Raw data of a failed try is dropped.
func TestRawGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, say(json.RawMessage(`"lost"`), &model.Error{Kind: model.KindTruncated, Message: "broke off", Retryable: true}),
			say(model.Call{ID: "a", Name: "read"}, json.RawMessage(`"signed"`)), say("end"))
		if res := b.run(t, t.Context()); res.Outcome != "success" {
			t.Fatalf("%+v", res)
		}

		var recorded model.Message
		if err := json.Unmarshal(b.log.steps[0].Message, &recorded); err != nil {
			t.Fatal(err)
		}

		sent := b.model.requests[2].Messages
		if got := string(sent[len(sent)-2].Raw); got != `"signed"` || string(recorded.Raw) != got {
			t.Errorf("sent %s, recorded %s", got, recorded.Raw)
		}
	})
}

// TestRestoreFromTranscript checks that results of earlier attempts count in a later one.
func TestRestoreFromTranscript(t *testing.T) {
	for name, c := range map[string]struct {
		tool, envelope, answer string
		exit                   domain.Exit
		outcome                domain.Outcome
	}{
		"a change that failed":  {"change", `{"ok":false}`, "end", domain.ExitFinalResponse, "partial"},
		"a change":              {"change", `{"ok":true}`, "end", domain.ExitFinalResponse, "success"},
		"a reading that failed": {"read", `{"ok":false}`, "end", domain.ExitFinalResponse, "success"},
		"rows left out":         {"change", `{"ok":true,"result":{"rows_imported":3,"rows_rejected":2}}`, "end", domain.ExitFinalResponse, "partial"},
		"silence after work":    {"read", `{"ok":true}`, "", domain.ExitEmptyResponse, "partial"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, say(c.answer))
			b.o.Messages = append(b.o.Messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: "a", Name: c.tool}}},
				model.Message{Role: model.RoleTool, CallID: "a", Name: c.tool, Text: c.envelope})
			if res := b.run(t, t.Context()); res.Exit != c.exit || res.Outcome != c.outcome {
				t.Errorf("%+v", res)
			}
		})
	}
}

// TestRowsLeftOut checks that a run is partial if a call left out rows, unless its model states
// another outcome.
func TestRowsLeftOut(t *testing.T) {
	for args, want := range map[string]domain.Outcome{
		`{"text":"did it"}`:                     domain.OutcomePartial,
		`{"text":"did it","outcome":"success"}`: domain.OutcomeSuccess,
	} {
		b := setup(t, say(call("complete", args)))
		b.o.Messages = append(b.o.Messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: "a", Name: "change"}}},
			model.Message{Role: model.RoleTool, CallID: "a", Name: "change", Text: `{"ok":true,"result":{"rows_rejected":2}}`})
		res := b.run(t, t.Context())
		if res.Outcome != want || want == domain.OutcomePartial && (res.Error != "change left out 2 rows" || res.Verified) {
			t.Errorf("%s: %+v", args, res)
		}
	}
}

// TestCallsAndResultsArePaired: OSA-07 and OSA-09, each call gets one result with its id, in order,
// before the model is asked again.
func TestCallsAndResultsArePaired(t *testing.T) {
	names := []string{"read", "change", "refuse", "complete", "nobody", ""}
	args := []string{`{}`, ``, `null`, `{"text":1}`, `{"text":"x"`, `"{}"`, `[]`, "\xff", `{"what":2}`}
	ids := []string{"", "a", "b", "a\x00"}
	rapid.Check(t, func(rt *rapid.T) {
		var turns []func(model.Request) []any
		for range rapid.IntRange(1, 4).Draw(rt, "turns") {
			var parts []any
			for range rapid.IntRange(1, 5).Draw(rt, "calls") {
				parts = append(parts, model.Call{ID: rapid.SampledFrom(ids).Draw(rt, "id"), Name: rapid.SampledFrom(names).Draw(rt, "name"), Args: json.RawMessage(rapid.SampledFrom(args).Draw(rt, "args"))})
			}
			turns = append(turns, say(parts...))
		}

		b := setup(t, append(turns, say("end"))...)
		b.run(t, t.Context())

		for _, request := range b.model.requests {
			var open []model.Call
			for _, m := range request.Messages {
				switch {
				case m.Role == model.RoleTool && (len(open) == 0 || open[0].ID != m.CallID || open[0].Name != m.Name):
					rt.Fatalf("the answer %+v is none to %+v", m, open)
				case m.Role == model.RoleTool:
					open = open[1:]
				case len(open) > 0:
					rt.Fatalf("%+v came before the answers to %+v", m, open)
				}

				seen := map[string]bool{}
				for _, c := range m.Calls {
					if c.ID == "" || c.Key == "" || seen[c.ID] || !json.Valid(c.Args) {
						rt.Fatalf("calls %+v", m.Calls)
					}
					seen[c.ID] = true
				}

				open = append(open, m.Calls...)
			}
			if len(open) > 0 {
				rt.Fatalf("nothing answered %+v", open)
			}
		}
	})
}

// TestPriorCalls checks that calls of an earlier attempt are not made again.
func TestPriorCalls(t *testing.T) {
	b := setup(t, say(model.Call{Name: "change", Key: "p1", Args: json.RawMessage(`{}`)}), say(model.Call{Name: "refuse", Key: "p2", Args: json.RawMessage(`{}`)}),
		say(model.Call{Name: "read", Key: "p3", Args: json.RawMessage(`{}`)}), say(model.Call{Name: "refuse", Key: "p4", Args: json.RawMessage(`{}`)}), say("end"))
	b.o.PriorCalls = map[string]loop.PriorCall{"p1": {Envelope: json.RawMessage(`{"ok":true,"result":{"text":"recorded"}}`)}, "p2": {Uncertain: true}, "p3": {}, "p4": {}}
	b.run(t, t.Context())
	if got := strings.Join(b.done, " "); got != "read p3" {
		t.Errorf("executed %s", got)
	}
	if b.log.calls[0].State != "replayed" || !strings.Contains(string(b.log.calls[0].Envelope), "recorded") {
		t.Errorf("first call: %+v", b.log.calls[0])
	}

	for _, i := range []int{1, 3} {
		if !strings.Contains(string(b.log.calls[i].Envelope), "unknown") {
			t.Errorf("uncertain call: %s", b.log.calls[i].Envelope)
		}
	}
}

func TestPending(t *testing.T) {
	b := setup(t, say("end"))
	b.o.Interrupted = true
	b.o.PendingCalls = []model.Call{{ID: "a", Key: "m1.1.1", Name: "change", Args: json.RawMessage(`{}`)}}
	// The step that holds the call did not ask a model.
	if res := b.run(t, t.Context()); res.Steps != 1 || len(b.log.steps) != 2 {
		t.Errorf("%d steps counted, %d recorded", res.Steps, len(b.log.steps))
	}
	if got := strings.Join(b.done, " "); got != "change m1.1.1" {
		t.Errorf("executed %s", got)
	}
	if m := b.model.requests[0].Messages; m[len(m)-1].CallID != "a" || !strings.Contains(m[len(m)-1].Text, "[System Notice] An earlier attempt") {
		t.Errorf("the result is not in the history, or nobody says why: %+v", m)
	}
}

// TestPendingEnd checks that a run that ends with a pending call does not ask the model again.
func TestPendingEnd(t *testing.T) {
	b := setup(t, say("what now?"))
	b.o.PendingCalls = []model.Call{{ID: "a", Key: "m1.1.1", Name: "complete", Args: json.RawMessage(`{"text":"did it"}`)}}
	if res := b.run(t, t.Context()); res.Exit != domain.ExitEnded || res.Summary != "did it" || len(b.model.requests) > 0 {
		t.Errorf("%+v after %d requests", res, len(b.model.requests))
	}
}

// TestHostBroken checks that an error of the recorder ends the run with an error of the host,
// wherever it occurs.
func TestHostBroken(t *testing.T) {
	for _, where := range []string{"StartStep", "FinishStep", "StartCall", "FinishCall"} {
		for name, calls := range map[string][]any{"serial": {call("read", `{}`), call("complete", `{"text":"x"}`)}, "parallel": {call("read", `{}`)}} {
			for _, policy := range []loop.Policy{loop.Headless(), loop.Playbook()} {
				b := setup(t, say(calls...), say("end"))
				b.o.Policy, b.o.Recorder = policy, brokenRecorder{b.log, where}
				if _, err := loop.Run(t.Context(), b.o); !errors.Is(err, errBroken) {
					t.Errorf("%s, %s, %s: %v", policy.Name, where, name, err)
				}
				if where != "FinishCall" && len(b.done) > 0 || len(b.done) > 1 {
					t.Errorf("%s: %s was refused, but %v was executed", policy.Name, where, b.done)
				}
			}
		}
	}
}

// TestAnsweredCallsNeverStart checks that a call answered without being made is recorded together
// with its result. Otherwise a kill in between would leave it looking like a call that was made.
func TestAnsweredCallsNeverStart(t *testing.T) {
	known := map[string]loop.PriorCall{"k": {Envelope: json.RawMessage(`{"ok":true,"result":{"text":"recorded"}}`)}}
	for what, c := range map[string]struct {
		prior      map[string]loop.PriorCall
		authorizer loop.Authorizer
	}{
		"known from an earlier attempt": {prior: known},
		"cut off in an earlier attempt": {prior: map[string]loop.PriorCall{"k": {Uncertain: true}}},
		"another tool's":                {prior: map[string]loop.PriorCall{"k": {Tool: "change"}}},
		"refused":                       {authorizer: &fakeAuthorizer{verdicts: map[string]tool.Verdict{"read": answerWith(tool.KindRejected)}}},
	} {
		b := setup(t, say("end"))
		b.o.PriorCalls, b.o.Authorizer = c.prior, c.authorizer
		b.o.PendingCalls = []model.Call{{ID: "a", Key: "k", Name: "read", Args: json.RawMessage(`{}`)}}

		b.o.Recorder = brokenRecorder{b.log, "StartCall"}
		if _, err := loop.Run(t.Context(), b.o); err != nil {
			t.Errorf("%s: a call started: %v", what, err)
		}
		b.o.Recorder = brokenRecorder{b.log, "AnswerCall"}
		if _, err := loop.Run(t.Context(), b.o); !errors.Is(err, errBroken) {
			t.Errorf("%s: the answer is not on record (%v)", what, err)
		}
	}
}

var errBroken = errors.New("the disk is full")

// brokenRecorder returns an error for one kind of record.
type brokenRecorder struct {
	*fakeRecorder
	where string
}

func (b brokenRecorder) refuse(where string) error {
	if b.where == where {
		return errBroken
	}
	return nil
}

func (b brokenRecorder) StartStep(context.Context, loop.Step) error  { return b.refuse("StartStep") }
func (b brokenRecorder) FinishStep(context.Context, loop.Step) error { return b.refuse("FinishStep") }
func (b brokenRecorder) StartCall(context.Context, loop.Call) error  { return b.refuse("StartCall") }
func (b brokenRecorder) FinishCall(context.Context, loop.Call) error { return b.refuse("FinishCall") }
func (b brokenRecorder) AnswerCall(context.Context, loop.Call) error { return b.refuse("AnswerCall") }
