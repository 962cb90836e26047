package crash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
)

// obstacle is a problem that keeps a job from working, with its fix.
type obstacle struct {
	agent, job string // YAML next to the name
	make, mend func(t *testing.T, dir string)
	kind, text string // reported kind and text
}

// done is a playbook that ends a run without a model.
const done = `playbook: [{call: complete, with: {summary: looked at everything that there is to see}}]`

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// obstacles returns the problems that can be fixed without a change of the configuration.
func obstacles(tags *ollamaTags) map[string]obstacle {
	nothing := func(*testing.T, string) {}
	set := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			p := endtoend.Rouse(t, "secrets", "set", name, "--in", "file", "--config", filepath.Join(dir, "rouse.yaml"))
			p.Stdin = strings.NewReader("canary-of-" + name)
			if out, err := p.Quietly(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
		}
	}
	mkdir := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}

	return map[string]obstacle{
		"key":     {"model: keyed", `prompt: Do it.`, nothing, set("key"), "secret", "the secret key is not set; set it with: rouse secrets set key"},
		"lent":    {"mcp: [rows]", done, nothing, set("rows"), "secret", "the secret rows is not set; set it with: rouse secrets set rows"},
		"granted": {"grants: {secrets: [{name: bank}]}", done, nothing, set("bank"), "secret", "the secret bank is not set; set it with: rouse secrets set bank"},
		"pulled": {"model: nearby", `prompt: Do it.`, nothing, func(*testing.T, string) { tags.pulled.Store(true) },
			"model", "does not have the model; get it with: ollama pull"},
		"workdir": {"workdir: ./files/workdir", done,
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "files/workdir"), "", 0o600) },
			func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "files/workdir")) },
			"folder", "files/workdir is not a folder; put a folder in its place"},
		"unmade": {"workdir: ./unmade/file/workdir", done,
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "unmade/file"), "", 0o600) },
			func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "unmade/file")) },
			"folder", "unmade/file is not a folder"},
		"link": {"workdir: ./shared/link/inner", done, // in the workdir of the agent "shared", which created the link
			func(t *testing.T, dir string) {
				mkdir("shared")(t, dir)
				mkdir("elsewhere/inner")(t, dir)
				if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "shared/link")); err != nil {
					t.Skip(err)
				}
			},
			func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "shared/link")) },
			"folder", "shared/link is a link, and lies in"},
		"shared":  {"workdir: ./shared, grants: {read: [./mounted]}", done, nothing, mkdir("mounted"), "folder", "mounted is not there; make it, or mount what it lies on"},
		"written": {"grants: {write: [./out/file/deep]}", done, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "out/file"), "", 0o600) }, func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "out/file")) }, "folder", "out/file is not a folder"},
		"watched": {"", done + `, watch: {path: ./inbox}`, nothing, mkdir("inbox"), "folder", "inbox is not there"},
		"moved": {"", done + `, watch: {path: ./drops, on_success: {move: ./moved/file/done}}`,
			func(t *testing.T, dir string) {
				mkdir("drops")(t, dir)
				write(t, filepath.Join(dir, "moved/file"), "", 0o600)
			},
			func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "moved/file")) },
			"folder", "moved/file is not a folder"},
		"program": {"grants: {commands: [{argv: [PROGRAM, '*']}, {argv: [/nowhere/at/all]}]}", // its calls use one of them
			"playbook: [{call: shell_run, if: 'false', with: {command: PROGRAM x}}, {call: complete, with: {summary: The program was not needed today after all.}}]", nothing,
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "bin/tool"), "#!/bin/sh\n", 0o755) },
			"program", "bin/tool is not there; install it"},
		"condition": {"", done + `, when: [{command: [CONDITION]}]`, nothing,
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "bin/check"), "#!/bin/sh\nexit 0\n", 0o755)
			},
			"program", "of a condition (when:) is not installed"},
		"executed": {"", `prompt: Do it., executor: {argv: [EXECUTOR], output: text}`, nothing,
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "bin/agent"), "#!/bin/sh\necho 'The work is done.'\n", 0o755)
			},
			"program", "the executor cannot be started: there is no program"},
		"served": {"mcp: [served]", done, nothing,
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "bin/server"), "#!/bin/sh\n", 0o755) },
			"mcp", "of the MCP server served: "},
		"disabled": {"enabled: false", done, nothing, func(t *testing.T, dir string) {
			path := filepath.Join(dir, "rouse.yaml")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, strings.Replace(string(text), "}, enabled: false}", "}, enabled: true}", 1), 0o600)
		}, "agent", "the agent disabled is disabled (enabled: false)"},
	}
}

