package config_test

import (
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
		{`[{argv: [./job.sh, "*.txt"]}]`, "could change what rouse trusts: the granted program", ""},
		{`[{argv: [` + outside + `]}]`, "", "the agent's commands cannot read " + outside},
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
