package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/loop"
	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

// inPhases returns a bench with a run that works in phases. Its tools include a question and a
// list.
func inPhases(t *testing.T, turns ...func(model.Request) []any) *bench {
	t.Helper()
	b := setup(t, turns...)
	b.o.Policy, b.o.Board = loop.Phased(), &memory.Board{}
	add := func(d tool.Tool, err error) {
		if err == nil {
			b.o.Registry, err = b.o.Registry.With(d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	add(loop.StepTool())
	add(tool.Define(tool.Spec{Name: "clarify", Description: "asks", Effect: domain.EffectRead, Class: tool.ClassOther, Ends: true, Waits: true}, func(_ context.Context, _ tool.Invocation, a struct {
		Question string `json:"question"`
	}) (tool.Envelope, error) {
		return tool.Success(map[string]string{"question": a.Question}), nil
	}))

	add(tool.Define(tool.Spec{Name: "todo", Description: "a list", Effect: domain.EffectRead, Class: tool.ClassPlan}, func(_ context.Context, _ tool.Invocation, a struct {
		Markdown string `json:"markdown"`
	}) (tool.Envelope, error) {
		b.o.Board.SetItems(memory.ParseItems(a.Markdown))
		return tool.Success(map[string]int{"open": b.o.Board.OpenItems()}), nil
	}))

	return b
}

func phase(args string) model.Call { return call("agent_step", args) }

func doing(name, input string) model.Call {
	return phase(fmt.Sprintf(`{"phase":"act","thinking":"t","summary":"does %s","action":{"tool_name":%q,"tool_input":%s}}`, name, name, input))
}

// readingResult returns the text of the last message of a request.
func readingResult(r model.Request) string { return r.Messages[len(r.Messages)-1].Text }

func (b *bench) rows() string {
	var out []string
	for _, c := range b.log.calls {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %d.%d %s", c.Key, c.Tool, c.Step, c.Index, c.State)))
	}
	return strings.Join(out, "\n")
}

// TestStepIsACall: AYA-07, AYA-12. The action of an act is recorded as a separate call, in the same
// way as other calls, and the step gets its result. The history does not contain the memory.
func TestStepIsACall(t *testing.T) {
	view, record := contract.Of(t, "AYA-05"), contract.Of(t, "AYA-12")
	marker := view.Quote("--- Agent Working Memory ---")
	b := inPhases(t,
		say(phase(`{"phase":"plan","thinking":"t","summary":"a plan","plan":{"goal":"g","sub_tasks":[{"id":"1","title":"read it"},{"id":"2","title":"change it"}]}}`)),
		say(doing("read", `{"text":"x"}`)),
		say(phase(`{"phase":"verify","thinking":"t","summary":"read","key_facts":["it is fine"],"sub_task_outcome":"done"}`), doing("change", `{}`)),
		say(phase(`{"phase":"end","thinking":"t","summary":"s","end_status":"solved","end_message":"changed it"}`)))

	res := b.run(t, t.Context())
	if res.Exit != domain.ExitEnded || res.Outcome != "success" || res.Summary != "changed it" || !res.Verified || res.Calls != 7 {
		t.Errorf("%+v", res)
	}

	want := `m1.1.1 agent_step 1.0 done
m1.2.1.1 read 2.1 done
m1.2.1 agent_step 2.0 done
m1.3.1 agent_step 3.0 done
m1.3.2.1 change 3.3 done
m1.3.2 agent_step 3.2 done
m1.4.1 agent_step 4.0 done`
	step := record.Quote("m1.2.1") + " " + record.Quote("agent_step") + " "
	if got := b.rows(); got != want || !strings.Contains(got, step) || !strings.Contains(got, record.Quote("m1.2.1.1")+" read ") {
		t.Errorf("calls:\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(b.done, ", "); got != "read m1.2.1.1, change m1.3.2.1" {
		t.Errorf("done: %s", got)
	}

	var sent model.Request
	for i, r := range b.model.requests {
		for j, m := range r.Messages {
			if n := strings.Count(m.Text, marker); (n == 1) != (j == len(r.Messages)-1) {
				t.Errorf("request %d: message %d of %d has %d views", i, j, len(r.Messages), n)
			}
		}

		if strings.Contains(r.System, "Working Memory") {
			t.Error("the view is in the system message")
		}
		sent = r
	}

	for _, part := range []string{"✓ Sub-task 1: read it", "→ Sub-task 2: change it         ← CURRENT", "• it is fine  [step 3", "[Step 4] ACT: does change", "    Tool: change\n    Input: {}", `    Result: {"text":"fine"}`, "ℹ 3 of 16 steps used"} {
		if !strings.Contains(readingResult(sent), part) {
			t.Errorf("%q is not in\n%s", part, readingResult(sent))
		}
	}

	for _, s := range b.log.steps {
		if strings.Contains(string(s.Message), "Working Memory") || len(s.Notices) == 0 || !strings.Contains(s.Notices[0], "steps used") {
			t.Errorf("the record of step %d: %s %q", s.Number, s.Message, s.Notices)
		}
	}
}

// TestStepEnds: AYA-07, AYA-08, AYA-11, each way in which a run in phases ends itself.
func TestStepEnds(t *testing.T) {
	for name, c := range map[string]struct {
		turns   []func(model.Request) []any
		exit    domain.Exit
		outcome domain.Outcome
		say     string
	}{
		"solved":             {[]func(model.Request) []any{say(phase(`{"phase":"end","summary":"s","end_message":"all done"}`))}, domain.ExitEnded, "success", "all done"},
		"partial":            {[]func(model.Request) []any{say(phase(`{"phase":"end","summary":"half","end_status":"partial"}`))}, domain.ExitEnded, "partial", "half"},
		"stuck":              {[]func(model.Request) []any{say(phase(`{"phase":"end","summary":"s","end_status":"stuck","end_message":"no key"}`))}, domain.ExitEnded, "error", "stuck: no key"},
		"text":               {[]func(model.Request) []any{say("it is solved")}, domain.ExitFinalResponse, "success", "it is solved"},
		"nothing":            {[]func(model.Request) []any{say(doing("read", `{}`)), say("")}, domain.ExitEmptyResponse, "error", "stuck: the model gave only empty answers"},
		"complete, directly": {[]func(model.Request) []any{say(call("complete", `{"text":"did it","outcome":"nothing"}`))}, domain.ExitEnded, "nothing", "did it"},
		"complete, by act":   {[]func(model.Request) []any{say(doing("complete", `{"text":"did it"}`), doing("change", `{}`))}, domain.ExitEnded, "success", "did it"},
		"thinks only":        {[]func(model.Request) []any{say(phase(`{"phase":"reason","summary":"hm"}`))}, domain.ExitEnded, "error", "stuck: 4 steps in a row did nothing"},
		"lists only": {[]func(model.Request) []any{say(call("todo", `{"markdown":"- [ ] a"}`)), say(call("todo", `{"markdown":"- [ ] b"}`)), say(call("todo", `{"markdown":"- [ ] c"}`)),
			say(call("todo", `{"markdown":"- [ ] d"}`))}, domain.ExitEnded, "error", "stuck: 4 steps in a row did nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			b := inPhases(t, c.turns...)
			res := b.run(t, t.Context())
			if res.Exit != c.exit || res.Outcome != c.outcome || !strings.Contains(res.Summary+res.Error, c.say) {
				t.Errorf("%+v", res)
			}
			if slices.ContainsFunc(b.done, func(s string) bool { return strings.HasPrefix(s, "change") }) {
				t.Error("what stood behind the end was done")
			}
		})
	}
}

// TestStepMistakes: AYA-06, an invalid step gets an error, and the run continues.
func TestStepMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		call model.Call
		say  string
	}{
		"no phase":     {phase(`{"summary":"s"}`), "there is no phase"},
		"no JSON":      {phase(`{"phase":`), "no JSON object"},
		"no plan":      {phase(`{"phase":"plan"}`), "the plan is missing"},
		"no action":    {phase(`{"phase":"act"}`), "the action is missing"},
		"itself":       {doing("agent_step", `{"phase":"end"}`), "cannot be the action of a step"},
		"unknown tool": {doing("raed", `{}`), `did you mean \"read\"?`},
		"bad input":    {doing("read", `{"text":[1]}`), "invalid_args"},
		"no object":    {doing("read", `7`), "must be an object"},
		"no question":  {phase(`{"phase":"feedback"}`), "the question is missing"},
	} {
		b := inPhases(t, say(c.call), say("then not"))
		res := b.run(t, t.Context())
		if last := b.model.requests[len(b.model.requests)-1]; res.Outcome != "success" || !strings.Contains(readingResult(last), c.say) {
			t.Errorf("%s: %+v\n%s", name, res, readingResult(last))
		}
		if state := b.log.calls[len(b.log.calls)-1].State; state != "failed" {
			t.Errorf("%s: the call is %s", name, state)
		}
	}
}

// TestDirectCalls: AYA-08, a call without agent_step is an act with its full output, and its
// failure is an error. Concurrent calls keep their order.
func TestDirectCalls(t *testing.T) {
	b := inPhases(t, say(call("slow", `{}`), call("refuse", `{}`), call("read", `{}`)), say("done"))
	synctest.Test(t, func(t *testing.T) { b.run(t, t.Context()) })
	view := readingResult(b.model.requests[1])
	for _, part := range []string{"[Step 1] ACT: called slow\n    Tool: slow\n    Input: {}\n    Result: {\"text\":\"fine\"}\n    Duration: 60000ms",
		"[Step 2] ACT: called refuse\n    Tool: refuse\n    Input: {}\n    Result (FAILED): rejected: no\n", "[Step 3] ACT: called read", "✗ [Step 2] refuse — rejected: no"} {
		if !strings.Contains(view, part) {
			t.Errorf("%q is not in\n%s", part, view)
		}
	}
}

// TestPhasedLimits: AYA-11. The limit is 12 steps, two more for each action and at most 20, within
// the bounds of the run. The same action is allowed three times in a row.
func TestPhasedLimits(t *testing.T) {
	count := 0
	other := func(model.Request) []any { count++; return []any{doing("read", fmt.Sprintf(`{"text":"%d"}`, count))} }
	b := inPhases(t, other)
	res := b.run(t, t.Context())
	if res.Exit != domain.ExitIterationCap || res.Steps != 21 || res.Error != "stuck: the 20 steps of this run were used up" {
		t.Errorf("acts: %+v", res)
	}

	b = inPhases(t, say(phase(`{"phase":"reason","summary":"hm"}`)))
	b.o.Policy.Phases.Idle = 0
	if res := b.run(t, t.Context()); res.Steps != 13 || res.Error != "stuck: the 12 steps of this run were used up" {
		t.Errorf("thinks: %+v", res)
	}

	b = inPhases(t, other)
	b.o.Bounds.Steps = 5
	if res := b.run(t, t.Context()); res.Steps != 6 {
		t.Errorf("bounds: %+v", res)
	}

	b = inPhases(t, other)
	b.o.PriorSteps = 10
	if res := b.run(t, t.Context()); res.Steps != 11 || !strings.Contains(res.Error, "the 20 steps") {
		t.Errorf("what was taken before: %+v", res)
	}

	b = inPhases(t, other)
	b.o.Bounds.Calls = 5
	if res := b.run(t, t.Context()); res.Calls != 4 || res.Outcome != "budget_exceeded" || len(b.done) != 2 {
		t.Errorf("calls: %+v %q", res, b.done)
	}

	same := doing("change", `{"text":"x"}`)
	b = inPhases(t, say(same), say(phase(`{"phase":"reason","summary":"hm"}`)), say(same), say(call("change", `{"text":"x"}`)), say(same), say(doing("change", `{"text":"y"}`)), say("enough"))
	g := &fakeAuthorizer{}
	b.o.Authorizer = g
	b.run(t, t.Context())
	if got := strings.Join(g.judged, ", "); got != "change m1.1.1.1, admit, admit, change m1.3.1.1, admit, change m1.4.1, admit, admit, change m1.6.1.1, admit" {
		t.Errorf("what is not made is judged, or the other way round: %s", got)
	}
	if got := strings.Join(b.done, ", "); got != "change m1.1.1.1, change m1.3.1.1, change m1.4.1, change m1.6.1.1" {
		t.Errorf("done: %s", got)
	}
	if view := readingResult(b.model.requests[5]); !strings.Contains(view, "was made 3 times in a row, and was not made again") || !strings.Contains(b.rows(), "m1.5.1.1 change 5.1 failed\nm1.5.1 agent_step 5.0 failed") {
		t.Errorf("%s\n%s", view, b.rows())
	}
}

// TestStepDedupe checks that an inner call is deduplicated like any other call (OSA-12).
func TestStepDedupe(t *testing.T) {
	look := phase(`{"phase":"act","summary":"s","action":{"tool_name":"look","tool_input":{"path":"/a"}}}`)
	h := newFileTools(t, say(look), say(look), say("done"))
	step, err := loop.StepTool()
	if err != nil {
		t.Fatal(err)
	}
	if h.o.Registry, err = h.o.Registry.With(step); err != nil {
		t.Fatal(err)
	}

	h.o.Policy = loop.Phased()
	h.run(t, t.Context())
	if len(h.calls) != 1 || !strings.Contains(h.rows(), "m1.2.1.1 look 2.1 deduped") {
		t.Errorf("%q\n%s", h.calls, h.rows())
	}
}

// TestListIsPlan: UNI-10, todo writes the plan, and a plan is the list that todo shows.
func TestListIsPlan(t *testing.T) {
	row := contract.Of(t, "UNI-10")
	list := row.Quote("- [x] read") + "\n" + row.Quote("- [ ] write") + "\n"
	b := inPhases(t,
		say(phase(`{"phase":"plan","summary":"s","plan":{"goal":"g","sub_tasks":[{"id":"a","title":"read"},{"id":"b","title":"write","depends_on":["a"]}]}}`)),
		say(call(row.Quote("todo"), fmt.Sprintf(`{"markdown":%q}`, list))), say("done"))
	b.run(t, t.Context())
	if got := checklist(b.o.Board); got != list {
		t.Errorf("%q", got)
	}
	if view := readingResult(b.model.requests[2]); !strings.Contains(view, "[PLAN v2]  Goal: g\n  ✓ Sub-task a: read\n  → Sub-task b: write  (needs: a)         ← CURRENT") || !strings.Contains(view, "[Step 2] PLAN: called todo") {
		t.Error(view)
	}
}

// TestListIsRebuilt: UNI-10, a later attempt has exactly the list that an earlier attempt wrote.
func TestListIsRebuilt(t *testing.T) {
	var messages []model.Message
	for i, c := range []struct{ tool, args, result string }{
		{"todo", `{"markdown":"- [x] read\n- [ ] write"}`, `{"ok":true,"result":{"open":1}}`},
		{"todo", `{"markdown":"- [ ] refused"}`, `{"kind":"invalid_args","message":"no","ok":false}`},
		{"todo", `{}`, `{"ok":true,"result":{"open":1}}`},
		{"read", `{"markdown":"- [ ] another's"}`, `{"ok":true,"result":{}}`},
		{"gone", `{"markdown":"- [ ] nobody's"}`, `{"ok":true,"result":{}}`},
	} {
		id := fmt.Sprint(i)
		messages = append(messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: id, Name: c.tool, Args: json.RawMessage(c.args)}}},
			model.Message{Role: model.RoleTool, CallID: id, Name: c.tool, Text: c.result})
	}

	for _, policy := range []loop.Policy{loop.Phased(), loop.Headless()} {
		b := inPhases(t, say("done"))
		b.o.Policy, b.o.Messages = policy, append(b.o.Messages, messages...)
		b.run(t, t.Context())
		if got := checklist(b.o.Board); got != "- [x] read\n- [ ] write\n" {
			t.Errorf("%s: %q", policy.Name, got)
		}

		b.o.Board = nil
		if res := b.run(t, t.Context()); res.Outcome != "success" {
			t.Errorf("%s, without a list: %+v", policy.Name, res)
		}
	}
}

