package agent_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/workspace"
)

// flows returns the manifest of a skill that may pause and resume, in a workspace.
func flows(more declares) declares {
	d := withoutBindings(everything("http://127.0.0.1"))
	maps.Copy(d, declares{"executionMode": "flow", "workspaceSupport": "optional", "workspaceSchemaVersion": "1", "longRunningSupport": "optional", "userInputSupport": true})
	maps.Copy(d, more)
	return d
}

// agentic returns flows with the settings of an agentic skill.
func agentic(most, budget any) declares {
	return flows(declares{"executionMode": "agentic", "workspaceSupport": "required",
		"agenticConfig": declares{"enabled": true, "requiresWorkspace": true, "supportsBackgroundExecution": true, "supportsRoleBasedExecution": true, "maxStepsPerRun": most, "defaultStepBudget": budget}})
}

// flow makes the body of an execute function a job of the clerk, and runs it until it ends or
// waits. workspace is optional.
func (b *bench) flow(body, workspace string, more declares) (int64, ledger.Result) {
	b.t.Helper()
	b.plan.Jobs["sums"] = plan.Job{Name: "sums", Agent: "clerk", Skill: moduleSkill(b.t, "export async function execute(args: any, host: any) {\n"+body+"\n}\n", more), Workspace: workspace}
	id := b.enqueue(ledger.Request{Job: "sums", Agent: "clerk"})
	return id, b.ends(id)
}

