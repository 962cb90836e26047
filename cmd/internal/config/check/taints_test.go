package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
)

// TestTaintWarnings checks that a job causes a warning if its runs can get all three labels. The
// warning lists the settings that bring each label.
func TestTaintWarnings(t *testing.T) {
	t.Parallel()
	const watch, plain, public = "watch: {path: ./in}", "every: 1h", ", private: {workdir: false, database: false}"
	for _, c := range []struct{ job, agent, says string }{
		{watch, "grants: {read: [.], network: [{host: a.example.com}]}" + public, "A a watch 6, web pages 4; B grants.read 4; C grants.network 4"},
		{plain, "grants: {read: [.], network: [{host: a.example.com}]}" + public, "A web pages 4; B grants.read 4; C grants.network 4"},
		{plain, "grants: {read: ., commands: [{argv: [x], network: host}]}" + public, "A commands with network 4; B grants.read 4; C commands with network 4"},
		{watch, "grants: {read: [{path: .}], commands: [{argv: [x]}]}, sandbox: off, reason: x" + public, "A a watch 6; B grants.read 4; C commands without a sandbox 4"},
		{watch, "grants: {read: [.], commands: [{argv: [x]}]}", ""},
		{watch, "grants: {network: [{host: a.example.com}]}" + public, ""},
		{watch, "grants: {read: [{path: ., private: false}], network: [{host: a.example.com}]}" + public, ""},
		{watch, "grants: {read: [.], network: [{host: a.example.com}]}, tools: {deny: ['*']}", ""},
		{watch, "grants: {read: [.]}", ""},
		{plain, "private: {workdir: true}, grants: {network: [{host: a.example.com}]}, database: {enabled: false}", "A web pages 4; B the workdir 4; C grants.network 4"},
		{plain, "grants: {network: [{host: a.example.com}]}", ""}, // it can only read, from a host granted by name
		{plain, "grants: {network: [{host: '*.example.com'}]}", "A web pages 4; B the workdir, private by default (private: {workdir: false} if nothing in it is) 4; C grants.network 4"},
		{plain, "grants: {network: [{host: a.example.com, methods: [GET, POST]}]}", "A web pages 4; B the workdir, private by default (private: {workdir: false} if nothing in it is) 4; C grants.network 4"},
		{plain, "private: {workdir: false, database: true}, grants: {network: [{host: a.example.com}]}", "A web pages 4; B the database 4; C grants.network 4"},
		{plain, "sandbox: off, reason: x, grants: {commands: [{argv: [x]}]}", ""}, // it has no untrusted input
	} {
		got, _ := drawn(t, "agents:\n  - {name: a, "+c.agent+"}\njobs:\n  - {name: j, agent: a, prompt: x, "+c.job+"}\n")
		if got["j"] != c.says {
			t.Errorf("%s, %s: %q, want %q", c.job, c.agent, got["j"], c.says)
		}
	}
}

