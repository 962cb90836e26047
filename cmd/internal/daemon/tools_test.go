package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/tool"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/logging"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// letters records the calls of an additional tool.
type letters struct {
	mu   sync.Mutex
	sent []string
	wait bool                                   // until the call is cancelled
	look func(context.Context, tool.Invocation) // called while a letter is sent
	says any                                    // the result; nil means the recipient
}

type letterArgs struct {
	To   string `json:"to,omitempty"`
	Text string `json:"text,omitempty"`
	How  string `json:"how,omitempty"`
	Path string `json:"path,omitempty"`

	Question string `json:"question,omitempty"`
}

func (l *letters) send(ctx context.Context, in tool.Invocation, a letterArgs) (tool.Envelope, error) {
	if l.look != nil {
		l.look(ctx, in)
	}
	if l.wait {
		<-ctx.Done()
		return tool.Envelope{}, ctx.Err()
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.sent = append(l.sent, a.To+a.Path)
	if l.says != nil {
		return tool.Success(l.says), nil
	}
	return tool.Success(map[string]string{"to": a.To}), nil
}

func (l *letters) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.sent, " ")
}

// office is a home with an additional tool, which is added like every other tool.
type office struct {
	*Daemon
	*letters
	t      *testing.T
	tool   tool.Tool
	server *modeltest.Server
}

// letter returns the minimal specification of a tool that sends letters.
func letter(more func(*tool.Spec)) tool.Spec {
	s := tool.Spec{Name: "send", Description: "Sends a letter by post.", Effect: domain.EffectExternal, Class: tool.ClassOther}
	if more != nil {
		more(&s)
	}
	return s
}

// openOffice opens a home with the tool of a spec. The agent and the job get more keys in YAML.
func openOffice(t *testing.T, s tool.Spec, agentKeys, jobKeys string, turns ...modeltest.Turn) *office {
	t.Helper()
	o := &office{t: t, letters: &letters{}, server: modeltest.New(t, turns...)}
	var err error
	if o.tool, err = tool.Define(s, o.send); err != nil {
		t.Fatal(err)
	}

	cfg, err := o.load(agentKeys, jobKeys, "prompt: Write to Bob.")
	if err != nil {
		t.Fatal(err)
	}
	if o.Daemon, err = Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(o.Close)
	o.runner = o.newRunner(o.ledger, o.databases, o.home.Dir)
	o.Explainer.Runner, o.Checker.Runner, o.Catalog.Runner = o.runner, o.runner, o.runner // Catalog shares its parts with the rest of Service
	o.runner.Set(o.Current().Plan.Runner)
	return o
}

func (o *office) newRunner(l *ledger.Ledger, pool *pool.Pool, dir string) *agent.Runner {
	o.t.Helper()
	r, err := agent.New(agent.Options{Ledger: l, Databases: pool, Manifests: filepath.Join(dir, "manifests"), Recordings: filepath.Join(dir, "recordings"), Tools: []tool.Tool{o.tool}})
	if err != nil {
		o.t.Fatal(err)
	}
	return r
}

// load checks a configuration as rouse config check does.
func (o *office) load(agentKeys, jobKeys, does string) (*config.Config, error) {
	dir := cmdtest.Write(o.t, map[string]string{"sums/SKILL.md": "---\nname: sums\ndescription: Adds.\nmetadata: {workspace: optional}\n---\nAdd.\n", "posts/manifest.json": postsManifest, "posts/module.ts": postsSource, "rouse.yaml": `version: 1
home: ./home
models: [{name: m, provider: ollama, model: scripted, context_window: 32000, base_url: "` + o.server.URL + `"}, {name: narrow, provider: ollama, model: scripted, context_window: 5000, base_url: "` + o.server.URL + `"}, {name: tiny, provider: ollama, model: scripted, context_window: 3000, base_url: "` + o.server.URL + `"}]
agents: [{name: clerk, workdir: ./work` + agentKeys + `}]
jobs: [{name: j, agent: clerk, ` + does + jobKeys + `}]
`})
	return load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml")}, agent.Specs(o.tool))
}

// A skill with a module and tools, for agents that name it.
const (
	postsSource   = "export async function execute(args: {to: string}) { return {sent: args.to} }\n"
	postsManifest = `{
  "name": "posts", "description": "Posts a letter.", "version": "1.0.0", "author": "nobody", "schemaVersion": "2.0", "capabilities": [], "compatibilityRequirements": [], "permissions": [], "requiredBindings": [],
  "inputSchema": {"type": "object", "properties": {"to": {"type": "string", "description": "the addressee"}}, "required": ["to"]}, "outputSchema": {"type": "object"},
  "supportedPlatforms": [], "bridgeRequirement": "never", "workspaceSupport": "none", "workspaceSchemaVersion": null, "longRunningSupport": "none", "userInputSupport": false, "artifactVersioningSupport": false,
  "executionMode": "declarative", "agenticConfig": {"enabled": false, "requiresWorkspace": false, "supportsBackgroundExecution": false, "supportsRoleBasedExecution": false, "maxStepsPerRun": null, "defaultStepBudget": null}
}`
)