// again returns the attempt that continues another one, with its record and the part of its
// transcript that has results. The results of the first known calls are known.
func (b *bench) again(t *testing.T, known int, turns ...func(model.Request) []any) *bench {
	t.Helper()
	n := inPhases(t, turns...)
	n.o.PriorCalls, n.o.PriorDurations, n.o.Invocation.Attempt = map[string]loop.PriorCall{}, map[string]time.Duration{}, 2
	envelopes := map[string]json.RawMessage{}
	for i, c := range b.log.calls {
		if i < known {
			envelopes[c.Key] = c.Envelope
			n.o.PriorCalls[c.Key], n.o.PriorDurations[c.Key] = loop.PriorCall{Envelope: c.Envelope}, loop.RecordedDuration(c.StartedAt, c.FinishedAt)
		}
	}

	for _, s := range b.log.steps {
		var m model.Message
		if err := json.Unmarshal(s.Message, &m); err != nil {
			t.Fatal(err)
		}

		n.o.Messages, n.o.PendingCalls = append(n.o.Messages, m), nil
		for _, c := range m.Calls {
			if e, ok := envelopes[c.Key]; ok {
				n.o.Messages = append(n.o.Messages, model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: string(e)})
			} else {
				n.o.PendingCalls = append(n.o.PendingCalls, c)
			}
		}

		n.o.PriorSteps++
		if len(n.o.PendingCalls) > 0 {
			break
		}
	}

	return n
}

