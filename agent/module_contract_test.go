package agent_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger/event"
)

// typesOf returns a body of execute that returns the type of each expression.
func typesOf(expressions ...string) string {
	return "const types = [typeof " + strings.ReplaceAll(strings.Join(expressions, ", typeof "), ".", "?.") + "]; return {message: types.join()}"
}

// functions returns the result of typesOf for n functions.
func functions(n int) string { return strings.TrimSuffix(strings.Repeat("function,", n), ",") }

// TestModuleExports checks OSL-06: each export is called, and the schemas apply.
func TestModuleExports(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-06")
	source := strings.ReplaceAll(hooked(""), "execute", row.Quote("execute"))
	for _, hook := range []string{row.Quote("onInstall"), row.Quote("onEnable"), row.Quote("onConfigure"), row.Quote("onUpgrade")} {
		if !strings.Contains(source, hook+"(") {
			t.Errorf("the module has no %s", hook)
		}
	}
	source += fmt.Sprintf("\nexport async function %s() {}\nexport async function %s() {}\n", row.Quote("onDisable"), row.Quote("onUninstall"))
	all := append([]string{"onDisable", "onUninstall"}, allHooks...)

	b, _ := moduleAgent(t)
	for _, step := range [][2]string{{"1.0.0", `install object, enable, configure {"a":1}`}, {"1.1.0", `install object, enable, configure {"a":1}, upgrade from 1.0.0`}} {
		b.configured(`{"a":1}`)
		if _, res := b.hookedRun(source, hooks(step[0], all...)); res.Summary != step[1] {
			t.Errorf("%s: %s %s", step[0], res.Summary, res.Error)
		}
	}

	number := declares{"type": "object", "properties": declares{"a": declares{"type": "number"}}}
	for _, schema := range []string{row.Quote("inputSchema"), row.Quote("outputSchema")} {
		_, res := setup(t).runModule(`return {a: "one"}`, map[string]any{"a": "one"}, declares{schema: number})
		if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, schema) {
			t.Errorf("%s: %+v", schema, res)
		}
	}
}

// TestModuleAPI checks OSL-07 and OSL-08: each declared method of a row exists, and an undeclared
// method does not.
func TestModuleAPI(t *testing.T) {
	t.Parallel()
	for row, before := range map[*contract.Row]string{contract.Of(t, "OSL-07"): "; and", contract.Of(t, "OSL-08"): ". A job"} {
		id := row.ID
		b, s := moduleAgent(t, modeltest.Turn{Text: "The sum.", Usage: model.Usage{Input: 30, Output: 3}})
		var methods []string
		for _, literal := range row.Between("", before) {
			if strings.HasPrefix(literal, "host.") {
				methods = append(methods, literal)
			}
		}
		if _, res := b.runModule(typesOf(methods...), nil, everything(s.granted.URL)); res.Summary != functions(len(methods)) {
			t.Errorf("%s: %q are %s %s", id, methods, res.Summary, res.Error)
		}

		var body, want string
		if id == "OSL-07" {
			body = fmt.Sprintf(`const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "x"}]});
				return {message: [r.%s, r.%s.%s, r.tokensUsed.%s, typeof host.%s, host.%s === host.%s].join()}`, row.Quote("text"), row.Quote("tokensUsed"), row.Quote("prompt"),
				row.Quote("completion"), row.Quote("skillId"), row.Quote("executionId"), row.Quote("runId"))
			want = "The sum.,30,3,string,true"
			if _, res := b.runModule(typesOf("host.llm", "host.network", "host.vault"), nil, nil); res.Summary != strings.Repeat(row.Quote("undefined")+",", 2)+"undefined" {
				t.Errorf("not declared: %s %s", res.Summary, res.Error)
			}
		} else {
			body = fmt.Sprintf(`const r = await host.tools.invoke(%q, {command: "echo", args: ["x"]});
				const f = await host.network.fetch("%s/api/x");
				const run = async (command) => { const j = await host.bridge.executeCommand({command, args: []}); return (await host.bridge.waitForJob(j.bridgeRunId)).status };
				return {message: [r.%s.trim(), r.%s, f.%s, f.%s, f.%s, typeof f.%s, typeof f.%s, await run("echo"), await run("false")].join()}`,
				row.Quote("system_execute_command"), s.granted.URL, row.Quote("stdout"), row.Quote("exitCode"), row.Quote("ok"), row.Quote("status"), row.Quote("statusText"), row.Quote("text"), row.Quote("json"))
			want = "x,0,true,200,OK,function,function," + row.Quote("completed") + "," + row.Quote("failed")
		}
		if _, res := b.runModule(body, nil, everything(s.granted.URL)); res.Summary != want {
			t.Errorf("%s: %s %s, want %s", id, res.Summary, res.Error, want)
		}
	}
}

