package check_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

// TestConditionMistakes checks the positions and hints of mistakes in conditions.
func TestConditionMistakes(t *testing.T) {
	for condition, say := range map[string]string{
		"{}":                           "jobs[0].when[0]: give exactly one of sql, command, http, file and that",
		"{not: true}":                  "jobs[0].when[0]: give exactly one of sql, command, http, file and that",
		"{sql: select 1, file: x}":     "jobs[0].when[0].file: give exactly one of sql, command, http, file and that",
		"select 1":                     `jobs[0].when[0]: must be a mapping of keys, not "select 1"`,
		"{sqll: select 1}":             `unknown key "sqll"; did you mean "sql"?`,
		`{sql: "  "}`:                  "jobs[0].when[0].sql: is empty",
		"{sql: 'select :last_sucess'}": `there is no value ":last_sucess"; did you mean ":last_success"?`,
		"{sql: 'select $lastrun'}":     `there is no value "$lastrun"; did you mean ":last_run"?`,
		"{sql: 'select ?1'}":           `there is no value "?1"`,
		"{command: []}":                "jobs[0].when[0].command: is empty; give a program and its arguments, like",
		`{command: [""]}`:              "jobs[0].when[0].command: is empty",
		"{command: 'test -d /mnt'}":    `jobs[0].when[0].command: "test -d /mnt" is a line for a shell, and there is none; write the program and each argument by itself: [test, '-d', /mnt]`,
		"{command: {a: b}}":            "jobs[0].when[0].command: must be a list, not a mapping",
		"{command: ['${NOWHERE}', x]}": "jobs[0].when[0].command[0]: the environment variable NOWHERE is not set",
		"{file: x, write: true}":       "jobs[0].when[0].write: is for conditions with a command",
		"{command: [x], sandbox: off}": "jobs[0].when[0].sandbox: sandbox: off needs a reason beside it",
		"{command: [x], reason: y}":    "jobs[0].when[0].reason: a reason is only for sandbox: off",
		"{command: [x], network: all}": "jobs[0].when[0].network: ",
		"{http: example.com}":          "jobs[0].when[0].http: must be a URL like https://example.com/health",
		"{http: 'ftp://example.com'}":  "jobs[0].when[0].http: must be a URL like",
		"{http: 'https://a:b:c/%zz'}":  "jobs[0].when[0].http: must be a URL like",
		"{http: ''}":                   "jobs[0].when[0].http: must be a URL like",
		`{file: ""}`:                   "jobs[0].when[0].file: must be a path",
		`{file: "x/[a"}`:               "jobs[0].when[0].file: the pattern",
		"{file: x, timeout: 0s}":       "jobs[0].when[0].timeout: must be more than 0",
		"{file: x, not: maybe}":        "jobs[0].when[0].not: must be true or false",
		"{sql: select 2}":              `jobs[0].when[0].sql: the agent "none" has no database (database.enabled: false)`,
	} {
		agent := "a"
		if condition == "{sql: select 2}" {
			agent = "none"
		}

		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a}, {name: none, database: {enabled: false}}]\njobs: [{name: j, agent: "+agent+", prompt: x, when: ["+condition+"]}]\n"), nil)
		var all *config.Errors
		if !errors.As(err, &all) || len(all.Problems) != 1 || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %q alone", condition, err, say)
		}
	}
}

