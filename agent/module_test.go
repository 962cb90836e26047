package agent_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/record"
	"rouse/skills"
)

// declares holds the fields of a test's manifest in addition to the required fields.
type declares map[string]any

// moduleSkill writes a skill with a module, and reads it like rouse.
func moduleSkill(t *testing.T, source string, more declares) *skills.Skill {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sums")
	manifest := declares{
		"name": "sums", "description": "Does sums.", "version": "1.0.0", "author": "nobody", "schemaVersion": "2.0", "capabilities": []string{"sums"},
		"requiredBindings": []any{}, "permissions": []any{}, "compatibilityRequirements": []any{}, "supportedPlatforms": []any{},
		"inputSchema": declares{"type": "object"}, "outputSchema": declares{"type": "object"}, "bridgeRequirement": "never",
		"workspaceSupport": "none", "workspaceSchemaVersion": nil, "longRunningSupport": "none", "userInputSupport": false,
		"artifactVersioningSupport": false, "executionMode": "declarative",
		"agenticConfig": declares{"enabled": false, "requiresWorkspace": false, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": false, "maxStepsPerRun": nil, "defaultStepBudget": nil},
	}
	maps.Copy(manifest, more)
	raw, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{"manifest.json": string(raw), "module.ts": source} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	s, problems := skills.Load(dir)
	if s == nil || s.Manifest == nil {
		t.Fatalf("%v", problems)
	}
	return s
}

// permission returns a permission of a manifest.
func permission(kind, scope string) declares {
	return declares{"kind": kind, "scope": scope, "description": "for the test"}
}

// runModule runs the body of an execute function once, as a job of the clerk.
func (b *bench) runModule(body string, input map[string]any, more declares) (int64, ledger.Result) {
	b.t.Helper()
	b.plan.Jobs["sums"] = plan.Job{Name: "sums", Agent: "clerk", Skill: moduleSkill(b.t, "export async function execute(args: any, host: any) {\n"+body+"\n}\n", more), Input: input}
	id := b.enqueue(ledger.Request{Job: "sums", Agent: "clerk"})
	return id, b.run(id)
}

// callsOf returns the recorded calls of a run by the names of their tools, each once.
func (b *bench) callsOf(id int64) []string {
	b.t.Helper()
	calls, err := b.ledger.Steps.Calls(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, c := range calls {
		out = append(out, c.Tool+" "+string(c.State))
	}
	return out
}

// TestModuleEnds checks OSL-06, OSL-10, OSL-12 and OSL-15: the end of a module is the end of its
// run, and input and output match the schemas.
func TestModuleEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body    string
		input   map[string]any
		more    declares
		outcome domain.Outcome
		says    string // part of the summary or the error
	}{
		"returns":           {`return {a: args.a + 1}`, map[string]any{"a": 2}, nil, domain.OutcomeSuccess, `{"a":3}`},
		"has a summary":     {`return {summary: "It is " + args.a, rows: [1, 2]}`, map[string]any{"a": "= 1 + 1"}, nil, domain.OutcomeSuccess, "It is 2"},
		"has a message":     {`return {message: "Job " + args.job}`, map[string]any{"job": "{{ .Job }}"}, nil, domain.OutcomeSuccess, "Job sums"},
		"had no success":    {`return {success: false, error: "no such unit"}`, nil, nil, domain.OutcomeError, "no such unit"},
		"throws":            {"\n\nthrow new TypeError('no rows')", nil, nil, domain.OutcomeError, "TypeError: no rows"},
		"throws in a line":  {"\n\nthrow new TypeError('no rows')", nil, nil, domain.OutcomeError, "module.ts:4"},
		"takes too long":    {`for (;;) {}`, nil, declares{"sandbox": declares{"isolation": "standard", "maxExecutionMs": 300, "maxMemoryMB": 64, "allowedGlobals": []string{}, "networkRules": []any{}}}, domain.OutcomeTimeout, "300ms"},
		"waits for nobody":  {`await new Promise(() => {})`, nil, nil, domain.OutcomeError, "nobody will answer"},
		"output does not":   {`return {a: "one"}`, nil, declares{"outputSchema": declares{"type": "object", "properties": declares{"a": declares{"type": "number"}}}}, domain.OutcomeError, "outputSchema"},
		"returns nothing":   {``, nil, nil, domain.OutcomeError, "outputSchema"},
		"input does not":    {`return {}`, map[string]any{"a": "one"}, declares{"inputSchema": declares{"type": "object", "properties": declares{"a": declares{"type": "number"}}}}, domain.OutcomeError, "inputSchema"},
		"needs a secret":    {`return {}`, nil, everything("http://127.0.0.1"), domain.OutcomeError, "needs the secret bank"},
		"is no TypeScript":  {`return {`, nil, nil, domain.OutcomeError, "module.ts:"},
		"has no host.run":   {`return {run: typeof host.run, workspace: typeof host.workspace, oauth: typeof host.oauth}`, nil, nil, domain.OutcomeSuccess, `{"run":"undefined","workspace":"undefined","oauth":"undefined"}`},
		"knows what it is":  {`return {message: host.skillId + " " + (host.runId === host.executionId)}`, nil, nil, domain.OutcomeSuccess, "sums true"},
		"secret in summary": {`return {message: "sk-canary"}`, nil, nil, domain.OutcomeSuccess, "[secret]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, res := setup(t).runModule(c.body, c.input, c.more)
			if said := res.Summary + res.Error; res.Outcome != c.outcome || !strings.Contains(said, c.says) {
				t.Errorf("%s: %s, want %s: %s", res.Outcome, said, c.outcome, c.says)
			}
		})
	}
}