// ollamaTags is an Ollama server whose model is not pulled at first.
type ollamaTags struct {
	pulled atomic.Bool
	asked  atomic.Int64 // requests for an answer
}

func (o *ollamaTags) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/api/tags":
		models := ""
		if o.pulled.Load() {
			models = `{"name":"small:latest","model":"small:latest"}`
		}
		fmt.Fprintf(w, `{"models":[%s]}`, models)
	case "/api/show":
		if !o.pulled.Load() {
			http.Error(w, `{"error":"model 'small' not found"}`, http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"capabilities":["completion","tools"],"model_info":{}}`)
	case "/api/chat":
		o.asked.Add(1)
		fmt.Fprint(w, `{"model":"small","message":{"role":"assistant","content":"The work is done."},"done":true,"done_reason":"stop","prompt_eval_count":1,"eval_count":1}`+"\n")
	default:
		http.NotFound(w, r)
	}
}

// TestPreflight checks that problems are reported before they cause anything, by jobs, doctor, why
// and the run itself. No run may be lost. A killed and restarted daemon must report them again.
// Each run must start once, without help, when its own problem is fixed.
func TestPreflight(t *testing.T) {
	t.Parallel()
	tags := &ollamaTags{}
	nearby := httptest.NewServer(tags)
	t.Cleanup(nearby.Close)
	s := modeltest.New(t, modeltest.Turn{Text: "The work is done."})

	dir := cmdtest.Write(t, map[string]string{"empty": ""})
	text := fmt.Sprintf(`version: 1
home: ./home
timezone: UTC
limits: {runs: 4}
heartbeat_url: secret:beats
models:
  - {name: keyed, provider: openai, model: scripted, base_url: "%s/v1", api_key: "secret:key", max_output: 100, context_window: 100000, price: {input: 1, output: 1}}
  - {name: nearby, provider: ollama, model: small, base_url: "%s"}
mcp: [{name: served, argv: [SERVER], read: [BIN]}, {name: rows, argv: [/bin/true], env: {DATABASE_URI: "secret:rows"}}]
agents:
  - {name: fine, database: {enabled: false}}
`, s.URL, nearby.URL)
	all := obstacles(tags)
	jobs := "jobs:\n  - {name: fine, agent: fine, " + done + "}\n"
	for name, o := range all {
		more := ""
		if o.agent != "" {
			more = ", " + o.agent
		}
		text += fmt.Sprintf("  - {name: %s, database: {enabled: false}%s}\n", name, more)
		jobs += fmt.Sprintf("  - {name: %s, agent: %s, %s}\n", name, name, o.job)
		o.make(t, dir)
	}
	text = strings.NewReplacer("PROGRAM", filepath.Join(dir, "bin/tool"), "CONDITION", filepath.Join(dir, "bin/check"),
		"EXECUTOR", filepath.Join(dir, "bin/agent"), "SERVER", filepath.Join(dir, "bin/server"), "BIN", filepath.Join(dir, "bin")).Replace(text + jobs)
	config := filepath.Join(dir, "rouse.yaml")
	write(t, config, text, 0o600)

	p := endtoend.Serve(t, config)
	runs := map[string]string{}
	for name, o := range all {
		out, err := endtoend.Rouse(t, "run", name, "--config", config).Quietly()
		if err != nil || !strings.Contains(out, "stays queued: "+o.kind+": ") || !strings.Contains(out, o.text) {
			t.Errorf("%s: run says %v %s", name, err, out)
			continue
		}
		runs[name] = strings.Fields(out)[1]
	}
	if out, err := endtoend.Rouse(t, "run", "key", "--wait", "--config", config).Quietly(); err == nil || !strings.Contains(out, "the secret key is not set") {
		t.Errorf("run --wait says %v %s", err, out)
	} else {
		cancelNewest(t, config, "key")
	}

	preflightSays(t, config, all, runs)
	p.Kill(t)
	p = endtoend.Serve(t, config)
	doctor := preflightSays(t, config, all, runs)
	// A heartbeat that cannot be sent does not block jobs.
	if !strings.Contains(doctor, "FAIL  heartbeat") || !strings.Contains(doctor, "no ping is sent: the secret beats is not set; set it with: rouse secrets set beats") {
		t.Errorf("of the heartbeat the doctor says %s", doctor)
	}
	if out, err := endtoend.Rouse(t, "run", "fine", "--wait", "--config", config).Quietly(); err != nil {
		t.Errorf("a job that can work does not, beside those that cannot: %v %s", err, out)
	}
	if n := len(s.Requests()) + int(tags.asked.Load()); n != 0 {
		t.Errorf("models were asked %d times", n)
	}

	for _, o := range all {
		o.mend(t, dir)
	}
	for name := range all {
		var r api.RunDetail
		cmdtest.Until(t, "the run of "+name, func() bool {
			endtoend.RunJSON(t, &r, "show", runs[name], "--json", "--config", config)
			return r.State == domain.StateFinished
		})
		if r.Outcome != domain.OutcomeSuccess || r.Attempt != 1 || len(r.Attempts) != 1 {
			t.Errorf("%s: %+v", name, r.Run)
		}
	}

	for name, o := range all {
		var why []api.Explanation
		endtoend.RunJSON(t, &why, "why", name, "--json", "--config", config)
		said, _ := json.Marshal(why)
		if !strings.Contains(string(said), "waited ") || !strings.Contains(string(said), o.kind+": ") {
			t.Errorf("%s: why says %s", name, said)
		}
	}
	if out, _ := endtoend.Rouse(t, "doctor", "--offline", "--config", config).Quietly(); !strings.Contains(out, "nothing keeps any from working") {
		t.Errorf("the doctor says %s", out)
	}
	p.Stop(t)
	if text, err := os.ReadFile(filepath.Join(dir, "home/ledger.db")); err != nil || strings.Contains(string(text), "canary-of-") {
		t.Errorf("a secret is on record (%v)", err)
	}
}

func cancelNewest(t *testing.T, config, job string) {
	t.Helper()
	var runs []api.Run
	endtoend.RunJSON(t, &runs, "runs", "--job", job, "--json", "--config", config)
	if out, err := endtoend.Rouse(t, "cancel", runs[0].ID, "--config", config).Quietly(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// preflightSays checks that all problems are reported and no attempt has started. It returns the
// output of doctor.
func preflightSays(t *testing.T, config string, all map[string]obstacle, runs map[string]string) (doctor string) {
	t.Helper()
	var jobs []api.Job
	endtoend.RunJSON(t, &jobs, "jobs", "--json", "--config", config)
	listed, _ := endtoend.Rouse(t, "jobs", "--config", config).Quietly()
	p := endtoend.Rouse(t, "doctor", "--offline", "--config", config)
	doctor, err := p.Quietly()
	if err == nil || !strings.Contains(doctor, "FAIL  jobs") {
		t.Errorf("the doctor says %v %s", err, doctor)
	}

	for _, j := range jobs {
		o, ok := all[j.Name]
		if !ok {
			if j.Blocked || len(j.Obstacles) > 0 {
				t.Errorf("%s: %+v", j.Name, j)
			}
			continue
		}
		if !j.Blocked || len(j.Obstacles) != 1 || j.Obstacles[0].Kind != o.kind || !strings.Contains(j.Obstacles[0].Text, o.text) || !strings.Contains(j.Obstacles[0].Where, "rouse.yaml:") {
			t.Errorf("%s: %+v, want one of kind %s: %s", j.Name, j.Obstacles, o.kind, o.text)
		}
		if o.kind != "agent" && !strings.Contains(doctor, o.text) {
			t.Errorf("%s: the doctor does not say %q in\n%s", j.Name, o.text, doctor)
		}
		if !strings.Contains(listed, "▲ "+o.kind+": ") {
			t.Errorf("%s: jobs says %s", j.Name, listed)
		}
		if why, _ := endtoend.Rouse(t, "why", j.Name, "--config", config).Quietly(); !strings.Contains(why, "▲ blocked: "+o.kind+": ") || !strings.Contains(why, o.text) {
			t.Errorf("%s: why says %s", j.Name, why)
		}

		var r api.RunDetail
		endtoend.RunJSON(t, &r, "show", runs[j.Name], "--json", "--config", config)
		if r.State != domain.StateQueued || r.Attempt != 0 || len(r.Attempts) != 0 {
			t.Errorf("%s: %+v", j.Name, r.Run)
		}
	}
	return doctor
}
