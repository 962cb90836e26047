package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/web"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
	"rouse/skills"
)

// callOf returns a turn in which the model calls one tool.
func callOf(name, args string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{ID: "c", Name: name, Args: json.RawMessage(args)}}, Usage: model.Usage{Input: 100, Output: 10}}
}

// offering adds the skill sums to the clerk, and a job that asks the clerk.
func (b *bench) offering(source string, more declares) *skills.Skill {
	b.t.Helper()
	s := moduleSkill(b.t, source, more)
	clerk := b.plan.Agents["clerk"]
	clerk.Skills.View = skills.View{Preloaded: []*skills.Skill{s}}
	b.plan.Agents["clerk"], b.plan.Modules = clerk, map[string]*skills.Skill{"sums": s}
	b.plan.Jobs["ask"] = plan.Job{Name: "ask", Agent: "clerk", Prompt: "Do it, please."}
	return s
}

// record records the models of the job.
func (b *bench) record() {
	b.t.Helper()
	var err error
	if b.runner, err = agent.New(agent.Options{Ledger: b.ledger, Databases: b.pool, Manifests: filepath.Join(b.dir, "manifests"), Recordings: filepath.Join(b.dir, "recordings"), Storage: filepath.Join(b.dir, "storage"), Servers: filepath.Join(b.dir, "mcp")}); err != nil {
		b.t.Fatal(err)
	}
	job := b.plan.Jobs["ask"]
	job.Record = true
	b.plan.Jobs["ask"] = job
}

// asks runs the job until its first attempt ends.
func (b *bench) asks() (int64, ledger.Result) {
	b.t.Helper()
	id := b.enqueue(ledger.Request{Job: "ask", Agent: "clerk"})
	return id, b.run(id)
}

