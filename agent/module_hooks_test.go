package agent_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/skills"
)

// hooked returns a module with hooks that record their calls in its storage. onInstall has
// additional code.
func hooked(more string) string {
	return `
	async function tell(host: any, what: string) { await host.storage.set("told", [...((await host.storage.get("told")) ?? []), what]) }
	export async function onInstall(host: any) { await tell(host, "install " + typeof host.storage); ` + more + ` }
	export async function onUpgrade(from: string, host: any) { await tell(host, "upgrade from " + from) }
	export async function onEnable(host: any) { await tell(host, "enable") }
	export async function onConfigure(config: any, host: any) { await tell(host, "configure " + JSON.stringify(config)) }
	export async function execute(args: any, host: any) { return {message: ((await host.storage.get("told")) ?? []).join(", ")} }`
}

// hooks returns the manifest of a version with hooks.
func hooks(version string, names ...string) declares {
	return declares{"version": version, "lifecycleHooks": names, "permissions": []any{permission("storage", "own")}, "bridgeRequirement": "optional", "compatibilityRequirements": []string{"system_tools"}}
}

var allHooks = []string{"onInstall", "onUpgrade", "onEnable", "onConfigure"}

// hookedRun runs a version of the skill once, as a job.
func (b *bench) hookedRun(source string, manifest declares) (int64, ledger.Result) {
	b.t.Helper()
	b.plan.Jobs["sums"] = plan.Job{Name: "sums", Agent: "clerk", Skill: moduleSkill(b.t, source, manifest)}
	id := b.enqueue(ledger.Request{Job: "sums", Agent: "clerk"})
	return id, b.run(id)
}

func (b *bench) configured(config string) {
	b.plan.ModuleSettings = map[string]plan.ModuleSettings{"sums": {Config: json.RawMessage(config)}}
}

// TestModuleHooks checks OSL-06 and OSL-11: the hooks in a manifest are called before execute, once
// for an agent, a version and its settings. Their calls are recorded with separate keys.
func TestModuleHooks(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	var ids []int64
	for _, step := range []struct {
		version, config string
		names           []string
		told            string
	}{
		{"1.0.0", `{"a":1}`, allHooks, `install object, enable, configure {"a":1}`},
		{"1.0.0", `{"a":1}`, allHooks, `install object, enable, configure {"a":1}`},
		{"1.0.0", `{"a":2}`, allHooks, `install object, enable, configure {"a":1}, configure {"a":2}`},
		{"1.1.0", `{"a":2}`, allHooks, `install object, enable, configure {"a":1}, configure {"a":2}, upgrade from 1.0.0`},
		{"1.2.0", `{"a":2}`, []string{"onEnable"}, `install object, enable, configure {"a":1}, configure {"a":2}, upgrade from 1.0.0`},
		{"1.3.0", `{"a":2}`, allHooks, `install object, enable, configure {"a":1}, configure {"a":2}, upgrade from 1.0.0, upgrade from 1.2.0`},
	} {
		b.configured(step.config)
		id, res := b.hookedRun(hooked(""), hooks(step.version, step.names...))
		if res.Outcome != domain.OutcomeSuccess || res.Summary != step.told {
			t.Errorf("%s: %s %s\nwant %s", step.version, res.Summary, res.Error, step.told)
		}
		ids = append(ids, id)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, c := range calls {
		keys = append(keys, c.Key[:strings.LastIndex(c.Key, "storage")])
	}
	want := []string{"hook/onInstall/", "hook/onInstall/", "hook/onEnable/", "hook/onEnable/", "hook/onConfigure/", "hook/onConfigure/", ""}
	if !slices.Equal(keys, want) {
		t.Errorf("%q, want %q", keys, want)
	}
}

// TestModuleHookFails checks OSL-06: a failing hook ends the run with the hook's name. The next run
// calls this hook again, but not earlier hooks.
func TestModuleHookFails(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	failing := strings.Replace(hooked(""), `await tell(host, "enable")`, `await tell(host, "enable"); if (((await host.storage.get("told")) ?? []).length < 3) throw new Error("not yet")`, 1)
	id, res := b.hookedRun(failing, hooks("1.0.0", "onInstall", "onEnable"))
	b.end(id, res)
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "the hook onEnable of the skill sums failed, and is called again by the next run: the module ended with an error: Error: not yet") {
		t.Errorf("%s %s", res.Outcome, res.Error)
	}
	if _, res = b.hookedRun(failing, hooks("1.0.0", "onInstall", "onEnable")); res.Summary != "install object, enable, enable" {
		t.Errorf("%s %s", res.Summary, res.Error)
	}

	_, res = b.hookedRun(`export async function execute() { return {} }`, hooks("1.1.0", "onUpgrade"))
	if !strings.Contains(res.Error, "module.ts exports no function onUpgrade") {
		t.Errorf("%s %s", res.Outcome, res.Error)
	}
}