// moduleAgent grants the clerk everything that a module can need.
func moduleAgent(t *testing.T, turns ...modeltest.Turn) (*bench, *webServers) {
	b, s := network(t, turns...)
	clerk := b.plan.Agents["clerk"]
	host := strings.TrimPrefix(s.granted.URL, "http://")
	clerk.Network = []web.Grant{{Host: host, Methods: []string{"GET", "POST"}}}
	clerk.Commands = []shell.Grant{{Argv: []string{"echo", "*"}}, {Argv: []string{"false"}}}
	clerk.Secrets = append(clerk.Secrets, tool.SecretGrant{Name: "pin", Value: "sk-pin-0123"})
	clerk.MinTier = "B" // available on every test machine; the tests do not depend on the tier
	b.plan.Agents["clerk"], b.plan.Secrets = clerk, append(b.plan.Secrets, "sk-pin-0123")

	work := filepath.Join(b.dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.txt": "one line", "b.txt": "two"} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return b, s
}

// everything returns a manifest that declares everything.
func everything(server string) declares {
	return declares{
		"permissions": []any{permission("storage", "own"), permission("network", "api"), permission("llm", "any"), permission("filesystem", "read-write"), permission("vault", "api")},
		"llmUsage":    []any{declares{"purposeId": "sum-up", "kind": "summarization", "description": "sums up", "estimatedTokenBudget": 100, "modelPreference": nil, "temperatureHint": 0.2}},
		"requiredBindings": []any{
			declares{"name": "bank", "scope": "api", "description": "the bank", "required": true},
			declares{"name": "pin", "scope": "api", "description": "the pin", "required": true},
			declares{"name": "other", "scope": "api", "description": "not granted", "required": false},
		},
		"bridgeRequirement": "optional", "compatibilityRequirements": []string{"system_tools"},
		"sandbox": declares{"isolation": "standard", "maxExecutionMs": 20000, "maxMemoryMB": 64, "allowedGlobals": []string{},
			"networkRules": []any{declares{"urlPattern": server + "/api/*", "methods": []string{"GET", "POST"}, "description": "the api"}}},
	}
}

// withoutBindings returns a manifest that needs no secret.
func withoutBindings(d declares) declares {
	d["requiredBindings"] = []any{}
	return d
}

// TestHostMethods checks OSL-07, OSL-08, OSL-09, OSL-17, UNI-06 and UNI-14: each method of the host
// works, refuses invalid calls, and does not exist unless it is declared and granted.
func TestHostMethods(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "UNI-14")
	caught := func(call string) string {
		return "try { await " + call + "; return {got: 'no error'} } catch (e) { return {got: e.code + ': ' + e.message} }"
	}
	for name, c := range map[string]struct {
		body string
		got  string // the returned field got, or a part of it
		made string // recorded calls
	}{
		"storage":             {`await host.storage.set("a", {b: [1]}); await host.storage.set("c", null); return {got: JSON.stringify([await host.storage.get("a"), await host.storage.list(), (await host.storage.get("no")) ?? "nothing"])}`, `[{"b":[1]},["a","c"],"nothing"]`, ""},
		"storage deletes":     {`await host.storage.set("a", 1); await host.storage.delete("a"); return {got: String((await host.storage.list()).length)}`, "0", ""},
		"storage of no key":   {caught(`host.storage.set("", 1)`), row.Quote("invalid_args") + ": the key has 0 bytes", ""},
		"storage of too much": {caught(`host.storage.set("a", "x".repeat(2 << 20))`), "invalid_args: the value has 2", ""},
		"fetch":               {`const r = await host.network.fetch("SERVER/api/x"); return {got: r.ok + " " + r.status + " " + await r.text()}`, "true 200 words of a stranger", "host_network_fetch done"},
		"fetch posts":         {`const r = await host.network.fetch("SERVER/api/x", {method: "POST", body: "b"}); return {got: r.statusText}`, "OK", ""},
		"fetch by no rule":    {caught(`host.network.fetch("SERVER/other")`), row.Quote("rejected") + ": GET SERVER/other is covered by none of the networkRules", ""},
		"fetch by dots":       {caught(`host.network.fetch("SERVER/api/../other")`), row.Quote("rejected") + ": GET SERVER/other is covered by none of the networkRules", ""},
		"fetch by codes":      {caught(`host.network.fetch("SERVER/api/%2e%2E/other")`), "its path holds %2e, which servers read in different ways", ""},
		"fetch by two codes":  {caught(`host.network.fetch("SERVER/api/..%252fother")`), "its path holds %25, which servers read in different ways", ""},
		"fetch by no method":  {caught(`host.network.fetch("SERVER/api/x", {method: "PUT"})`), "rejected: PUT", ""},
		"fetch of no URL":     {caught(`host.network.fetch({})`), "invalid_args: the URL is a text", ""},
		"fetch of a number":   {caught(`host.network.fetch("SERVER/api/", {body: 1})`), "invalid_args: fetch takes", ""},
		"llm":                 {`const r = await host.llm.complete({purposeId: "sum-up", systemPrompt: "Short.", messages: [{role: "user", content: "Sum up."}]}); return {got: r.text + " " + r.tokensUsed.prompt + "/" + r.tokensUsed.completion}`, "The sum. 30/3", "host_llm_complete done"},
		"llm for no purpose":  {caught(`host.llm.complete({purposeId: "chat", messages: [{role: "user", content: "Hi."}]})`), `rejected: the purpose "chat" is not among the llmUsage`, ""},
		"llm without a word":  {caught(`host.llm.complete({purposeId: "sum-up", messages: []})`), "invalid_args: the last message", ""},
		"llm as the system":   {caught(`host.llm.complete({purposeId: "sum-up", messages: [{role: "system", content: "Hi."}, {role: "user", content: "Hi."}]})`), "invalid_args: the role", ""},
		"vault":               {`return {got: String((await host.vault.resolveBinding("bank")).length)}`, "12", "host_vault_resolve done"},
		"vault not declared":  {caught(`host.vault.resolveBinding("weather")`), `rejected: "weather" is not among the requiredBindings`, ""},
		"vault not granted":   {caught(`host.vault.resolveBinding("other")`), "rejected: the secret other is not granted", ""},
		"writes of a secret":  {caught(`host.network.fetch("SERVER/api/x", {headers: {"X-Key": "__OSL_SECRET[weather]__"}})`), `rejected: "weather" is not among the requiredBindings`, ""},
		"argues of a secret":  {caught(`host.tools.invoke("system_execute_command", {command: "echo", args: ["__OSL_" + "SECRET[weather]__"]})`), `rejected: "weather"`, ""},
		"lists a folder":      {`return {got: (await host.filesystem.listDirectory(".")).map((e) => e.type + " " + e.path).join()}`, "file a.txt,file b.txt", ""},
		"reads a file":        {`const f = await host.filesystem.openFile("a.txt"); return {got: f.name + " " + await host.filesystem.readFile(f.handleId) + " " + (await host.filesystem.listHandles()).length}`, "a.txt one line 1", ""},
		"opens its folder":    {`return {got: (await host.filesystem.openDirectory()).kind}`, "directory", ""},
		"opens no file":       {caught(`host.filesystem.openFile()`), "invalid_args: no file started this run", ""},
		"reads outside":       {caught(`host.filesystem.readFile("/etc/hostname")`), "invalid_args: ", ""},
		"reads what is not":   {caught(`host.filesystem.readFile("no.txt")`), "not_found: ", ""},
		"writes a file":       {`await host.filesystem.writeFile("out/c.txt", "three"); return {got: await host.filesystem.readFile("out/c.txt")}`, "three", "host_filesystem_write done, host_filesystem_read done"},
		"writes outside":      {caught(`host.filesystem.writeFile("/etc/c.txt", "three")`), "invalid_args: ", ""},
		"runs a program":      {`const r = await host.tools.invoke("system_execute_command", {command: "echo", args: ["a b", "$HOME"], workingDirectory: ".", reason: "to see"}); return {got: r.exitCode + " " + r.stdout}`, "0 a b $HOME\n", "shell_run done"},
		"runs it by callTool": {`return {got: (await host.tools.callTool("system_execute_command", {command: "echo", args: ["x"]})).stdout}`, "x\n", ""},
		"calls another tool":  {caught(`host.tools.callTool("notify", {title: "x"})`), `tool_not_found: the tool "notify"`, ""},
		"runs it elsewhere":   {caught(`host.tools.invoke("system_execute_command", {command: "echo", args: [], workingDirectory: "/"})`), "invalid_args: commands run in the agent's working folder", ""},
		"runs it with env":    {caught(`host.tools.invoke("system_execute_command", {command: "echo", args: [], env: {A: "1"}})`), "invalid_args: env is not taken", ""},
		"runs no program":     {caught(`host.tools.invoke("system_execute_command", {})`), "invalid_args: the command is missing", ""},
		"bridge":              {`if (!host.bridge.isAvailable()) return {got: "none"}; const r = await host.bridge.executeCommand({command: "echo", args: ["x"], workingDirectory: null, reason: "to see"}); const j = await host.bridge.waitForJob(r.bridgeRunId); return {got: r.accepted + " " + j.status + " " + j.stdout}`, "true completed x\n", "shell_run done"},
		"bridge fails":        {`const r = await host.bridge.executeCommand({command: "false", args: []}); const j = await host.bridge.waitForJob(r.bridgeRunId); return {got: j.status + " " + j.exitCode}`, "failed 1", ""},
		"bridge of nothing":   {`const r = await host.bridge.executeCommand({args: []}); return {got: r.accepted + " " + r.code}`, "false " + row.Quote("invalid_request"), ""},
		"bridge waits for no": {caught(`host.bridge.waitForJob("x")`), "invalid_args: there is no job", ""},
		"bridge locates":      {`const r = await host.bridge.locateTools(["sh", "no-such-program"]); return {got: r.tools.map((t) => t.status).join()}`, "installed,not_installed", ""},
		"bridge has it":       {`const r = await host.bridge.installTool({toolId: "sh", reason: "y"}); return {got: r.accepted + " " + (await host.bridge.waitForJob(r.bridgeRunId)).status}`, "true completed", "host_bridge_install done"},
		"installs no program": {`const r = await host.bridge.installTool({toolId: "../x"}); return {got: r.accepted + " " + r.code}`, "false invalid_request", ""},
		"says something":      {`host.log("info", "one"); host.log.warn("two", {three: 3}); await host.events.emitProgress(0.5, "half"); await host.events.emitCustom("mine", {a: 1}); return {got: "said"}`, "said", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := moduleAgent(t, modeltest.Turn{Text: "The sum.", Usage: model.Usage{Input: 30, Output: 3}})
			server := s.granted.URL
			id, res := b.runModule(strings.ReplaceAll(c.body, "SERVER", server), nil, everything(server))
			var out struct{ Got string }
			if err := json.Unmarshal([]byte(res.Summary), &out); err != nil || res.Outcome != domain.OutcomeSuccess || !strings.Contains(strings.TrimSpace(out.Got), strings.TrimSpace(strings.ReplaceAll(c.got, "SERVER", server))) {
				t.Errorf("%s %q %s, want %s", res.Outcome, res.Summary, res.Error, c.got)
			}
			if made := strings.Join(b.callsOf(id), ", "); c.made != "" && made != c.made {
				t.Errorf("made %s, want %s", made, c.made)
			}
		})
	}

	absent := `const all = ["storage", "network", "llm", "vault", "filesystem", "tools", "bridge", "oauth", "wasm", "run"]; return {got: all.filter((n) => host[n] !== undefined).join()}`
	for name, c := range map[string]struct {
		more  declares
		grant bool
		got   string
	}{
		"not declared": {nil, true, ""},
		"not granted":  {withoutBindings(everything("http://127.0.0.1")), false, "storage,filesystem"},
		"reading only": {declares{"permissions": []any{permission("filesystem", "read")}}, true, "filesystem"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if c.grant {
				b, _ = moduleAgent(t)
			} else {
				b.plan.Agents["clerk"] = b.plan.Agents["plain"]
			}
			_, res := b.runModule(absent, nil, c.more)
			if want := fmt.Sprintf(`{"got":%q}`, c.got); res.Summary != want {
				t.Errorf("%s %s, want %s", res.Summary, res.Error, want)
			}
		})
	}
}