func (b *bench) workspace(name string) workspace.Workspace {
	b.t.Helper()
	w, err := b.ledger.Workspaces.Named(b.t.Context(), "clerk", "sums", name)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// again retries a run that ended.
func (b *bench) again(id int64) ledger.Result {
	b.t.Helper()
	if _, err := b.ledger.Retry(b.t.Context(), id); err != nil {
		b.t.Fatal(err)
	}
	return b.ends(id)
}

// TestFlowMethods checks OSL-07, OSL-12, OSL-13, OSL-26, OSL-28, OSL-37 and C-5: each method of
// host.run and host.workspace works, and refuses invalid calls.
func TestFlowMethods(t *testing.T) {
	t.Parallel()
	caught := func(call string) string {
		return "try { await " + call + "; return {message: 'no error'} } catch (e) { return {message: e.code + ': ' + e.message} }"
	}
	for name, c := range map[string]struct {
		body string
		more declares
		got  string
	}{
		"checkpoint":            {`return {message: String(await host.run.checkpoint())}`, flows(nil), "null"},
		"its older name":        {`await host.run.createCheckpoint({at: 1}); return {message: "kept"}`, flows(nil), "kept"},
		"steps":                 {`host.run.reportStep("a"); host.run.reportStep("b"); return {message: host.run.getStepCount() + " of " + host.run.getStepBudget()}`, flows(nil), "2 of null"},
		"steps of a budget":     {`await host.run.reportStep("a", "writer"); return {message: host.run.getStepCount() + " of " + host.run.getStepBudget()}`, agentic(5, 3), "1 of 3"},
		"a step without a name": {caught(`host.run.reportStep()`), flows(nil), "invalid_args: a step has a name"},
		"progress":              {`await host.run.updateProgress({phase: "p", step: "s", percent: 40, message: "m"}); return {message: "said"}`, flows(nil), "said"},
		"progress of a text":    {caught(`host.run.updateProgress({percent: "half"})`), flows(nil), "invalid_args: progress is"},
		"asks without a title":  {caught(`host.run.requestInput({message: "?"})`), flows(nil), "invalid_args: the argument \"title\" is missing"},
		"asks with no schema":   {caught(`host.run.requestInput({title: "?", inputSchema: {type: "object", properties: {a: {$ref: "#/b"}}}})`), flows(nil), "invalid_args: nobody can be asked"},
		"asks with a text":      {caught(`host.run.requestInput("now")`), flows(nil), "invalid_args: the argument is an object"},
		"may not ask":           {`return {message: typeof host.run.requestInput + " " + typeof host.run.requestUserInput}`, flows(declares{"userInputSupport": false}), "undefined undefined"},
		"may not pause":         {`return {message: typeof host.run.pause + " " + typeof host.run.checkpoint}`, flows(declares{"longRunningSupport": "none"}), "undefined function"},
		"one call has no steps": {`return {message: typeof host.run + " " + typeof host.workspace.getState}`, flows(declares{"executionMode": "declarative"}), "undefined function"},

		"no state yet":          {`return {message: String(await host.workspace.getState())}`, flows(nil), "null"},
		"state":                 {`await host.workspace.setState({a: [1]}); await host.workspace.setState({b: 2}); return {message: JSON.stringify(await host.workspace.getState())}`, flows(nil), `{"b":2}`},
		"no object":             {caught(`host.workspace.setState([1])`), flows(nil), "invalid_args: "},
		"no state at all":       {caught(`host.workspace.setState()`), flows(nil), "invalid_args: "},
		"too much state":        {caught(`host.workspace.setState({a: "x".repeat(300000)})`), flows(nil), "invalid_args: the state has"},
		"artifacts":             {`const a = await host.workspace.createArtifact({type: "note", title: "A", content: {b: 1}}); const l = await host.workspace.listArtifacts(); return {message: [l.length, l[0].id === a.id, l[0].type, l[0].title, l[0].status, l[0].version].join()}`, flows(nil), "1,true,note,A,draft,1"},
		"a version":             {`const a = await host.workspace.createArtifact({title: "A", content: "one"}); const b = await host.workspace.createArtifact({title: "A", content: "two", parentArtifactId: a.id, status: "mine"}); return {message: (await host.workspace.listArtifacts()).map((x) => x.version + x.status).join()}`, flows(nil), "1superseded,2mine"},
		"another content":       {`const a = await host.workspace.createArtifact({title: "A", content: "one"}); await host.workspace.updateArtifact(a.id, {content: "two"}); await host.workspace.updateArtifact(a.id, {content: "three"}); await host.workspace.updateArtifact(a.id, {status: "final"}); return {message: (await host.workspace.listArtifacts()).map((x) => x.version + x.status).join()}`, flows(nil), "1superseded,2superseded,3final"},
		"another title":         {`const a = await host.workspace.createArtifact({title: "A", content: "one"}); const b = await host.workspace.updateArtifact(a.id, {title: "B"}); return {message: b.title + b.version}`, flows(nil), "B2"},
		"nothing to change":     {caught(`host.workspace.updateArtifact("1", {})`), flows(nil), "invalid_args: nothing was given"},
		"no artifact":           {caught(`host.workspace.updateArtifact("77", {status: "x"})`), flows(nil), "not_found: "},
		"no number":             {caught(`host.workspace.updateArtifact("x", {status: "x"})`), flows(nil), `invalid_args: "x" is no id`},
		"an artifact of no one": {caught(`host.workspace.createArtifact({title: "A", parentArtifactId: "77"})`), flows(nil), "invalid_args: "},
		"no title":              {caught(`host.workspace.createArtifact({content: "x"})`), flows(nil), "invalid_args: "},
		"phase and role":        {`await host.workspace.setPhase("draft"); await host.workspace.setRole("writer"); return {message: "set"}`, flows(nil), "set"},
		"a phase of two lines":  {caught(`host.workspace.setPhase("a\nb")`), flows(nil), "invalid_args: the phase"},
		"an approval":           {`await host.workspace.attachApprovalRef("t-7", "ticket"); return {message: "noted"}`, flows(nil), "noted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := moduleAgent(t)
			if _, res := b.flow(c.body, "trip", c.more); res.Outcome != domain.OutcomeSuccess || !strings.Contains(res.Summary, c.got) {
				t.Errorf("%s %q %s, want %s", res.Outcome, res.Summary, res.Error, c.got)
			}
		})
	}

	t.Run("what is kept", func(t *testing.T) {
		t.Parallel()
		b, _ := moduleAgent(t)
		b.flow(`await host.workspace.setPhase("draft"); await host.workspace.setRole("writer"); await host.workspace.attachApprovalRef("t-7", "ticket"); return {}`, "trip", flows(nil))
		w := b.workspace("trip")
		events, err := b.ledger.Workspaces.Events(t.Context(), w.ID, 1)
		if err != nil || w.Phase != "draft" || w.Role != "writer" || w.SchemaVersion != "1" || events[0].Kind != "skill.approval" || string(events[0].Data) != `{"approval":"t-7","kind":"ticket"}` {
			t.Errorf("%+v, %+v (%v)", w, events, err)
		}
	})
	t.Run("no workspace", func(t *testing.T) {
		t.Parallel()
		b, _ := moduleAgent(t)
		if _, res := b.flow(`return {message: typeof host.workspace + " " + typeof host.run.pause}`, "", flows(nil)); res.Summary != "undefined function" {
			t.Errorf("%+v", res)
		}
	})
	t.Run("a workspace is needed", func(t *testing.T) {
		t.Parallel()
		b, _ := moduleAgent(t)
		if _, res := b.flow(`return {}`, "", agentic(nil, nil)); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "names none") {
			t.Errorf("%+v", res)
		}
	})
}

