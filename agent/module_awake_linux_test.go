package agent_test

import (
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger/inbox"
	"rouse/internal/nosleep/nosleeptest"
)

// TestModuleAwake checks OSL-37: the machine is kept awake while a run of a skill that requests it
// is active, but not while the run waits, and not for other skills. If this is not possible, the
// skill is not run.
func TestModuleAwake(t *testing.T) {
	b, _ := moduleAgent(t)
	l := nosleeptest.New(t)
	more := declares{"bridgeRequirement": "optional", "compatibilityRequirements": []string{"system_tools", "awake"}}
	const body = `await host.tools.invoke("system_execute_command", {command: "date", args: []}); return {message: "awake"}`

	id, res := b.runModule(body, nil, more)
	if asked := l.Asked(); res.Wait == nil || len(asked) != 1 || asked[0] != "sleep:idle, rouse, run 1 of the skill sums is on, block" {
		t.Fatalf("%+v, asked for %q", res, asked)
	}
	if l.Holds(t, 10*time.Second) {
		t.Error("it is kept awake while the run waits")
	}

	b.end(id, res)
	b.say(inbox.ApprovalOnce)
	if res = b.run(id); res.Summary != "awake" || len(l.Asked()) != 2 {
		t.Errorf("%+v, asked for %q", res, l.Asked())
	}
	if l.Holds(t, 10*time.Second) {
		t.Error("it is kept awake after the run")
	}

	if _, res = b.runModule(`return {message: "asleep"}`, nil, nil); res.Summary != "asleep" || len(l.Asked()) != 2 {
		t.Errorf("%+v, asked for %q", res, l.Asked())
	}
	l.Refuse()
	if _, res = b.runModule(body, nil, more); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "the skill sums needs this machine to be kept awake while it runs: logind does not") {
		t.Errorf("%+v", res)
	}
}
