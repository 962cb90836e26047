package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/internal/contract"
	"rouse/internal/domain"
)

// reply records a step in m and returns its reply as JSON.
func reply(t *testing.T, m *memory.Memory, args map[string]any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}

	step, invalid := memory.Parse(raw)
	if invalid != nil {
		t.Fatalf("%s: %v", raw, invalid)
	}

	answer, _ := m.RecordStep(step)
	if raw, err = json.Marshal(answer); err != nil {
		t.Fatal(err)
	}

	got := map[string]any{}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestPlanTypes: AYA-02, the names in a plan and in its reply.
func TestPlanTypes(t *testing.T) {
	row := contract.Of(t, "AYA-02")
	m := memory.New(nil)
	id, title, status, after := row.Quote("id"), row.Quote("title"), row.Quote("status"), row.Quote("depends_on")
	plan := map[string]any{row.Quote("goal"): "g", row.Quote("sub_tasks"): []map[string]any{
		{id: "a", title: "read"}, {id: "b", title: "write"}, {id: "c", title: "send", after: []string{"b"}}, {id: "d", title: "report"}}}
	got := reply(t, m, map[string]any{"phase": "plan", "plan": plan})
	if got[row.Quote("plan_version")] != 1.0 || fmt.Sprint(got["sub_tasks"].([]any)[2].(map[string]any)[after]) != "[b]" {
		t.Errorf("plan: %v", got)
	}

	reply(t, m, map[string]any{"phase": "verify", "sub_task_outcome": "done"})
	m.Board().Update("d", memory.Failed)
	raw, err := json.Marshal(m.Board().Plan())
	if err != nil {
		t.Fatal(err)
	}
	if current := fmt.Sprintf(`%q:"b"`, row.Quote("current_sub_task")); !strings.Contains(string(raw), current) {
		t.Errorf("after the first sub-task: %s is not in %s", current, raw)
	}
	for i, want := range []string{"done", "in_progress", "pending", "failed"} {
		if entry := fmt.Sprintf("%q:%q", status, row.Quote(want)); strings.Count(string(raw), entry) != 1 {
			t.Errorf("sub-task %d: %s is not once in %s", i, entry, raw)
		}
	}
}

// TestPlanAdvances: AYA-03.
func TestPlanAdvances(t *testing.T) {
	row := contract.Of(t, "AYA-03")
	var b memory.Board
	b.SetPlan("g", []memory.SubTask{{ID: "a"}, {ID: "b", DependsOn: []string{"a"}}, {ID: "c"}, {ID: "d", DependsOn: []string{"c"}}})
	b.Update("a", memory.Failed)
	next, ok := b.Advance()
	if !ok || next.ID != "c" || string(next.Status) != row.Quote("in_progress") || b.Plan().Current != "c" {
		t.Errorf("b depends on a failed sub-task, so c starts: %+v, %v", next, ok)
	}

	b.Update("c", memory.Status(row.Quote("done")))
	if next, ok := b.Advance(); !ok || next.ID != "d" {
		t.Errorf("%+v, %v", next, ok)
	}
	b.Update("d", memory.Done)
	if next, ok := b.Advance(); ok || string(b.Plan().SubTasks[1].Status) != row.Quote("pending") {
		t.Errorf("%+v starts, though its dependency failed", next)
	}
}

// TestStepFields: AYA-06, each phase and each field of a step.
func TestStepFields(t *testing.T) {
	row := contract.Of(t, "AYA-06")
	step, err := loop.StepTool()
	if err != nil {
		t.Fatal(err)
	}
	if step.Spec().Name != row.Quote("agent_step") {
		t.Errorf("the tool is %s", step.Spec().Name)
	}

	whole := map[string]any{
		row.Quote("phase"): "", row.Quote("thinking"): "t", row.Quote("summary"): "s",
		row.Quote("plan"):      map[string]any{"goal": "g", "sub_tasks": []any{map[string]any{"id": "1", "title": "a"}, map[string]any{"title": "dropped"}}},
		row.Quote("action"):    map[string]any{row.Quote("tool_name"): "read", row.Quote("tool_input"): map[string]any{"a": 1}},
		row.Quote("key_facts"): []string{"f"}, row.Quote("sub_task_outcome"): "failed", row.Quote("feedback_message"): "which?",
		row.Quote("end_status"): "unheard of", row.Quote("end_message"): "m",
	}
	want := map[string]string{"reason": "", "plan": "g [{1 a  []}]", "act": `read {"a":1}`, "verify": "[f] failed", "reflect": "", "feedback": "which?", "end": row.Quote("solved") + " m"}
	phases := row.Between("Phases: ", ". Invalid")
	if len(phases) != len(want) {
		t.Errorf("phases: %q", phases)
	}
	for _, name := range phases {
		whole["phase"] = name
		raw, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}

		s, invalid := memory.Parse(raw)
		got := map[string]string{"plan": fmt.Sprint(s.Goal, " ", s.SubTasks), "act": s.Tool + " " + string(s.Input), "verify": fmt.Sprint(s.Facts, " ", s.Outcome),
			"feedback": s.Question, "end": s.Status + " " + s.Message}[name]
		if invalid != nil || string(s.Phase) != name || s.Thinking != "t" || s.Summary != "s" || got != want[name] {
			t.Errorf("%s: %q, %+v %v", name, got, s, invalid)
		}
	}
}