// TestModuleRefusals checks OSL-09: a call that the manifest does not declare is refused with the
// name of the field.
func TestModuleRefusals(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-09")
	b, s := moduleAgent(t)
	everything := everything(s.granted.URL)
	if rule := fmt.Sprint(everything["sandbox"]); !strings.Contains(rule, "/api/"+row.Quote("*")) {
		t.Fatalf("the rule is %s", rule)
	}
	for call, field := range map[string]string{
		`host.llm.complete({purposeId: "chat", messages: [{role: "user", content: "x"}]})`: row.Quote("llmUsage"),
		`host.network.fetch("` + s.granted.URL + `/other")`:                                row.Quote("networkRules"),
	} {
		_, res := b.runModule("try { await "+call+"; return {} } catch (e) { return {message: e.code + ' ' + e.message} }", nil, everything)
		if !strings.HasPrefix(res.Summary, "rejected ") || !strings.Contains(res.Summary, field) {
			t.Errorf("%s: %s %s", call, res.Summary, res.Error)
		}
	}
	if _, res := b.runModule(`return {message: String((await host.network.fetch("`+s.granted.URL+`/api/any/path")).ok)}`, nil, everything); res.Summary != "true" {
		t.Errorf("a request that a rule covers: %+v", res)
	}
}

// TestModuleModes checks OSL-12, OSL-13 and OSL-26: the methods of each mode.
func TestModuleModes(t *testing.T) {
	t.Parallel()
	modes, run, workspace := contract.Of(t, "OSL-12"), contract.Of(t, "OSL-13"), contract.Of(t, "OSL-26")
	host := run.Quote(modes.Quote("host.run"))
	for mode, more := range map[string]declares{modes.Quote("declarative"): flows(declares{"executionMode": "declarative"}), modes.Quote("flow"): flows(nil), modes.Quote("agentic"): agentic(nil, nil)} {
		b, _ := moduleAgent(t)
		want := "object"
		if mode == "declarative" {
			want = "undefined"
		}
		if _, res := b.flow(typesOf(host), "trip", more); res.Summary != want {
			t.Errorf("%s: %s %s", mode, res.Summary, res.Error)
		}
	}

	for _, c := range []struct {
		object string
		row    *contract.Row
	}{{host, run}, {workspace.Quote("host.workspace"), workspace}} {
		var methods []string
		for _, name := range c.row.Between("has", ".") {
			methods = append(methods, c.object+"."+name)
		}
		b, _ := moduleAgent(t)
		if _, res := b.flow(typesOf(methods...), "trip", flows(nil)); res.Summary != functions(len(methods)) {
			t.Errorf("%q are %s %s", methods, res.Summary, res.Error)
		}
	}

	for _, stop := range []string{`pause("why")`, `requestInput({title: "Go on?"})`} {
		b, _ := moduleAgent(t)
		id, res := b.flow("try { await host.run."+stop+" } catch (e) { return {message: 'caught'} }\nreturn {message: 'behind'}", "trip", flows(nil))
		if res.Wait == nil || res.Summary != "" {
			t.Errorf("%s: run %d %+v", stop, id, res)
		}
	}
}