// problems returns the output of rouse config check, including warnings.
func (o *office) problems(agentKeys, jobKeys, does string) string {
	o.t.Helper()
	cfg, err := o.load(agentKeys, jobKeys, does)
	var out strings.Builder
	if err != nil {
		out.WriteString(err.Error() + "\n")
	}

	for _, w := range cfg.Warnings {
		out.WriteString(w.String() + "\n")
	}
	return out.String()
}

// run starts a run of the job and makes its first attempt.
func (o *office) run() (ledger.Run, ledger.Result) {
	o.t.Helper()
	id, err := o.Fire(o.t.Context(), api.RunRequest{Job: "j"})
	if err != nil {
		o.t.Fatal(err)
	}
	return o.attempt(id)
}

func (o *office) attempt(id int64) (ledger.Run, ledger.Result) {
	o.t.Helper()
	run, a, err := o.ledger.StartAttempt(o.t.Context(), id)
	var res ledger.Result
	if err == nil {
		res, err = o.runner.Execute(o.t.Context(), run, a)
	}

	if err == nil {
		err = o.ledger.Finish(o.t.Context(), a, res)
	}
	if err != nil {
		o.t.Fatal(err)
	}

	return run, res
}

// expectSent runs the job and checks which letters have been sent.
func (o *office) expectSent(sent string) (ledger.Run, ledger.Result) {
	o.t.Helper()
	run, res := o.run()
	if got := o.all(); got != sent {
		o.t.Errorf("sent %q, want %q: %+v", got, sent, res)
	}
	return run, res
}

// firstRequest returns the first request of the model.
func (o *office) firstRequest() string {
	o.t.Helper()
	all := o.server.Requests()
	if len(all) == 0 {
		o.t.Fatal("the model was not asked")
	}
	return string(all[0])
}

// leftByUndo returns the effects that an undo of a run cannot remove.
func (o *office) leftByUndo(run ledger.Run) string {
	o.t.Helper()
	out, err := o.Undo(o.t.Context(), run, api.UndoRequest{}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return strings.Join(out.Left, "\n")
}

// call returns the record of the only call of a run.
func (o *office) call(run ledger.Run) ledger.Call {
	o.t.Helper()
	calls, err := o.ledger.Steps.Calls(o.t.Context(), run.ID)
	if err != nil || len(calls) == 0 {
		o.t.Fatalf("%v (%v)", calls, err)
	}
	return calls[0]
}

func says(name, args string) modeltest.Turn {
	return modeltest.Turn{Calls: []model.Call{{Name: name, Args: json.RawMessage(args)}}}
}

var (
	toBob    = says("send", `{"to":"bob","text":"Dear <Bob>"}`)
	wellDone = modeltest.Turn{Text: "It is done."}
	unasked  = func(s *tool.Spec) { s.Access = tool.NoNeeds }
)

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: %q lacks %q", what, got, want)
	}
}

func without(t *testing.T, what, got, unwanted string) {
	t.Helper()
	if strings.Contains(got, unwanted) {
		t.Errorf("%s: %q has %q", what, got, unwanted)
	}
}