// TestStepReplies: AYA-07, the reply of each phase, and the phases that count as steps without an
// action.
func TestStepReplies(t *testing.T) {
	row := contract.Of(t, "AYA-07")
	m := memory.New(nil)
	ack, number := row.Quote("acknowledged"), row.Quote("step")
	if got := reply(t, m, map[string]any{"phase": row.Quote("reason")}); got[ack] != true || got[number] != 1.0 {
		t.Errorf("reason: %v", got)
	}

	plan := map[string]any{"phase": row.Quote("plan"), "plan": map[string]any{"goal": "g", "sub_tasks": []any{map[string]any{"id": "a", "title": "a"}, map[string]any{"id": "b", "title": "b"}}}}
	got := reply(t, m, plan)
	if got[ack] != true || got[row.Quote("plan_version")] != 1.0 || len(got[row.Quote("sub_tasks")].([]any)) != 2 || m.Board().Plan().Current != "a" {
		t.Errorf("plan: %v", got)
	}
	if got := reply(t, m, plan); got["plan_version"] != 2.0 {
		t.Errorf("the second plan: %v", got)
	}

	verify := row.Quote("verify")
	if reply(t, m, map[string]any{"phase": verify, "sub_task_outcome": "failed"}); m.Board().Plan().Current != "a" {
		t.Error("a failed sub-task advances the plan")
	}
	if reply(t, m, map[string]any{"phase": verify, "key_facts": []string{"fact"}, "sub_task_outcome": row.Quote("done")}); m.Board().Plan().Current != "b" || m.IdleSteps() != 5 {
		t.Errorf("%+v after %d steps without an action", m.Board().Plan(), m.IdleSteps())
	}

	m.RecordAction(memory.Action{Phase: memory.Phase(row.Quote("act")), Tool: "x", Signature: "x", Failed: true, Output: "failed: it"})
	if m.IdleSteps() != 0 {
		t.Errorf("%d steps without an action after an action", m.IdleSteps())
	}
	reply(t, m, map[string]any{"phase": row.Quote("reflect"), "summary": "try y"})
	if view := m.View(memory.Signals{}, 8000); !strings.Contains(view, "→ resolved: try y") || !strings.Contains(view, "• fact  [step 5]") {
		t.Error(view)
	}

	b := inPhases(t, say(phase(fmt.Sprintf(`{"phase":%q,"feedback_message":"which?"}`, row.Quote("feedback")))))
	if res := b.run(t, t.Context()); res.Wait == nil || res.Wait.Question != "which?" {
		t.Errorf("feedback: %+v", res)
	}
	b = inPhases(t, say(phase(fmt.Sprintf(`{"phase":%q,"end_message":"did it"}`, row.Quote("end")))))
	if res := b.run(t, t.Context()); res.Exit != domain.ExitEnded || res.Summary != "did it" {
		t.Errorf("end: %+v", res)
	}
}

// TestStuck: AYA-08, AYA-11, calls without a step, empty answers and limits.
func TestStuck(t *testing.T) {
	direct, limits := contract.Of(t, "AYA-08"), contract.Of(t, "AYA-11")
	b := inPhases(t, say(call("read", `{}`), call("refuse", `{}`)), say("it is solved"))
	res := b.run(t, t.Context())
	view := readingResult(b.model.requests[1])
	if res.Exit != domain.ExitFinalResponse || res.Summary != "it is solved" || !strings.Contains(view, direct.Quote("ACT")+": called read") || strings.Contains(view, direct.Quote("agent_step")) ||
		!strings.Contains(view, "✗ [Step 2] refuse — rejected: no") {
		t.Errorf("%+v\n%s", res, view)
	}

	stuck := func(name string, res loop.Result, word string) {
		t.Helper()
		if !strings.HasPrefix(res.Error, word+": ") {
			t.Errorf("%s: %+v", name, res)
		}
	}
	b = inPhases(t, say(""))
	stuck("no answer", b.run(t, t.Context()), direct.Quote("stuck"))

	stuckWord := limits.Quote("stuck")
	think := say(phase(`{"phase":"reason","summary":"hm"}`))
	b = inPhases(t, think)
	if res := b.run(t, t.Context()); res.Steps != limits.Number("4") {
		t.Errorf("%d steps without an action", res.Steps)
	} else {
		stuck("thinking", res, stuckWord)
	}

	b = inPhases(t, think)
	b.o.Policy.Phases.Idle = 0 // the step beyond the last is the request for a summary
	if res := b.run(t, t.Context()); res.Steps != limits.Number("12")+1 {
		t.Errorf("%d steps without calls", res.Steps)
	}

	calls := 0
	other := func(model.Request) []any { calls++; return []any{doing("read", fmt.Sprintf(`{"text":"%d"}`, calls))} }
	b = inPhases(t, other)
	res = b.run(t, t.Context())
	stuck("steps used up", res, stuckWord)
	if res.Steps != limits.Number("20")+1 {
		t.Errorf("%d steps", res.Steps)
	}

	b = inPhases(t, other)
	b.o.Policy.Phases.Idle = 0
	b.model.turns = []func(model.Request) []any{other, think} // one call, then only thoughts
	if res := b.run(t, t.Context()); res.Steps != limits.Number("12")+limits.Number("2")+1 {
		t.Errorf("%d steps after one call", res.Steps)
	}

	same := say(doing("change", `{"text":"x"}`))
	b = inPhases(t, same, same, same, same, say("enough"))
	if b.run(t, t.Context()); len(b.done) != limits.Number("3") {
		t.Errorf("made %d times: %q", len(b.done), b.done)
	}
}
