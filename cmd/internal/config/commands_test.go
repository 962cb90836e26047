package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommands: a grant that could never hold is refused, and one that gives everything warned of.
func TestCommands(t *testing.T) {
	outside := write(t, "job.sh", "#!/bin/sh\n")
	for _, c := range []struct{ grants, problem, warning string }{
		{`[{argv: [pandoc, "*"]}, {argv: [curl, "https://example.com/*"], network: host}]`, "", ""},
		{`[{argv: []}]`, "argv must name a program", ""},
		{`[{argv: ["*"]}]`, "must be one name or path, not a pattern", ""},
		{`[{argv: [cat, "[a"]}]`, "the pattern \"[a\" is broken", ""},
		{`[{argv: [x], network: some}]`, "some", ""},
		{`[{argv: [python3.12, "*"]}]`, "", "python3.12 runs what its arguments say"},
		{`[{argv: [/usr/bin/bash, -c, "*"]}]`, "", "bash runs what its arguments say"},
		{`[{argv: [make, "*"]}]`, "", "make runs"},
		{`[{argv: [make, test]}]`, "", ""},
		{`[{argv: [find, ".", -name, "*", -exec, rm, "{}", ;]}]`, "", "find runs programs"},
		{`[{argv: [git, "*"]}]`, "", "git runs programs"},
		{`[{argv: [git, log, "*"]}]`, "", ""},
		{`[{argv: [sh, job.sh]}]`, "", "the agent can write job.sh"},
		{`[{argv: [env, A=b, nice, -n, "5", python3, tools/job.py, "*"]}]`, "", "runs what its arguments say"},
		{`[{argv: [env, A=b, nice, -n, "5", python3, tools/job.py]}]`, "", "the agent can write tools/job.py"},
		{`[{argv: [./work/job.sh, "*.txt"]}]`, "could change what rouse trusts: the granted program", ""},
		{`[{argv: [./job.sh, "*.txt"]}]`, "", "yet; ./job.sh is relative to the folder of this file"},
		{`[{argv: [$HOME/job.sh]}]`, "write ~ or ${HOME}, as in ~/job.sh", ""},
		{`[{argv: [` + outside + `]}]`, "", ""},
		{`[{argv: [sh, ` + outside + `, "*"]}]`, "", "runs what its arguments say"},
		{`[{argv: [sh, ` + outside + `]}], read: [` + filepath.Dir(outside) + `]`, "", ""},
		{`[{argv: [sh, /usr/local/bin/job.sh]}, {argv: [sh, -c, ls]}, {argv: [cat, job.sh]}]`, "", ""},
	} {
		cfg, err := load(write(t, "rouse.yaml", "version: 1\nagents:\n  - {name: clerk, workdir: ./work, grants: {commands: "+c.grants+"}}\n"), nil)
		switch {
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%s: %v", c.grants, err)
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", c.grants, err)
		case c.problem == "":
			said := ""
			for _, w := range cfg.Warnings {
				if strings.Contains(w.Path, "commands") {
					said += w.Message
				}
			}
			if !strings.Contains(said, c.warning) || c.warning == "" && said != "" {
				t.Errorf("%s: %q", c.grants, said)
			}
		}
	}
}

// A star that is escaped stands for itself, and opens no grant for other arguments.
func TestEscapedStarIsNoPattern(t *testing.T) {
	t.Parallel()
	for argv, warned := range map[string]bool{`[env, A=b, find, ., -name, "\\*.tmp"]`: false, `[env, A=b, find, ., -name, "*.tmp"]`: true} {
		cfg, err := load(write(t, "rouse.yaml", "version: 1\nhome: ./home\nagents: [{name: a, grants: {commands: [{argv: "+argv+"}]}}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(cfg.Warnings) > 0; got != warned {
			t.Errorf("%s: %v", argv, cfg.Warnings)
		}
	}
}

// A program or script that begins with ./ is relative to the configuration file, wherever a command is configured. A
// playbook runs the same program.
func TestProgramsBesideTheFile(t *testing.T) {
	t.Parallel()
	file := write(t, "rouse.yaml", `home: ./home
agents:
  - {name: a, workdir: ./work, grants: {commands: [{argv: [./backup.sh, "*"]}, {argv: [sh, ./tools/x.sh]}, {argv: [./only-there.sh]}]}}
mcp: [{name: m, argv: [node, ./server.js]}]
jobs:
  - {name: one, agent: a, playbook: [{call: shell_run, with: {command: ./backup.sh --all}}, {call: shell_run, with: {command: "sh ./tools/x.sh"}}]}
  - {name: two, agent: a, prompt: x, when: [{command: [sh, ./tools/x.sh]}], executor: {argv: [./agent.sh], network: host}}
`)
	dir := filepath.Dir(file)
	for _, name := range []string{"backup.sh", "tools/x.sh", "server.js", "agent.sh", "work/only-there.sh"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	cfg, err := load(file, nil)
	if !strings.Contains(fmt.Sprint(err), "only-there.sh") { // a program that the agent can change
		t.Errorf("%v", err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	got := fmt.Sprint(cfg.Agents[0].Commands()[0].Argv, cfg.Agents[0].Commands()[0].Written, cfg.Agents[0].Commands()[1].Argv, cfg.Servers()[0].Argv, cfg.Servers()[0].Read,
		cfg.Jobs[0].Playbook[0].With["command"], cfg.Jobs[0].Playbook[1].With["command"], cfg.Jobs[1].When[0].Command, cfg.Jobs[1].Executor.Argv)
	want := fmt.Sprint([]string{at("backup.sh"), "*"}, []string{"./backup.sh", "*"}, []string{"sh", at("tools/x.sh")}, []string{"node", at("server.js")}, []string{at("server.js")},
		at("backup.sh")+" --all", "sh "+at("tools/x.sh"), []string{"sh", at("tools/x.sh")}, []string{at("agent.sh")})
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, w := range cfg.Warnings {
		if strings.Contains(w.Path, "playbook") {
			t.Errorf("a granted command is warned of: %s", w)
		}
	}
}

// If a program is in the user's PATH but commands do not find it, the warning contains its path.
func TestProgramOnThePathOfItsOwner(t *testing.T) {
	own := filepath.Dir(write(t, "rouse-test-tool", "#!/bin/sh\n"))
	if err := os.Chmod(filepath.Join(own, "rouse-test-tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", own+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cfg, err := load(write(t, "rouse.yaml", "home: ./home\nagents: [{name: a, grants: {commands: [{argv: [rouse-test-tool, '*']}]}}]\n"), nil)
	if want := "write argv: [" + filepath.Join(own, "rouse-test-tool") + ", '*'], and the same path"; err != nil || !strings.Contains(fmt.Sprint(cfg.Warnings), want) {
		t.Errorf("%v %v", err, cfg.Warnings)
	}
}
