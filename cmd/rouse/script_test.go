package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/contract"
)

// TestScripts runs testdata/*.txtar: commands as a user types them, and their output. rouse logs
// --json prints the ledger, which is the only trace (C-15). rouse runs --trigger lists the runs of
// one trigger (OSA-25). rouse workspaces show prints the run in a workspace, its progress, and the
// reason for which it waits (OSL-38).
func TestScripts(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}

	p := testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PROJECT", root)
			e.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("OLLAMA_HOST", cmdtest.Nobody)
			e.Setenv("ROUSE_DASHBOARD_LISTEN", "127.0.0.1:0")
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	}
	if endtoend.Raced() {
		p.Dir, p.Files = "", daemonScripts(t)
	}
	testscript.Run(t, p)
}

// daemonScripts returns the scripts that start a daemon. The other scripts run one command at a
// time, so the race detector would only slow them down.
func daemonScripts(t *testing.T) (out []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "exec rouse serve") {
			out = append(out, file)
		}
	}
	if len(out) < 8 {
		t.Fatalf("%d scripts start a daemon: %v", len(out), out)
	}
	return out
}

// TestModelInsteadOfPlaybook checks that a job with an OpenAI-compatible server gives the same
// results as a playbook, through real tool calls.
func TestModelInsteadOfPlaybook(t *testing.T) {
	args := func(v map[string]any) json.RawMessage {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}

	dir := t.TempDir()
	path := filepath.Join(dir, "inbox", "a.csv")
	s := modeltest.New(t,
		modeltest.Turn{Text: "I import it.", Calls: []model.Call{{ID: "1", Name: "db_import", Args: args(map[string]any{"table": "expenses", "path": path})},
			{ID: "2", Name: "db_qurey", Args: args(map[string]any{"sql": "select 1"})}}, Usage: model.Usage{Input: 100, Output: 20}},
		modeltest.Turn{Calls: []model.Call{{ID: "3", Name: "db_query", Args: args(map[string]any{"sql": "select sum(amount) total from expenses", "limit": "10"})}}},
		modeltest.Turn{Calls: []model.Call{{ID: "4", Name: "notify", Args: args(map[string]any{"title": "2 expenses"})}, {ID: "5", Name: "complete", Args: args(map[string]any{"summary": "Imported two expenses; the total is 12."})}}})

	config := filepath.Join(dir, "rouse.yaml")
	text := `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: "${TEST_MODEL_KEY}"}]
agents: [{name: bookkeeper, workdir: ./books, instructions: Keep the books.}]
jobs:
  - {name: inbox, agent: bookkeeper, watch: {path: ./inbox, responsiveness: fast, on_success: {move: ./done}}, prompt: "Import {{ .File.Name }} into expenses.", expect: [{sql: "select count(*) = 2 from expenses"}]}
  - {name: impossible, agent: bookkeeper, prompt: Nothing, expect: [{sql: "select count(*) = 99 from expenses"}]}
`
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}

	t.Setenv("TEST_MODEL_KEY", "sk-canary-0123456789")
	p := endtoend.Serve(t, config)
	if err := os.WriteFile(path, []byte("what,amount\nsk-canary-0123456789,5\nb,7\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	cmdtest.Until(t, "the file moved away", func() bool { _, err := os.Stat(path); return os.IsNotExist(err) })
	var d api.RunDetail
	endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config) // rouse estimates the tokens that the server does not report
	if d.Outcome != "success" || !d.Verified || d.Exit != "ended_by_surface" || d.TokensIn <= 100 || d.Summary != "Imported two expenses; the total is 12." {
		t.Errorf("run: %+v", d.Run)
	}

	var calls []string
	for _, st := range d.StepsDetail {
		for _, c := range st.Calls {
			calls = append(calls, c.Tool+" "+string(c.State)+c.Kind)
		}
	}
	if got := strings.Join(calls, ", "); got != "db_import done, db_qurey failedtool_not_found, db_query done, notify done, complete done" {
		t.Errorf("calls: %s", got)
	}
	if n := endtoend.CountRows(t, config, "select sum(amount) n from expenses"); n != 12 {
		t.Errorf("total %d", n)
	}

	request := string(s.Requests()[0])
	for _, want := range []string{"Keep the books.", "Import a.csv into expenses.", "db_import"} {
		if !strings.Contains(request, want) {
			t.Errorf("the model was not told %s", want)
		}
	}

	failing := endtoend.Rouse(t, "run", "impossible", "--wait", "--config", config)
	if err := failing.Run(); err == nil || !strings.Contains(failing.Out.String(), "expected at") {
		t.Errorf("an expectation that is not met: %v\n%s", err, failing.Out.String())
	}

	p.Stop(t)
	// No stored file may contain the key.
	err := filepath.Walk(filepath.Join(dir, "home"), func(file string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || !strings.HasPrefix(info.Name(), "ledger.db") {
			return err
		}

		raw, err := os.ReadFile(file)
		if strings.Contains(string(raw), "sk-canary") {
			t.Errorf("the key is in %s", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestQuestionAndAnswer checks that a run with a question frees its lane, survives a restart of the
// daemon, and continues as the same run after the answer (UNI-09).
func TestQuestionAndAnswer(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "UNI-09")
	s := modeltest.New(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Which account?","options":["GLS","Sparkasse"]}`)}}},
		modeltest.Turn{Calls: []model.Call{{ID: "2", Name: "complete", Args: json.RawMessage(`{"summary":"Booked on the account that was named."}`)}}})
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none}]
agents: [{name: clerk}]
jobs: [{name: books, agent: clerk, prompt: Do the books.}, {name: other, agent: clerk, playbook: [{call: db_schema}]}]
`}), "rouse.yaml")

	p := endtoend.Serve(t, config)
	asking := endtoend.Rouse(t, "run", "books", "--wait", "--config", config)
	if err := asking.Run(); err == nil || !strings.Contains(asking.Out.String(), "rouse inbox") {
		t.Errorf("a run that asks: %v\n%s", err, asking.Out.String())
	}

	var items []api.Item
	endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
	if len(items) != 1 || items[0].Run != "1" || items[0].Message != "Which account?" || len(items[0].Options) != 2 {
		t.Fatalf("inbox: %+v", items)
	}
	var raw []map[string]any
	endtoend.RunJSON(t, &raw, "inbox", "--json", "--config", config)
	for _, field := range row.Between("An item of the inbox has ", ", and `input_schema`") {
		if _, ok := raw[0][field]; !ok {
			t.Errorf("no %s in %v", field, raw[0])
		}
	}
	if items[0].Kind != row.Quote("input") || raw[0][row.Quote("input_schema")] != nil {
		t.Errorf("%v", raw[0])
	}
	if free := endtoend.Rouse(t, "run", "other", "--wait", "--config", config); free.Run() != nil {
		t.Errorf("the agent's lane is not free: %s", free.Out.String())
	}

	p.Stop(t)
	p = endtoend.Serve(t, config)

	for _, c := range []struct{ args, says string }{{"answer 9 x", "inbox item 9 is not in the ledger"}, {"answer one x", "is not an item"}, {"answer 1 2", ""}, {"answer 1 1", row.Quote("was answered")}} {
		cmd := endtoend.Rouse(t, append(strings.Fields(c.args), "--config", config)...)
		if err := cmd.Run(); (err == nil) != (c.says == "") || !strings.Contains(cmd.Err.String(), c.says) {
			t.Errorf("%s: %v %s%s", c.args, err, cmd.Out.String(), cmd.Err.String())
		}
	}

	var d api.RunDetail
	cmdtest.Until(t, "the run went on", func() bool {
		endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
		return d.State == "finished"
	})
	if d.Outcome != "success" || len(d.Attempts) != 2 || !strings.Contains(string(s.Requests()[1]), "Your owner answers: Sparkasse") {
		t.Errorf("run: %+v, attempts %+v", d.Run, d.Attempts)
	}

	p.Stop(t)
}

// TestLogsAreTheTrace checks C-15.
func TestLogsAreTheTrace(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "C-15")
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: clerk}]\njobs: [{name: j, agent: clerk, playbook: [{call: db_schema}]}]\n"}), "rouse.yaml")
	if p := endtoend.Rouse(t, "run", "j", "--wait", "--config", config); p.Run() != nil {
		t.Fatal(p.Err.String())
	}

	command := strings.Fields(row.Quote("rouse logs"))
	p := endtoend.RouseAs(t, command[0], append(command[1:], "1", row.Quote("--json"), "--config", config)...)
	if err := p.Run(); err != nil {
		t.Fatal(err, p.Err.String())
	}
	seen := map[string]bool{}
	for line := range strings.Lines(p.Out.String()) {
		var event struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		seen[event.Kind] = true
	}
	if !seen["run.started"] || !seen["call.finished"] {
		t.Errorf("%v", seen)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(config), "home", "*.jsonl"))
	if err != nil || len(left) > 0 {
		t.Errorf("another trace: %q, %v", left, err)
	}
}
