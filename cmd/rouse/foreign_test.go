//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/web"
)

// OSL-19: who else could write a definition is told by the file, or any folder above it.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "conf", "rouse.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, folder os.FileMode
		says         string
	}{
		{0o644, 0o755, ""}, {0o600, 0o700, ""}, {0o646, 0o755, "may be written by everybody (mode 0646)"},
		{0o644, 0o757, "lies in " + filepath.Dir(path) + ", which may be written by everybody (mode 0757)"},
		{0o644, 0o777 | os.ModeSticky, ""},
	} {
		if err := os.Chmod(path, c.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(path), c.folder); err != nil {
			t.Fatal(err)
		}
		if got := foreign(path); got != c.says {
			t.Errorf("%v in %v: %q, want %q", c.file, c.folder, got, c.says)
		}
	}
}

// OSL-19: a job that uses system tools, from a file that others can write, waits for its definition to be
// approved, once for each; a job that uses none, or from the owner's own file, does not.
func TestDefinitionIsHeld(t *testing.T) {
	text := `version: 1
home: ./home
agents: [{name: clerk}, {name: shell, grants: {commands: [{argv: [true]}]}}]
jobs:
  - {name: safe, agent: clerk, playbook: [{call: db_schema}]}
  - {name: able, agent: shell, playbook: [{call: db_schema}]}
  - {name: gated, agent: clerk, when: [{command: ["true"]}], playbook: [{call: db_schema}]}
`
	config := filepath.Join(write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml")
	state := func(job string) string {
		t.Helper()
		p := rouse(t, "run", job, "--json", "--config", config)
		_ = p.Run() // which fails when the run waits
		var r web.Run
		runs := []web.Run{}
		runJSON(t, &runs, "runs", "--json", "--config", config)
		if len(runs) > 0 {
			r = runs[0]
		}
		return strings.TrimSpace(r.WaitingFor + " " + r.Outcome)
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
		checks := []web.Check{}
		p := rouse(t, "doctor", "--json", "--config", config)
		var out strings.Builder
		p.Stdout = &out
		_ = p.Run() // which fails where anything is wrong
		if err := json.Unmarshal([]byte(out.String()), &checks); err != nil {
			t.Fatalf("doctor: %v\n%s", err, out.String())
		}
		for _, c := range checks {
			if c.Name == "definitions" {
				return c.Detail
			}
		}
		return ""
	}
	wants(map[string]string{"safe": "success", "able": "success", "gated": "success"})
	if said := doctor(); said != "" {
		t.Errorf("doctor, while only the owner can write: %s", said)
	}
	if err := os.Chmod(config, 0o666); err != nil {
		t.Fatal(err)
	}
	wants(map[string]string{"safe": "success", "able": ledger.WaitApproval, "gated": ledger.WaitApproval})
	if said := doctor(); !strings.Contains(said, "may be written by everybody (mode 0666); runs of able, gated wait") {
		t.Errorf("doctor: %s", said)
	}
	var items []web.Item
	runJSON(t, &items, "inbox", "--json", "--config", config)
	if len(items) != 2 || items[0].Tool != "" || strings.Join(items[0].Options, " ") != "approve deny" || !strings.Contains(items[0].Message+items[1].Message, "may be written by everybody") {
		t.Fatalf("inbox: %+v", items)
	}
	for _, i := range items {
		if !strings.Contains(i.Action, `"agent": "`) {
			t.Errorf("what is approved: %s", i.Action)
		}
		runJSON(t, nil, "approve", i.ID, "--always", "--json", "--config", config) // which it is anyway
	}
	wants(map[string]string{"able": "success", "gated": "success"})
	if said := doctor(); said != "" {
		t.Errorf("doctor, once they are approved: %s", said)
	}
	if err := os.WriteFile(config, []byte(strings.Replace(text, "argv: [true]", "argv: [false]", 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	wants(map[string]string{"able": ledger.WaitApproval, "gated": "success"})
}