// TestModuleSecret checks OSL-22: a module's secret is sent only to its host, and is not recorded.
func TestModuleSecret(t *testing.T) {
	t.Parallel()
	b, s := moduleAgent(t)
	for i := range b.plan.Agents["clerk"].Secrets { // private data may not be sent without an approval
		b.plan.Agents["clerk"].Secrets[i].Public = true
	}
	more := everything(s.granted.URL)
	more["sandbox"].(declares)["networkRules"] = []any{declares{"urlPattern": "*", "methods": []string{"GET"}, "description": "any"}}
	id, res := b.runModule(strings.ReplaceAll(`
		const pin = await host.vault.resolveBinding("pin"), bank = await host.vault.resolveBinding("bank");
		await host.storage.set("kept", {bank});
		let told = "";
		try { await host.network.fetch("SERVER/api/", {headers: {"X-Key": btoa(bank + bank)}}) } catch (e) { told = e.message }
		try { await host.network.fetch("SERVER/api/", {headers: {"X-Key": pin}}) } catch (e) { told += " " + e.message }
		await host.network.fetch("SERVER/api/", {headers: {"X-Key": bank}});
		return {message: bank + " " + JSON.stringify(await host.storage.get("kept")) + told}`, "SERVER", s.granted.URL), nil, more)

	if res.Outcome != domain.OutcomeSuccess || s.all() != "granted GET sk-bank-0123" {
		t.Errorf("%s %s; asked: %s", res.Error, res.Summary, s.all())
	}
	for _, want := range []string{"[secret]", "__OSL_SECRET[bank]__", "in another form", "pin is for commands"} {
		if !strings.Contains(res.Summary, want) {
			t.Errorf("%s lacks %s", res.Summary, want)
		}
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		if on := string(c.Args) + string(c.Envelope); strings.Contains(on, "sk-bank") || strings.Contains(on, "sk-pin") {
			t.Errorf("%s: %s", c.Tool, on)
		}
	}
}