// TestPhasedResume checks that after a crash at any point the memory is rebuilt from the record.
// The model sees the same view, and calls are not repeated.
func TestPhasedResume(t *testing.T) {
	turns := []func(model.Request) []any{
		say(phase(`{"phase":"plan","thinking":"t","summary":"a plan","plan":{"goal":"g","sub_tasks":[{"id":"1","title":"read it"},{"id":"2","title":"change it","depends_on":["1"]}]}}`)),
		say(doing("read", `{"text":"x"}`), phase(`{"phase":"verify","summary":"read","key_facts":["it is fine"],"sub_task_outcome":"done"}`)),
		say(doing("change", `{}`)),
		say(call("todo", `{"markdown":"- [x] read it\n- [ ] change it\n- [ ] tell"}`)),
		say(doing("refuse", `{}`), phase(`{"phase":"reflect","summary":"not that way"}`)),
		say(phase(`{"phase":"oops"}`), call("read", `{"text":"y"}`)),
		say("all"),
	}

	memoryOf := func(r model.Request) string {
		_, view, _ := strings.Cut(readingResult(r), "--- Agent Working Memory ---")
		view, _, _ = strings.Cut(view, "[Context Signals]") // steps lost by an interruption are counted
		return view
	}

	whole := inPhases(t, turns...)
	synctest.Test(t, func(t *testing.T) { whole.run(t, t.Context()) })
	want := memoryOf(whole.model.requests[len(turns)-1])
	if len(whole.log.calls) != 12 || !strings.Contains(want, "[Step 7] REFLECT") {
		t.Fatalf("%d calls\n%s", len(whole.log.calls), want)
	}

	for known := range len(whole.log.calls) + 1 {
		b := whole.again(t, known)
		from := 0
		for _, m := range b.o.Messages {
			if m.Role == model.RoleAssistant {
				from++
			}
		}

		if len(b.o.PendingCalls) == 0 && known == len(whole.log.calls) {
			from = len(turns) - 1 // the closing text does not belong to a call
			b.o.Messages = b.o.Messages[:len(b.o.Messages)-1]
		}

		b.model.turns = turns[from:]
		synctest.Test(t, func(t *testing.T) { b.run(t, t.Context()) })
		if got := memoryOf(b.model.requests[len(b.model.requests)-1]); got != want {
			t.Errorf("after %d calls the memory is\n%s\nwant\n%s", known, got, want)
		}
		if n := len(whole.done) - min(len(whole.done), len(b.done)); known > 2 && n == 0 {
			t.Errorf("after %d calls all was done again: %q", known, b.done)
		}
	}
}

