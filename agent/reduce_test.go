package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

func reduceCall(args string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{ID: "r", Name: "reduce", Args: json.RawMessage(args)}}, Usage: model.Usage{Input: 100, Output: 10}}
}

func readCall(id, path string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{ID: id, Name: "file_read", Args: json.RawMessage(`{"path":"` + path + `"}`)}}, Usage: model.Usage{Input: 200, Output: 20}}
}

// looker returns a bench with an agent that has files to read, and a job that asks it to read them.
func looker(t *testing.T, dialect string, turns ...modeltest.Turn) *bench {
	t.Helper()
	b := piped(t, dialect, turns...)
	b.put("work/log.txt", "long and winding\nthe answer is 42\n")
	b.plan.Jobs["look"] = plan.Job{Name: "look", Agent: "clerk", Prompt: "Look into it, quietly."}
	return b
}

// made returns the calls of a run and their envelopes.
func (b *bench) made(run int64) ([]ledger.Call, []tool.Envelope) {
	b.t.Helper()
	calls, err := b.ledger.Steps.Calls(b.t.Context(), run)
	if err != nil {
		b.t.Fatal(err)
	}

	envelopes := make([]tool.Envelope, len(calls))
	for i, c := range calls {
		if err := json.Unmarshal(c.Envelope, &envelopes[i]); err != nil && len(c.Envelope) > 0 {
			b.t.Fatal(err)
		}
	}

	return calls, envelopes
}

// TestReduce checks OSA-24 with each API dialect: content that is read within the call stays there.
// The caller gets the digest. The helper gets its task and tools that read. The record, the bounds
// and the costs are those of the run.
func TestReduce(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects() {
		t.Run(dialect, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := looker(t, dialect, reduceCall(`{"task":"Find the answer.","paths":["log.txt"]}`), readCall("1", "log.txt"),
					modeltest.Turn{Text: "The digest says 42.", Usage: model.Usage{Input: 300, Output: 30}}, modeltest.Turn{Text: "It is 42.", Usage: model.Usage{Input: 400, Output: 40}})
				id := b.enqueue(ledger.Request{Job: "look", Agent: "clerk"})
				res := b.run(id)
				if res.Summary != "It is 42." || res.Steps != 4 || res.Calls != 2 || res.Usage.TokensIn != 1000 || res.Usage.TokensOut != 100 {
					t.Errorf("run: %+v", res)
				}

				calls, envelopes := b.made(id)
				c, e := calls[0], envelopes[0]
				if string(e.Result) != `{"kind":"digest","digest":"The digest says 42.","iterations":2}` || c.State != domain.CallDone || c.Effect != domain.EffectRead {
					t.Errorf("%s: %+v", c.State, e)
				}

				var within []string
				steps, err := b.ledger.Steps.List(t.Context(), id)
				for _, s := range steps {
					within = append(within, s.ParentCall)
				}
				if err != nil || !slices.Equal(within, []string{"", c.Key, c.Key, ""}) || len(calls) != 2 || calls[1].Step != 2 {
					t.Errorf("the steps stand within %q, the calls are %+v (%v)", within, calls, err)
				}

				sent := b.server.Requests()
				for what, wrong := range map[string]bool{
					"the helper knows the run":          strings.Contains(string(sent[1]), "quietly"),
					"the helper lacks its task":         !strings.Contains(string(sent[1]), "Find the answer.") || !strings.Contains(string(sent[1]), "log.txt"),
					"the helper lacks its place":        !strings.Contains(string(sent[1]), "Your working folder is") || !strings.Contains(string(sent[1]), "db_query"),
					"the helper may do more than look":  strings.Contains(string(sent[1]), `"file_write"`) || strings.Contains(string(sent[1]), `"complete"`) || strings.Contains(string(sent[1]), `"reduce"`),
					"what was read comes back":          strings.Contains(string(sent[3]), "winding"),
					"the digest does not":               !strings.Contains(string(sent[3]), "The digest says 42."),
					"what was asked is the helper's":    !strings.Contains(string(sent[3]), "quietly"),
					"it was asked another time than so": len(sent) != 4,
				} {
					if wrong {
						t.Error(what)
					}
				}
			})
		})
	}
}

