package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/web"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
)

// runsDate is a module that runs a program without a grant.
const runsDate = `export async function execute(args: any, host: any) {
	try { return {got: (await host.tools.invoke("system_execute_command", {command: "date", args: []})).exitCode} } catch (e) { return {got: e.code} }
}`

// TestModuleAsksInFrontOfTheEnd checks that a call that ends the run waits for the owner's answer
// to a question of a module before it. In a phased run the module waits as well.
func TestModuleAsksInFrontOfTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		turns  []modeltest.Turn
		phased bool
	}{
		"in a batch": {[]modeltest.Turn{{Calls: []model.Call{
			{ID: "1", Name: "sums__execute", Args: json.RawMessage(`{}`)}, {ID: "2", Name: "complete", Args: json.RawMessage(`{"summary": "All that was asked for is done."}`)},
		}}}, false},
		"in phases": {[]modeltest.Turn{
			{Calls: []model.Call{step("1", planStep)}},
			{Calls: []model.Call{step("2", `{"phase":"act","thinking":"t","summary":"s","action":{"tool_name":"sums__execute","tool_input":{}}}`)}},
			{Calls: []model.Call{step("3", `{"phase":"end","thinking":"t","summary":"s","end_status":"solved","end_message":"All that was asked for is done."}`)}},
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := moduleAgent(t, c.turns...)
			if c.phased {
				b.phased()
			}
			b.offering(runsDate, withoutBindings(everything("http://127.0.0.1")))
			id, res := b.asks()
			if made := b.callsOf(id); res.Wait == nil || res.Wait.Kind != inbox.KindApproval || slices.Contains(made, "complete done") || !slices.Contains(made, "sums__execute interrupted") {
				t.Fatalf("%+v %v", res, made)
			}

			b.end(id, res)
			b.say(inbox.ApprovalOnce)
			if res = b.run(id); res.Summary != "All that was asked for is done." || res.Outcome != domain.OutcomeSuccess {
				t.Errorf("%+v", res)
			}
			if _, envelopes := b.made(id); !slices.ContainsFunc(envelopes, func(e tool.Envelope) bool { return string(e.Result) == `{"got":0}` }) {
				t.Errorf("%+v", envelopes)
			}
		})
	}
}

// TestModuleWithinAModelRecovers checks UNI-09: a run waits for its owner after an interrupted call
// of a module that may have changed something, regardless of the caller of the module.
func TestModuleWithinAModelRecovers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		posts int32
		says  string
	}{
		inbox.RecoveryAgain: {2, `{\"got\":200}`},
		inbox.RecoverySkip:  {1, `{\"got\":\"user_denied\"}`},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			b, s := moduleAgent(t, callOf("sums__execute", `{}`), modeltest.Turn{Text: "It is done."})
			ctx, kill := context.WithCancelCause(t.Context())
			var posts atomic.Int32
			stops := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client is gone
				if posts.Add(1) == 1 {
					kill(errors.New("killed"))
					<-r.Context().Done()
				}
			}))
			t.Cleanup(stops.Close)
			clerk := b.plan.Agents["clerk"]
			clerk.Network = append(clerk.Network, web.Grant{Host: strings.TrimPrefix(stops.URL, "http://"), Methods: []string{"POST"}})
			b.plan.Agents["clerk"] = clerk
			more := withoutBindings(everything(s.granted.URL))
			more["sandbox"].(declares)["networkRules"] = []any{declares{"urlPattern": "*", "methods": []string{"POST"}, "description": "any"}}
			b.offering(strings.ReplaceAll(`export async function execute(args: any, host: any) {
				try { return {got: (await host.network.fetch("STOPS/", {method: "POST", body: "b"})).status} } catch (e) { return {got: e.code} }
			}`, "STOPS", stops.URL), more)

			id := b.enqueue(ledger.Request{Job: "ask", Agent: "clerk"})
			b.attempt(ctx, id)
			if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
				t.Fatal(err)
			}
			if res := b.ends(id); res.Wait == nil || res.Wait.Kind != inbox.KindRecovery || !strings.Contains(res.Wait.Message, "host_network_fetch") {
				t.Fatalf("%+v", res)
			}
			b.say(answer)

			res := b.run(id)
			if sent := string(b.server.Requests()[1]); res.Summary != "It is done." || posts.Load() != want.posts || !strings.Contains(sent, strings.ReplaceAll(want.says, `\"`, `\\\"`)) && !strings.Contains(sent, want.says) {
				t.Errorf("%+v; %d posts, told %s", res, posts.Load(), sent)
			}
		})
	}
}