// TestRequestInput checks OSL-13, OSL-15, OSL-26, OSL-31 and C-5: a module stops to ask its owner,
// and continues with the answer as if it had waited. Its earlier calls are not repeated, and it
// sees the same time.
func TestRequestInput(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "C-5")
	b, _ := moduleAgent(t, modeltest.Turn{Text: "An outline."}, modeltest.Turn{Text: "A text."})
	id, res := b.flow(`
		const begin = Date.now();
		host.run.reportStep("outline");
		const outline = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Outline."}]});
		const a = await host.workspace.createArtifact({type: "markdown", title: "Article", content: outline.text});
		await host.storage.set("n", ((await host.storage.get("n")) ?? 0) + 1);
		const first = await host.run.`+row.Quote("requestInput")+`({title: "Review", message: outline.text, inputSchema: {type: "object", properties: {good: {type: "boolean"}, why: {type: "string"}}, required: ["good"]}});
		const second = await host.run.`+row.Quote("requestUserInput")+`({title: "Review", message: "And now?"});
		host.run.reportStep("text");
		const text = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Text: " + first.why}]});
		await host.workspace.updateArtifact(a.id, {content: text.text, status: "done"});
		return {message: [begin === Date.now() ? "no time" : "time", first.good, second, await host.storage.get("n"), host.run.getStepCount(), text.text].join()}`, "trip", flows(nil))

	run, err := b.ledger.Runs.Get(t.Context(), id)
	if err != nil || res.Wait == nil || run.WaitingFor != domain.WaitInput || run.Workspace != b.workspace("trip").ID {
		t.Fatalf("%+v %+v (%v)", run, res, err)
	}
	item := b.open()
	if item.Title != "sums: Review" || item.Message != "An outline." || len(item.InputSchema) == 0 || !strings.HasPrefix(item.Call, "run.requestInput:") {
		t.Errorf("%+v", item)
	}
	if _, err := b.ledger.Answer(t.Context(), item.ID, `{"good": "yes"}`); err == nil {
		t.Error("an answer that does not fit was taken")
	}
	b.say(`{"good": true, "why": "short"}`)

	if res = b.ends(id); res.Wait == nil || b.open().Message != "And now?" || len(b.open().InputSchema) != 0 {
		t.Fatalf("%+v", res)
	}
	b.say("go")
	if res = b.ends(id); res.Summary != "time,true,go,1,2,A text." {
		t.Errorf("%s %s", res.Summary, res.Error)
	}
	if n := len(b.server.Requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
	all, err := b.ledger.Workspaces.Artifacts(t.Context(), b.workspace("trip").ID, true)
	if err != nil || len(all) != 2 || all[0].Status != artifact.StatusSuperseded || all[1].Status != "done" || all[1].Parent != all[0].ID {
		t.Errorf("%+v (%v)", all, err)
	}
}