// everywhere maps each property of a tool to a check of the places that use it. Each check uses a
// tool that is otherwise unknown.
var everywhere = map[string]func(t *testing.T){
	"Name": func(t *testing.T) {
		o := openOffice(t, letter(unasked), "", "", toBob, wellDone)
		o.expectSent("bob")
		expect(t, "described", o.firstRequest(), `"name":"send"`)
		if got := o.problems(", private: {workdir: false, database: false}, tools: {allow: [send]}", "", "playbook: [{call: send}]"); got != "" {
			t.Errorf("config check: %s", got)
		}

		expect(t, "config check", o.problems("", "", "playbook: [{call: sendd}]"), `there is no tool "sendd"; did you mean "send"?`)
		if _, err := o.Fire(t.Context(), api.RunRequest{Agent: "clerk", Tool: "send", Args: json.RawMessage(`{}`)}); err != nil {
			t.Errorf("rouse call: %v", err)
		}

		var unknown *api.Error
		if _, err := o.Fire(t.Context(), api.RunRequest{Agent: "clerk", Tool: "agent_step"}); !errors.As(err, &unknown) || unknown.Status != 404 {
			t.Errorf("rouse call of what is not called by itself: %v", err)
		}

		taken, err := tool.Define(letter(func(s *tool.Spec) { s.Name = "notify" }), o.send)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent.New(agent.Options{Ledger: o.ledger, Databases: o.databases, Manifests: o.home.Dir, Tools: []tool.Tool{taken}}); err == nil {
			t.Error("two tools of one name")
		}
	},
	"Description": func(t *testing.T) {
		o := openOffice(t, letter(nil), ", tools: {on_demand: [send]}", "", says("capabilities_discover", `{"query":"post a letter"}`), wellDone)
		o.run()
		without(t, "described at once", o.firstRequest(), "Sends a letter by post.")
		all := o.server.Requests()
		expect(t, "found", string(all[len(all)-1]), "Sends a letter by post.")
		o = openOffice(t, letter(nil), "", "", wellDone)
		o.run()
		expect(t, "described", o.firstRequest(), "Sends a letter by post.")
	},
	"Effect": func(t *testing.T) {
		o := openOffice(t, letter(unasked), "", "", toBob, wellDone)
		run, _ := o.expectSent("bob")
		if c := o.call(run); c.Effect != domain.EffectExternal {
			t.Errorf("recorded as %s", c.Effect)
		}

		o = openOffice(t, letter(func(s *tool.Spec) { s.Effect, s.Scope = domain.EffectRead, tool.ScopeAgent }), "", "", toBob, wellDone)
		run, _ = o.expectSent("bob")
		without(t, "undo", o.leftByUndo(run), "send")
	},
	"Class": func(t *testing.T) {
		for class, sent := range map[tool.Class]string{tool.ClassOther: "bob bob", tool.ClassRead: "bob"} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Class, s.Effect, s.Scope = class, domain.EffectRead, tool.ScopeAgent }), "", "", toBob, toBob, wellDone)
			o.expectSent(sent)
		}
	},
	"Scope": func(t *testing.T) {
		for scope, outside := range map[tool.Scope]bool{tool.ScopeOutside: true, tool.ScopeAgent: false, tool.ScopeRun: false} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Scope, s.Access = scope, tool.NoNeeds }), "", ", record: true", toBob, wellDone)
			got := o.problems(", grants: {read: ['.']}", ", watch: {path: ., mode: converge}", "prompt: Write.")
			if warned := strings.Contains(got, "                 send, ") && strings.Contains(got, "effect beyond the host  send, "); warned != outside {
				t.Errorf("scope %q: config check says %q", scope, got)
			}

			run, _ := o.expectSent("bob")
			if sent := o.replay(run.ID); (sent == "bob bob") != (scope == tool.ScopeRun) {
				t.Errorf("scope %q: with the replay %q was sent", scope, sent)
			}

			plan := o.Current().Plan.Runner
			job := plan.Jobs["j"]
			job.Foreign = "everybody can write it"
			plan.Jobs["j"] = job
			o.runner.Set(plan)
			_, res := o.run()
			if held := res.Wait != nil && strings.Contains(res.Wait.Message, "It may use send, and others than you can change its definition"); held != outside {
				t.Errorf("scope %q: a definition of others: %+v", scope, res)
			}
		}
	},
	"Writes": func(t *testing.T) {
		for writes, want := range map[tool.Writes]string{
			tool.WritesElsewhere: `what send did stays: {"to":"bob","text":"Dear <Bob>"}`, tool.WritesNotice: `the notice stays: {"to":"bob"`, tool.WritesWake: "rouse wake clerk",
			tool.WritesPlanned: "what send did stays",
			// An unrecorded change of a file counts as no change.
			tool.WritesFiles: "", tool.WritesNothing: "", tool.WritesRows: "", tool.WritesUndo: "", tool.WritesArtifact: "",
		} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Writes, s.Access = writes, tool.NoNeeds }), "", "", toBob, wellDone)
			run, _ := o.expectSent("bob")
			if got := o.leftByUndo(run); want == "" && got != "" {
				t.Errorf("writes %q: undo names %q", writes, got)
			} else {
				expect(t, "undo of what writes "+string(writes), got, want)
			}
		}

		o := openOffice(t, letter(func(s *tool.Spec) { s.Requires, s.Writes = tool.RequiresSelfScheduling, tool.WritesWake }), "", "")
		keys := ", self_scheduling: {mode: ambient}, tools: {deny: [schedule_next_run%s]}"
		without(t, "config check", o.problems(fmt.Sprintf(keys, ""), "", "prompt: Write."), "only its owner plans")
		expect(t, "config check", o.problems(fmt.Sprintf(keys, ", send"), "", "prompt: Write."), "may not use schedule_next_run or send")
	},
	"Requires": func(t *testing.T) {
		for given, lacks := range map[tool.Requirement]struct{ keys, problem string }{
			tool.RequiresDatabase:       {", database: {enabled: false}", "has no database"},
			tool.RequiresSelfScheduling: {"", "does not plan its own runs"},
			tool.RequiresCommands:       {"", ""}, tool.RequiresNetwork: {"", ""}, tool.RequiresRepository: {"", ""},
		} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Requires, s.Access = given, tool.NoNeeds }), lacks.keys, "", toBob, wellDone)
			run, _ := o.expectSent("")
			if c := o.call(run); !strings.Contains(string(c.Envelope), "tool_not_found") {
				t.Errorf("given with %s: %s", given, c.Envelope)
			}
			expect(t, "config check", o.problems(lacks.keys, "", "playbook: [{call: send}]"), lacks.problem)
		}

		for given, keys := range map[tool.Requirement]string{
			tool.RequiresDatabase: "", tool.RequiresModel: "", tool.RequiresSelfScheduling: ", self_scheduling: {mode: ambient}", tool.RequiresCommands: ", grants: {commands: [{argv: [true]}]}",
			tool.RequiresNetwork: ", grants: {network: [{host: example.com}]}", tool.RequiresRepository: ", tools: {allow: [send]}",
		} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Requires, s.Access = given, tool.NoNeeds }), keys, "", toBob, wellDone)
			o.expectSent("bob")
		}

		ofModule := openOffice(t, letter(func(s *tool.Spec) { s.Requires, s.Access = tool.RequiresModule, tool.NoNeeds }), "", "", toBob, wellDone)
		run, _ := ofModule.expectSent("")
		if c := ofModule.call(run); !strings.Contains(string(c.Envelope), "tool_not_found") {
			t.Errorf("given to a model: %s", c.Envelope)
		}
		expect(t, "config check", ofModule.problems("", "", "playbook: [{call: send}]"), "send is for the module of a skill")
		expect(t, "config check", ofModule.problems(", tools: {deny: [send]}", "", "prompt: Write."), "neither allowed nor denied by itself")

		o := openOffice(t, letter(func(s *tool.Spec) { s.Requires = tool.RequiresCommands }), "", "")
		keys := ", grants: {commands: [{argv: [true]}]}, tools: {deny: [shell_run, bash%s]}"
		without(t, "config check", o.problems(fmt.Sprintf(keys, ""), "", "prompt: Write."), "it can run none of them")
		expect(t, "config check", o.problems(fmt.Sprintf(keys, ", send"), "", "prompt: Write."), "the agent's tools have no send or shell_run")
	},
	"Reports": func(t *testing.T) {
		for reports, keys := range map[tool.Report]map[string]string{
			tool.ReportsNothing:   {"must_succeed: false": "whatever send cannot do is a failed call already", "expect: {exit: 0}": "send has no exit code", "expect: {status: 200}": "send has no status"},
			tool.ReportsExit:      {"must_succeed: false": "", "expect: {exit: 0}": "", "expect: {status: 200}": "send has no status"},
			tool.ReportsStatus:    {"must_succeed: false": "", "expect: {exit: 0}": "send has no exit code", "expect: {status: 200}": ""},
			tool.ReportsCommitted: {"must_succeed: true": "", "expect: {exit: 0}": "send has no exit code"},
		} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Reports = reports }), "", "")
			for key, problem := range keys {
				said := o.problems("", "", "playbook: [{call: send, with: {to: bob}, "+key+"}]")
				expect(t, "config check of "+key, said, problem)
				if problem == "" {
					without(t, "config check of "+key, said, "playbook[0]")
				}
			}
		}
	},
	"AliasOf": func(t *testing.T) {
		for keys, sent := range map[string]string{"": "", `, tools: {allow: ["*"]}`: "", `, tools: {allow: ["se*"]}`: "bob"} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.AliasOf, s.Access = "notify", tool.NoNeeds }), keys, "", toBob, wellDone)
			o.expectSent(sent)
		}
	},
	"SummaryArg": func(t *testing.T) {
		o := openOffice(t, letter(func(s *tool.Spec) { s.SummaryArg = "text" }), "", "", toBob, wellDone)
		_, res := o.expectSent("")
		if res.Wait == nil || res.Wait.Action.Description != "send Dear <Bob>" {
			t.Errorf("approval: %+v", res.Wait)
		}

		o = openOffice(t, letter(func(s *tool.Spec) { s.SummaryArg, s.Access = "text", tool.NoNeeds }), "", "", toBob, wellDone)
		run, _ := o.expectSent("bob")
		expect(t, "undo", o.leftByUndo(run), "what send did stays: Dear <Bob>")
	},
	"Ends": func(t *testing.T) {
		o := openOffice(t, letter(func(s *tool.Spec) { s.Ends, s.Access = true, tool.NoNeeds }), "", "", toBob)
		if _, res := o.expectSent("bob"); res.Outcome != domain.OutcomeSuccess {
			t.Errorf("%+v", res)
		}
	},
	"Waits": func(t *testing.T) {
		o := openOffice(t, letter(func(s *tool.Spec) { s.Ends, s.Waits, s.Access = true, true, tool.NoNeeds }), "", "", toBob)
		o.says = map[string]string{"question": "Which Bob?"}
		if _, res := o.expectSent("bob"); res.Wait == nil || res.Wait.Message != "Which Bob?" {
			t.Errorf("%+v", res)
		}

		expect(t, "config check", o.problems("", "", "playbook: [{call: send}]"), "a playbook cannot hear an answer")
		o = openOffice(t, o.tool.Spec(), ", loop: phased, tools: {deny: [clarify]}", "", says("agent_step", `{"phase":"feedback","thinking":"There are two.","summary":"asks","feedback_message":"Which Bob?"}`))
		o.says = map[string]string{"question": "Which Bob?"}
		if _, res := o.run(); res.Wait == nil || res.Wait.Message != "Which Bob?" {
			t.Errorf("in phases: %+v", res)
		}
		if _, err := tool.Define(letter(func(s *tool.Spec) { s.Waits = true }), o.send); err == nil {
			t.Error("it waits, and does not end the attempt")
		}
	},
	"Once": func(t *testing.T) {
		for once, on := range map[bool]int{false: 1, true: 0} {
			o := openOffice(t, letter(func(s *tool.Spec) {
				s.Effect, s.Scope, s.Once, s.Access = domain.EffectDatabase, tool.ScopeAgent, once, tool.NoNeeds
			}), "", "")
			recorded := -1
			o.look = func(ctx context.Context, in tool.Invocation) {
				calls, err := o.ledger.Steps.Calls(ctx, in.Run)
				if recorded = len(calls); err != nil {
					t.Error(err)
				}
			}

			// On a busy machine the record may be complete already, but not every time.
			for try := 1; try == 1 || try < 50 && recorded != on; try++ {
				o.sent = nil
				id, err := o.Fire(t.Context(), api.RunRequest{Agent: "clerk", Tool: "send", Args: json.RawMessage(`{"to":"bob"}`)})
				if err != nil {
					t.Fatal(err)
				}
				o.attempt(id)
				if calls, err := o.ledger.Steps.Calls(t.Context(), id); len(calls) != 1 || o.all() != "bob" || err != nil {
					t.Errorf("once %v: %+v (%v)", once, calls, err)
				}
			}
			if recorded != on {
				t.Errorf("once %v: %d calls are on record while it is made, want %d", once, recorded, on)
			}
		}
		if _, err := tool.Define(letter(func(s *tool.Spec) { s.Once = true }), new(letters).send); err == nil {
			t.Error("what is outside is not known to have been made")
		}
	},
	"Nests": func(t *testing.T) {
		for nests, sent := range map[bool]string{false: "bob", true: ""} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Nests, s.Class, s.Access = nests, tool.ClassExec, tool.NoNeeds }), "", "", says("reduce", `{"task":"Write to Bob."}`), toBob, wellDone, wellDone)
			o.expectSent(sent)
		}
	},
	"OnDemand": func(t *testing.T) {
		for agentKeys, want := range map[string]bool{"": false, ", tools: {allow: [send, complete]}": true, ", tools: {on_demand: []}": true, ", tools: {allow: [sen*, complete]}": false} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.OnDemand = true }), agentKeys, "", wellDone)
			o.run()
			if described := strings.Contains(o.firstRequest(), "Sends a letter by post."); described != want {
				t.Errorf("%q: described: %v", agentKeys, described)
			}
		}
	},
	"Core": func(t *testing.T) {
		for _, core := range []bool{true, false} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Core = core }), ", model: tiny", "", wellDone)
			o.run()
			if described := strings.Contains(o.firstRequest(), "Sends a letter by post."); described != core {
				t.Errorf("core %v: described: %v", core, described)
			}
		}
	},
	"Brief": func(t *testing.T) {
		for agentKeys, described := range map[string]string{"": "Sends a letter by post.", ", model: narrow": "Posts."} {
			o := openOffice(t, letter(func(s *tool.Spec) { s.Brief = "Posts." }), agentKeys, "", wellDone)
			o.run()
			expect(t, agentKeys, o.firstRequest(), `"description":"`+described+`"`)
		}
	},
	"Example": func(t *testing.T) {
		for given, want := range map[string]string{"": `{}`, `{"to":"Ann"}`: `{"to":"Ann"}`} {
			raw, err := letter(func(s *tool.Spec) { s.Example, s.Args = given, reflect.TypeFor[letterArgs]() }).ExampleArgs()
			if err != nil || string(raw) != want {
				t.Errorf("the example of %q is %s: %v", given, raw, err)
			}
		}
	},
	"Paging": func(t *testing.T) {
		// As in a context that has room for half of the result.
		result := `{"ok":true,"result":{"text":"` + strings.Repeat(`     7|A letter.\n`, 60) + `"}}`
		for start, how := range map[string]string{"": "make a call that asks for less", "from": "call send again with from 7 to go on"} {
			cut, ok := tool.Shorten(result, letter(func(s *tool.Spec) { s.Paging = tool.Paging{Field: "text", Start: start} }), nil, len(result)/2)
			if !ok || len(cut) > len(result)/2 {
				t.Errorf("%q: %s", start, cut)
			}
			expect(t, start, cut, how)
		}
	},
	"Timeout": func(t *testing.T) {
		o := openOffice(t, letter(func(s *tool.Spec) { s.Timeout, s.Access = time.Millisecond, tool.NoNeeds }), "", "", toBob, wellDone)
		o.wait = true
		run, _ := o.expectSent("")
		expect(t, "the call", string(o.call(run).Envelope), `"timeout"`)
		expect(t, "undo", o.leftByUndo(run), "what send may have done before it failed stays")
	},
	"Enum": func(t *testing.T) {
		o := openOffice(t, letter(func(s *tool.Spec) { s.Enum, s.Access = map[string][]string{"how": {"air", "sea"}}, tool.NoNeeds }), "", "", says("send", `{"how":"pigeon"}`), wellDone)
		run, _ := o.expectSent("")
		expect(t, "described", o.firstRequest(), `["air","sea"]`)
		expect(t, "the call", string(o.call(run).Envelope), "invalid_args")
	},
	"Suggested": func(t *testing.T) {
		o := openOffice(t, letter(func(s *tool.Spec) { s.Suggested, s.Access = map[string][]string{"to": {"ann", "cid"}}, tool.NoNeeds }), "", "", toBob, wellDone)
		o.expectSent("bob") // an unexpected recipient
		expect(t, "described", o.firstRequest(), `["ann","cid"]`)
	},
	"Synonyms": func(t *testing.T) {
		another := letter(func(s *tool.Spec) { s.Synonyms, s.Access = [][2]string{{"to", "recipient"}}, tool.NoNeeds })
		o := openOffice(t, another, "", "", says("send", `{"recipient":"bob"}`), wellDone)
		o.expectSent("bob")
		const rest = ", private: {workdir: false, database: false}"
		if got := o.problems(rest, "", "playbook: [{call: send, with: {recipient: bob}}]"); got != "" {
			t.Errorf("config check: %s", got)
		}
		expect(t, "both names", o.problems(rest, "", "playbook: [{call: send, with: {recipient: bob, to: ann}}]"), "recipient")
	},
	"Args": func(t *testing.T) {
		o := openOffice(t, letter(unasked), "", "", toBob, wellDone)
		const rest = ", private: {workdir: false, database: false}"
		expect(t, "config check", o.problems(rest, "", "playbook: [{call: send, with: {too: bob}}]"), `there is no argument "too"; did you mean "to"?`)
		if got := o.problems(rest, "", "playbook: [{call: send, with: {to: bob}}]"); got != "" {
			t.Errorf("config check: %s", got)
		}
		if _, err := tool.Define(letter(func(s *tool.Spec) { s.Args = reflect.TypeFor[struct{}]() }), o.send); err == nil {
			t.Error("a tool takes other arguments than its spec says")
		}
	},
	"ReadsOnly": func(t *testing.T) {
		o := openOffice(t, letter(func(s *tool.Spec) {
			s.ReadsOnly = func(args json.RawMessage) bool { return strings.Contains(string(args), "bob") }
			s.Access = tool.NoNeeds
		}), "", "", toBob, wellDone)
		run, _ := o.expectSent("bob")
		if c := o.call(run); c.Effect != domain.EffectRead {
			t.Errorf("recorded as %s", c.Effect)
		}
		without(t, "undo", o.leftByUndo(run), "send")
	},
	"Path": func(t *testing.T) {
		for path, sent := range map[string]string{"path": "a.txt", "": "a.txt a.txt"} { // reading without a path reads all files
			o := openOffice(t, letter(func(s *tool.Spec) {
				s.Path, s.Class, s.Effect, s.Scope = path, tool.ClassRead, domain.EffectRead, tool.ScopeAgent
			}), "", "",
				says("send", `{"path":"a.txt"}`), says("file_write", `{"path":"b.txt","content":"b"}`), says("send", `{"path":"a.txt"}`), wellDone)
			o.expectSent(sent)
		}
	},
	"Canonical": func(t *testing.T) {
		for same, sent := range map[bool]string{true: "a.txt a.txt", false: "a.txt"} {
			var roots *tool.Roots
			o := openOffice(t, letter(func(s *tool.Spec) {
				s.Path, s.Class, s.Effect, s.Scope = "path", tool.ClassRead, domain.EffectRead, tool.ScopeAgent
				if s.Canonical = func(path string) string { return roots.Canonical(path) }; !same {
					s.Canonical = func(path string) string { return "/elsewhere/" + path }
				}
			}), "", "", says("send", `{"path":"a.txt"}`), says("file_write", `{"path":"a.txt","content":"b"}`), says("send", `{"path":"a.txt"}`), wellDone)

			work := o.Current().Plan.Runner.Agents["clerk"].Workdir
			err := os.MkdirAll(work, 0o700)
			if err == nil {
				roots, err = tool.NewRoots(work, nil)
			}
			if err != nil {
				t.Fatal(err)
			}

			o.expectSent(sent)
		}
	},
	"StatKey": func(t *testing.T) {
		looks := 0
		for name, look := range map[string]func(string) string{"a.txt": nil, "a.txt a.txt": func(string) string { looks++; return fmt.Sprint(looks) }} {
			o := openOffice(t, letter(func(s *tool.Spec) {
				s.Path, s.StatKey, s.Class, s.Effect, s.Scope = "path", look, tool.ClassRead, domain.EffectRead, tool.ScopeAgent
			}), "", "", says("send", `{"path":"a.txt"}`), says("send", `{"path":"a.txt"}`), wellDone)
			o.expectSent(name)
		}
	},
	"Access": func(t *testing.T) {
		// The effects of the tool are unknown: its owner is asked, and all labels are recorded.
		o := openOffice(t, letter(nil), "", "", toBob, wellDone)
		run, res := o.expectSent("")
		if res.Wait == nil || res.Wait.Kind != inbox.KindApproval || res.Wait.Action.Tool != "send" || res.Wait.Action.Description != `send {"to":"bob","text":"Dear <Bob>"}` {
			t.Fatalf("%+v", res)
		}

		expect(t, "approval", res.Wait.Message, "no grant covers send")
		items, err := o.ledger.Inbox.List(t.Context())
		if err == nil {
			_, err = o.ledger.Answer(t.Context(), items[0].ID, inbox.ApprovalOnce)
		}
		if err != nil {
			t.Fatal(err)
		}

		o.attempt(run.ID)
		if run, err = o.ledger.Runs.Get(t.Context(), run.ID); err != nil || o.all() != "bob" || run.Taint != tool.AllTaints.String() {
			t.Errorf("sent %q, met %q (%v)", o.all(), run.Taint, err)
		}

		o = openOffice(t, letter(nil), ", on_denied: continue", "", toBob, wellDone)
		o.expectSent("")
		o = openOffice(t, letter(unasked), "", "", toBob, wellDone)
		o.expectSent("bob")
		confined := letter(func(s *tool.Spec) { s.Effect, s.Scope = domain.EffectDatabase, tool.ScopeAgent })
		o = openOffice(t, confined, "", "", toBob, wellDone)
		o.expectSent("bob")

		for _, s := range []func(*tool.Spec){
			func(s *tool.Spec) { s.Effect = domain.EffectRead },
			func(s *tool.Spec) { s.Scope = tool.ScopeAgent },
			func(s *tool.Spec) { s.Effect, s.Scope = domain.EffectWrite, tool.ScopeRun },
		} {
			o = openOffice(t, letter(s), "", "", toBob, wellDone)
			o.expectSent("")
		}
	},
	// A schema can require more than its types: models get it, and calls and playbooks are checked
	// against it.
	"Schema": func(t *testing.T) {
		o := openOffice(t, letter(nil), ", private: {workdir: false, database: false}, skills: [./posts]", "", says("posts__execute", `{}`), says("posts__execute", `{"to":"bob"}`), wellDone)
		run, res := o.run()
		expect(t, "described", o.firstRequest(), `"the addressee"`)
		calls, err := o.ledger.Steps.Calls(t.Context(), run.ID)
		if err != nil || len(calls) != 2 || res.Summary != "It is done." {
			t.Fatalf("%+v %v (%v)", res, calls, err)
		}
		expect(t, "held to", string(calls[0].Envelope), `"kind":"invalid_args"`)
		expect(t, "answered", string(calls[1].Envelope), `"result":{"sent":"bob"}`)
		expect(t, "config check", o.problems(", skills: [./posts]", "", "playbook: [{call: posts__execute}]"), `the argument "to" is missing`)
	},
	"Open": func(t *testing.T) {
		o := openOffice(t, letter(nil), ", skills: [./posts]", "", wellDone)
		specs := o.runner.Specs()
		if s := specs.Find("posts__new"); s.Requires != tool.RequiresOffer || s.Name != "posts__new" || s.Open || !s.Nests {
			t.Errorf("what is registered is known as %+v", s)
		}
		if names := specs.Callable(); slices.Contains(names, "posts__") || !slices.Contains(names, "posts__execute") {
			t.Errorf("there are %q", names)
		}
		if got := o.problems(", private: {workdir: false, database: false}, skills: [./posts], tools: {deny: [posts__old]}", "", "playbook: [{call: posts__new, with: {a: 1}}]"); got != "" {
			t.Errorf("config check: %s", got)
		}
		if _, err := o.Fire(t.Context(), api.RunRequest{Agent: "clerk", Tool: "posts__new", Args: json.RawMessage(`{}`)}); err != nil {
			t.Errorf("rouse call: %v", err)
		}
		if _, err := o.Fire(t.Context(), api.RunRequest{Agent: "clerk", Tool: "posts__", Args: json.RawMessage(`{}`)}); err == nil {
			t.Error("rouse call of no tool")
		}
	},
}

