package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
)

// ollamaHere returns a fake Ollama server with models and their capabilities.
func ollamaHere(t *testing.T, tags string, can map[string]string) *httptest.Server {
	chat := modeltest.New(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "complete", Args: json.RawMessage(`{"summary":"Everything was done on this machine."}`)}}})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tags) })
	mux.HandleFunc("POST /api/show", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Model string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || can[in.Model] == "" {
			http.Error(w, `{"error":"model not found"}`, http.StatusNotFound)
			return
		}
		fmt.Fprint(w, can[in.Model])
	})

	mux.Handle("POST /api/chat", chat)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestOllamaIsFound checks a configuration without a model and an API key. Prompts go to the newest
// local Ollama model that can call tools. Models on other hosts are ignored. rouse reports the
// choice.
func TestOllamaIsFound(t *testing.T) {
	s := ollamaHere(t, `{"models":[{"name":"old","modified_at":"2025-01-01T00:00:00Z"},{"name":"good","modified_at":"2025-06-01T00:00:00Z"},{"name":"dumb","modified_at":"2025-07-01T00:00:00Z"},
		{"name":"gone","modified_at":"2025-08-01T00:00:00Z"},{"name":"far","modified_at":"2025-09-01T00:00:00Z","remote_host":"https://ollama.com"},{"name":"farther","modified_at":"2025-09-02T00:00:00Z"}]}`,
		map[string]string{"old": `{"capabilities":["completion","tools"]}`, "good": `{"capabilities":["completion","tools"]}`, "dumb": `{"capabilities":["completion"]}`,
			"far": `{"capabilities":["tools"]}`, "farther": `{"capabilities":["tools"],"remote_host":"https://ollama.com"}`})
	t.Setenv("OLLAMA_HOST", s.URL)
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: clerk}]\n"}), "rouse.yaml")
	p := endtoend.Rouse(t, "config", "check", "--config", config)
	if err := p.Run(); err != nil || !strings.Contains(p.Out.String()+p.Err.String(), "none is configured, and Ollama runs here: prompts go to good at "+s.URL+", for nothing") {
		t.Errorf("%v: %s%s", err, p.Out.String(), p.Err.String())
	}

	var d api.RunDetail
	if p := endtoend.Rouse(t, "run", "--agent", "clerk", "--prompt", "Do it.", "--wait", "--config", config); p.Run() != nil {
		t.Fatalf("%s%s", p.Out.String(), p.Err.String())
	}
	if endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config); d.Summary != "Everything was done on this machine." || d.CostUSD != 0 || len(d.StepsDetail) != 1 || d.StepsDetail[0].Model != "ollama" {
		t.Errorf("%+v", d)
	}

	getenv := func(string) string { return s.URL }
	if name, _, ok := plan.FindOllama(getenv); !ok || name != "good" {
		t.Errorf("%q %v", name, ok)
	}

	for name, tags := range map[string]string{"nothing it can use": `{"models":[{"name":"dumb"}]}`, "no models": `{"models":[]}`, "nonsense": `<html>`, "nobody": ""} {
		other := ollamaHere(t, tags, map[string]string{"dumb": `{}`})
		if name == "nobody" {
			other.Close()
		}
		if found, _, ok := plan.FindOllama(func(string) string { return other.URL }); ok {
			t.Errorf("%s: %s was found", name, found)
		}
	}
}

// TestOneRunWaitsForAModel checks that at most one scheduled run waits for a model, for each
// setting of overlap. Playbooks need no model.
func TestOneRunWaitsForAModel(t *testing.T) {
	t.Parallel()
	const text = `version: 1
home: ./home
agents: [{name: clerk}]
jobs:
  - {name: a, agent: clerk, prompt: x, every: 1h, overlap: allow}
  - {name: b, agent: clerk, prompt: x, every: 1h, overlap: queue_all}
  - {name: c, agent: clerk, prompt: x, every: 1h, overlap: skip}
  - {name: d, agent: clerk, every: 1h, overlap: allow, playbook: [{call: db_schema}]}
`

	for models, want := range map[string]string{"": "queue_one queue_one skip allow", "models: [{name: m, provider: ollama, model: x}]\n": "allow queue_all skip allow"} {
		cfg, err := plan.Load(filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text + models}), "rouse.yaml"), "")
		if err != nil {
			t.Fatal(err)
		}

		p, err := plan.New(cfg, logging.Quiet())
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, j := range p.Jobs {
			got = append(got, string(j.Overlap))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: %s, want %s", models, text, want)
		}
	}
}