// TestModuleGoesOn checks that a module continues after an interruption. It runs again from the
// beginning with the same time and random numbers, and its calls are not repeated.
func TestModuleGoesOn(t *testing.T) {
	t.Parallel()
	b, s := moduleAgent(t, modeltest.Turn{Text: "The sum."})
	body := strings.ReplaceAll(`
		const begin = Date.now(), lot = Math.random();
		const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up " + lot}]});
		await host.storage.set("at " + Date.now(), r.text);
		await host.network.fetch("SERVER/api/x", {method: "POST", body: "b" + lot + Date.now()});
		await host.storage.set("n", ((await host.storage.get("n")) ?? 0) + 1);
		await host.tools.invoke("system_execute_command", {command: "date", args: []});
		return {message: (await host.storage.list()).length + " keys, n " + await host.storage.get("n")}`, "SERVER", s.granted.URL)

	id, res := b.runModule(body, nil, everything(s.granted.URL))
	if res.Wait == nil || res.Wait.Kind != inbox.KindApproval || !strings.Contains(res.Wait.Action.Description, "date") {
		t.Fatalf("%+v", res)
	}
	before := b.callsOf(id)
	b.end(id, res)
	b.say(inbox.ApprovalOnce)

	if res = b.run(id); res.Outcome != domain.OutcomeSuccess || res.Summary != "2 keys, n 1" {
		t.Errorf("%s %s", res.Summary, res.Error)
	}
	replayed := 0
	for _, c := range b.callsOf(id)[len(before):] {
		if strings.HasSuffix(c, string(domain.CallReplayed)) {
			replayed++
		}
	}
	if asked := s.all(); replayed != len(before) || strings.Count(asked, "POST") != 1 || len(b.server.Requests()) != 1 {
		t.Errorf("%d of %d replayed, asked %s, and the model %d times", replayed, len(before), asked, len(b.server.Requests()))
	}
}

