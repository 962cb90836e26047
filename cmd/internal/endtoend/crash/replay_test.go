package crash

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestReplay checks that a replay of a recorded run is the same and has no effects. For a changed
// prompt, bound, price or tool set, it shows the differences at their step. The recording must not
// contain secrets.
func TestReplay(t *testing.T) {
	s := modeltest.New(t,
		modeltest.Turn{Text: "I begin with sk-canary-0123456789.", Opaque: "c2lnbmVk", Usage: model.Usage{Input: 100, Output: 20, Cached: 50}, Calls: []model.Call{
			endtoend.Call("1", "db_create_table", `{"name":"t","purpose":"a test","columns":[{"name":"a","type":"TEXT"}]}`),
			endtoend.Call("2", "file_write", `{"path":"note.txt","content":"a \"b\" sk-canary-0123456789"}`)}},
		modeltest.Turn{Fail: model.KindUnavailable},
		modeltest.Turn{Text: "  ", Usage: model.Usage{Input: 10, Output: 1}},
		modeltest.Turn{Usage: model.Usage{Input: 200, Output: 30}, Calls: []model.Call{
			endtoend.Call("3", "file_read", `{"path":"note.txt"}`), endtoend.Call("4", "notify", `{"title":"Noted"}`), endtoend.Call("5", "no_such_tool", `{}`)}},
		modeltest.Turn{Usage: model.Usage{Input: 300, Output: 40}, Calls: []model.Call{endtoend.Call("6", "complete", `{"summary":"Wrote a note and made a table for it."}`)}})

	text := `version: 1
home: ./home
models: [{name: m, provider: anthropic, model: scripted, base_url: "` + s.URL + `", api_key: "${TEST_MODEL_KEY}", price: {input: 1, output: 10}}]
agents: [{name: clerk, workdir: ./work, instructions: Keep notes.}]
jobs:
  - {name: notes, agent: clerk, prompt: "Write the note ${TEST_MODEL_KEY} of run {{ .Run }}.", record: true, notify: {on: []}, expect: [{file: ./work/note.txt}]}
  - {name: other, agent: clerk, prompt: Do it., notify: {on: []}}
`

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": text})
	config := filepath.Join(dir, "rouse.yaml")
	t.Setenv("TEST_MODEL_KEY", "sk-canary-0123456789")
	if run := endtoend.Rouse(t, "run", "notes", "--wait", "--config", config); run.Run() != nil {
		t.Fatalf("%s%s", run.Out.String(), run.Err.String())
	}

	asked := len(s.Requests())
	note := filepath.Join(dir, "work", "note.txt")
	if err := os.Remove(note); err != nil {
		t.Fatal(err)
	}

	if p := endtoend.Replay(t, "1", "--config", config); !p.Same || p.Now != p.Recorded || p.Now.Steps != 4 || p.Now.Outcome != "success" || p.Now.Cost == 0 {
		t.Errorf("played as it was: %s", p.Text())
	}
	if _, err := os.Stat(note); err == nil || len(s.Requests()) != asked {
		t.Errorf("the replay wrote its file, or asked its model (%d requests)", len(s.Requests())-asked)
	}

	var runs []api.Run
	if endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config); len(runs) != 1 {
		t.Errorf("the replay is in the history: %+v", runs)
	}

	for name, c := range map[string]struct {
		old, new string
		step     int
		what     string
		says     string // differences between Recorded and Now
		outcome  string
	}{
		"prompt":  {"Write the note", "Write a long note", 1, "message 1, what the model is told", "Write the note [secret] of run 1. → Write a long note [secret] of run 1.", "success"},
		"system":  {"Keep notes.", "Keep all notes.", 1, "the system prompt", "Keep", "success"},
		"bounds":  {"record: true", "record: true, bounds: {steps: 2}", 4, "whether tools may be called", "tools or text → text alone", "budget_exceeded"},
		"tools":   {"instructions:", "tools: {deny: [file_write]}, instructions:", 1, "call 2, file_write, its result", "tool_not_found", "success"},
		"price":   {"output: 10", "output: 100", 0, "cost", "$0.0", "success"},
		"nothing": {"./home", "./home", 0, "", "", "success"},
	} {
		other := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(other, []byte(strings.Replace(text, c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}

		p := endtoend.Replay(t, "1", "--config", config, "--with", other)
		found := c.what == "" && p.Same
		for _, d := range p.Differences {
			found = found || d.Step == c.step && d.What == c.what && strings.Contains(d.Recorded+" → "+d.Now, c.says)
		}
		if !found || p.Now.Outcome != c.outcome {
			t.Errorf("%s: %s", name, p.Text())
		}
	}

	// The result is the same with a daemon. The error for a run without a recording names the
	// setting.
	d := endtoend.Serve(t, config)
	if p := endtoend.Replay(t, "1", "--config", config); !p.Same {
		t.Errorf("with a daemon: %s", p.Text())
	}
	if run := endtoend.Rouse(t, "run", "other", "--wait", "--config", config); run.Run() != nil {
		t.Errorf("%s%s", run.Out.String(), run.Err.String())
	}

	bare := endtoend.Rouse(t, "replay", "2", "--config", config)
	if err := bare.Run(); err == nil || !strings.Contains(bare.Err.String(), "set record: true on its job other") {
		t.Errorf("a run without a recording: %v %s%s", err, bare.Out.String(), bare.Err.String())
	}

	d.Stop(t)

	saved := filepath.Join(dir, "saved.jsonl")
	if save := endtoend.Rouse(t, "replay", "1", "--save", saved, "--config", config); save.Run() != nil {
		t.Errorf("%s", save.Err.String())
	}

	for _, path := range append(files(t, filepath.Join(dir, "home", "recordings")), saved) {
		raw, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(raw), "canary") || !strings.Contains(string(raw), "[secret]") {
			t.Errorf("%s (%v) holds the key: %s", path, err, raw)
		}
	}
}

func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		out = append(out, filepath.Join(dir, e.Name()))
	}
	return out
}
