//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/contract"
)

// TestDefinitionNeedsApproval checks OSL-19. A job that uses system tools needs an approval for
// each version of its definition if other users can write its file. A job without system tools, or
// in a file that only the owner can write, needs none.
func TestDefinitionNeedsApproval(t *testing.T) {
	row := contract.Of(t, "OSL-19")
	text := `version: 1
home: ./home
agents: [{name: clerk}, {name: shell, grants: {commands: [{argv: [true]}]}}]
jobs:
  - {name: safe, agent: clerk, playbook: [{call: db_schema}]}
  - {name: able, agent: shell, playbook: [{call: db_schema}]}
  - {name: conditional, agent: clerk, when: [{command: ["true"]}], playbook: [{call: db_schema}]}
`

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
	state := func(job string) string {
		t.Helper()
		p := endtoend.Rouse(t, "run", job, "--json", "--config", config)
		_ = p.Run() // it exits 1 if the run waits
		var r api.Run
		runs := []api.Run{}
		endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
		if len(runs) > 0 {
			r = runs[0]
		}

		return strings.TrimSpace(fmt.Sprint(r.WaitingFor, " ", r.Outcome))
	}

	wants := func(want map[string]string) {
		t.Helper()
		for job, w := range want {
			if got := state(job); got != w {
				t.Errorf("%s: %s, want %s", job, got, w)
			}
		}
	}

	doctor := func() string {
		t.Helper()
		checks := []api.Check{}
		p := endtoend.Rouse(t, "doctor", "--json", "--config", config)
		var out strings.Builder
		p.Stdout = &out
		_ = p.Run() // it exits 1 if it finds a problem
		if err := json.Unmarshal([]byte(out.String()), &checks); err != nil {
			t.Fatalf("doctor: %v\n%s", err, out.String())
		}

		for _, c := range checks {
			if c.Name == row.Quote("definitions") {
				return c.Detail
			}
		}

		return ""
	}

	wants(map[string]string{"safe": "success", "able": "success", "conditional": "success"})
	if said := doctor(); said != "" {
		t.Errorf("doctor, while only the owner can write: %s", said)
	}
	if err := os.Chmod(config, 0o666); err != nil {
		t.Fatal(err)
	}

	wants(map[string]string{"safe": "success", "able": row.Quote("approval"), "conditional": "approval"})
	if said := doctor(); !strings.Contains(said, "may be written by everybody (mode 0666); runs of able, conditional wait") {
		t.Errorf("doctor: %s", said)
	}

	var items []api.Item
	endtoend.RunJSON(t, &items, "inbox", "--json", "--config", config)
	if len(items) != 2 || items[0].Tool != "" || strings.Join(items[0].Options, " ") != "approve deny" || !strings.Contains(items[0].Message+items[1].Message, "may be written by everybody") {
		t.Fatalf("inbox: %+v", items)
	}

	for _, i := range items {
		if !strings.Contains(i.Action, `"agent": "`) {
			t.Errorf("what is approved: %s", i.Action)
		}
		endtoend.RunJSON(t, nil, "approve", i.ID, "--always", "--json", "--config", config) // the approval is standing anyway
	}

	wants(map[string]string{"able": "success", "conditional": "success"})
	if said := doctor(); said != "" {
		t.Errorf("doctor, once they are approved: %s", said)
	}
	if err := os.WriteFile(config, []byte(strings.Replace(text, "argv: [true]", "argv: [false]", 1)), 0o666); err != nil {
		t.Fatal(err)
	}

	wants(map[string]string{"able": "approval", "conditional": "success"})
}

// TestDefinitionOfTextFiles checks that files with prompts and instructions are part of the
// definition, as the configuration is.
func TestDefinitionOfTextFiles(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: shell, grants: {commands: [{argv: [true]}]}}, {name: told, instructions_file: ./i.md, grants: {commands: [{argv: [true]}]}},
  {name: souled, soul_file: ./s.md, grants: {commands: [{argv: [true]}]}}]
models: [{name: m, provider: openai, model: x, base_url: "http://127.0.0.1:1/v1"}]
jobs:
  - {name: prompted, agent: shell, prompt_file: ./p.md}
  - {name: instructed, agent: told, playbook: [{call: db_schema}]}
  - {name: described, agent: souled, playbook: [{call: db_schema}]}
  - {name: plain, agent: shell, playbook: [{call: db_schema}]}
`, "i.md": "Be good.", "p.md": "Do it.", "s.md": "Patient."})
	for _, name := range []string{"i.md", "p.md", "s.md"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
	}

	for job, waits := range map[string]bool{"prompted": true, "instructed": true, "described": true, "plain": false} {
		p := endtoend.Rouse(t, "run", job, "--config", filepath.Join(dir, "rouse.yaml"))
		_ = p.Run() // it exits 1 if the run waits
		if got := strings.Contains(p.Out.String(), "it waits for your approval"); got != waits {
			t.Errorf("%s: %s%s", job, p.Out.String(), p.Err.String())
		}
	}
}
