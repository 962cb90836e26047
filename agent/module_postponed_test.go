package agent_test

import (
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/internal/domain"
)

// TestModuleIsPostponed checks that a run of a module waits for an unavailable model and then
// starts over, as long as it has not begun, like a run with a prompt. A run that has changed
// something, or that a user waits for, ends.
func TestModuleIsPostponed(t *testing.T) {
	t.Parallel()
	const ask = `const r = await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up."}]}); return {message: r.text}`
	for name, c := range map[string]struct {
		body    string
		turns   []modeltest.Turn
		trigger domain.Trigger
		waits   bool
	}{
		"has only read":  {`await host.filesystem.readFile("a.txt"); await host.storage.get("a"); ` + ask, []modeltest.Turn{spent}, domain.TriggerSchedule, true},
		"has written":    {`await host.storage.set("a", 1); ` + ask, []modeltest.Turn{spent}, domain.TriggerSchedule, false},
		"has an answer":  {`await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "First."}]}); ` + ask, []modeltest.Turn{{Text: "One.", Usage: model.Usage{Input: 1, Output: 1}}, spent}, domain.TriggerSchedule, false},
		"of a person":    {ask, []modeltest.Turn{spent}, domain.TriggerManual, false},
		"does not mind":  {`try { ` + ask + ` } catch { return {message: "without"} }`, []modeltest.Turn{spent}, domain.TriggerSchedule, false},
		"fails, as well": {`try { ` + ask + ` } catch {} throw new Error("mine")`, []modeltest.Turn{{Text: "One.", Usage: model.Usage{Input: 1, Output: 1}}}, domain.TriggerSchedule, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := moduleAgent(t, append(c.turns, modeltest.Turn{Text: "The sum.", Usage: model.Usage{Input: 1, Output: 1}})...)
			b.plan.Jobs["books"] = plan.Job{Name: "books", Agent: "clerk", Skill: moduleSkill(t, "export async function execute(args: any, host: any) {"+c.body+"}", withoutBindings(everything(s.granted.URL)))}
			id := b.triggered(c.trigger)
			res, run := b.conclude(id)
			if (res.Postpone != nil) != c.waits || run.Postponed() != c.waits {
				t.Fatalf("%+v", res)
			}
			if !c.waits {
				return
			}

			if _, err := b.ledger.Retry(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if res, _ := b.conclude(id); res.Outcome != domain.OutcomeSuccess || !strings.Contains(res.Summary, "The sum.") {
				t.Errorf("%+v", res)
			}
		})
	}
}