func TestConditions(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", `include: conf/*.yaml
agents: [{name: a, workdir: ./work}]
defaults: {when: [{file: ./STOP, not: true}]}
jobs:
  - {name: one, agent: a, prompt: x}
  - name: two
    agent: a
    prompt: x
    when:
      - sql: |
          select ':x', "$y", [@z], a$b -- ?1
            /* :c */ from t where at > :last_success and b > @last_run and c < $now
      - {command: probe, timeout: 1m}
      - {command: [./check.sh, ./data], not: true}
      - http: https://me:pass-word@example.com/${PLACE}?x=1
      - file: in/**/*.{csv,pdf}
`, "conf/more.yaml", "jobs: [{name: three, agent: a, prompt: x, when: [{file: here}]}]\n")

	dir := filepath.Dir(path)
	cfg, err := configtest.Load(path, map[string]string{"PLACE": "hook-4711"})
	if err != nil {
		t.Fatal(err)
	}

	one, two, three := cfg.Jobs[0].When, cfg.Jobs[1].When, cfg.Jobs[2].When
	for what, ok := range map[string]bool{
		"of defaults": len(one) == 1 && one[0].Not && string(one[0].File) == filepath.Join(dir, "STOP") && cfg.Where(one[0].At) == "rouse.yaml:3",
		"all":         len(two) == 5 && !two[0].Not && cfg.Where(two[0].At) == "rouse.yaml:10",
		"timeout":     time.Duration(two[1].Timeout) == time.Minute && time.Duration(two[2].Timeout) == 10*time.Second,
		"one word":    slices.Equal(two[1].Command, []string{"probe"}),
		"a program":   slices.Equal(two[2].Command, []string{filepath.Join(dir, "check.sh"), "./data"}), // the other arguments belong to the program
		"a glob":      string(two[4].File) == filepath.Join(dir, "in", "**", "*.{csv,pdf}"),
		"included":    cfg.Where(three[0].At) == "conf/more.yaml:1" && string(three[0].File) == filepath.Join(dir, "conf", "here"),
		"secrets":     slices.Equal(cfg.Secrets.Values, []string{"hook-4711", "pass-word"}),
		"no warning":  len(cfg.Warnings) == 0,
	} {
		if !ok {
			t.Errorf("%s: %+v %+v %+v, %q, %v", what, one, two, three, cfg.Secrets.Values, cfg.Warnings)
		}
	}

	shown, err := yaml.Show(cfg)
	if err != nil || strings.Contains(string(shown), "pass-word") || !strings.Contains(string(shown), "timeout: 10s # default") {
		t.Errorf("%v\n%s", err, shown)
	}
}

// TestConditionWarnings checks the warnings about conditions without effect and conditions that
// agents can abuse.
func TestConditionWarnings(t *testing.T) {
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", `agents:
  - {name: a, workdir: ./work}
  - {name: b, workdir: ./work, grants: {write: [./out]}}
jobs:
  - {name: only-files, agent: a, prompt: x, watch: {path: ./in}, when: [{file: x}]}
  - {name: both, agent: a, prompt: x, watch: {path: ./in}, every: 1h, when: [{file: x}]}
  - {name: by-hand, agent: a, prompt: x, when: [{file: x}]}
  - name: open
    agent: a
    prompt: x
    when:
      - {sql: select 1, timeout: 11s}
      - {command: [./bin/check.sh]}
      - {command: [python3, check.py]}
      - {command: [/bin/sh, ./work/check.sh]}
      - {command: [sh, -c, "test -f check.sh"]}
      - {command: [test, -f, check.sh]}
      - {command: [sh, ../check.sh]}
  - {name: narrow, agent: b, prompt: x, when: [{command: [sh, work/check.sh]}, {command: [sh, ./out/check.sh]}]}
`, "in/.keep", ""), nil)
	if err != nil {
		t.Fatal(err)
	}

	var paths []string
	for _, w := range cfg.Warnings {
		paths = append(paths, w.Path)
	}
	if want := []string{"jobs[0].when", "jobs[3].when[0].sql"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
}

// A confined command that inspects the machine causes a warning, directly or in a shell script.
func TestConditionsThatAskTheMachine(t *testing.T) {
	for command, asks := range map[string]string{
		"[pgrep, init]}":                                      "pgrep",
		"[/usr/bin/systemctl, x]}":                            "systemctl",
		"[sh, -c, 'pgrep x']}":                                "pgrep",
		"[bash, -ec, 'if ! ps -e']}":                          "ps",
		"[sh, -c, 'true && df -h /']}":                        "df",
		"[sh, -c, 'echo $(uptime)']}":                         "uptime",
		"[sh, -c, 'test -f ps']}":                             "",
		"[sh, -c, 'echo who']}":                               "",
		"[test, -f, mount]}":                                  "",
		"[pgrep, init], sandbox: off, reason: asks for init}": "",
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a, workdir: ./work}]\njobs: [{name: j, agent: a, every: 1h, prompt: x, when: [{command: "+command+"]}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if asks == "" && len(cfg.Warnings) > 0 {
			t.Errorf("%s: %v", command, cfg.Warnings)
		}
		if asks != "" && (len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].String(), "jobs[0].when[0].command: warning: "+asks+" asks about the machine, and sees only itself in the sandbox") ||
			!strings.Contains(cfg.Warnings[0].String(), "say sandbox: off with a reason")) {
			t.Errorf("%s: %v", command, cfg.Warnings)
		}
	}
}

// A program that an agent can write is refused, without an additional warning.
func TestConditionProgramOfTheAgent(t *testing.T) {
	_, err := configtest.Load(configtest.Write(t, "rouse.yaml", "agents: [{name: a, workdir: ./work}]\njobs: [{name: j, agent: a, every: 1h, prompt: x, when: [{command: [./work/gate.sh]}]}]\n"), nil)
	var all *config.Errors
	if !errors.As(err, &all) || len(all.Problems) != 1 || all.Problems[0].Warning {
		t.Errorf("%v", err)
	}
}

// TestFoldersOfConditions checks the folders of conditions that can send data, for all forms of
// commands.
func TestFoldersOfConditions(t *testing.T) {
	const watched = "home: ./h\nagents: [{name: a, workdir: ./work}, {name: b, workdir: ./other}]\njobs:\n  - {name: w, agent: a, prompt: x, watch: {path: ./in}}\n  - {name: j, agent: a, prompt: x, every: 1h, when: [{CONDITION}]}\n"
	for condition, say := range map[string]string{
		"command: [sh, -e, check.sh], network: host":                                  "",
		"command: [sh, -e, check.sh], sandbox: off, reason: x":                        "",
		"command: [sh, check.sh], read: [./work]":                                     "",
		"command: [sh, check.sh], network: host, read: [./other]":                     "",
		"command: [sh, check.sh], network: host, read: [./work]":                      "jobs[1].when[0].read[0]: warning: the agent a can leave untrusted content in {{dir}}/work; then the condition does not start",
		"command: [sh, check.sh], sandbox: off, reason: x, write: true":               "jobs[1].when[0].write: warning: the agent a can leave untrusted content in {{dir}}/work",
		"command: [curl, -o, page, 'http://127.0.0.1:1'], network: host, write: true": "jobs[1].when[0].write: warning: ",
		"command: [sh, check.sh], read: [./h]":                                        "jobs[1].when[0].read[0]: {{dir}}/h belongs to rouse itself",
		"command: [cat, ./x, DIR/h/ledger.db]":                                        "jobs[1].when[0].command[2]: {{dir}}/h/ledger.db belongs to rouse itself",
		"command: [sh, check.sh], read: [./h/backups/x]":                              "jobs[1].when[0].read[0]: {{dir}}/h/backups/x belongs to rouse itself",
		"command: [sh, check.sh], read: [./link/agents/b]":                            "jobs[1].when[0].read[0]: {{dir}}/link/agents/b belongs to rouse itself",
		"command: [./h/scripts/check.sh], read: [./h/scripts]":                        "",
	} {
		path := configtest.Write(t, "rouse.yaml", "", "h/scripts/check.sh", "#!/bin/sh\n", "in/.keep", "")
		dir := filepath.Dir(path)
		if err := errors.Join(os.WriteFile(path, []byte("version: 1\n"+strings.ReplaceAll(strings.ReplaceAll(watched, "CONDITION", condition), "DIR", dir)), 0o600), os.Symlink(filepath.Join(dir, "h"), filepath.Join(dir, "link"))); err != nil {
			t.Fatal(err)
		}
		cfg, err := configtest.Load(path, nil)
		said := ""
		if err != nil {
			said = err.Error()
		} else {
			for _, w := range cfg.Warnings {
				said += w.String() + "\n"
			}
		}
		if want := strings.ReplaceAll(say, "{{dir}}", dir); !strings.Contains(said, want) || (want == "") != (said == "") {
			t.Errorf("%s: %q, want %q", condition, said, want)
		}
	}
}