// toolsOf returns the names of the tools in the n-th request to the model.
func (b *bench) toolsOf(n int) (names []string) {
	b.t.Helper()
	var request struct {
		Tools []struct {
			Function struct{ Name string } `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(b.server.Requests()[n], &request); err != nil {
		b.t.Fatal(err)
	}
	for _, one := range request.Tools {
		names = append(names, one.Function.Name)
	}
	return names
}

// withTools returns a manifest that declares tools and everything else, and needs no secret.
func withTools(server string, tools ...declares) declares {
	d := withoutBindings(everything(server))
	d["tools"] = tools
	return d
}

func handler(name, export string, input declares) declares {
	return declares{"name": name, "description": "Does " + name + ".", "inputSchema": input, "outputSchema": declares{"type": "object"}, "handlerExport": export}
}

// TestModelCallsModule checks OSL-32: a model calls the tools of its skills according to their
// schemas. The run makes the module's calls, below the call of the model, and the call returns the
// module's result.
func TestModelCallsModule(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-32")
	execute, tell := row.Quote("sums__execute"), row.Quote("sums__tell")
	if _, declared := handler("tell", "tellIt", declares{})[row.Quote("handlerExport")]; !declared {
		t.Fatal("the tool has no handler")
	}
	b, s := moduleAgent(t, callOf(execute, `{"a": "2"}`), modeltest.Turn{Text: "The sum.", Usage: model.Usage{Input: 30, Output: 3}}, callOf(tell, `{}`), modeltest.Turn{Text: "It is done."})
	more := withTools(s.granted.URL, handler("tell", "tellIt", declares{}))
	more["inputSchema"] = declares{"type": "object", "properties": declares{"a": declares{"type": "number"}}, "required": []string{"a"}}
	b.offering(`
		export async function execute(args: any, host: any) {
			const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up."}]});
			await host.storage.set("a", args.a + 1);
			await host.filesystem.writeFile("out.txt", r.text);
			return {kept: await host.storage.get("a"), text: r.text, id: host.executionId, secret: "sk-canary"};
		}
		export async function tellIt(args: any, host: any) { return {kept: await host.storage.get("a")} }`, more)

	id, res := b.asks()
	if res.Summary != "It is done." || b.text("work", "out.txt") != "The sum." {
		t.Errorf("%+v; wrote %q", res, b.text("work", "out.txt"))
	}
	if told := b.toolsOf(0); !slices.Contains(told, execute) || !slices.Contains(told, tell) || slices.Contains(told, "host_storage_get") {
		t.Errorf("told of %v", told)
	}

	calls, envelopes := b.made(id)
	var made []string
	for i, c := range calls {
		made = append(made, c.Tool+" "+string(c.State))
		if within := strings.HasPrefix(c.Key, calls[0].Key+"~") || c.Tool == "host_storage_get" && strings.Contains(c.Key, "~"); within == strings.HasPrefix(c.Tool, "sums__") {
			t.Errorf("%s has the key %s", c.Tool, c.Key)
		}
		if c.Tool == "sums__execute" && !strings.Contains(string(envelopes[i].Result), `{"kept":3,"text":"The sum.","id":"`) {
			t.Errorf("it returned %+v", envelopes[i])
		}
		if strings.Contains(string(c.Envelope), "sk-canary") || strings.Contains(string(b.server.Requests()[2]), "sk-canary") {
			t.Error("a secret of the module is told")
		}
	}
	slices.Sort(made)
	if got := strings.Join(made, ", "); got != "host_filesystem_write done, host_llm_complete done, host_storage_get done, host_storage_get done, host_storage_set done, sums__execute done, sums__tell done" {
		t.Errorf("made %s", got)
	}
	// Steps: the turns of the model and of the module's question. Calls: all calls.
	if res.Steps != 4 || res.Calls != 7 || res.Usage.TokensIn < 230 {
		t.Errorf("%d steps, %d calls, %d tokens", res.Steps, res.Calls, res.Usage.TokensIn)
	}

	steps, err := b.ledger.Steps.List(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range steps {
		if asked := st.Text == "The sum."; asked && !strings.HasPrefix(st.ParentCall, calls[0].Key+"~llm.complete") {
			t.Errorf("the question stands within %q", st.ParentCall)
		}
	}
}

// TestModelCallsModuleInVain checks OSL-32: the model is told of a wrong call or a failing module,
// and continues.
func TestModelCallsModuleInVain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, args string
		more       declares
		kind       tool.Kind
		says       string
	}{
		"arguments of another type":  {`return {}`, `{"a": "one"}`, nil, tool.KindInvalidArgs, `must be a number`},
		"no arguments":               {`return {}`, `{}`, nil, tool.KindInvalidArgs, `\"a\" is missing`},
		"arguments beyond the types": {`return {}`, `{"a": 200}`, nil, tool.KindInvalidArgs, "maximum"},
		"throws":                     {`throw new Error("no rows of sk-canary")`, `{"a": 1}`, nil, tool.KindExecutionError, "no rows of [secret]"},
		"had no success":             {`return {success: false, error: "no such unit"}`, `{"a": 1}`, nil, tool.KindExecutionError, "no such unit"},
		"takes too long":             {`for (;;) {}`, `{"a": 1}`, declares{"sandbox": declares{"isolation": "standard", "maxExecutionMs": 300, "maxMemoryMB": 64, "allowedGlobals": []string{}, "networkRules": []any{}}}, tool.KindTimeout, "300ms"},
		"returns what does not fit":  {`return {b: 1}`, `{"a": 1}`, declares{"outputSchema": declares{"type": "object", "properties": declares{"b": declares{"type": "string"}}}}, tool.KindExecutionError, "outputSchema"},
		"returns too much":           {`return {b: "x".repeat(300 << 10)}`, `{"a": 1}`, nil, tool.KindExecutionError, "are the most"},
		"is no TypeScript":           {`return {`, `{"a": 1}`, nil, tool.KindUnavailable, "module.ts:"},
		"has no such export":         {`return {}`, ``, declares{"tools": []any{handler("tell", "nobody", declares{})}}, tool.KindUnavailable, "exports no nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called := "sums__execute"
			if c.args == "" {
				called, c.args = "sums__tell", `{}`
			}
			b := setup(t, callOf(called, c.args), modeltest.Turn{Text: "So be it."})
			more := declares{"inputSchema": declares{"type": "object", "properties": declares{"a": declares{"type": "number", "maximum": 100}}, "required": []string{"a"}}}
			for key, v := range c.more {
				more[key] = v
			}
			b.offering("export async function execute(args: any, host: any) {\n"+c.body+"\n}\n", more)

			id, res := b.asks()
			_, envelopes := b.made(id)
			if e := envelopes[0]; res.Summary != "So be it." || e.OK || e.Kind != c.kind || !strings.Contains(strings.ReplaceAll(e.Message, `"`, `\"`), c.says) {
				t.Errorf("%q %s: %+v, want %s: %s", res.Summary, res.Error, e, c.kind, c.says)
			}
		})
	}
}