// TestReduceEnds checks OSA-24: a reduction ends within its own limits and those of the run, and
// the run gets the reason.
func TestReduceEnds(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSA-24")
	reading, dear := readCall("1", "log.txt"), readCall("1", "log.txt")
	dear.Usage.Input = 6600
	var reads []modeltest.Turn // different calls, because a repeated call ends the run
	for i := range 12 {
		args := fmt.Sprintf(`{"path":"log.txt","start_line":%d}`, i+1)
		reads = append(reads, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "file_read", Args: json.RawMessage(args)}}})
	}
	for name, c := range map[string]struct {
		args   string
		within []modeltest.Turn // answers to the helper; the last answer is repeated
		bounds loop.Bounds
		kind   tool.Kind // "" for a digest
		say    string    // part of the envelope
		inner  tool.Kind // kind of the last inner call
		calls  int       // calls of the run
		took   time.Duration
	}{
		"a digest that is too long": {`{"task":"t"}`, []modeltest.Turn{{Text: strings.Repeat("ü", 9000)}}, loop.Bounds{}, "", "cut", "", 1, 0},
		"its own steps are used up": {`{"task":"t","max_iterations":2}`, []modeltest.Turn{reading, reading, {Text: "So far: 42."}}, loop.Bounds{}, "", `So far: 42.`, "", 3, 0},
		"it may have eight steps unless it says": {`{"task":"t"}`, []modeltest.Turn{reading, reading, reading, reading, reading, reading, reading, reading, {Text: "So far: 42."}},
			loop.Bounds{}, "", "the " + row.Quote("8") + " steps of this run were used up", "", 9, 0},
		"it wants more steps than there are": {`{"task":"t","max_iterations":99}`, append(slices.Clone(reads), modeltest.Turn{Text: "Enough."}),
			loop.Bounds{}, "", "max_iterations is at most " + row.Quote("12"), "", 13, 0},
		"it wants as many as there are": {`{"task":"t","max_iterations":12}`, append(slices.Clone(reads), modeltest.Turn{Text: "Enough."}),
			loop.Bounds{}, "", `"warnings":["the digest may be incomplete: the 12 steps of this run were used up`, "", 13, 0},
		"within itself":              {`{"task":"t"}`, []modeltest.Turn{reduceCall(`{"task":"u"}`), {Text: "I may not."}}, loop.Bounds{}, "", "I may not.", tool.KindRejected, 2, 0},
		"it would write":             {`{"task":"t"}`, []modeltest.Turn{{Calls: []model.Call{insertCall("1", "one")}}, {Text: "I cannot."}}, loop.Bounds{}, "", "I cannot.", tool.KindToolNotFound, 2, 0},
		"it says nothing":            {`{"task":"t"}`, []modeltest.Turn{{}, {}, {}}, loop.Bounds{}, tool.KindExecutionError, "only empty answers", "", 1, 0},
		"the server refuses":         {`{"task":"t"}`, []modeltest.Turn{{Status: 401, Raw: "no"}}, loop.Bounds{}, tool.KindExecutionError, "there is no digest", "", 1, 0},
		"it takes too long":          {`{"task":"t"}`, []modeltest.Turn{{Text: "Well", RepeatEvery: time.Second}}, loop.Bounds{Output: 1 << 30}, tool.KindTimeout, "4m0s", "", 1, 4 * time.Minute},
		"the calls of the run":       {`{"task":"t"}`, []modeltest.Turn{reading, {Calls: append(slices.Clone(reading.Calls), model.Call{ID: "2", Name: "db_schema"})}}, loop.Bounds{Calls: 3}, tool.KindExecutionError, "used up", "", 3, 0},
		"no call is left":            {`{"task":"t"}`, nil, loop.Bounds{Calls: 1}, tool.KindRejected, "the calls of this run are used up", "", 1, 0},
		"the tokens of the run":      {`{"task":"t"}`, []modeltest.Turn{dear}, loop.Bounds{Tokens: 7000}, tool.KindExecutionError, "left of the run's tokens", "", 2, 0},
		"the output of the run":      {`{"task":"t"}`, []modeltest.Turn{{Text: strings.Repeat("x", 3000)}}, loop.Bounds{Output: 2000}, tool.KindExecutionError, "the model wrote more than", "", 1, 0},
		"no task":                    {`{"task":" "}`, nil, loop.Bounds{}, tool.KindInvalidArgs, "the task is empty", "", 1, 0},
		"steps that there cannot be": {`{"task":"t","max_iterations":-1}`, nil, loop.Bounds{}, tool.KindInvalidArgs, "below 1", "", 1, 0},
		"the wall time of the run":   {`{"task":"t"}`, []modeltest.Turn{{Text: "Well", Hang: true}}, loop.Bounds{Wall: time.Minute}, "", "", "", 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := append([]modeltest.Turn{reduceCall(c.args)}, c.within...)
				b := looker(t, "openai", append(turns, modeltest.Turn{Text: "I know now."})...)
				b.table()
				clerk := b.plan.Agents["clerk"]
				clerk.Model.MaxOutput, clerk.Bounds = 100, c.bounds
				b.plan.Agents["clerk"] = clerk
				id, began := b.enqueue(ledger.Request{Job: "look", Agent: "clerk"}), time.Now()
				res := b.run(id)
				calls, envelopes := b.made(id)
				call, e := calls[0], envelopes[0]
				if within := envelopes[len(envelopes)-1]; c.inner != "" && within.Kind != c.inner {
					t.Errorf("the call within: %+v", within)
				}

				text := string(call.Envelope)
				if e.Kind != c.kind || !strings.Contains(text, c.say) || res.Calls != c.calls || b.count() != 0 {
					t.Errorf("%+v and %d calls, want %q, %q and %d", e, res.Calls, c.kind, c.say, c.calls)
				}
				if took := time.Since(began).Truncate(time.Second); took != c.took {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				if n := len([]rune(text)); n > 8300 {
					t.Errorf("the envelope has %d characters", n)
				}

				if bound := c.bounds.Wall; bound > 0 && (call.State != domain.CallInterrupted || res.Outcome != domain.OutcomeTimeout) {
					t.Errorf("the call is %s, the run %+v", call.State, res)
				}
			})
		})
	}
}