// TestPause checks OSL-13, OSL-15 and C-5: a module reaches the code after a pause, whether it
// reads its workspace or not. Earlier calls are not repeated. Another pause is a new pause.
func TestPause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		pauses int
		got    string
	}{
		"by its state": {`
			const state = (await host.workspace.getState()) ?? {phase: 0};
			host.run.reportStep("phase " + state.phase);
			if (state.phase === 2) return {message: state.text + " after " + host.run.getStepCount() + " steps"};
			const r = state.phase === 0 ? await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "x"}]}) : {text: state.text};
			await host.workspace.setState({phase: state.phase + 1, text: r.text});
			await host.run.pause("phase " + state.phase);
			throw new Error("a pause does not return");`, 2, "One. after 3 steps"},
		"without a state": {`
			const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "x"}]});
			await host.run.pause("one");
			await host.storage.set("n", ((await host.storage.get("n")) ?? 0) + 1);
			await host.run.pause("one");
			return {message: r.text + " " + await host.storage.get("n")}`, 2, "One. 1"},
		"that cannot be caught": {`
			try { await host.run.pause("once") } catch { return {message: "caught"} } finally { host.log.info("finally") }
			return {message: "behind it"}`, 1, "behind it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := moduleAgent(t, modeltest.Turn{Text: "One."}, modeltest.Turn{Text: "Two."})
			id, res := b.flow(c.body, "trip", flows(nil))
			for range c.pauses {
				run, err := b.ledger.Runs.Get(t.Context(), id)
				if err != nil || res.Wait == nil || run.WaitingFor != domain.WaitPause || b.open().Kind != inbox.KindPause {
					t.Fatalf("%+v %+v (%v)", run, res, err)
				}
				b.say(inbox.PauseContinue)
				res = b.ends(id)
			}
			if res.Summary != c.got || len(b.server.Requests()) > 1 {
				t.Errorf("%s %s, want %s; the model was asked %d times", res.Summary, res.Error, c.got, len(b.server.Requests()))
			}
		})
	}

	b, _ := moduleAgent(t)
	id, _ := b.flow(`await host.run.pause("once"); return {}`, "", flows(nil))
	b.say(inbox.PauseStop)
	if run, err := b.ledger.Runs.Get(t.Context(), id); err != nil || run.Outcome != domain.OutcomeCancelled {
		t.Errorf("stopped: %+v (%v)", run, err)
	}
}