// TestModuleSettings checks OSL-08 and OSL-11: a module gets its settings, and calls the agent's
// tools that its owner names, with the agent's grants.
func TestModuleSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body  string
		tools []string
		got   string
	}{
		"config":        {`host.config.a = 2; return {message: JSON.stringify(host.config)}`, nil, `TypeError`},
		"reads config":  {`return {message: JSON.stringify(host.config)}`, nil, `{"a":1}`},
		"calls":         {`const r = await host.tools.callTool("file_read", {path: "a.txt"}); return {message: r.text}`, []string{"file_*"}, "one line"},
		"of one list":   {`return {message: typeof host.tools}`, nil, "undefined"},
		"not named":     {`try { await host.tools.callTool("notify", {title: "x"}); return {} } catch (e) { return {message: e.code} }`, []string{"file_*"}, "tool_not_found"},
		"not its kind":  {`try { await host.tools.callTool("complete", {summary: "It is done, and that was all there was."}); return {} } catch (e) { return {message: e.code} }`, []string{"*"}, "tool_not_found"},
		"beyond grants": {`try { await host.tools.callTool("file_read", {path: "/etc/hostname"}); return {} } catch (e) { return {message: e.code} }`, []string{"*"}, "invalid_args"},
		"no command":    {`try { await host.tools.callTool("system_execute_command", {command: "echo"}); return {} } catch (e) { return {message: e.code} }`, []string{"*"}, "tool_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := moduleAgent(t)
			b.plan.ModuleSettings = map[string]plan.ModuleSettings{"sums": {Config: json.RawMessage(`{"a":1}`), Tools: c.tools}}
			_, res := b.runModule(c.body, nil, nil)
			if said := res.Summary + res.Error; !strings.Contains(said, c.got) {
				t.Errorf("%s, want %s", said, c.got)
			}
		})
	}
}

