package loop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// TestSameResults checks that a call that gets the same result ten times without a new result in
// between ends the run. Other repeated calls in between do not matter, but a new result does.
func TestSameResults(t *testing.T) {
	answers := 0
	count := func(name string, from int) func(model.Request) []any {
		return func(model.Request) []any {
			answers++
			return []any{call(name, fmt.Sprintf(`{"text":"%d"}`, max(answers-from, 0)))}
		}
	}
	repeat := func(turns ...func(model.Request) []any) []func(model.Request) []any {
		var out []func(model.Request) []any
		for range 40 {
			out = append(out, turns...)
		}
		return out
	}
	read, change := say(call("read", `{"text":"a"}`)), say(call("change", `{"text":"a"}`))
	for name, c := range map[string]struct {
		turns  []func(model.Request) []any
		change func(*bench)
		exit   domain.Exit
		say    string
		steps  int
	}{
		"in a row":                {turns: repeat(read), exit: domain.ExitEnded, say: `the same call had the same result 10 times, and nothing else changed: read {"text":"a"}`, steps: 10},
		"in turn":                 {turns: repeat(read, change), exit: domain.ExitEnded, say: "had the same result 10 times", steps: 20},
		"failures":                {turns: repeat(say(call("complete", `{"text":""}`)), read), exit: domain.ExitEnded, say: "had the same result 10 times", steps: 20},
		"many in one answer":      {turns: repeat(say(call("change", `{}`), call("change", `{}`), call("change", `{}`))), exit: domain.ExitEnded, say: "10 times", steps: 10},
		"something new each time": {turns: repeat(read, count("change", 0)), exit: domain.ExitIterationCap, say: "steps of this run were used up", steps: 31},
		"new until the tenth":     {turns: repeat(count("read", 0)), exit: domain.ExitIterationCap, say: "steps of this run were used up", steps: 31},
		"a result that differs": {turns: repeat(read), change: func(b *bench) {
			n := 0
			b.o.Registry = mustRegistry(t, "read", func() tool.Envelope { n++; return tool.Success(fmt.Sprint(n)) })
		}, exit: domain.ExitIterationCap, say: "steps of this run were used up", steps: 31},
		"two results in turn": {turns: repeat(read), change: func(b *bench) {
			n := 0
			b.o.Registry = mustRegistry(t, "read", func() tool.Envelope { n++; return tool.Success(fmt.Sprint(n % 2)) })
		}, exit: domain.ExitIterationCap, say: "steps of this run were used up", steps: 31},
		"a list of calls": {turns: append(repeat(read)[:20], say(model.End{Outcome: "success", Summary: "all"})), change: func(b *bench) { b.o.Policy = loop.Playbook() }, exit: domain.ExitEnded, say: "all", steps: 20},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, c.turns...)
			if c.change != nil {
				c.change(b)
			}
			res := b.run(t, t.Context())
			if res.Exit != c.exit || !strings.Contains(res.Summary+res.Error, c.say) || res.Steps != c.steps {
				t.Errorf("%+v", res)
			}
			if res.Exit == domain.ExitEnded && !b.o.Policy.NoModel && (res.Outcome != domain.OutcomeError || res.Kind != "repeated call") {
				t.Errorf("%+v", res)
			}
		})
	}
}

func mustRegistry(t *testing.T, name string, answer func() tool.Envelope) *tool.Registry {
	t.Helper()
	one, err := tool.Define(tool.Spec{Name: name, Description: name, Effect: domain.EffectRead, Class: tool.ClassOther}, func(context.Context, tool.Invocation, noArgs) (tool.Envelope, error) { return answer(), nil })
	if err != nil {
		t.Fatal(err)
	}
	r, err := tool.NewRegistry(one)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSameResultsOfEarlierAttempts checks that results of earlier attempts count.
func TestSameResultsOfEarlierAttempts(t *testing.T) {
	b := setup(t, say(call("read", `{"text":"a"}`)))
	for i := range 8 {
		id := fmt.Sprint("c", i)
		b.o.Messages = append(b.o.Messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: id, Key: fmt.Sprintf("m0.%d.1", i), Name: "read", Args: []byte(`{"text":"a"}`)}}},
			model.Message{Role: model.RoleTool, CallID: id, Name: "read", Text: `{"ok":true,"result":{"text":"fine"}}`})
	}
	if res := b.run(t, t.Context()); res.Steps != 2 || !strings.Contains(res.Error, "10 times") {
		t.Errorf("%+v", res)
	}
}

// TestRepeatedLines checks that 20 consecutive equal lines end an answer, however it arrives. Other
// texts are not ended.
func TestRepeatedLines(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		ended bool
	}{
		"the same line":    {strings.Repeat("I am sorry.\n", 500), true},
		"with empty lines": {"Well:\n" + strings.Repeat("I am sorry.\r\n\n", 500), true},
		"19 lines":         {strings.Repeat("I am sorry.\n", 19) + "Done.\n" + strings.Repeat("I am sorry.\n", 19), false},
		"empty lines":      {strings.Repeat("\n", 500) + "Done.", false},
		"other indents":    {strings.Join(indented(30), "\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var parts []any
			for at := 0; at < len(c.text); at += 7 {
				parts = append(parts, c.text[at:min(at+7, len(c.text))])
			}
			b := setup(t, say(parts...))
			res := b.run(t, t.Context())
			if ended := strings.Contains(res.Error, "repeated a line 20 times in a row"); ended != c.ended || ended != (res.Outcome == domain.OutcomePartial) || ended && b.model.sent > 60 {
				t.Errorf("%+v after %d parts", res, b.model.sent)
			}
		})
	}
}

func indented(n int) (lines []string) {
	for i := range n {
		lines = append(lines, strings.Repeat(" ", n-i)+"}")
	}
	return lines
}

// TestLimitOfAnAnswer checks that an answer may have a quarter of the context and at most 16,000
// tokens, unless max_output is set.
func TestLimitOfAnAnswer(t *testing.T) {
	for _, c := range []struct{ window, maxOutput, want int }{{0, 0, 16_000}, {8192, 0, 2048}, {200_000, 0, 16_000}, {8192, 4000, 4000}} {
		b := setup(t, say("all go", stop(model.StopLength)))
		b.o.Window, b.o.MaxOutput = c.window, c.maxOutput
		res := b.run(t, t.Context())
		if got := b.model.requests[0].MaxOutput; got != c.want || !strings.Contains(res.Error, fmt.Sprintf("greatest length of %d tokens", c.want)) {
			t.Errorf("window %d, max_output %d: %d, %q", c.window, c.maxOutput, got, res.Error)
		}
	}
}
