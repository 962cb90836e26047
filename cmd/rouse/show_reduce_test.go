package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestShowReduce checks OSA-24: `rouse show` prints the result of a call and, below it, the steps
// that led to it.
func TestShowReduce(t *testing.T) {
	t.Parallel()
	say := func(name, args string) modeltest.Turn {
		return modeltest.Turn{Calls: []model.Call{{ID: "1", Name: name, Args: json.RawMessage(args)}}}
	}
	s := modeltest.New(t, say("reduce", `{"task":"Find the answer."}`), say("db_schema", `{}`), modeltest.Turn{Text: "There is no table."}, modeltest.Turn{Text: "Nothing is there."})
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: m, provider: ollama, model: scripted, base_url: "` + s.URL + `"}]
agents: [{name: clerk}]
jobs: [{name: look, agent: clerk, prompt: Look.}]
`}), "rouse.yaml")

	p := endtoend.Rouse(t, "run", "look", "--wait", "--config", config)
	if err := p.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out.String(), p.Err.String())
	}

	var d api.RunDetail
	endtoend.RunJSON(t, &d, "show", "1", "--json", "--config", config)
	if d.Steps != 4 || len(d.StepsDetail) != 2 || len(d.StepsDetail[0].Calls) != 1 {
		t.Fatalf("%+v", d)
	}
	if within := d.StepsDetail[0].Calls[0].StepsDetail; len(within) != 2 || within[0].Step != 2 || len(within[0].Calls) != 1 || within[1].Text != "There is no table." {
		t.Errorf("within the call: %+v", within)
	}

	p = endtoend.Rouse(t, "show", "1", "--config", config)
	if err := p.Run(); err != nil {
		t.Fatal(err)
	}
	if text := p.Out.String(); !strings.Contains(text, "\n  steps     4, with 2 calls\n") || !strings.Contains(text, "\n      step 2 (m)\n        db_schema {}") || !strings.Contains(text, "\n      step 3 (m)  There is no table.\n  step 4 (m)  Nothing is there.") {
		t.Errorf("printed:\n%s", text)
	}
}