// replay replays a run and returns all letters sent by then.
func (o *office) replay(id int64) string {
	o.t.Helper()
	rec, err := o.runner.ExportRecording(o.t.Context(), id)
	if err != nil {
		o.t.Fatal(err)
	}

	dir := o.t.TempDir()
	l, err := ledger.Open(o.t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db")})
	if err != nil {
		o.t.Fatal(err)
	}
	defer l.Close()

	pool, err := pool.New(pool.Options{Dir: filepath.Join(dir, "agents")})
	if err != nil {
		o.t.Fatal(err)
	}
	defer pool.Close()

	r := o.newRunner(l, pool, dir)
	r.Set(o.Current().Plan.Runner)
	if p, err := r.Replay(o.t.Context(), rec); err != nil || !p.Same() {
		o.t.Errorf("the replay: %+v (%v)", p, err)
	}

	return o.all()
}

// TestToolIsKnownEverywhere checks that every property of a tool has an effect in all relevant
// places without code for the specific tool.
func TestToolIsKnownEverywhere(t *testing.T) {
	t.Parallel()
	spec := reflect.TypeFor[tool.Spec]()
	for i := range spec.NumField() {
		name := spec.Field(i).Name
		check, known := everywhere[name]
		if !known {
			t.Errorf("the property %s of a tool is asked for in no place that is tested here", name)
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t)
		})
	}

	if len(everywhere) != spec.NumField() {
		t.Errorf("%d properties are tested, and a tool has %d", len(everywhere), spec.NumField())
	}
}