// TestModuleWithinAModelAsks checks that the run waits if a module that a model called needs its
// owner. Then the call is made again, with the results of its inner calls.
func TestModuleWithinAModelAsks(t *testing.T) {
	t.Parallel()
	for answer, says := range map[string]string{inbox.ApprovalOnce: "0 true", inbox.ApprovalDeny: "rejected_by_user true"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			b, s := moduleAgent(t, modeltest.Turn{Calls: []model.Call{
				{ID: "1", Name: "sums__execute", Args: json.RawMessage(`{}`)}, {ID: "2", Name: "file_read", Args: json.RawMessage(`{"path": "a.txt"}`)},
			}}, modeltest.Turn{Text: "The sum."}, modeltest.Turn{Text: "It is done."})
			b.offering(strings.ReplaceAll(`export async function execute(args: any, host: any) {
				const begin = Date.now(), lot = Math.random();
				await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up " + lot}]});
				await host.network.fetch("SERVER/api/x", {method: "POST", body: "b" + lot + begin});
				await host.storage.set("n", ((await host.storage.get("n")) ?? 0) + 1);
				let got = "";
				try { got = String((await host.tools.invoke("system_execute_command", {command: "date", args: []})).exitCode) } catch (e) { got = e.code }
				return {message: got + " " + (await host.storage.get("n") === 1)};
			}`, "SERVER", s.granted.URL), withoutBindings(everything(s.granted.URL)))
			b.record()

			id, res := b.asks()
			if res.Wait == nil || res.Wait.Kind != inbox.KindApproval || !strings.Contains(res.Wait.Action.Description, "date") {
				t.Fatalf("%+v", res)
			}
			b.end(id, res)
			b.say(answer)

			if res = b.run(id); res.Summary != "It is done." {
				t.Fatalf("%+v", res)
			}
			if asked := s.all(); strings.Count(asked, "POST") != 1 || len(b.server.Requests()) != 3 {
				t.Errorf("asked %s, and the model %d times", asked, len(b.server.Requests()))
			}
			if sent := string(b.server.Requests()[2]); !strings.Contains(sent, says) || !strings.Contains(sent, "one line") {
				t.Errorf("the model was told %s, want %s", sent, says)
			}
			// The run can be replayed without effects, with the same numbers of steps and calls.
			b.end(id, res)
			if _, p := b.play(id); !p.Same() {
				t.Errorf("played again: %+v", p)
			}

			calls, _ := b.made(id)
			if n := len(slices.DeleteFunc(calls, func(c ledger.Call) bool { return c.Tool != "shell_run" || c.State == domain.CallReplayed })); n != 1 {
				t.Errorf("the command was made %d times", n)
			}
		})
	}
}