// TestStepBudgets checks OSL-14, OSL-15 and OSL-29: the hard limit of steps ends a run with a
// checkpoint, from which it continues with a full number of steps. The soft limit creates a
// checkpoint once.
func TestStepBudgets(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"by its state": `
			const state = (await host.workspace.getState()) ?? {n: 0};
			while (state.n < 5) { await host.run.reportStep("step " + state.n, "counter"); state.n++; await host.workspace.setState(state) }
			return {message: "counted " + state.n + ", last " + host.run.getStepCount()}`,
		"without a state": `
			let n = 0;
			while (n < 5) { await host.run.reportStep("step " + n, "counter"); n++; await host.storage.set("n" + n, 1) }
			return {message: "counted " + (await host.storage.list()).length + ", last " + host.run.getStepCount()}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := moduleAgent(t)
			id, res := b.flow(body, "trip", agentic(3, 2))
			if res.Outcome != domain.OutcomeBudget || !strings.Contains(res.Error, "the 3 steps") {
				t.Fatalf("%+v", res)
			}

			c, err := b.ledger.Workspaces.LastCheckpoint(t.Context(), id)
			if err != nil || c.Step != "step 3" || c.Role != "counter" && c.Workspace == 0 || !strings.Contains(string(c.RunState), `"steps":3`) {
				t.Errorf("%+v (%v)", c, err)
			}
			made := strings.Count(strings.Join(b.callsOf(id), " "), "host_run_checkpoint")
			if made != 2 { // the soft limit and the last
				t.Errorf("%d checkpoints", made)
			}
			if w := b.workspace("trip"); w.Review != 0 {
				t.Errorf("%+v", w)
			}

			if res = b.again(id); !strings.HasPrefix(res.Summary, "counted 5, last ") {
				t.Errorf("%s %s", res.Summary, res.Error)
			}
		})
	}
}

// TestStepsWithoutAwait checks OSL-14: a step counts whether the module awaits it or not. The
// module's turn ends at the first step beyond the limit. Later calls have no effect, and the last
// call is the checkpoint.
func TestStepsWithoutAwait(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-14")
	most, step := row.Number("3"), "host.run."+row.Quote("reportStep")
	bounded := func(hard, soft any) declares {
		return flows(declares{"executionMode": "agentic", "agenticConfig": declares{"enabled": true, "requiresWorkspace": false, "supportsBackgroundExecution": true, "supportsRoleBasedExecution": true,
			row.Quote("maxStepsPerRun"): hard, row.Quote("defaultStepBudget"): soft}})
	}
	for name, behind := range map[string]string{
		"a question to the model": `host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "x"}]})`,
		"the state":               `host.workspace.setState({behind: true})`,
		"an input":                `host.run.requestInput({title: "Go on?"})`,
		"a pause":                 `host.run.pause("look")`,
		"a store":                 `host.storage.set("behind", 1)`,
		"a program":               `host.tools.invoke("system_execute_command", {command: "echo", args: ["x"]})`,
		"more steps":              `for (;;) host.run.reportStep("more")`,
		"an endless loop":         `for (;;) {}`,
		"the end":                 ``,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := moduleAgent(t, modeltest.Turn{Text: "One."})
			id, res := b.flow(`
				for (let n = 1; n <= 3; n++) `+step+`("step " + n);
				await host.storage.set("before", 1);
				try { `+step+`("one too many"); `+behind+` } catch {} finally { await host.storage.set("finally", 1) }
				return {message: "it went on"}`, "trip", bounded(most, nil))
			if res.Outcome != domain.OutcomeBudget || res.Kind != row.Quote("skill step budget") || !strings.Contains(res.Error, "the 3 steps") {
				t.Fatalf("%+v", res)
			}
			if made := strings.Join(b.callsOf(id), ", "); made != "host_storage_set done, host_run_checkpoint done" || len(b.server.Requests()) != 0 || string(b.workspace("trip").State) != "{}" {
				t.Errorf("made %s, asked the model %d times, the state is %s", made, len(b.server.Requests()), b.workspace("trip").State)
			}
			if c, err := b.ledger.Workspaces.LastCheckpoint(t.Context(), id); err != nil || !strings.Contains(string(c.RunState), `"steps":3`) {
				t.Errorf("%+v (%v)", c, err)
			}
		})
	}

	t.Run("the soft budget", func(t *testing.T) {
		t.Parallel()
		b, _ := moduleAgent(t)
		id, res := b.flow(`for (let n = 1; n <= 4; n++) host.run.reportStep("step " + n, "counter"); return {message: "step " + host.run.getStepCount()}`, "", bounded(nil, 2))
		if made := strings.Join(b.callsOf(id), ", "); res.Summary != "step 4" || made != "host_run_checkpoint done" {
			t.Errorf("%+v, made %s", res, made)
		}
	})

	t.Run("without a bound", func(t *testing.T) {
		t.Parallel()
		b, _ := moduleAgent(t)
		_, res := b.flow(`for (let n = 0; ; n++) host.run.reportStep("step " + n)`, "", bounded(nil, nil))
		if res.Outcome != domain.OutcomeBudget || !strings.Contains(res.Error, "the "+row.Quote("1000")+" steps") {
			t.Errorf("%+v", res)
		}
	})

	t.Run("tried again", func(t *testing.T) {
		t.Parallel()
		b, _ := moduleAgent(t)
		id, res := b.flow(`
			const counts = [];
			for (let n = 1; n <= 8; n++) { host.run.reportStep("step " + n); counts.push(host.run.getStepCount()); host.storage.set("n" + n, 1) }
			return {message: counts.join() + " stored " + (await host.storage.list()).length}`, "", bounded(most, nil))
		for range 2 {
			if res.Outcome != domain.OutcomeBudget {
				t.Fatalf("%+v", res)
			}
			res = b.again(id)
		}
		if res.Summary != "1,2,3,0,1,2,3,0 stored 8" {
			t.Errorf("%+v", res)
		}
	})
}

// TestTurnEndsAtAQuestion checks OSL-13: calls after a question or a pause are not made before the
// owner has answered, awaited or not.
func TestTurnEndsAtAQuestion(t *testing.T) {
	t.Parallel()
	for call, answer := range map[string]string{`host.run.requestInput({title: "Go on?"})`: "yes", `host.run.requestUserInput({title: "Go on?"})`: "yes", `host.run.pause("look")`: inbox.PauseContinue} {
		b, _ := moduleAgent(t)
		id, res := b.flow(`host.storage.set("a", 1); try { `+call+`; host.storage.set("b", 1) } finally { host.storage.set("c", 1) } return {message: "done"}`, "", flows(nil))
		if made := len(b.callsOf(id)); res.Wait == nil || made != 2 {
			t.Fatalf("%s: %+v, made %v", call, res, b.callsOf(id))
		}
		b.say(answer)
		if res = b.ends(id); res.Summary != "done" || len(b.callsOf(id)) != 5 {
			t.Errorf("%s: %+v, made %v", call, res, b.callsOf(id))
		}
	}
}

// TestTokensOfEarlierAttempts checks that tokens of earlier attempts of a run count when it
// continues.
func TestTokensOfEarlierAttempts(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t, modeltest.Turn{Text: "One.", Usage: model.Usage{Input: 600, Output: 10}}, modeltest.Turn{Text: "Two.", Usage: model.Usage{Input: 600, Output: 10}})
	clerk := b.plan.Agents["clerk"]
	clerk.Bounds.Tokens = 4600 // one question, including the reservation for its answer
	b.plan.Agents["clerk"] = clerk
	id, res := b.flow(`
		const ask = (n) => host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: String(n)}]});
		await ask(1);
		await host.run.requestInput({title: "Go on?"});
		await ask(2);
		return {message: "asked twice"}`, "", flows(nil))
	if res.Wait == nil {
		t.Fatalf("%+v", res)
	}
	b.say("yes")
	if res = b.ends(id); res.Outcome != domain.OutcomeBudget {
		t.Errorf("%+v", res)
	}
}

// TestWorkspaceConflict checks OSL-27 and C-5: a module does not overwrite changes that its owner
// made after the module read the workspace. A retry continues from the changed workspace, and does
// not repeat calls since its last checkpoint.
func TestWorkspaceConflict(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t, modeltest.Turn{Text: "One."}, modeltest.Turn{Text: "Two."})
	id, res := b.flow(`
		const state = (await host.workspace.getState()) ?? {n: 0};
		await host.run.requestInput({title: "Go on?"});
		const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "x"}]});
		await host.workspace.setState({n: state.n + 1, text: r.text});
		return {message: "n " + (state.n + 1) + " " + r.text}`, "trip", flows(nil))
	if res.Wait == nil {
		t.Fatalf("%+v", res)
	}
	if _, err := b.ledger.Workspaces.Change(t.Context(), workspace.Author{}, b.workspace("trip").ID, workspace.Change{State: json.RawMessage(`{"n": 10}`)}); err != nil {
		t.Fatal(err)
	}
	b.say("yes")

	res = b.ends(id)
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "somebody else has written it") || string(b.workspace("trip").State) != `{"n": 10}` {
		t.Fatalf("%+v", res)
	}
	if res = b.again(id); res.Wait == nil { // a question about another state is a new question
		t.Fatalf("%+v", res)
	}
	b.say("yes")
	if res = b.ends(id); res.Summary != "n 11 One." || len(b.server.Requests()) != 1 {
		t.Errorf("%s %s; the model was asked %d times", res.Summary, res.Error, len(b.server.Requests()))
	}
}

// TestDiscardedIsWrittenAnew checks OSL-30: the partial changes of a run are reviewed first. The
// next attempt repeats discarded writes.
func TestDiscardedIsWrittenAnew(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-30")
	b, _ := moduleAgent(t)
	id, res := b.flow(`
		await host.workspace.setState({n: 1});
		await host.run.checkpoint();
		await host.workspace.setState({n: 2});
		await host.workspace.createArtifact({title: "A", content: "x"});
		const names = (await host.filesystem.listDirectory(".")).map((e) => e.path);
		if (!names.includes("go.txt")) throw new Error("not yet");
		return {message: "done"}`, "trip", flows(nil))
	w := b.workspace("trip")
	if res.Outcome != domain.OutcomeError || w.Review != id {
		t.Fatalf("%+v %+v", res, w)
	}

	run := b.enqueue(ledger.Request{Job: "sums", Agent: "clerk"})
	next, err := b.ledger.Runs.Get(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if why := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), next)); !strings.Contains(why, row.Quote("rouse workspaces show")) {
		t.Errorf("the next run: %q", why)
	}
	if _, err := b.ledger.Workspaces.DiscardReview(t.Context(), w.ID); err != nil {
		t.Fatal(err)
	}
	if why := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), next)); why != "" {
		t.Errorf("after the decision: %q", why)
	}

	if err := os.WriteFile(filepath.Join(b.dir, "work", "go.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if res = b.again(id); res.Summary != "done" {
		t.Fatalf("%+v", res)
	}
	all, err := b.ledger.Workspaces.Artifacts(t.Context(), w.ID, false)
	if w = b.workspace("trip"); err != nil || len(all) != 1 || string(w.State) != `{"n":2}` || w.Review != 0 {
		t.Errorf("%+v %+v (%v)", w, all, err)
	}
}

// TestInstallTool checks OSL-08, OSL-18, OSL-20 and OSL-29: the owner is asked about each
// installation that a module requests, until the program exists or the owner declines. The commands
// are noted in the workspace.
func TestInstallTool(t *testing.T) {
	t.Parallel()
	body := func(tool string) string {
		return `const r = await host.bridge.installTool({toolId: "` + tool + `", reason: "to count"});
			const e = await host.bridge.executeCommand({command: "echo", args: ["x"]});
			return {message: r.accepted + " " + (r.code ?? (await host.bridge.waitForJob(r.bridgeRunId)).status) + " " + e.accepted}`
	}
	b, _ := moduleAgent(t)
	id, res := b.flow(body("no-such-program-here"), "trip", flows(nil))
	if res.Wait == nil || !strings.Contains(b.open().Title, "install no-such-program-here") || !strings.Contains(b.open().Message, "to count") {
		t.Fatalf("%+v", res)
	}
	b.say("installed") // but it is not
	if res = b.ends(id); res.Wait == nil {
		t.Fatalf("%+v", res)
	}
	b.say("no")
	if res = b.ends(id); res.Summary != "false rejected_by_user true" {
		t.Errorf("%+v", res)
	}

	events, err := b.ledger.Workspaces.Events(t.Context(), b.workspace("trip").ID, 100)
	var jobs []string
	for _, e := range events {
		if e.Kind == workspace.JobEvent {
			jobs = append(jobs, string(e.Data))
		}
	}
	if err != nil || len(jobs) != 1 || !strings.Contains(jobs[0], `"state":"completed"`) {
		t.Errorf("%q (%v)", jobs, err)
	}
	said, err := b.ledger.Events.List(t.Context(), event.Filter{Run: id})
	states := 0
	for _, e := range said {
		if e.Kind == "skill.job" {
			states++
		}
	}
	if err != nil || states != 2 {
		t.Errorf("%d states of jobs (%v)", states, err)
	}
}

// TestLastProgressIsSeen checks that the owner sees the last progress of a module while the run
// waits, even if it followed another report at once.
func TestLastProgressIsSeen(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	id, res := b.flow(`for (const p of [0.1, 0.5, 0.9]) host.events.emitProgress(p, "at " + p); await host.run.pause("look"); return {}`, "", flows(nil))
	e, found, err := b.ledger.Events.Last(t.Context(), id, event.Progress)
	if res.Wait == nil || !found || err != nil || !strings.Contains(string(e.Data), "at 0.9") {
		t.Errorf("%+v %s (%v)", res, e.Data, err)
	}
}
