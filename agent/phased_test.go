package agent_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

func (b *bench) phased() {
	a := b.plan.Agents["clerk"]
	a.Phased = true
	b.plan.Agents["clerk"] = a
}

func step(id, args string) model.Call {
	return model.Call{ID: id, Name: "agent_step", Args: json.RawMessage(args)}
}

var update = flag.Bool("update", false, "write the golden files again")

// skillsNamedIn is a request as the server received it.
type skillsNamedIn struct {
	Messages []struct{ Role, Content string }
	Tools    []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
}

func (b *bench) asked(i int) skillsNamedIn {
	b.t.Helper()
	var a skillsNamedIn
	if err := json.Unmarshal(b.server.Requests()[i], &a); err != nil {
		b.t.Fatal(err)
	}
	return a
}

// untilAsked waits until the model's server has received n requests.
func (b *bench) untilAsked(n int) {
	for len(b.server.Requests()) < n && b.t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func (a skillsNamedIn) last() string { return a.Messages[len(a.Messages)-1].Content }

const planStep = `{"phase":"plan","thinking":"t","summary":"a plan","plan":{"goal":"Do the books","sub_tasks":[{"id":"1","title":"Write a row"},{"id":"2","title":"Report","depends_on":["1"]}]}}`

func actStep(what string) string {
	return `{"phase":"act","thinking":"t","summary":"writes ` + what + `","action":{"tool_name":"db_insert","tool_input":{"table":"log","row":{"what":"` + what + `"}}}}`
}

// TestPhasedRun checks AYA-01, AYA-05, AYA-07 and AYA-12: a run in phases, from its prompt through
// a question and its answer to its end, over the network and in the record. Each act is a call of
// its own, and the memory is only in the last message of each request.
func TestPhasedRun(t *testing.T) {
	t.Parallel()
	b := setup(t,
		modeltest.Turn{Calls: []model.Call{step("1", planStep)}},
		modeltest.Turn{Calls: []model.Call{step("2", actStep("one")), step("3", `{"phase":"verify","summary":"written","key_facts":["the log has a row"],"sub_task_outcome":"done"}`)}},
		modeltest.Turn{Calls: []model.Call{step("4", `{"phase":"feedback","thinking":"t","summary":"asks","feedback_message":"Which account?"}`),
			step("x", `{"phase":"verify","summary":"behind the question","sub_task_outcome":"done"}`)}},
		modeltest.Turn{Calls: []model.Call{{ID: "5", Name: "todo", Args: json.RawMessage(`{"markdown":"- [x] Write a row\n- [x] Report"}`)}}},
		modeltest.Turn{Calls: []model.Call{step("6", `{"phase":"end","thinking":"t","summary":"s","end_status":"solved","end_message":"One row is written."}`)}})

	b.table()
	b.phased()
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do the books."}})
	res := b.run(id)
	if res.Wait == nil || res.Wait.Message != "Which account?" {
		t.Fatalf("the first attempt: %+v", res)
	}

	b.answer(id, res, "GLS")
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || res.Summary != "One row is written." || !res.Verified {
		t.Errorf("the second attempt: %+v", res)
	}
	if n := b.count(); n != 1 {
		t.Errorf("%d rows", n)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	var made []string
	for _, c := range calls {
		made = append(made, c.Key+" "+c.Tool+" "+string(c.State))
	}
	if got, want := strings.Join(made, ", "), "m1.1.1 agent_step done, m1.2.1 agent_step done, m1.2.1.1 db_insert done, m1.2.2 agent_step done, m1.3.1 agent_step done, m1.3.1.1 clarify done, m2.1.1 todo done, m2.2.1 agent_step done"; got != want {
		t.Errorf("calls: %s", got)
	}

	first, resumed, last := b.asked(2), b.asked(3), b.asked(4)
	tools := ""
	for _, x := range first.Tools {
		tools += x.Function.Name + " "
	}
	if !strings.Contains(tools, "agent_step ") || !strings.Contains(tools, "db_insert ") || strings.Contains(tools, "todo ") {
		t.Errorf("tools: %s", tools)
	}
	if m := resumed.Messages[len(resumed.Messages)-2]; m.Role != "user" || m.Content != "Your owner answers: GLS" {
		t.Errorf("the answer: %+v", m)
	}

	before, _, _ := strings.Cut(first.last()[strings.Index(first.last(), "--- Agent"):], "\n\n[Errors]")
	if !strings.Contains(before, "→ Sub-task 2: Report  (needs: 1)         ← CURRENT") || !strings.Contains(before, "• the log has a row  [step 3") || !strings.Contains(resumed.last(), before) {
		t.Errorf("before the question:\n%s\nafter it:\n%s", before, resumed.last())
	}
	if !strings.Contains(last.last(), "✓ Sub-task 2: Report\n") || !strings.Contains(last.last(), "4 of 14 steps used") {
		t.Errorf("at the end:\n%s", last.last())
	}
}

// TestPhasedInterrupted checks that an interrupted attempt continues with its memory, and repeats
// no calls.
func TestPhasedInterrupted(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Calls: []model.Call{step("1", planStep)}}, modeltest.Turn{Calls: []model.Call{step("2", actStep("one"))}}, modeltest.Turn{Hang: true},
		modeltest.Turn{Text: "One row is written."})
	b.table()
	b.phased()
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do the books."}})

	// The first attempt ends before the model's third answer.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		b.untilAsked(3)
		cancel()
	}()
	b.attempt(ctx, id)
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || b.count() != 1 {
		t.Errorf("%+v, %d rows", res, b.count())
	}

	view := func(i int) string {
		_, v, _ := strings.Cut(b.asked(i).last(), "--- Agent Working Memory ---")
		v, _, _ = strings.Cut(v, "[Context Signals]")
		return v
	}
	if view(2) != view(3) || !strings.Contains(view(2), "[Step 2] ACT: writes one") {
		t.Errorf("before:\n%s\nafter:\n%s", view(2), view(3))
	}
}

// TestPhasedPrompt checks AYA-06: the system message explains the phases, byte for byte. Their tool
// exists with the values of phases, outcomes and ends, regardless of the agent's tools. Playbooks
// do not have it.
func TestPhasedPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "done"})
	b.phased()
	a := b.plan.Agents["clerk"]
	a.Allow, a.Database, a.Instructions = []string{"file_*"}, false, "Keep the books."
	b.plan.Agents["clerk"] = a
	if res := b.run(b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "Do it."}})); res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	sent := b.asked(0)
	got := strings.ReplaceAll(sent.Messages[0].Content, a.Workdir, "WORKDIR")
	got, _, _ = strings.Cut(got, "This run started on ") // the time differs in each run
	path := filepath.Join("testdata", "phased", "system.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	found := false
	for _, x := range sent.Tools {
		if x.Function.Name == "agent_step" {
			found = true
			for _, words := range []string{`"reason","plan","act","verify","reflect","feedback","end"`, `"done","failed"`, `"solved","partial","stuck"`} {
				if !strings.Contains(string(x.Function.Parameters), words) {
					t.Errorf("%s is not in %s", words, x.Function.Parameters)
				}
			}
		}
		if x.Function.Name == "todo" {
			t.Error("todo is not allowed")
		}
	}
	if !found {
		t.Error("there is no agent_step")
	}
}