// TestFeedback: AYA-07, feedback works like clarify: it ends the attempt with a question. The next
// attempt gets the answer, and earlier repetitions no longer count.
func TestFeedback(t *testing.T) {
	think := say(phase(`{"phase":"reason","summary":"hm"}`))
	b := inPhases(t, think, think, say(phase(`{"phase":"feedback","thinking":"t","summary":"asks","feedback_message":"Which account?"}`), doing("change", `{}`)))
	res := b.run(t, t.Context())
	if res.Wait == nil || res.Wait.Question != "Which account?" || res.Outcome != "" || len(b.done) != 0 {
		t.Fatalf("%+v %q", res, b.done)
	}
	if !strings.Contains(b.rows(), "m1.3.1.1 clarify 3.1 done\nm1.3.1 agent_step 3.0 done") {
		t.Error(b.rows())
	}

	n := b.again(t, len(b.log.calls), think, say(phase(`{"phase":"end","summary":"booked"}`)))
	n.o.PendingCalls = nil
	last := len(n.o.Messages) - 2
	n.o.Messages[last].Calls = n.o.Messages[last].Calls[:1]
	n.o.Messages = append(n.o.Messages, model.Message{Role: model.RoleUser, Text: "Your owner answers: GLS"})
	if res := n.run(t, t.Context()); res.Outcome != "success" || res.Summary != "booked" {
		t.Errorf("%+v", res)
	}
	if view := readingResult(n.model.requests[0]); !strings.Contains(view, "[Step 3] FEEDBACK: asks\n    Tool: clarify\n    Input: {\"question\":\"Which account?\"}") {
		t.Error(view)
	}
}

