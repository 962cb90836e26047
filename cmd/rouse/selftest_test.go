package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestSelftestOfAModel checks OSA-27: a configured model does the task of a scenario. Only the
// result counts, not the steps.
func TestSelftestOfAModel(t *testing.T) {
	t.Parallel()
	write4711 := modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "file_write", Args: json.RawMessage(`{"path":"code.txt","content":"4711\n"}`)}}, Usage: model.Usage{Input: 70, Output: 7}}
	for name, c := range map[string]struct {
		turns []modeltest.Turn
		want  string
		fails bool
	}{
		"it can":    {[]modeltest.Turn{write4711, {Text: "Written.", Usage: model.Usage{Input: 20, Output: 3}}}, "ok    reads-once         what was read and still holds is not read again  (2 steps, 100 tokens, ", false},
		"it cannot": {[]modeltest.Turn{{Text: "I cannot."}}, `there is no file code.txt, wanted one that holds "4711"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.New(t, c.turns...)
			config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: m, provider: ollama, model: scripted, base_url: "` + s.URL + `"}]
agents: [{name: clerk}]
`}), "rouse.yaml")

			p := endtoend.Rouse(t, "selftest", "reads-once", "guesses-twice", "--model", "m", "--config", config)
			if err := p.Run(); (err != nil) != c.fails || !strings.Contains(p.Out.String(), c.want) {
				t.Errorf("%v\n%s%s", err, p.Out.String(), p.Err.String())
			}
		})
	}
}