// TestModuleDryRun checks that a dry run makes calls that only read, and ends before the first
// other call.
func TestModuleDryRun(t *testing.T) {
	t.Parallel()
	b, s := moduleAgent(t)
	skill := moduleSkill(t, `export async function execute(args: any, host: any) {
		await host.network.fetch(args.url); await host.storage.get("a"); await host.storage.set("a", 1); return {} }`, everything(s.granted.URL))
	b.plan.Modules = map[string]*skills.Skill{"sums": skill}
	given, err := json.Marshal(map[string]string{"url": s.granted.URL + "/api/"})
	if err != nil {
		t.Fatal(err)
	}

	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Skill: "sums", SkillInput: given, DryRun: true}})
	res := b.run(id)
	if made := b.callsOf(id); res.Outcome != domain.OutcomeSuccess || !slices.Equal(made, []string{"host_network_fetch done", "host_storage_get done"}) || !strings.Contains(res.Summary, `it would go on with storage.set {"key":"a","value":1}`) {
		t.Errorf("%v %+v", made, res)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "storage")); err == nil {
		t.Error("a dry run stored something")
	}
}

// TestModuleIsTriedAgain checks that a failed module is run again. Its writes are not repeated, and
// its reads are.
func TestModuleIsTriedAgain(t *testing.T) {
	t.Parallel()
	b, s := moduleAgent(t, modeltest.Turn{Text: "The sum."})
	body := strings.ReplaceAll(`
		const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up."}]});
		await host.network.fetch("SERVER/api/x", {method: "POST", body: r.text});
		await host.storage.set("n", ((await host.storage.get("n")) ?? 0) + 1);
		await host.filesystem.readFile("later.txt");
		return {message: "n " + await host.storage.get("n")}`, "SERVER", s.granted.URL)
	id, res := b.runModule(body, nil, everything(s.granted.URL))
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "later.txt") {
		t.Fatalf("%+v", res)
	}

	b.end(id, res)
	if err := os.WriteFile(filepath.Join(b.dir, "work", "later.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	res = b.run(id)
	if asked := s.all(); res.Summary != "n 1" || strings.Count(asked, "POST") != 1 || len(b.server.Requests()) != 1 {
		t.Errorf("%s %s; asked %s, and the model %d times", res.Summary, res.Error, asked, len(b.server.Requests()))
	}
}

// TestModuleRecovery checks UNI-09: an interrupted call that may have changed something waits for
// the run's owner, and is then made again or skipped.
func TestModuleRecovery(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		posts int
		says  string
	}{
		inbox.RecoveryAgain: {1, "200"},
		inbox.RecoverySkip:  {0, "user_denied the owner of this run decided that the call is not made"},
		inbox.RecoveryDone:  {0, "unavailable the call was made, as its owner says, and what it gave is not known"},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			b, s := moduleAgent(t)
			body := strings.ReplaceAll(`
				try { return {message: String((await host.network.fetch("SERVER/api/x", {method: "POST", body: "b"})).status)} }
				catch (e) { return {message: e.code + " " + e.message} }`, "SERVER", s.granted.URL)
			first, _ := b.runModule(body, nil, everything(s.granted.URL))
			calls, err := b.ledger.Steps.Calls(t.Context(), first)
			if err != nil || len(calls) != 1 {
				t.Fatalf("%v (%v)", calls, err)
			}

			id := b.enqueue(ledger.Request{Job: "sums", Agent: "clerk"})
			b.cutOff(id, ledger.Call{ID: calls[0].ID, Key: calls[0].Key, Tool: calls[0].Tool, Args: calls[0].Args, Effect: calls[0].Effect}, nil, nil)
			if res := b.ends(id); res.Wait == nil || !strings.Contains(b.open().Message, "host_network_fetch") {
				t.Fatalf("%+v", res)
			}
			b.say(answer)
			if res := b.run(id); res.Summary != want.says || strings.Count(s.all(), "POST") != 1+want.posts {
				t.Errorf("%s %s; asked %s, want %s", res.Summary, res.Error, s.all(), want.says)
			}
		})
	}
}