// TestRepeatsOverAttempts: AYA-11, repetitions count across attempts until the owner has answered.
func TestRepeatsOverAttempts(t *testing.T) {
	same := say(doing("change", `{}`))
	b := inPhases(t, same, same, same, say("enough"))
	b.run(t, t.Context())

	for answered, times := range []int{0, 1} {
		n := b.again(t, len(b.log.calls), same, say("enough"))
		n.o.Messages = n.o.Messages[:len(n.o.Messages)-1] // without its last message
		if answered > 0 {
			n.o.Messages = append(n.o.Messages, model.Message{Role: model.RoleUser, Text: "Do it once more."})
		}

		n.run(t, t.Context())
		if len(n.done) != times {
			t.Errorf("after %d answers it was made %d times, want %d", answered, len(n.done), times)
		}
	}
}

// TestStepCutOff checks that an interrupted step has no result. The record of its inner call
// decides whether that call is repeated.
func TestStepCutOff(t *testing.T) {
	for name, want := range map[string]string{"crawl": "interrupted", "send": "uncertain"} {
		synctest.Test(t, func(t *testing.T) {
			b := inPhases(t, say(doing(name, `{}`)))
			b.o.Bounds.Wall = time.Second
			b.run(t, t.Context())
			if got := b.rows(); got != "m1.1.1.1 "+name+" 1.1 "+want+"\nm1.1.1 agent_step 1.0 interrupted" {
				t.Error(got)
			}

			n := b.again(t, 0, say("done"))
			n.o.PriorCalls["m1.1.1.1"] = loop.PriorCall{Uncertain: want == "uncertain"}
			n.o.PendingCalls = []model.Call{{ID: "x", Key: "m1.1.1", Name: "agent_step", Args: doing(name, `{}`).Args}}
			n.run(t, t.Context())
			if again := len(n.done) == 1; again != (name == "crawl") {
				t.Errorf("%s: done again: %v", name, n.done)
			}
		})
	}
}