// TestModuleWithinAModelGoesOn checks OSL-32: an interrupted call of a module is made again. Its
// inner calls are not repeated, and cost only once.
func TestModuleWithinAModelGoesOn(t *testing.T) {
	t.Parallel()
	b, s := moduleAgent(t, callOf("sums__execute", `{}`), modeltest.Turn{Text: "The sum."}, modeltest.Turn{Text: "It is done."})
	ctx, kill := context.WithCancelCause(t.Context())
	stops := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { kill(errors.New("killed")) }))
	t.Cleanup(stops.Close)
	clerk := b.plan.Agents["clerk"]
	clerk.Network = append(clerk.Network, web.Grant{Host: strings.TrimPrefix(stops.URL, "http://"), Methods: []string{"GET"}})
	clerk.Bounds.Calls = 10 // the calls that are made, two of them twice; recorded results do not count again
	b.plan.Agents["clerk"] = clerk
	more := withoutBindings(everything(s.granted.URL))
	more["sandbox"].(declares)["networkRules"] = []any{declares{"urlPattern": "*", "methods": []string{"GET", "POST"}, "description": "any"}}
	b.offering(strings.NewReplacer("SERVER", s.granted.URL, "STOPS", stops.URL).Replace(`export async function execute(args: any, host: any) {
		await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up."}]});
		await host.network.fetch("SERVER/api/x", {method: "POST", body: "b" + Math.random() + Date.now()});
		await host.storage.set("n", ((await host.storage.get("n")) ?? 0) + 1);
		await host.network.fetch("STOPS/");
		await host.filesystem.writeFile("out.txt", "n " + await host.storage.get("n"));
		return {};
	}`), more)

	id := b.enqueue(ledger.Request{Job: "ask", Agent: "clerk"})
	b.attempt(ctx, id) // the process is killed
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}

	res := b.run(id)
	if res.Summary != "It is done." || b.text("work", "out.txt") != "n 1" {
		t.Errorf("%+v; wrote %q", res, b.text("work", "out.txt"))
	}
	if asked := s.all(); strings.Count(asked, "POST") != 1 || len(b.server.Requests()) != 3 {
		t.Errorf("asked %s, and the model %d times", asked, len(b.server.Requests()))
	}
}

