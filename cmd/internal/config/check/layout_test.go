package check_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/places"
)

// TestLayout checks that trusted files that others could write are refused, with both positions
// and a remedy. {{dir}} is the folder of the configuration.
func TestLayout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		files []string
		says  string // the only error; "" if the layout is valid
	}{
		"the default":         {"home: ./h\nagents: [{name: a}]\n", nil, ""},
		"beside":              {"home: ./h\nagents: [{name: a, workdir: ./work}]\n", nil, ""},
		"narrowed":            {"home: ./h\nagents: [{name: a, workdir: ., grants: {write: [./out]}}]\n", nil, ""},
		"in the home":         {"home: ./h\nagents: [{name: a, workdir: ./h/books}]\n", nil, ""},
		"in an agent's home":  {"home: ./h\nagents: [{name: a, workdir: ./h/agents/a/work/deep}]\n", nil, ""},
		"below a glob":        {"home: ./h\ninclude: ['c/*.yaml']\nagents: [{name: a, workdir: ./c/ann}]\n", []string{"c/x.yaml", "models: []\n"}, ""},
		"beside a glob":       {"home: ./h\ninclude: ['b*/*.yaml']\nagents: [{name: a, workdir: ./ann}]\n", nil, ""},
		"a file alone":        {"home: ./h\ninclude: [c/x.yaml]\nagents: [{name: a, workdir: ./c/ann}]\n", []string{"c/x.yaml", "models: []\n"}, ""},
		"the configuration":   {"home: /nowhere\nagents:\n  - {name: a, workdir: .}\n", nil, `rouse.yaml:3:24: a: agents[0].workdir: the agent a may write in {{dir}}, and so could change what rouse trusts: the configuration {{dir}}/rouse.yaml; give the agent a workdir of its own, or narrow it with grants: {write: [./out]}, or keep what is trusted elsewhere`},
		"granted":             {"home: /nowhere\nagents:\n  - {name: a, grants: {write: [./out, .]}}\n", nil, `rouse.yaml:3:39: a: agents[0].grants.write[1]: the agent a may write in {{dir}}, `},
		"disabled":            {"home: /nowhere\nagents: [{name: a, enabled: false, workdir: .}]\n", nil, "the agent a may write in"},
		"the home":            {"home: ./x/h\nagents: [{name: a, workdir: ./x}]\n", nil, "the home {{dir}}/x/h ({{dir}}/rouse.yaml:1), the skills of {{dir}}/x/h/skills"},
		"is the home":         {"home: ./h\nagents: [{name: a, workdir: ./h}]\n", nil, "the home {{dir}}/h"},
		"an agent's database": {"home: ./h\nagents: [{name: a}, {name: b, workdir: ./h/agents/a}]\n", nil, "what it keeps in its home {{dir}}/h ({{dir}}/rouse.yaml:1)"},
		"its backups":         {"home: ./h\nagents: [{name: a, workdir: ./h/agents/a/Backups}]\n", nil, "what it keeps in its home"},
		"recordings":          {"home: ./h\nagents: [{name: a, workdir: ./h/recordings/x}]\n", nil, "what it keeps in its home"},
		"an include":          {"home: ./h\ninclude: [c/x.yaml]\nagents: [{name: a, workdir: ./c}]\n", []string{"c/x.yaml", "models: []\n"}, "the configuration {{dir}}/c/x.yaml ({{dir}}/rouse.yaml:2)"},
		"one that is missing": {"home: ./h\ninclude: ['c/d/*.yaml']\nagents: [{name: a, workdir: ./c}]\n", nil, "the configuration in {{dir}}/c/d ({{dir}}/rouse.yaml:2)"},
		"a folder of a glob":  {"home: ./h\ninclude: ['c/*.yaml']\nagents: [{name: a, workdir: ./c}]\n", nil, "the configuration in {{dir}}/c ({{dir}}/rouse.yaml:2)"},
		"deep in a glob":      {"home: ./h\ninclude: ['c/**/*.yaml']\nagents: [{name: a, workdir: ./c/d}]\n", nil, "the configuration that is found by {{dir}}/c/**/*.yaml ({{dir}}/rouse.yaml:2)"},
		"one name of a glob":  {"home: ./h\ninclude: ['*/more.yaml']\nagents: [{name: a, workdir: ./ann}]\n", nil, "that is found by {{dir}}/*/more.yaml"},
		"alternatives":        {"home: ./h\ninclude: ['c/{a,b/c}.yaml']\nagents: [{name: a, workdir: ./c/b}]\n", nil, "that is found by"},
		"a prompt":            {"home: ./h\nagents: [{name: a, workdir: ./w}]\njobs:\n  - name: j\n    agent: a\n    prompt_file: w/p.md\n", []string{"w/p.md", "Do it."}, "the text of prompt_file {{dir}}/w/p.md ({{dir}}/rouse.yaml:6)"},
		"instructions":        {"home: ./h\nagents: [{name: a, workdir: ./w, instructions_file: ./w/i.md}]\n", []string{"w/i.md", "Be good."}, "the text of instructions_file {{dir}}/w/i.md ({{dir}}/rouse.yaml:2)"},
		"of another agent":    {"home: ./h\nagents: [{name: a, workdir: ./w}, {name: b, instructions_file: ./w/i.md}]\n", []string{"w/i.md", "Be good."}, "the agent a may write in"},
		"a recording":         {"home: ./h\nagents: [{name: a, workdir: ./w, model: m}]\nmodels:\n  - {name: m, provider: replay, recording: ./w/m.jsonl}\n", []string{"w/m.jsonl", "{\"recording\":{\"version\":1}}\n{\"exchange\":{\"text\":\"x\"}}\n"}, "what a model answers, recorded in {{dir}}/w/m.jsonl ({{dir}}/rouse.yaml:4)"},
		"trusted skills":      {"home: ./h\nskills: {roots: [{path: ./w/s}]}\nagents: [{name: a, workdir: ./w}]\n", nil, "the skills of {{dir}}/w/s ({{dir}}/rouse.yaml:2)"},
		"within skills":       {"home: ./h\nskills: {roots: [{path: ./s}]}\nagents: [{name: a, workdir: ./s/w}]\n", nil, "the skills of {{dir}}/s ({{dir}}/rouse.yaml:2)"},
		"untrusted skills":    {"home: ./h\nskills: {roots: [{path: ./w/s, trusted: false}]}\nagents: [{name: a, workdir: ./w}]\n", nil, ""},
		"a skill":             {"home: ./h\nagents: [{name: a, workdir: ./w}, {name: b, skills: [./w/s]}]\n", []string{"w/s/SKILL.md", skill("s")}, "the skill {{dir}}/w/s ({{dir}}/rouse.yaml:2)"},
		"a folder of PATH":    {"home: ./h\nagents: [{name: a, workdir: ./w}]\n", []string{"w/bin/.keep", ""}, "the programs of $PATH in {{dir}}/w/bin; give the agent a workdir of its own, or narrow it with grants: {write: [./out]}, or take the folder off PATH"},
		"a granted program":   {"home: ./h\nagents: [{name: a, workdir: ./w, grants: {commands: [{argv: [./w/run.sh]}]}}]\n", nil, "the granted program {{dir}}/w/run.sh ({{dir}}/rouse.yaml:2); give the agent a workdir of its own, or narrow it with grants: {write: [./out]}, or move the program to where no agent writes"},
		"a condition":         {"home: ./h\nagents: [{name: a, workdir: ./w}]\njobs: [{name: j, agent: a, prompt: x, when: [{command: [./w/x.sh]}]}]\n", nil, "the program of a condition {{dir}}/w/x.sh ({{dir}}/rouse.yaml:3)"},
		"a watch":             {"home: ./h\nagents: [{name: a}]\njobs:\n  - {name: j, agent: a, prompt: x, watch: {path: .}}\n", nil, "rouse.yaml:4:50: j: jobs[0].watch.path: whoever drops files may write in {{dir}}, "},
		"a move":              {"home: ./h\nagents: [{name: a}]\njobs:\n  - {name: j, agent: a, prompt: x, watch: {path: ./in, on_success: {move: ./h/skills}}}\n", []string{"in/x", ""}, "jobs[0].watch.on_success: files of others are moved to {{dir}}/h/skills, "},
		"move to includes":    {"home: ./h\ninclude: ['c/*.yaml']\nagents: [{name: a}]\njobs:\n  - {name: j, agent: a, prompt: x, watch: {path: ./in, on_failure: {move: ./c}}}\n", []string{"in/x", ""}, "jobs[0].watch.on_failure: files of others are moved to {{dir}}/c, "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := configtest.Write(t, append([]string{"rouse.yaml", c.text}, c.files...)...)
			dir := filepath.Dir(path)
			_, err := configtest.Load(path, map[string]string{"PATH": filepath.Join(dir, "w", "bin") + string(os.PathListSeparator) + "bin"})
			if name != "a folder of PATH" {
				_, err = configtest.Load(path, nil)
			}

			if err == nil || c.says == "" {
				if err != nil || c.says != "" {
					t.Errorf("%v, want %q", err, c.says)
				}
				return
			}
			if want := filepath.FromSlash(strings.ReplaceAll(c.says, "{{dir}}", dir)); !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// TestLayoutOfLinks checks both the location and the target of links. A writer of a link controls
// its target.
func TestLayoutOfLinks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, link, to, says string
	}{
		"a workdir by a link":      {"home: ./h\nagents: [{name: a, workdir: ./l}]\n", "l", ".", "the configuration "},
		"a prompt through a link":  {"home: ./h\nagents: [{name: a, workdir: ./w}]\njobs: [{name: j, agent: a, prompt_file: ./l/p.md}]\n", "l", "w", "the text of prompt_file "},
		"a link in the workdir":    {"home: ./h\nagents: [{name: a, workdir: ./w}]\njobs: [{name: j, agent: a, prompt_file: ./w/l/p.md}]\n", "w/l", "../o", "the text of prompt_file "},
		"skills by a link":         {"home: ./h\nskills: {roots: [{path: ./l}]}\nagents: [{name: a, workdir: ./w}]\n", "l", "w", "the skills of "},
		"a link that leads beside": {"home: ./h\nagents: [{name: a, workdir: ./l}]\njobs: [{name: j, agent: a, prompt_file: ./o/p.md}]\n", "l", "w", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := configtest.Write(t, "rouse.yaml", c.text, "w/p.md", "Do it.", "o/p.md", "Do it.")
			if err := os.Symlink(c.to, filepath.Join(filepath.Dir(path), c.link)); err != nil {
				t.Fatal(err)
			}

			_, err := configtest.Load(path, nil)
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

// TestIncluded checks the folders that tools mask: those in which includes look for files.
func TestIncluded(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", "include: ['*/more.yaml', 'c/*.yaml']\nagents: [{name: a, workdir: ./ann}]\n")
	// Load fails because of the layout, but still returns the settings.
	if cfg, _ := configtest.Load(path, nil); !slices.Contains(places.Included(cfg), filepath.Join(filepath.Dir(path), "ann", "more.yaml")) || !slices.Contains(places.Included(cfg), filepath.Join(filepath.Dir(path), "c")) {
		t.Errorf("%q", places.Included(cfg))
	}
}

// TestPastAt checks the warnings about an at: in the past and about views without a database.
func TestPastAt(t *testing.T) {
	t.Parallel()
	said := allSaid(t, `version: 1
agents: [{name: a, database: {enabled: false}}]
jobs:
  - {name: past, agent: a, at: "2020-01-01T08:00:00+01:00", playbook: [{call: file_read, with: {path: .}}]}
  - {name: off, agent: a, enabled: false, at: "2020-01-01T08:00:00+01:00", playbook: [{call: file_read, with: {path: .}}]}
  - {name: future, agent: a, at: "2999-01-01T08:00:00+01:00", playbook: [{call: file_read, with: {path: .}}]}
  - {name: views, agent: a, every: 1h, context_views: [nope], playbook: [{call: file_read, with: {path: .}}]}
`)
	if strings.Count(said, "is in the past, so it starts no further run") != 1 || !strings.Contains(said, "jobs[0].at: warning") {
		t.Errorf("the past:\n%s", said)
	}
	if !strings.Contains(said, `the agent "a" has no database`) {
		t.Errorf("views without a database:\n%s", said)
	}
}
