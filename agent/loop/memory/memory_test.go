package memory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agent/loop/memory"
)

// tasks draws a plan with dependencies on other sub-tasks, on themselves and on unknown ids.
func tasks(r *rapid.T) []memory.SubTask {
	n := rapid.IntRange(1, 8).Draw(r, "n")
	var out []memory.SubTask
	for i := range n {
		t := memory.SubTask{ID: fmt.Sprint(i), Title: fmt.Sprintf("part %d", i)}
		for _, d := range rapid.SliceOfNDistinct(rapid.IntRange(0, 8), 0, 3, rapid.ID[int]).Draw(r, "deps") {
			t.DependsOn = append(t.DependsOn, fmt.Sprint(d))
		}
		out = append(out, t)
	}

	return out
}

// TestAdvance: AYA-02, AYA-03. For any dependencies and outcomes, the first pending sub-task
// without open dependencies starts. No sub-task starts only if all have open dependencies.
func TestAdvance(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var b memory.Board
		b.SetPlan("goal", tasks(r))

		for range 12 {
			before := b.Plan()
			status := map[string]memory.Status{}
			for _, s := range before.SubTasks {
				status[s.ID] = s.Status
			}

			want := slices.IndexFunc(before.SubTasks, func(s memory.SubTask) bool {
				return s.Status == memory.Pending && !slices.ContainsFunc(s.DependsOn, func(id string) bool { return status[id] != memory.Done })
			})
			began, ok := b.Advance()
			after := b.Plan()
			switch {
			case ok != (want >= 0):
				r.Fatalf("began %v of %+v", ok, before)
			case ok && (began.ID != before.SubTasks[want].ID || began.Status != memory.InProgress || after.Current != began.ID):
				r.Fatalf("began %+v of %+v", began, before)
			}

			for i, s := range after.SubTasks {
				if i != want && s.Status != before.SubTasks[i].Status {
					r.Fatalf("%+v became %+v", before.SubTasks[i], s)
				}
			}

			one := rapid.SampledFrom(after.SubTasks).Draw(r, "one")
			if !b.Update(one.ID, rapid.SampledFrom([]memory.Status{memory.Done, memory.Failed, memory.Pending}).Draw(r, "status")) {
				r.Fatal("it is there")
			}
		}
	})
}

// TestPlanEnds checks that every plan can be completed unless it has a dependency cycle, which is
// reported.
func TestPlanEnds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var b memory.Board
		circle := slices.ContainsFunc(b.SetPlan("goal", tasks(r)), func(w string) bool { return strings.Contains(w, "wait for each other") })

		for range 9 {
			b.Update(b.Plan().Current, memory.Done)
			b.Advance()
		}

		if open := b.OpenItems(); open > 0 && !circle {
			r.Fatalf("%d are open: %+v", open, b.Plan())
		}
	})
}

// TestSharedList: UNI-10. A plan and the todo list are the same list. Writing the list back
// unchanged has no effect. Changing it changes the plan and keeps dependencies.
func TestSharedList(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var b memory.Board
		b.SetPlan("goal", tasks(r))

		for range 3 {
			b.Update(b.Plan().Current, memory.Done)
			b.Advance()
		}

		before := b.Plan()
		b.SetItems(memory.ParseItems(checklist(&b)))
		if after := b.Plan(); fmt.Sprint(after) != fmt.Sprint(before) {
			r.Fatalf("%+v became %+v", before, after)
		}
	})

	var b memory.Board
	b.SetPlan("goal", []memory.SubTask{{ID: "a", Title: "read"}, {ID: "b", Title: "write", DependsOn: []string{"a"}}, {ID: "c", Title: "tell", DependsOn: []string{"b"}}})
	if got, want := checklist(&b), "- [ ] read\n- [ ] write\n- [ ] tell\n"; got != want {
		t.Errorf("%q", got)
	}

	b.Update("a", memory.Failed)
	if next, ok := b.Advance(); ok {
		t.Errorf("%s begins, which waits for what has failed", next.ID)
	}
	b.Update("a", memory.InProgress)

	b.SetItems(memory.ParseItems("- [x] read\n- [ ] check\n- [ ] write"))
	want := memory.Plan{Goal: "goal", Version: 2, Current: "1", SubTasks: []memory.SubTask{
		{ID: "a", Title: "read", Status: memory.Done}, {ID: "1", Title: "check", Status: memory.InProgress},
		{ID: "b", Title: "write", Status: memory.Pending, DependsOn: []string{"a"}}}}
	if got := b.Plan(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if b.SetItems(memory.ParseItems("- [ ] read\n- [ ] write")); b.OpenItems() != 2 || b.Plan().Current == "" {
		t.Errorf("%+v", b.Plan())
	}
}