// TestReduceGoesOn checks that an interrupted reduction is repeated, because it only reads. Its
// usage still counts.
func TestReduceGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looker(t, "openai", reduceCall(`{"task":"t"}`), readCall("1", "log.txt"), modeltest.Turn{Text: "Hm", Hang: true},
			readCall("2", "log.txt"), modeltest.Turn{Text: "42"}, modeltest.Turn{Text: "It is 42."})
		id := b.enqueue(ledger.Request{Job: "look", Agent: "clerk"})
		b.runner.Set(b.plan)
		run, a, err := b.ledger.StartAttempt(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errors.New("the machine stops")) })
		if res, err := b.runner.Execute(ctx, run, a); err != nil || res.Outcome != domain.OutcomeCancelled || res.Calls != 2 {
			t.Fatalf("%+v %v", res, err)
		}
		if err := b.ledger.Interrupt(t.Context(), a, "the machine stopped", nil); err != nil {
			t.Fatal(err)
		}
		if res := b.run(id); res.Summary != "It is 42." || res.Calls != 2 || res.Steps != 3 {
			t.Errorf("%+v", res)
		}

		if sent := string(b.server.Requests()[5]); strings.Count(sent, "kind") != 1 && strings.Contains(sent, "winding") {
			t.Errorf("the transcript holds what stood within the call: %s", sent)
		}
	})
}

// TestReductionsAreBounded checks OSA-24: reductions use the spare steps of their run and then its
// bound. So a small bound also limits the model requests of any number of reductions in one answer.
func TestReductionsAreBounded(t *testing.T) {
	t.Parallel()
	reduce := func(ids ...string) (out modeltest.Turn) {
		for _, id := range ids {
			out.Calls = append(out.Calls, model.Call{ID: id, Name: "reduce", Args: json.RawMessage(`{"task":"t"}`)})
		}
		return out
	}

	reading := readCall("1", "log.txt")
	b := looker(t, "openai", reduce("a", "b", "c"), reading, reading, reading, modeltest.Turn{Text: "So far 42."}, modeltest.Turn{Text: "It is 42."})
	job := b.plan.Jobs["look"]
	job.Bounds = loop.Bounds{Steps: 2}
	b.plan.Jobs["look"] = job
	id := b.enqueue(ledger.Request{Job: "look", Agent: "clerk"})

	// One step, three steps of the first reduction with its digest, and a final text.
	res := b.run(id)
	if asked := len(b.server.Requests()); asked != 6 || res.Steps != asked || res.Outcome != domain.OutcomeBudget || res.Summary != "It is 42." {
		t.Errorf("asked %d times: %+v", asked, res)
	}

	calls, envelopes := b.made(id)
	if text := string(calls[0].Envelope); !strings.Contains(text, "the 3 steps of this run were used up") {
		t.Errorf("the first reduction had more steps than were left: %s", text)
	}
	refused := 0
	for i, c := range calls {
		if c.Tool == "reduce" && envelopes[i].Kind == tool.KindRejected && strings.Contains(envelopes[i].Message, "the steps of this run are used up") {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d reductions were refused, want 2: %+v", refused, envelopes)
	}
}

// TestWhoReduces checks that the tool is missing if the run has no tools that read, may not use it,
// or is not done by a model.
func TestWhoReduces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*plan.Agent)
		offer  bool
	}{
		"anybody":      {func(*plan.Agent) {}, true},
		"denied":       {func(a *plan.Agent) { a.Deny = []string{"reduce"} }, false},
		"not allowed":  {func(a *plan.Agent) { a.Allow = []string{"file_*"} }, false},
		"only writing": {func(a *plan.Agent) { a.Allow = []string{"file_write", "reduce"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, modeltest.Turn{Text: "Done."})
			clerk := b.plan.Agents["clerk"]
			c.change(&clerk)
			b.plan.Agents["clerk"] = clerk
			b.plan.Jobs["look"] = plan.Job{Name: "look", Agent: "clerk", Prompt: "Look."}
			b.run(b.enqueue(ledger.Request{Job: "look", Agent: "clerk"}))
			if got := strings.Contains(string(b.server.Requests()[0]), ", reduce, "); got != c.offer {
				t.Errorf("offered: %v", got)
			}
		})
	}

	b := setup(t)
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Tool: "reduce", Args: json.RawMessage(`{"task":"t"}`)}})
	b.run(id)
	if _, envelopes := b.made(id); envelopes[0].Kind != tool.KindToolNotFound {
		t.Errorf("a manual call: %+v", envelopes)
	}
}