// TestModuleHookWaits checks OSL-06: a hook that waits for its owner continues where it stopped.
// Its owner is asked once, and other runs do not call it meanwhile.
func TestModuleHookWaits(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	source, manifest := hooked(`await host.tools.invoke("system_execute_command", {command: "date", args: []}); await tell(host, "asked")`), hooks("1.0.0", "onInstall")
	id, res := b.hookedRun(source, manifest)
	if res.Wait == nil {
		t.Fatalf("%+v", res)
	}
	b.end(id, res)

	other, res := b.hookedRun(source, manifest)
	if want := fmt.Sprintf("run %d calls hooks of the skill sums for this agent, and is not over", id); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, want) {
		t.Errorf("%+v, want %s", res, want)
	}
	if made := b.callsOf(other); len(made) > 0 {
		t.Errorf("it made %v", made)
	}

	b.say(inbox.ApprovalOnce)
	if res = b.run(id); res.Summary != "install object, asked" {
		t.Errorf("%s %s", res.Summary, res.Error)
	}
	if _, res = b.hookedRun(source, manifest); res.Summary != "install object, asked" {
		t.Errorf("%s %s", res.Summary, res.Error)
	}
}

// TestModuleHookIsTakenOver checks OSL-06: the next run takes over the claim of a run that has
// ended.
func TestModuleHookIsTakenOver(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	source, manifest := hooked(`await host.tools.invoke("system_execute_command", {command: "date", args: []})`), hooks("1.0.0", "onInstall")
	id, res := b.hookedRun(source, manifest)
	if res.Wait == nil {
		t.Fatalf("%+v", res)
	}
	b.end(id, ledger.Result{Outcome: domain.OutcomeCancelled, Exit: domain.ExitCancelled})
	if _, res = b.hookedRun(hooked(""), manifest); res.Summary != "install object, install object" {
		t.Errorf("%s %s", res.Summary, res.Error)
	}
}

// TestModuleHooksDryRun checks that a dry run lists the hooks that a run would call first, and
// calls no hook.
func TestModuleHooksDryRun(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	b.plan.Modules = map[string]*skills.Skill{"sums": moduleSkill(t, hooked(""), hooks("1.0.0", allHooks...))}
	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Skill: "sums", SkillInput: json.RawMessage("{}"), DryRun: true}})
	res := b.run(id)
	if made := b.callsOf(id); res.Outcome != domain.OutcomeSuccess || !slices.Equal(made, []string{"host_storage_get done"}) || !strings.Contains(res.Summary, "the hooks onInstall, onEnable, onConfigure would come first") {
		t.Errorf("%v %+v", made, res)
	}
}

// TestModuleIsRemoved checks OSL-06: before a skill is removed, onDisable and onUninstall are
// called once for an agent that has run it, and no other code runs. The next run installs the skill
// again.
func TestModuleIsRemoved(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t)
	source := hooked("") + `
	export async function onDisable(host: any) { await tell(host, "disable") }
	export async function onUninstall(host: any) { await tell(host, "uninstall"); if ((await host.storage.get("told")).length < 5) throw new Error("not yet") }`
	manifest := hooks("1.0.0", "onInstall", "onDisable", "onUninstall")
	manifest["inputSchema"] = declares{"type": "object", "required": []string{"file"}}
	b.plan.Modules = map[string]*skills.Skill{"sums": moduleSkill(t, source, manifest)}
	remove := func() ledger.Result {
		t.Helper()
		id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Skill: "sums", Uninstall: true}})
		res := b.run(id)
		b.end(id, res)
		return res
	}
	run := func() ledger.Result {
		t.Helper()
		id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Skill: "sums", SkillInput: json.RawMessage(`{"file":"x"}`)}})
		res := b.run(id)
		b.end(id, res)
		return res
	}

	if res := remove(); res.Outcome != domain.OutcomeSuccess || res.Calls != 0 { // it has never run
		t.Errorf("%+v", res)
	}
	if res := run(); res.Summary != "install object" {
		t.Errorf("%s %s", res.Summary, res.Error)
	}
	if res := remove(); !strings.Contains(res.Error, "the hook onUninstall of the skill sums failed") {
		t.Errorf("%+v", res)
	}
	if res := remove(); !strings.Contains(res.Error, "the hook onUninstall of the skill sums failed") { // onDisable was called
		t.Errorf("%+v", res)
	}
	if res := remove(); res.Summary != "the skill sums was told that it is removed" {
		t.Errorf("%+v", res)
	}
	if res := remove(); res.Outcome != domain.OutcomeSuccess || res.Calls != 0 {
		t.Errorf("%+v", res)
	}
	if res := run(); res.Summary != "install object, disable, uninstall, uninstall, uninstall, install object" {
		t.Errorf("%s %s", res.Summary, res.Error)
	}
}