// TestStepIsReplayed checks that a step with a result from an earlier attempt is not repeated, and
// is stored in the memory.
func TestStepIsReplayed(t *testing.T) {
	b := inPhases(t, say(doing("change", `{}`)), say("done"))
	b.run(t, t.Context())
	n := b.again(t, 2, say("done"))
	n.o.PendingCalls, n.o.Messages = n.o.Messages[1].Calls, n.o.Messages[:2]
	n.run(t, t.Context())
	if got := n.rows(); got != "m1.1.1 agent_step 1.0 replayed" || len(n.done) > 0 {
		t.Errorf("done %q, recorded\n%s", n.done, got)
	}
	if view := readingResult(n.model.requests[0]); !strings.Contains(view, "[Step 1] ACT: does change\n    Tool: change\n    Input: {}\n    Result: {\"text\":\"fine\"}") {
		t.Error(view)
	}
}

// TestStepFails checks that a step fails if its call fails, even if the run was stopped in the
// meantime, unless the stop caused the failure.
func TestStepFails(t *testing.T) {
	h := newFileTools(t, say(doing("shell", `{"text":"fails"}`)), say("done"))
	step, err := loop.StepTool()
	if err != nil {
		t.Fatal(err)
	}
	if h.o.Registry, err = h.o.Registry.With(step); err != nil {
		t.Fatal(err)
	}

	h.o.Policy = loop.Phased()
	h.run(t, t.Context())
	if got := h.rows(); got != "m1.1.1.1 shell 1.1 failed\nm1.1.1 agent_step 1.0 failed" {
		t.Error(got)
	}
	if view := readingResult(h.model.requests[1]); !strings.Contains(view, "Result (FAILED): execution_error: exit status 1") {
		t.Error(view)
	}

	synctest.Test(t, func(t *testing.T) {
		b := inPhases(t, say(doing("judge", `{}`)))
		b.o.Bounds.Wall = time.Second
		b.run(t, t.Context())
		if got := b.rows(); got != "m1.1.1.1 judge 1.1 failed\nm1.1.1 agent_step 1.0 failed" {
			t.Error(got)
		}
	})
}