// TestModuleOutcomes checks OSL-15: the ends of a run of a module, and the events for which it
// waits.
func TestModuleOutcomes(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-15")
	short := declares{"sandbox": declares{"isolation": "standard", "maxExecutionMs": 300, "maxMemoryMB": 64, "allowedGlobals": []string{}, "networkRules": []any{}}}
	budget := agentic(1, nil)
	for outcome, c := range map[string]struct {
		body string
		more declares
	}{
		row.Quote("success"):         {`return {}`, flows(nil)},
		row.Quote("error"):           {`throw new Error("no")`, flows(nil)},
		row.Quote("timeout"):         {`for (;;) {}`, flows(short)},
		row.Quote("budget_exceeded"): {`await host.run.reportStep("a"); await host.run.reportStep("b"); return {}`, budget},
	} {
		b, _ := moduleAgent(t)
		if _, res := b.flow(c.body, "trip", c.more); string(res.Outcome) != outcome {
			t.Errorf("%s: %+v", outcome, res)
		}
	}

	for wait, c := range map[string][2]string{row.Quote("input"): {`await host.run.requestInput({title: "?"})`, ""}, row.Quote("pause"): {`await host.run.pause("why")`, "stop"}} {
		b, _ := moduleAgent(t)
		id, _ := b.flow(c[0]+"; return {}", "trip", flows(nil))
		r, err := b.ledger.Runs.Get(t.Context(), id)
		if err != nil || string(r.WaitingFor) != wait {
			t.Errorf("%s: %+v, %v", wait, r, err)
		}
		if c[1] != "" {
			b.say(c[1])
			if r, err = b.ledger.Runs.Get(t.Context(), id); err != nil || string(r.Outcome) != row.Quote("cancelled") {
				t.Errorf("stopped: %+v, %v", r, err)
			}
		}
	}
}

// TestModuleWorkspaces checks OSL-28: the workspace of a module with each kind of support.
func TestModuleWorkspaces(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-28")
	for support, want := range map[string][2]string{row.Quote("required"): {"", "object"}, row.Quote("optional"): {"undefined", "object"}, row.Quote("none"): {"undefined", "undefined"}} {
		for i, name := range []string{"", "trip"} {
			b, _ := moduleAgent(t)
			_, res := b.flow(typesOf("host.workspace"), name, flows(declares{row.Quote("workspaceSupport"): support}))
			if refused := res.Outcome == domain.OutcomeError; refused != (want[i] == "") || !refused && res.Summary != want[i] {
				t.Errorf("%s in workspace %q: %+v", support, name, res)
			}
		}
	}
}

// TestModuleCommandStates checks OSL-20: the events about the commands of a module.
func TestModuleCommandStates(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-20")
	b, s := moduleAgent(t)
	more := everything(s.granted.URL)
	id, res := b.runModule(`for (const command of ["echo", "false"]) {
		const j = await host.bridge.executeCommand({command, args: []}); await host.bridge.waitForJob(j.bridgeRunId) }
		await host.bridge.executeCommand({command: "rm", args: ["-rf", "/"]});
		return {}`, nil, more)
	if res.Outcome != domain.OutcomeSuccess {
		t.Fatalf("%+v", res)
	}

	events, err := b.ledger.Events.List(t.Context(), event.Filter{Run: id})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, e := range events {
		var data struct{ State string }
		if e.Kind == row.Quote("skill.job") && json.Unmarshal(e.Data, &data) == nil {
			got[data.State]++
		}
	}
	want := map[string]int{row.Quote("queued"): 3, row.Quote("completed"): 1, row.Quote("failed"): 1, row.Quote("refused"): 1}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestModuleCheckpoint checks OSL-29: the content of a checkpoint.
func TestModuleCheckpoint(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-29")
	b, _ := moduleAgent(t)
	id, _ := b.flow(`await host.workspace.setState({n: 1}); await host.workspace.setPhase("draft"); await host.run.reportStep("one");
		await host.run.checkpoint({at: 7}); return {}`, "trip", flows(nil))
	c, err := b.ledger.Workspaces.LastCheckpoint(t.Context(), id)
	kept := map[string]string{row.Quote("phase"): c.Phase, row.Quote("step"): c.Step}
	if err != nil || kept["phase"] != "draft" || kept["step"] != "one" || string(c.State) != `{"n":1}` || !strings.Contains(string(c.RunState), `"at":7`) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestModuleInbox checks OSL-31: the inbox items of a waiting run.
func TestModuleInbox(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-31")
	for kind, call := range map[string]string{
		row.Quote("input"):    `host.run.requestInput({title: "?", inputSchema: {type: "object", properties: {n: {type: "number"}}, required: ["n"]}})`,
		row.Quote("pause"):    `host.run.pause("why")`,
		row.Quote("approval"): `host.bridge.executeCommand({command: "true", args: []})`,
	} {
		b, _ := moduleAgent(t)
		b.flow("await "+call+"; return {}", "trip", flows(nil))
		item := b.open()
		if item.Kind != kind {
			t.Errorf("%s: %+v", kind, item)
		}
		if _, err := b.ledger.Answer(t.Context(), item.ID, `{"n": "many"}`); err == nil {
			t.Errorf("%s: an answer that does not fit is accepted", kind)
		}
	}
}