// TestTaintsAcrossAgents checks that labels follow data through shared folders, from the job that
// reads it to the job that can send it.
func TestTaintsAcrossAgents(t *testing.T) {
	t.Parallel()
	const out = "grants: {network: [{host: a.example.com}]}, tools: {deny: [web_fetch]}"
	for _, c := range []struct {
		name, agents, jobs string
		says               map[string]string
		private            map[string]int // number of private folders of the agent
	}{
		{"one workdir", "  - {name: in, workdir: ./w}\n  - {name: out, workdir: ./w, sandbox: off, reason: x, grants: {read: [./p], commands: [{argv: [x]}]}}\n",
			"  - {name: drops, agent: in, prompt: x, watch: {path: ./in}}\n  - {name: sends, agent: out, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A reads where the agent in writes 5; B grants.read 5, the workdir, private by default (private: {workdir: false} if nothing in it is) 5; C commands without a sandbox 5"},
			map[string]int{"in": 0, "out": 1}},
		{"through a third", "  - {name: in, workdir: ./a}\n  - {name: mid, workdir: ./b, grants: {read: [./a]}}\n  - {name: out, workdir: ./c, private: {workdir: true}, database: {enabled: false}, sandbox: off, reason: x, grants: {read: [{path: ./b/x, private: false}], commands: [{argv: [x]}]}}\n",
			"  - {name: drops, agent: in, prompt: x, watch: {path: ./in}}\n  - {name: sends, agent: out, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A reads where the agent mid writes 6; B the workdir 6, reads where the agent mid writes 6; C commands without a sandbox 6"}, map[string]int{"in": 1, "mid": 1, "out": 1}},
		{"what another one has watched", "  - {name: in, workdir: ./a}\n  - {name: out, workdir: ./in/x, database: {enabled: false}, sandbox: off, reason: x, grants: {commands: [{argv: [x]}]}}\n",
			"  - {name: drops, agent: in, prompt: x, watch: {path: ./in}}\n  - {name: sends, agent: out, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A reads what the job drops watches 5; B the workdir, private by default (private: {workdir: false} if nothing in it is) 5; C commands without a sandbox 5"}, map[string]int{"out": 1}},
		{"where another one's files are moved", "  - {name: in, workdir: ./a}\n  - {name: out, workdir: ./b, database: {enabled: false}, sandbox: off, reason: x, grants: {commands: [{argv: [x]}]}}\n",
			"  - {name: drops, agent: in, prompt: x, watch: {path: ./in, on_failure: {move: ./b/failed}}}\n  - {name: sends, agent: out, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A reads where the job drops moves its files 5; B the workdir, private by default (private: {workdir: false} if nothing in it is) 5; C commands without a sandbox 5"}, map[string]int{"out": 1}},
		{"what was watched", "  - {name: in, workdir: ./in/x, database: {enabled: false}, sandbox: off, reason: x, grants: {commands: [{argv: [x]}]}}\n",
			"  - {name: drops, agent: in, enabled: false, prompt: x, watch: {path: ./in}}\n  - {name: sends, agent: in, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A reads what the job drops watches 4; B the workdir, private by default (private: {workdir: false} if nothing in it is) 4; C commands without a sandbox 4"}, map[string]int{"in": 1}},
		{"of an agent that is disabled", "  - {name: in, enabled: false, workdir: ./a, private: {workdir: true}}\n  - {name: out, workdir: ./b, private: {workdir: false, database: false}, grants: {read: [{path: ./a, private: false}], network: [{host: a.example.com}]}}\n",
			"  - {name: sends, agent: out, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A web pages 5; B reads the private workdir of another agent 5; C grants.network 5"}, map[string]int{"out": 1}},
		{"a private note", "  - {name: in, workdir: ./w, grants: {read: [./p]}}\n  - {name: out, workdir: ./w, private: {workdir: false, database: false}, grants: {network: [{host: a.example.com}]}}\n",
			"  - {name: sends, agent: out, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A web pages 5; B reads where the agent in writes 5; C grants.network 5"}, map[string]int{"out": 0}},
		{"by itself and by another", "  - {name: in, workdir: ./w}\n  - {name: out, workdir: ./w, private: {database: false}, grants: {network: [{host: a.example.com, methods: [POST]}]}}\n",
			"  - {name: drops, agent: in, prompt: x, watch: {path: ./in}}\n  - {name: sends, agent: out, prompt: x, every: 1h}\n",
			map[string]string{"sends": "A web pages 5, reads where the agent in writes 5; B the workdir, private by default (private: {workdir: false} if nothing in it is) 5; C grants.network 5"}, map[string]int{"out": 1}},
		{"apart", "  - {name: in, workdir: ./a}\n  - {name: out, workdir: ./b, sandbox: off, reason: x, grants: {read: [./p], commands: [{argv: [x]}]}}\n",
			"  - {name: drops, agent: in, prompt: x, watch: {path: ./in}}\n  - {name: sends, agent: out, prompt: x, every: 1h}\n", nil, map[string]int{"out": 0}},
		{"no way out", "  - {name: in, workdir: ./w, grants: {read: [./p]}}\n  - {name: out, workdir: ./w, " + out + "}\n",
			"  - {name: drops, agent: in, prompt: x, watch: {path: ./in}}\n  - {name: sends, agent: out, prompt: x, every: 1h}\n", nil, map[string]int{"out": 0}},
	} {
		got, cfg := drawn(t, "agents:\n"+c.agents+"jobs:\n"+c.jobs)
		if len(got) != len(c.says) {
			t.Errorf("%s: %q", c.name, got)
		}
		for job, want := range c.says {
			if got[job] != want {
				t.Errorf("%s: %s: %q, want %q", c.name, job, got[job], want)
			}
		}
		for i := range cfg.Agents {
			want, told := c.private[string(cfg.Agents[i].Name)]
			if folders, _ := cfg.Agents[i].PrivateFolders, cfg.Agents[i].PrivateDatabase; told && len(folders) != want {
				t.Errorf("%s: of %s there are private: %q", c.name, cfg.Agents[i].Name, folders)
			}
		}
	}
}

// drawn returns the warnings about jobs with all three labels: the settings that bring each label.
func drawn(t *testing.T, text string) (map[string]string, *config.Config) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "rouse.yaml")
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("version: 1\nhome: ./h\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}

	cfg, err := configtest.Load(path, nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}

	out := map[string]string{}
	for _, w := range cfg.Warnings {
		if !strings.Contains(w.Message, "all three labels together") {
			continue
		}

		said := ""
		for line := range strings.SplitSeq(w.Message, "\n") {
			source, ok := strings.CutPrefix(line, "    ")
			if !ok {
				continue
			}

			letter, what := source[:1], strings.TrimSpace(source[26:])
			what = strings.Replace(what, ", "+path+":", " ", 1)
			if letter == " " {
				said += ", " + what
			} else {
				said += "; " + letter + " " + what
			}
		}
		out[w.Name] = strings.TrimPrefix(said, "; ")
	}

	return out, cfg
}

// An entry of grants.read can be a path or a mapping.
func TestReads(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rouse.yaml")
	if err := os.WriteFile(path, []byte("version: 1\nhome: ./h\nagents: [{name: a, grants: {read: [x, {path: y}, {path: z, private: false}]}}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	cfg, err := configtest.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}

	all, public := cfg.Agents[0].Reads()
	if len(all) != 3 || all[1] != filepath.Join(dir, "y") || len(public) != 1 || public[0] != filepath.Join(dir, "z") {
		t.Errorf("%q, public %q", all, public)
	}
}