// TestOfferedTools checks OSL-32: lists of allowed tools apply to the tools of skills. An agent
// that does not name a skill can find these tools, unless it lacks the requirements of the skill.
func TestOfferedTools(t *testing.T) {
	t.Parallel()
	source := `export async function execute() { return {} }
		export async function tellIt() { return {} }`
	tell := declares{"tools": []any{handler("tell", "tellIt", declares{})}}
	for name, c := range map[string]struct {
		change func(*plan.Agent, *skills.Skill)
		more   declares
		told   string
	}{
		"named":       {func(*plan.Agent, *skills.Skill) {}, tell, "sums__execute sums__tell"},
		"denied":      {func(a *plan.Agent, _ *skills.Skill) { a.Deny = []string{"sums__*"} }, tell, ""},
		"one denied":  {func(a *plan.Agent, _ *skills.Skill) { a.Deny = []string{"sums__execute"} }, tell, "sums__tell"},
		"not allowed": {func(a *plan.Agent, _ *skills.Skill) { a.Allow = []string{"file_*"} }, tell, ""},
		"on demand":   {func(a *plan.Agent, _ *skills.Skill) { a.OnDemand = []string{"sums__*"} }, tell, "to load"},
		"not named":   {func(a *plan.Agent, s *skills.Skill) { a.Skills.View = skills.View{Loadable: []*skills.Skill{s}} }, tell, "to load"},
		"not named, no search": {func(a *plan.Agent, s *skills.Skill) {
			a.Skills.View, a.Deny = skills.View{Loadable: []*skills.Skill{s}}, []string{"capabilities_*"}
		}, tell, ""},
		"changed since": {func(a *plan.Agent, s *skills.Skill) {
			s.TrustedHash, a.Skills.View = "another", skills.View{Loadable: []*skills.Skill{s}}
		}, tell, ""},
		"no skill":            {func(a *plan.Agent, _ *skills.Skill) { a.Skills.View = skills.View{} }, tell, ""},
		"of two names":        {func(*plan.Agent, *skills.Skill) {}, declares{"tools": []any{handler("execute", "tellIt", declares{}), handler("tell", "tellIt", declares{})}}, "sums__execute sums__tell"},
		"no name":             {func(*plan.Agent, *skills.Skill) {}, declares{"tools": []any{handler("tell it", "tellIt", declares{})}}, "sums__execute"},
		"no secret":           {func(*plan.Agent, *skills.Skill) {}, everything("http://127.0.0.1"), ""},
		"not here":            {func(*plan.Agent, *skills.Skill) {}, declares{"supportedPlatforms": []string{"windows"}}, ""},
		"not in this version": {func(*plan.Agent, *skills.Skill) {}, declares{"requiredMcpServers": []any{declares{"name": "s", "description": "x"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, callOf("sums__tell", `{}`), modeltest.Turn{Text: "It is done."})
			s := b.offering(source, c.more)
			clerk := b.plan.Agents["clerk"]
			c.change(&clerk, s)
			b.plan.Agents["clerk"] = clerk

			id, res := b.asks()
			told := slices.DeleteFunc(b.toolsOf(0), func(name string) bool { return !strings.HasPrefix(name, "sums__") })
			if strings.Contains(string(b.server.Requests()[0]), "sums__execute, sums__tell") {
				told = append(told, "to load")
			}
			if got := strings.Join(told, " "); got != c.told || res.Summary != "It is done." {
				t.Errorf("told of %q, want %q (%+v)", got, c.told, res)
			}

			// A tool that can be found can be called without being listed. A denied tool cannot.
			_, envelopes := b.made(id)
			if can := strings.Contains(c.told, "load") || strings.Contains(c.told, "tell"); envelopes[0].OK != can {
				t.Errorf("%+v, want %t", envelopes[0], can)
			}
		})
	}
}

// TestRegisteredTools checks OSL-07 and OSL-32: a module registers tools for the next runs of its
// agent, within limits, until the version of the skill changes.
func TestRegisteredTools(t *testing.T) {
	t.Parallel()
	const registers = `export async function execute(args: any, host: any) {
			try { return {message: (await host.tools.registerTool(args.tool)).name} } catch (e) { return {message: e.code + ": " + e.message} }
		}
		export async function tellIt(args: any) { return {told: args.what} }`
	b := setup(t, callOf("sums__execute", `{"tool": {"name": "say", "description": "Says what it is told.", "handlerExport": "tellIt", "inputSchema": {"properties": {"what": {"type": "string"}}, "required": ["what"]}}}`), modeltest.Turn{Text: "Registered."},
		callOf("sums__say", `{"what": "so"}`), callOf("sums__say", `{}`), modeltest.Turn{Text: "It is done."}, modeltest.Turn{Text: "Gone."})
	more := declares{"tools": []any{handler("tell", "tellIt", declares{})}}
	b.offering(registers, more)

	id, _ := b.asks()
	if _, envelopes := b.made(id); !slices.ContainsFunc(envelopes, func(e tool.Envelope) bool { return strings.Contains(string(e.Result), `{"message":"sums__say"}`) }) {
		t.Fatalf("%+v", envelopes)
	}
	if slices.Contains(b.toolsOf(1), "sums__say") {
		t.Error("the list of tools changed within a run")
	}

	id, _ = b.asks()
	_, envelopes := b.made(id)
	if !slices.Contains(b.toolsOf(2), "sums__say") || string(envelopes[0].Result) != `{"told":"so"}` || envelopes[1].Kind != tool.KindInvalidArgs {
		t.Errorf("%v %+v", b.toolsOf(2), envelopes)
	}

	more["version"] = "1.0.1"
	b.offering(registers, more)
	if b.asks(); slices.Contains(b.toolsOf(5), "sums__say") {
		t.Error("a tool outlives the version of its skill")
	}
}

// TestRegisteredToolsAreBounded checks OSL-07: a registered tool does not replace another tool, has
// valid definitions, and the number of tools is limited.
func TestRegisteredToolsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, res := b.runModule(`
		const said: string[] = [];
		const tries = [
			{name: "execute", description: "x", handlerExport: "execute"}, {name: "tell", description: "x", handlerExport: "execute"}, {name: "a b", description: "x", handlerExport: "execute"},
			{name: "a", description: " ", handlerExport: "execute"}, {name: "a", description: "x", handlerExport: "nobody"}, {name: "a", description: "x", handlerExport: "execute", inputSchema: {type: "array"}},
			{name: "a", description: "x", handlerExport: "execute", inputSchema: {$ref: "#"}}, {name: "a", description: "x", handlerExport: "execute", inputSchema: {type: "object", description: "x".repeat(20000)}},
		];
		for (const one of tries) { try { await host.tools.registerTool(one); said.push("registered") } catch (e) { said.push(e.message) } }
		for (let i = 0; i < 21; i++) { try { await host.tools.registerTool({name: "t" + i, description: "x", handlerExport: "execute"}) } catch (e) { said.push(i + " " + e.message) } }
		return {message: said.join("; ")}`, nil, declares{"tools": []any{handler("tell", "execute", declares{})}})
	for _, want := range []string{"a tool of the name sums__execute already", "a tool of the name sums__tell already", "1 to 64 letters", "has no description", `exports no "nobody"`, "must be of the type object", "$ref", "16 KiB are the most", "20 a module registers 20 tools at most"} {
		if !strings.Contains(res.Summary, want) {
			t.Errorf("%q is not in %s %s", want, res.Summary, res.Error)
		}
	}
	if strings.Contains(res.Summary, "registered;") {
		t.Errorf("%s", res.Summary)
	}
}

