package agent_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/contract"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/skills"
)

// TestCommandAnswers checks OSL-17: answers to requests for programs have the specified form, and
// name the decision.
func TestCommandAnswers(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "OSL-17")
	var request []string
	for _, field := range row.Between("A request is", ".") {
		value := map[string]string{"command": "command", "args": "[]", "timeoutMs": "300000", "workingDirectory": "null", "context": `{source: "skill", skillId: host.skillId, taskId: host.executionId, runId: host.runId}`}[field]
		if value == "" {
			value = fmt.Sprintf("%q", "my "+field)
		}
		request = append(request, field+": "+value)
	}
	body := func(commands ...string) string {
		list := `["` + strings.Join(commands, `", "`) + `"]`
		return fmt.Sprintf(`const ask = (command) => host.bridge.executeCommand({%s});
			const out = []; for (const c of %s) out.push(await ask(c));
			return {message: JSON.stringify(out).replaceAll(host.runId + '"', 'RUN"')}`, strings.Join(request, ", "), list)
	}
	answersOf := func(res ledger.Result) (out []map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(res.Summary), &out); err != nil || res.Outcome != domain.OutcomeSuccess {
			t.Fatalf("%+v (%v)", res, err)
		}
		return out
	}
	check := func(what string, answer map[string]any, fields []string, want string) {
		t.Helper()
		for _, f := range append([]string{"requestId"}, fields...) {
			if answer[f] == nil {
				t.Errorf("%s: no %s in %v", what, f, answer)
			}
		}
		if got := fmt.Sprintf("%v %v %v", answer["accepted"], answer["code"], answer["decision"]); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	accepted, refused, sources := row.Between("Accepted:", ";"), row.Between("Refused:", "."), row.Between("source is", ".")
	codes := row.Between("The code is", ".")

	b, s := moduleAgent(t)
	id, res := b.runModule(body("echo", "date", "uname", "no-such-program-here"), nil, everything(s.granted.URL))
	for _, said := range []string{inbox.ApprovalOnce, inbox.ApprovalDeny} {
		b.end(id, res)
		b.say(said)
		res = b.run(id)
	}
	for res.Wait != nil { // a missing program may need an approval too
		b.end(id, res)
		b.say(inbox.ApprovalOnce)
		res = b.run(id)
	}
	answers := answersOf(res)
	check("granted", answers[0], accepted, "true <nil> map[message:the rules of the agent allow it source:"+sources[1])
	check("approved", answers[1], accepted, "true <nil> map[message:the owner of the agent approved it source:"+sources[0])
	check("denied", answers[2], refused, "false "+codes[0])
	check("not there", answers[3], refused, "false "+codes[2])
	if answers[0]["runId"] != "RUN" || answers[2]["reason"].(map[string]any)["code"] != codes[0] {
		t.Errorf("%v", answers)
	}

	b, s = moduleAgent(t)
	clerk := b.plan.Agents["clerk"]
	clerk.OnDenied = tool.OnDeniedContinue
	b.plan.Agents["clerk"] = clerk
	_, res = b.runModule(body("date", ""), nil, everything(s.granted.URL))
	answers = answersOf(res)
	check("refused", answers[0], refused, "false "+codes[1])
	check("no command", answers[1], refused, "false "+codes[2])
}

// TestFeatures checks OSL-37: the features that a manifest requires and the host has are available:
// the machine is described, and crypto.subtle works.
func TestFeatures(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	body := `const m = await host.bridge.systemInfo();
		const key = await crypto.subtle.importKey("raw", new TextEncoder().encode("key"), {name: "HMAC", hash: "SHA-256"}, false, ["sign"]);
		const mac = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode("The quick brown fox jumps over the lazy dog"));
		return {message: [m.platform, m.arch, typeof m.shell, Array.isArray(m.packageManagers), host.bridge.isAvailable(), typeof host.bridge.executeCommand, new Uint8Array(mac)[0].toString(16)].join()}`
	id, res := b.runModule(body, nil, declares{"compatibilityRequirements": []string{"system_info", "web-crypto"}})
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	if want := skills.PlatformOf(runtime.GOOS) + "," + arch + ",string,true,false,undefined,f7"; res.Summary != want {
		t.Errorf("%q %s, want %q", res.Summary, res.Error, want)
	}
	if made := strings.Join(b.callsOf(id), ", "); made != "host_bridge_system_info done" {
		t.Errorf("made %s", made)
	}
	if _, res := b.runModule(`return {message: typeof host.bridge}`, nil, nil); res.Summary != "undefined" {
		t.Errorf("not required: %+v", res)
	}

	// A run that needs a workspace for long-running work has one.
	long := flows(declares{"longRunningSupport": "required"})
	if _, res := b.flow(`return {message: "done"}`, "", long); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "works in a workspace") {
		t.Errorf("without a workspace: %+v", res)
	}
	if _, res := b.flow(`await host.run.checkpoint(); return {message: "done"}`, "trip", long); res.Summary != "done" {
		t.Errorf("in a workspace: %+v", res)
	}
}