// A tool with an incomplete specification is refused, with the missing parts.
func TestToolSaysTooLittle(t *testing.T) {
	t.Parallel()
	for want, more := range map[string]func(*tool.Spec){
		"a tool without a name":                     func(s *tool.Spec) { s.Name = "" },
		"tool send: its description is missing":     func(s *tool.Spec) { s.Description = "" },
		"tool send: its effect is missing":          func(s *tool.Spec) { s.Effect = "" },
		"tool send: its class is missing":           func(s *tool.Spec) { s.Class = "" },
		`tool send: its effect "reed" is none of`:   func(s *tool.Spec) { s.Effect = "reed" },
		`tool send: its scope "wide" is none of`:    func(s *tool.Spec) { s.Scope = "wide" },
		`its place to write "wall" is none of`:      func(s *tool.Spec) { s.Writes = "wall" },
		`its condition of being given "luck" is no`: func(s *tool.Spec) { s.Requires = "luck" },
	} {
		_, err := tool.Define(letter(more), (&letters{}).send)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}

	if _, err := tool.NewRegistry(tool.Tool{}); err == nil {
		t.Error("a tool that nobody defined is registered")
	}
}

// The specifications of all tools are complete, names are unique, and aliases refer to tools.
func TestSpecs(t *testing.T) {
	t.Parallel()
	specs := agent.Specs()
	names := specs.Names()
	if len(names) < 46 || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("%q", names)
	}

	for _, s := range specs {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		if first := specs.Find(s.AliasOf); s.AliasOf != "" && (first.Name == "" || first.AliasOf != "" || first.Scope != s.Scope || first.Effect != s.Effect || first.Writes != s.Writes) {
			t.Errorf("%s is a second name of %q, and another tool", s.Name, s.AliasOf)
		}
	}
}