// TestPlaybookCallsModule checks OSL-32: a playbook calls the tools of its agent's skills, and gets
// their results.
func TestPlaybookCallsModule(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t, modeltest.Turn{Text: "The sum."})
	b.offering(`export async function execute(args: any, host: any) {
		const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up."}]});
		return {text: r.text + args.n};
	}`, withoutBindings(everything("http://127.0.0.1")))
	b.plan.Jobs["ask"] = plan.Job{Name: "ask", Agent: "clerk", Playbook: []playbook.Call{
		{Name: "sums__execute", With: map[string]any{"n": 1}, Save: "sum"}, {Name: "file_write", With: map[string]any{"path": "out.txt", "content": "= sum.text"}},
	}}

	_, res := b.asks()
	if res.Outcome != domain.OutcomeSuccess || b.text("work", "out.txt") != "The sum.1" {
		t.Errorf("%+v; wrote %q", res, b.text("work", "out.txt"))
	}
}

// TestModelCallsModuleInAWorkspace checks OSL-23 and OSL-28: the module of a call works in a
// workspace of its skill. It is a new workspace if the module needs one and there is none, or else
// the only active one. If there are several, it is the workspace of the run.
func TestModelCallsModuleInAWorkspace(t *testing.T) {
	t.Parallel()
	const counts = `export async function execute(args: any, host: any) {
		if (!host.workspace) return {n: "none"};
		const state = (await host.workspace.getState()) ?? {n: 0};
		await host.workspace.setState({n: state.n + 1});
		return {n: state.n + 1};
	}`
	for name, c := range map[string]struct {
		support string
		there   []string // existing workspaces
		got     string
		in      string // written workspace
	}{
		"needs one":         {"required", nil, `{"n":1}`, "default"},
		"takes the only":    {"required", []string{"trip"}, `{"n":1}`, "trip"},
		"takes an optional": {"optional", []string{"trip"}, `{"n":1}`, "trip"},
		"goes without":      {"optional", nil, `{"n":"none"}`, ""},
		"of several none":   {"optional", []string{"a", "b"}, `{"n":"none"}`, ""},
		"says which":        {"required", []string{"a", "b"}, "several workspaces", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := moduleAgent(t, callOf("sums__execute", `{}`), modeltest.Turn{Text: "It is done."})
			b.offering(counts, declares{"workspaceSupport": c.support, "workspaceSchemaVersion": "1"})
			for _, one := range c.there {
				if _, err := b.ledger.Workspaces.Create(t.Context(), workspace.Author{}, workspace.Workspace{Agent: "clerk", Skill: "sums", Name: one}); err != nil {
					t.Fatal(err)
				}
			}

			id, _ := b.asks()
			_, envelopes := b.made(id)
			if said := envelopes[0].Message + string(envelopes[0].Result); !strings.Contains(said, c.got) {
				t.Errorf("%s, want %s", said, c.got)
			}
			all, err := b.ledger.Workspaces.List(t.Context(), workspace.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range all {
				if wrote := string(w.State) == `{"n":1}`; wrote != (w.Name == c.in) {
					t.Errorf("%s holds %s", w.Name, w.State)
				}
			}
		})
	}
}