// TestParse: AYA-06. Parsing is lenient, and errors name the missing argument.
func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		`{"phase":"reason","thinking":"t","summary":"s"}`: "reason t s",
		`{"phase":" REASON ","thinking":1}`:               "reason 1 ",
		`{"phase":"reason"}`:                              "reason  ",
		`"{\"phase\":\"reason\",\"summary\":\"s\"}"`:      "reason  s",
		`{"phase":"reason","approaches_tried":["x"]}`:     "reason  ",
		`{"phase":"dance"}`:                               "!phase",
		`{"summary":"s"}`:                                 "!phase",
		`{"phase":{}}`:                                    "!phase",
		`[]`:                                              "!",
		`7`:                                               "!",
		`"nonsense"`:                                      "!",
		`null`:                                            "!",
		`{"phase":"plan"}`:                                "!plan",
		`{"phase":"plan","plan":[]}`:                      "!plan",
		`{"phase":"plan","plan":{"goal":"g"}}`:            "!plan.sub_tasks",
		`{"phase":"plan","plan":{"goal":"g","sub_tasks":["x"]}}`: "!plan.sub_tasks",
		`{"phase":"plan","plan":{"goal":"g","sub_tasks":[{"id":1,"title":"a","depends_on":2},{"id":1,"title":"b"},{"title":"c"},"d",{"id":"2","title":"e","depends_on":[1,null]}]}}`: "plan   goal=g 1:a[2] 2:e[1] warnings=3",
		`{"phase":"plan","plan":"{\"goal\":\"g\",\"sub_tasks\":[{\"id\":\"1\",\"title\":\"a\"}]}"}`:                                                                                  "plan   goal=g 1:a[]",
		`{"phase":"act"}`:                                                                          "!action",
		`{"phase":"act","action":"x"}`:                                                             "!action",
		`{"phase":"act","action":{}}`:                                                              "!action.tool_name",
		`{"phase":"act","action":{"tool_name":7}}`:                                                 "act   7({})",
		`{"phase":"act","action":{"tool_name":""}}`:                                                "!action.tool_name",
		`{"phase":"act","action":{"tool_name":"agent_step","tool_input":{}}}`:                      "!action.tool_name",
		`{"phase":"act","action":{"tool_name":"x"}}`:                                               "act   x({})",
		`{"phase":"act","action":{"tool_name":"x","tool_input":null}}`:                             "act   x({})",
		`{"phase":"act","action":{"tool_name":"x","tool_input":{"a":1}}}`:                          `act   x({"a":1})`,
		`{"phase":"act","action":{"tool_name":"x","tool_input":"{}"}}`:                             `act   x("{}")`,
		`{"phase":"verify","key_facts":["a"," ",2,{}],"sub_task_outcome":"DONE"}`:                  "verify   facts=a,2 done",
		`{"phase":"verify","key_facts":"a","sub_task_outcome":"failed"}`:                           "verify   facts=a failed",
		`{"phase":"verify","key_facts":{"a":1},"sub_task_outcome":"great"}`:                        "verify   warnings=1",
		`{"phase":"reflect","summary":"s"}`:                                                        "reflect  s",
		`{"phase":"feedback"}`:                                                                     "!feedback_message",
		`{"phase":"feedback","feedback_message":" which? "}`:                                       "feedback   which?",
		`{"phase":"end","summary":"s"}`:                                                            "end  s solved:s",
		`{"phase":"end","end_status":"victory","end_message":"m"}`:                                 "end   solved:m",
		`{"phase":"end","end_status":"Partial","end_message":"m"}`:                                 "end   partial:m",
		`{"phase":"end","end_status":"stuck","end_message":"m"}`:                                   "end   stuck:m",
		`{"phase":"end","end_status":["stuck"],"end_message":{"a":1},"summary":"s","thinking":[]}`: "end  s solved:s",
	} {
		s, invalid := memory.Parse(json.RawMessage(args))
		got := fmt.Sprintf("%s %s %s", s.Phase, s.Thinking, s.Summary)
		if invalid != nil {
			if got = "!" + invalid.Field; invalid.Message == "" || invalid.Expected == "" {
				t.Errorf("%s: %+v", args, invalid)
			}
		} else {
			if s.Phase == memory.Planning {
				got += " goal=" + s.Goal
				for _, x := range s.SubTasks {
					got += fmt.Sprintf(" %s:%s%v", x.ID, x.Title, x.DependsOn)
				}
			}

			if s.Tool != "" {
				got += fmt.Sprintf(" %s(%s)", s.Tool, s.Input)
			}

			if len(s.Facts) > 0 {
				got += " facts=" + strings.Join(s.Facts, ",")
			}

			if s.Outcome != "" {
				got += " " + string(s.Outcome)
			}

			if s.Question != "" {
				got += " " + s.Question
			}

			if s.Status != "" {
				got += " " + s.Status + ":" + s.Message
			}

			if len(s.Warnings) > 0 {
				got += fmt.Sprintf(" warnings=%d", len(s.Warnings))
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// TestParseAnything checks that arbitrary arguments are at most rejected.
func TestParseAnything(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := memory.New(nil)
		if said, invalid := memory.Parse(json.RawMessage(rapid.String().Draw(r, "args"))); invalid == nil {
			m.RecordStep(said)
		}
		m.View(memory.Signals{Budget: 1}, rapid.IntRange(-5, 100).Draw(r, "budget"))
	})
}

// TestRouting: AYA-02, AYA-03, AYA-04, AYA-07, the effect and reply of each phase without a call.
func TestRouting(t *testing.T) {
	m := memory.New(nil)
	for _, c := range [][2]string{
		{`{"phase":"reason","summary":"s"}`, `{"acknowledged":true,"step":1}`},
		{`{"phase":"plan","summary":"s","plan":{"goal":"g","sub_tasks":[{"id":"1","title":"a"},{"id":"2","title":"b","depends_on":["1","9"]}]}}`,
			`{"acknowledged":true,"plan_version":1,"sub_tasks":[{"id":"1","title":"a","status":"in_progress"},{"id":"2","title":"b","status":"pending","depends_on":["1"]}]} sub-task 2 cannot wait for 9, which is no other part of this plan`},
		{`{"phase":"reflect","summary":"nothing to resolve"}`, `{"acknowledged":true,"step":3,"resolved":false}`},
		{`{"phase":"verify","summary":"s","sub_task_outcome":"failed"}`, `{"acknowledged":true,"facts_recorded":0,"sub_task_outcome":"failed"}`},
		{`{"phase":"verify","summary":"s"}`, `{"acknowledged":true,"facts_recorded":0,"sub_task_outcome":null}`},
		{`{"phase":"verify","summary":"s","sub_task_outcome":"done"}`, `{"acknowledged":true,"facts_recorded":0,"sub_task_outcome":"done"}`},
		{`{"phase":"verify","summary":"s","key_facts":["a","a","b"],"sub_task_outcome":"done"}`, `{"acknowledged":true,"facts_recorded":2,"sub_task_outcome":"done"}`},
		{`{"phase":"plan","summary":"s","plan":{"goal":"g","sub_tasks":[{"id":"x","title":"a"},{"id":"y","title":"b"}]}}`,
			`{"acknowledged":true,"plan_version":2,"sub_tasks":[{"id":"x","title":"a","status":"in_progress"},{"id":"y","title":"b","status":"pending"}]}`},
		{`{"phase":"verify","summary":"s","sub_task_outcome":"failed"}`, `{"acknowledged":true,"facts_recorded":0,"sub_task_outcome":"failed"}`},
	} {
		if got := take(t, m, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}

	if m.IdleSteps() != 9 {
		t.Errorf("%d steps without an act", m.IdleSteps())
	}

	act(m, "x", "{}", "failed: one", true)
	act(m, "x", "{}", "failed: two", true)
	if m.IdleSteps() != 0 || m.Actions() != 2 {
		t.Errorf("idle %d, acts %d", m.IdleSteps(), m.Actions())
	}
	if sig, n := m.Streak(); sig != "x{}" || n != 2 {
		t.Errorf("%s %d", sig, n)
	}
	if got := take(t, m, `{"phase":"reflect","summary":"the latest"}`); !strings.Contains(got, `"resolved":true`) {
		t.Error(got)
	}

	v := m.View(memory.Signals{}, 8000)
	if !strings.Contains(v, "  ✗ [Step 10] x — failed: one\n  ✓ [Step 11] x — failed: two\n     → resolved: the latest") {
		t.Error(v)
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