// TestViewFits: C-9, AYA-05, the view counts as a part of the context. A long run in phases stays
// within its model's window, the view has at most a quarter of the history's space, and messages
// already sent keep the same bytes.
func TestViewFits(t *testing.T) {
	count := 0
	b := inPhases(t, func(model.Request) []any {
		count++
		return []any{phase(fmt.Sprintf(`{"phase":"act","summary":"%s","action":{"tool_name":"read","tool_input":{"text":"%d %s"}}}`, strings.Repeat("s", 300), count, strings.Repeat("x", 900)))}
	})
	b.o.Window, b.o.MaxOutput = 6000, 500
	b.run(t, t.Context())
	most, longest, room, before := 0, 0, 0, ""
	for _, r := range b.model.requests {
		size := 0
		for _, m := range r.Messages {
			size += loop.TextTokens(m.Text)
			for _, c := range m.Calls {
				size += loop.TextTokens(string(c.Args) + c.Name)
			}
		}

		room = loop.HistoryRoom(b.o.Window, b.o.MaxOutput, loop.TextTokens(r.System)+loop.ToolTokens(r.Tools))
		_, view, _ := strings.Cut(readingResult(r), "--- Agent Working Memory ---")
		most, longest = max(most, size), max(longest, len(view))
		var rest []model.Message
		for _, m := range r.Messages {
			m.Text, _, _ = strings.Cut(m.Text, "--- Agent Working Memory ---")
			if m.Text = strings.TrimSpace(m.Text); m.Text != "" || len(m.Calls) > 0 {
				rest = append(rest, m)
			}
		}

		text := bytesOf(t, rest)
		if !strings.HasPrefix(text, before) && !strings.Contains(text, "Earlier turns") {
			t.Fatal("what was sent has changed")
		}

		before = text
	}
	if len(b.model.requests) != 21 || most > room || most < room/2 || longest > room {
		t.Errorf("%d requests, the longest with %d tokens of %d, and %d bytes of memory", len(b.model.requests), most, room, longest)
	}
}

// TestViewIsCounted checks that the view is counted exactly: a context with room for the task and
// the view suffices, and a context with one token less ends the run.
func TestViewIsCounted(t *testing.T) {
	enough := func(room int) bool {
		b := inPhases(t, say("done"))
		b.o.Window, b.o.MaxOutput = 20_000, 500
		b.o.System = strings.Repeat("s", 4*(loop.HistoryRoom(20_000, 500, loop.ToolTokens(b.o.Registry.ModelTools()))-room))
		return b.run(t, t.Context()).Exit != domain.ExitOverBudget
	}

	b := inPhases(t, say("done"))
	b.run(t, t.Context())
	least := 0
	for _, m := range b.model.requests[0].Messages {
		least += loop.TextTokens(m.Text) + 4
	}
	for room, want := range map[int]bool{least: true, least - 1: false, 0: false} {
		if got := enough(room); got != want {
			t.Errorf("of %d tokens %d are enough: %t", least, room, got)
		}
	}
}

// TestRepeatsWithoutBound checks that without a limit the same action may be repeated until the
// steps are used up.
func TestRepeatsWithoutBound(t *testing.T) {
	b := inPhases(t, slices.Repeat([]func(model.Request) []any{say(doing("read", `{}`))}, 6)...)
	b.o.Policy.Phases.Repeats, b.o.Bounds.Steps = 0, 6
	b.run(t, t.Context())
	if len(b.done) != 6 {
		t.Errorf("it was made %d times: %q", len(b.done), b.done)
	}
}