// TestModuleBudget checks that an exceeded budget for a question ends the run, like a run of a
// model, even if the module handles the error.
func TestModuleBudget(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t, modeltest.Turn{Text: "The sum."})
	clerk := b.plan.Agents["clerk"]
	clerk.Bounds.Tokens = 10
	b.plan.Agents["clerk"] = clerk
	_, res := b.runModule(`try { await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up."}]}) } catch {} ; await host.storage.set("a", 1); return {message: "went on"}`, nil, everything("http://127.0.0.1"))
	if res.Outcome != domain.OutcomeBudget || !strings.Contains(res.Error, "tokens") || len(b.server.Requests()) != 0 {
		t.Errorf("%+v, asked %d times", res, len(b.server.Requests()))
	}
}

// TestModuleIsHeld checks that a module that asks a model waits if its agent has no model, like a
// prompt. Other modules do not wait.
func TestModuleIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for usage, want := range map[string]bool{"asks": true, "computes": false} {
		var more declares
		if usage == "asks" {
			more = declares{"llmUsage": everything("http://127.0.0.1")["llmUsage"]}
		}
		b.plan.Jobs[usage] = plan.Job{Name: usage, Agent: "plain", Skill: moduleSkill(t, "export async function execute() { return {} }", more)}
		b.runner.Set(b.plan)
		if held := record.ObstaclesText(b.runner.Blockers.Obstacles(t.Context(), ledger.Run{Job: usage, Agent: "plain"})); strings.HasPrefix(held, "no_model") != want {
			t.Errorf("%s: %q", usage, held)
		}
	}
}

// TestModuleInstalls checks OSL-18: each installation of a module needs an approval, regardless of
// the agent's grants. There is no standing approval.
func TestModuleInstalls(t *testing.T) {
	t.Parallel()
	if !shell.HasProgram("find") {
		t.Skip("there is no find")
	}

	b, _ := moduleAgent(t)
	clerk := b.plan.Agents["clerk"]
	clerk.Commands = []shell.Grant{{Argv: []string{"find", "*"}}}
	b.plan.Agents["clerk"] = clerk
	id, res := b.runModule(`return await host.tools.invoke("system_execute_command", {command: "find", args: [".", "-exec", "pip", "install", "x", ";"]})`, nil, everything("http://127.0.0.1"))
	if res.Wait == nil || slices.Contains(res.Wait.Options, inbox.ApprovalAlways) || !strings.Contains(res.Wait.Message, "installs software") {
		t.Fatalf("%+v", res)
	}

	b.end(id, res)
	b.say(inbox.ApprovalDeny)
	if res = b.run(id); !strings.Contains(res.Error, "does not allow it") || len(b.callsOf(id)) != 1 {
		t.Errorf("%+v %v", res, b.callsOf(id))
	}
}