// An agent with all grants gets every known tool and no other: the lists of tools are consistent.
func TestEveryToolCanBeHad(t *testing.T) {
	t.Parallel()
	o := openOffice(t, letter(nil), `, loop: phased, self_scheduling: {mode: ambient}, skills: [./sums, ./posts], skill_access: global_discovery, tools: {allow: ["?*"], on_demand: [send]}
    , grants: {commands: [{argv: [pandoc]}], network: [{host: example.com}]}`, "", modeltest.Turn{Text: "It is done."})
	o.run()
	var request struct {
		Tools []struct {
			Function struct{ Name string } `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal([]byte(o.firstRequest()), &request); err != nil {
		t.Fatal(err)
	}

	names := []string{"send", "capabilities_discover"} // loadable by capabilities_discover
	for _, one := range request.Tools {
		names = append(names, one.Function.Name)
	}

	slices.Sort(names)
	// Tools for modules only (see TestHostMethods) and tools for executors are not offered to
	// models.
	ofModels := o.runner.Specs().Where(func(s tool.Spec) bool {
		return s.Requires != tool.RequiresModule && s.Requires != tool.RequiresExecutor && !s.Open
	})
	if known := ofModels.Names(); !slices.Equal(names, known) {
		t.Errorf("had:   %q\nknown: %q", names, known)
	}
}
