package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/ledger"
)

// TestSelfScheduling checks OSA-70 and OSA-76 with a daemon. A job plans a wake of its agent, which
// plans another one. If the owner switches self-scheduling off, the planned wake is cancelled.
func TestSelfScheduling(t *testing.T) {
	t.Parallel() // it mostly waits
	s := modeltest.New(t,
		modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "schedule_next_run", Args: json.RawMessage(`{"in_seconds":3600,"instructions":"Say hello again."}`)}}},
		modeltest.Turn{Text: "Hello."})
	text := `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1"}]
agents: [{name: clerk, self_scheduling: {mode: reactive, min_interval: 0s}}]
jobs:
  - {name: begin, agent: clerk, playbook: [{call: schedule_next_run, with: {in_seconds: 1, instructions: Say hello.}}]}
`

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
	p := endtoend.Serve(t, config)
	if err := endtoend.Rouse(t, "run", "begin", "--wait", "--config", config).Run(); err != nil {
		t.Fatal(err)
	}

	var runs []api.Run
	cmdtest.Until(t, "the agent was woken", func() bool {
		endtoend.RunJSON(t, &runs, "runs", "--json", "--outcome", "success", "--config", config)
		return len(runs) == 2
	})
	if r := runs[0]; r.Trigger != "self" || r.Agent != "clerk" || r.Job != "" || r.Summary != "Hello." || r.StartedAt.Before(r.ScheduledAt.Time) {
		t.Errorf("%+v", r)
	}
	if asked := string(s.Requests()[0]); !strings.Contains(asked, `in a chain that the job begin began`) || !strings.Contains(asked, `Say hello."`) {
		t.Errorf("the model was asked %s", asked)
	}

	p.Stop(t)
	planned := func() int {
		t.Helper()
		l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(filepath.Dir(config), "home", "ledger.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()

		slots, err := l.Wakes.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(slots)
	}
	if n := planned(); n != 1 {
		t.Errorf("%d runs are planned", n)
	}

	without, _, _ := strings.Cut(strings.Replace(text, "min_interval: 0s", "enabled: false", 1), "jobs:")
	if err := os.WriteFile(config, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}

	endtoend.Serve(t, config).Stop(t)
	if n := planned(); n != 0 {
		t.Errorf("%d runs are planned for an agent that may not plan", n)
	}
}
