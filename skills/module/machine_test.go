package module_test

import (
	"testing"

	"rouse/skills/module"
)

// TestExecute checks that execute(args, host) can call the host, receive an answer and return
// (OSL-06).
func TestExecute(t *testing.T) {
	const text = `
		interface Args { name: string }
		export async function execute(args: Args, host: any) {
			const answer = await host.llm.complete({ purposeId: "greet", messages: [{ role: "user", content: args.name }] });
			host.log("warn", "answered", answer);
			host.log.info("done");
			console.log("tokens", answer.tokensUsed?.prompt ?? 0);
			return { text: answer.text as string, at: new Date().toISOString(), id: host.skillId };
		}`
	i := start(t, text, module.Start{Args: raw(t, map[string]string{"name": "Ada"}),
		Surface: module.Surface{Methods: []string{"llm.complete", "log"}, Constants: map[string]rawMessage{"skillId": rawMessage(`"greeter"`)}}})

	e := next(t, i)
	if len(e.Calls) != 1 || e.Calls[0].Method != "llm.complete" || string(e.Calls[0].Args) != `[{"purposeId":"greet","messages":[{"role":"user","content":"Ada"}]}]` {
		t.Fatalf("it called %+v (%+v)", e.Calls, e.End)
	}

	e = next(t, i, module.Answer{ID: e.Calls[0].ID, Value: rawMessage(`{"text":"Hello","tokensUsed":{"prompt":3}}`), Now: begun.Add(3e9)})
	want(t, ended(t, e), `{"text":"Hello","at":"2026-11-23T09:30:03.000Z","id":"greeter"}`)
	if len(e.Logs) != 3 || e.Logs[0].Level != "warn" || e.Logs[1] != (module.Log{Source: "host", Level: "info", Text: "done"}) || e.Logs[2].Text != "tokens 3" {
		t.Errorf("it wrote %+v", e.Logs)
	}
}
