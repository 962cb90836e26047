package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestFailuresExplainThemselves checks that the output of a failed test contains the details of its
// daemon that explain the failure.
func TestFailuresExplainThemselves(t *testing.T) {
	if os.Getenv("ROUSE_TEST_FAIL") == "" {
		t.Parallel()
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), "ROUSE_TEST_FAIL=yes")
		out, err := again.CombinedOutput()
		for _, want := range []string{"a run waits for an answer", "goroutine ", "rouse inbox --json (<nil>)", "Which account?", "rouse logs 1 (<nil>)"} {
			if err == nil || !strings.Contains(string(out), want) {
				t.Fatalf("%q is not told (%v):\n%s", want, err, out)
			}
		}
		return
	}

	s := modeltest.New(t, modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "clarify", Args: json.RawMessage(`{"question":"Which account?"}`)}}})
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: scripted, provider: openai, model: scripted, base_url: "` + s.URL + `/v1", api_key: none}]
agents: [{name: clerk}]
jobs: [{name: books, agent: clerk, prompt: Do the books.}]
`}), "rouse.yaml")
	endtoend.Serve(t, config)
	_ = endtoend.Rouse(t, "run", "books", "--wait", "--config", config).Run() // it exits 1, because it asks a question
	t.Fail()
}