// TestReduceInPhases checks that in a phased run, the reduction is the act of a step and has no
// phases itself.
func TestReduceInPhases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := looker(t, "openai",
			modeltest.Turn{Calls: []model.Call{step("1", `{"phase":"act","thinking":"t","summary":"looks","action":{"tool_name":"reduce","tool_input":{"task":"Find it."}}}`)}},
			readCall("2", "log.txt"), modeltest.Turn{Text: "42"},
			modeltest.Turn{Calls: []model.Call{step("3", `{"phase":"end","thinking":"t","summary":"s","end_status":"solved","end_message":"It is 42, as the log says."}`)}})
		b.phased()
		id := b.enqueue(ledger.Request{Job: "look", Agent: "clerk"})
		if res := b.run(id); res.Outcome != domain.OutcomeSuccess || res.Calls != 4 {
			t.Errorf("%+v", res)
		}

		sent := b.server.Requests()
		if strings.Contains(string(sent[1]), "agent_step") || !strings.Contains(string(sent[3]), `\"digest\":\"42\"`) {
			t.Errorf("the helper was asked %s, and the run saw %s", sent[1], sent[3])
		}
	})
}

// TestReduceIsReplayed checks that a recording contains the exchanges within the call, and that a
// replay repeats them.
func TestReduceIsReplayed(t *testing.T) {
	t.Parallel()
	schema := modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "db_schema", Args: json.RawMessage(`{}`)}}}
	b := recorded(t, plan.Job{Prompt: "Look."}, reduceCall(`{"task":"t"}`), schema, modeltest.Turn{Text: "One table."}, complete("2"))
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	b.end(id, b.run(id))
	b.same(id)
}

// TestReduceTwice checks that two reductions of one answer run one after the other, in parallel
// with other calls.
func TestReduceTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		two := reduceCall(`{"task":"the first"}`)
		two.Calls = append(two.Calls, model.Call{ID: "r2", Name: "reduce", Args: json.RawMessage(`{"task":"the second"}`)}, insertCall("3", "one"))
		b := looker(t, "anthropic", two, readCall("4", "log.txt"), modeltest.Turn{Text: "A"}, modeltest.Turn{Text: "B"}, modeltest.Turn{Text: "Both are known."})
		b.table()
		id := b.enqueue(ledger.Request{Job: "look", Agent: "clerk"})
		res := b.run(id)
		_, envelopes := b.made(id)
		if res.Summary != "Both are known." || res.Calls != 4 || b.count() != 1 || !strings.Contains(string(envelopes[0].Result), `"A"`) || !strings.Contains(string(envelopes[1].Result), `"B"`) {
			t.Errorf("%+v %+v", res, envelopes)
		}
		if second := string(b.server.Requests()[3]); !strings.Contains(second, "the second") || strings.Contains(second, "the first") || strings.Contains(second, "It is about") {
			t.Errorf("the second one was asked %s", second)
		}
	})
}