// TestViewTellsHowFullTheContextIs: AYA-09, a run in phases is told when half of the history's
// space is used, and not before.
func TestViewTellsHowFullTheContextIs(t *testing.T) {
	asked := 0
	b := inPhases(t, func(model.Request) []any {
		asked++ // vary the call, because repetitions end the run
		return []any{phase(fmt.Sprintf(`{"phase":"act","summary":"reads","action":{"tool_name":"read","tool_input":{"text":"%02d%s"}}}`, asked, strings.Repeat("x", 1998)))}
	})
	b.o.Window, b.o.MaxOutput = 20_000, 500
	b.run(t, t.Context())

	first := b.model.requests[0]
	room := int64(loop.HistoryRoom(20_000, 500, loop.TextTokens(first.System)+loop.ToolTokens(first.Tools)))
	told, silent := 0, 0
	for i, r := range b.model.requests {
		says := strings.Contains(fmt.Sprint(r.System, r.Messages), "more than 50 % of the context is used")
		r.System, r.Tools = "", nil
		for j := range r.Messages { // the history without parts sent only once
			r.Messages[j].Text, _, _ = strings.Cut(r.Messages[j].Text, "--- Agent Working Memory ---")
		}

		percent := 100 * inputOf(r) / room
		if says && percent < 48 || !says && percent >= 52 && percent < 70 {
			t.Errorf("request %d, whose history takes about %d %%, says that half is used: %t", i, percent, says)
		}
		if says {
			told++
		} else if percent < 50 {
			silent++
		}
	}
	if told == 0 || silent < 2 {
		t.Errorf("%d requests say that half of the context is used, %d before them do not", told, silent)
	}
}

// TestEndedButNotRecorded: OSA-18, a run that was killed between its end and the record of the end
// has ended. The model is not asked to continue without an answer, and calls are not repeated.
func TestEndedButNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		call model.Call
		want func(loop.Result) bool
	}{
		"clarify":  {call("clarify", `{"question":"Which?"}`), func(r loop.Result) bool { return r.Wait != nil && r.Wait.Question == "Which?" }},
		"feedback": {phase(`{"phase":"feedback","feedback_message":"Which?"}`), func(r loop.Result) bool { return r.Wait != nil && r.Wait.Question == "Which?" }},
		"complete": {call("complete", `{"text":"did it"}`), func(r loop.Result) bool { return r.Outcome == "success" && r.Summary == "did it" }},
		"end":      {phase(`{"phase":"end","end_status":"partial","end_message":"half"}`), func(r loop.Result) bool { return r.Outcome == "partial" && r.Summary == "half" }},
	} {
		b := inPhases(t, say(c.call, call("change", `{}`)))
		b.run(t, t.Context())
		n := b.again(t, len(b.log.calls), say("what now?"))
		n.o.Interrupted = true
		if res := n.run(t, t.Context()); !c.want(res) || len(n.model.requests) > 0 || len(n.done) > 0 {
			t.Errorf("%s: %+v, %d requests, %q", name, res, len(n.model.requests), n.done)
		}

		n.o.PendingCalls, n.o.Messages[1].Calls = nil, n.o.Messages[1].Calls[:1]
		again := n.o
		if again.Interrupted = false; strings.HasPrefix(name, "c") { // the owner runs it again
			if res, err := loop.Run(t.Context(), again); err != nil || res.Summary != "what now?" {
				t.Errorf("%s, retried: %+v (%v)", name, res, err)
			}
		}

		n.o.Messages = append(n.o.Messages, model.Message{Role: model.RoleUser, Text: "This one."})
		if res := n.run(t, t.Context()); res.Summary != "what now?" {
			t.Errorf("%s, answered: %+v", name, res)
		}
	}
}

// checklist formats a plan as a todo list.
func checklist(b *memory.Board) (out string) {
	for _, t := range b.Plan().SubTasks {
		mark := " "
		if t.Status == memory.Done {
			mark = "x"
		}
		out += fmt.Sprintf("- [%s] %s\n", mark, t.Title)
	}
	return out
}