// TestModuleWithinAModelIsBounded checks that the calls, the tokens and the questions of a module
// count for the run that called it.
func TestModuleWithinAModelIsBounded(t *testing.T) {
	t.Parallel()
	const asks = `export async function execute(args: any, host: any) {
		let n = 0, told = "";
		for (let i = 0; i < 9; i++) { try { await host.llm.complete({purposeId: "sum-up", messages: [{role: "user", content: "Sum up " + i}]}); n++ } catch (e) { told = e.message; break } }
		return {n, told};
	}`
	const stores = `export async function execute(args: any, host: any) {
		for (let i = 0; i < 9; i++) await host.storage.set("n", i);
		return {};
	}`
	for name, c := range map[string]struct {
		source string
		bounds loop.Bounds
		asked  int
		out    domain.Outcome
		says   string // part of the run's error or of the message to the model
	}{
		"steps":  {asks, loop.Bounds{Steps: 4}, 9, domain.OutcomeBudget, `{"n":7,"told":"the model gave no text: the steps of this run are used up`},
		"tokens": {asks, loop.Bounds{Tokens: 20000}, 5, domain.OutcomeBudget, "tokens"},
		"calls":  {stores, loop.Bounds{Calls: 5}, 2, domain.OutcomePartial, "the calls that were left to this run were used up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turns := []modeltest.Turn{callOf("sums__execute", `{}`)}
			for range 10 {
				turns = append(turns, modeltest.Turn{Text: "The sum.", Usage: model.Usage{Input: 5000, Output: 10}})
			}
			b, _ := moduleAgent(t, turns...)
			clerk := b.plan.Agents["clerk"]
			clerk.Bounds = c.bounds
			b.plan.Agents["clerk"] = clerk
			b.offering(c.source, withoutBindings(everything("http://127.0.0.1")))

			id, res := b.asks()
			_, envelopes := b.made(id)
			said := res.Error + envelopes[0].Message + string(envelopes[0].Result)
			if n := len(b.server.Requests()); n != c.asked || res.Outcome != c.out || !strings.Contains(said, c.says) {
				t.Errorf("asked %d times, want %d: %+v %+v", n, c.asked, res, envelopes[0])
			}
		})
	}
}

// TestModuleCallsNoModule checks that a module cannot call tools of skills, because such calls
// could be endless.
func TestModuleCallsNoModule(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t, callOf("sums__execute", `{}`), modeltest.Turn{Text: "It is done."})
	b.plan.ModuleSettings = map[string]plan.ModuleSettings{"sums": {Tools: []string{"*"}}}
	b.offering(`export async function execute(args: any, host: any) {
		const read = await host.tools.callTool("file_read", {path: "a.txt"});
		try { await host.tools.callTool("sums__execute", {}); return {} } catch (e) { return {got: e.code, read: read.text} }
	}`, nil)
	id, _ := b.asks()
	if _, envelopes := b.made(id); !strings.Contains(string(envelopes[0].Result), `"got":"tool_not_found"`) || !strings.Contains(string(envelopes[0].Result), "one line") {
		t.Errorf("%+v", envelopes)
	}
}

// TestRegisteredToolsAreLabelled checks that the labels of a module that registered a tool are
// added to each run with that tool in its prompt.
func TestRegisteredToolsAreLabelled(t *testing.T) {
	t.Parallel()
	b, s := moduleAgent(t, callOf("sums__execute", `{}`), modeltest.Turn{Text: "Registered."}, modeltest.Turn{Text: "It is done."})
	more := withTools(s.granted.URL, handler("tell", "execute", declares{}))
	b.offering(strings.ReplaceAll(`export async function execute(args: any, host: any) {
		const words = await (await host.network.fetch("SERVER/api/x")).text();
		return await host.tools.registerTool({name: "said", description: words, handlerExport: "execute"});
	}`, "SERVER", s.granted.URL), more)

	first, _ := b.asks()
	second, _ := b.asks()
	for _, id := range []int64{first, second} {
		run, err := b.ledger.Runs.Get(t.Context(), id)
		if err != nil || !strings.Contains(run.Taint, label.TaintUntrusted) {
			t.Errorf("run %d has the labels %q (%v)", id, run.Taint, err)
		}
	}
	if sent := string(b.server.Requests()[2]); !strings.Contains(sent, "words of a stranger") {
		t.Errorf("the tool is not told of: %s", sent)
	}
}

// TestModuleWithinAModelIsDenied checks that a denied call of a module ends the run with on_denied:
// fail.
func TestModuleWithinAModelIsDenied(t *testing.T) {
	t.Parallel()
	b, _ := moduleAgent(t, callOf("sums__execute", `{}`), modeltest.Turn{Text: "It is done."})
	clerk := b.plan.Agents["clerk"]
	clerk.OnDenied = tool.OnDeniedFail
	b.plan.Agents["clerk"] = clerk
	b.offering(runsDate, withoutBindings(everything("http://127.0.0.1")))
	if _, res := b.asks(); res.Exit != domain.ExitToolRejected || res.Outcome != domain.OutcomeError || len(b.server.Requests()) != 1 {
		t.Errorf("%+v, asked %d times", res, len(b.server.Requests()))
	}
}
