package check_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/tool"
	"rouse/agent/tool/web"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/scheduler/schedule"
)

// TestModes checks the workdir of each mode, and that settings that contradict the mode are
// refused at their position.
func TestModes(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                                 "folder h/agents/a/work",
		"workdir: ./books":                 "folder books",
		"mode: folder, workdir: ./books":   "folder books",
		"mode: none":                       "none h/agents/a/work",
		"mode: isolated":                   "isolated h/agents/a/work",
		"mode: isolated, min_tier: A":      "isolated h/agents/a/work",
		"mode: isolated, workdir: ./books": "isolated h/agents/a/work reads books",
		"mode: isolated, workdir: ./h/agents/a/work":                       "isolated h/agents/a/work",
		"mode: isolated, workdir: ./books, private: {workdir: false}":      "isolated h/agents/a/work reads books openly",
		"mode: isolated, workdir: ./books, grants: {write: [./books/out]}": "rouse.yaml:3:70: a: agents[0].grants.write: with mode: isolated the agent writes in a folder of its own",
		"mode: isolated, sandbox: off, reason: x":                          "agents[0].sandbox: mode: isolated cannot be held",
		"mode: isolated, min_tier: C":                                      "agents[0].min_tier: mode: isolated needs programs that are confined on tier B or A",
		"mode: none, workdir: ./books":                                     "agents[0].workdir: with mode: none the agent has no file tools",
		"mode: none, grants: {read: [./books]}":                            "agents[0].grants.read: with mode: none",
		"mode: none, grants: {write: [./books]}":                           "agents[0].grants.write: with mode: none",
		"mode: none, grants: {commands: [{argv: [date]}]}":                 "agents[0].grants.commands: with mode: none the agent runs no programs",
		"mode: none, executor: {argv: [cat], output: text}":                "agents[0].executor: is a program",
		"mode: none, mcp: [files]":                                         "agents[0].mcp[0]: with mode: none the agent runs no programs",
		"mode: sandbox":                                                    "agents[0].mode: ",
	} {
		path := configtest.Write(t, "rouse.yaml", "version: 1\nhome: ./h\nagents: [{name: a, "+said+"}]\nmcp: [{name: files, argv: [/bin/cat]}]\n", "books/may.csv", "x")
		cfg, err := configtest.Load(path, nil)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", said, err, want)
			}
			continue
		}
		if got := worksAt(cfg, filepath.Dir(path)); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}

// worksAt returns the workdir and the readable folders of the first agent, relative to dir.
func worksAt(cfg *config.Config, dir string) string {
	a := &cfg.Agents[0]
	out := a.Mode + " " + string(a.Workdir)
	all, public := a.Reads()
	for _, folder := range all {
		out += " reads " + folder
		if slices.Contains(public, folder) {
			out += " openly"
		}
	}
	return strings.ReplaceAll(filepath.ToSlash(out), filepath.ToSlash(dir)+"/", "")
}

// TestPlaybookWithoutHost checks that a playbook with file tools is refused if its agent has none.
func TestPlaybookWithoutHost(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nhome: ./h\nagents: [{name: a, mode: MODE}]\njobs: [{name: j, agent: a, playbook: [{call: file_search, with: {pattern: x}}]}]\n"
	for mode, want := range map[string]string{"folder": "", "isolated": "", "none": `the agent "a" has mode: none, so it has no file_search`} {
		path := configtest.Write(t, "rouse.yaml", strings.Replace(text, "MODE", mode, 1))
		_, err := load.Config(yaml.Options{Path: path, Getenv: func(string) string { return "" }}, agent.Specs())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
}

// TestSoul checks that a soul file is refused if the agent can write it, or if it is missing,
// empty or too long.
func TestSoul(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"soul: Patient.":                                             "",
		"soul_file: ./soul.md":                                       "",
		"soul_file: ./missing.md":                                    "rouse.yaml:3:31: a: agents[0].soul_file: ",
		"soul_file: ./empty.md":                                      "agents[0].soul_file: ",
		"soul_file: ./long.md":                                       "agents[0].soul_file: is 8001 bytes long",
		"soul: " + strings.Repeat("x", 8001):                         "agents[0].soul: is 8001 bytes long",
		"soul: x, soul_file: ./soul.md":                              "agents[0].soul_file: give soul or soul_file, not both",
		"workdir: ./work, soul_file: ./work/SOUL.md":                 "soul_file",
		"mode: isolated, soul_file: ./h/agents/a/work/s":             "soul_file",
		"mode: isolated, workdir: ./work, soul_file: ./work/SOUL.md": "",
	} {
		path := configtest.Write(t, "rouse.yaml", "version: 1\nhome: ./h\nagents: [{name: a, "+said+"}]\n", "soul.md", "Patient.", "empty.md", " \n",
			"long.md", strings.Repeat("x", 8001), "work/SOUL.md", "Patient.", "h/agents/a/work/s", "Patient.")
		if err := os.Chmod(filepath.Join(filepath.Dir(path), "h"), 0o700); err != nil {
			t.Fatal(err)
		}
		cfg, err := configtest.Load(path, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", said, err, want)
		}
		if err == nil && cfg.Agents[0].Soul != "Patient." {
			t.Errorf("%s: %q", said, cfg.Agents[0].Soul)
		}
	}
}

// TestPhased checks agents that work in phases. Their playbooks do not, and tools.allow and
// tools.deny do not accept the tool of the phases.
func TestPhased(t *testing.T) {
	const text = `
version: 1
home: ./state
models: [{name: m, provider: openai, base_url: "http://localhost:1/v1", model: x}]
agents:
  - {name: a, loop: phased%s}
jobs:
  - {name: j, agent: a, every: 1h, playbook: [{call: %s}]}
`

	build := func(agent, call string) string {
		return strings.Replace(strings.Replace(text, "%s", agent, 1), "%s", call, 1)
	}
	for name, c := range map[string]struct{ agent, call, problem, warning string }{
		"as it is":    {"", "db_schema", "", ""},
		"few steps":   {", bounds: {steps: 20}", "db_schema", "", ""},
		"many steps":  {", bounds: {steps: 60}", "db_schema", "", "agents[0].bounds.steps: warning: a run in phases (loop: phased) takes at most 20 steps"},
		"denied":      {", tools: {deny: [agent_step]}", "db_schema", "agent_step comes with loop: phased", ""},
		"in playbook": {"", "agent_step", "a playbook is a fixed list of calls and never goes in phases", ""},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", build(c.agent, c.call)), nil)
		var all *config.Errors
		got := ""
		if errors.As(err, &all) {
			got = all.Error()
		}
		if (c.problem == "") != (got == "") || !strings.Contains(got, c.problem) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %s", name, got)
		}

		warned := ""
		for _, w := range cfg.Warnings {
			warned += w.String() + "\n"
		}
		if !strings.Contains(warned, c.warning) || (c.warning == "" && strings.Contains(warned, "phases")) {
			t.Errorf("%s: warnings %q", name, warned)
		}
		if err == nil && cfg.Agents[0].Loop != "phased" {
			t.Errorf("%s: %+v", name, cfg.Agents[0])
		}
	}
}

// TestUnconfined checks that disabling the sandbox requires a reason, and excludes settings that
// would then refuse all programs.
func TestUnconfined(t *testing.T) {
	for agent, say := range map[string]string{
		"sandbox: off, reason: a container is around it":              "",
		"sandbox: off, reason: a container is around it, min_tier: D": "",
		"min_tier: A": "", "on_denied: fail": "",
		"sandbox: off":                         "agents[0].sandbox: sandbox: off needs a reason beside it",
		`sandbox: off, reason: " "`:            "agents[0].sandbox: sandbox: off needs a reason beside it",
		"reason: x":                            "agents[0].reason: a reason is only for sandbox: off",
		"sandbox: off, reason: x, min_tier: B": "agents[0].min_tier: with sandbox: off programs run on tier D",
		"min_tier: E":                          "agents[0].min_tier: ",
		"on_denied: ask":                       "agents[0].on_denied: ",
		"sandbox: maybe,":                      "agents[0].sandbox: ",
	} {
		path := filepath.Join(t.TempDir(), "rouse.yaml")
		if err := os.WriteFile(path, []byte("version: 1\nhome: ./h\nagents: [{name: a, "+agent+"}]\n"), 0o644); err != nil {
			t.Fatal(err)
		}

		_, err := configtest.Load(path, nil)
		if (err == nil) != (say == "") || (err != nil && !strings.Contains(err.Error(), say)) {
			t.Errorf("%s: %v, want %q", agent, err, say)
		}
	}
}

// TestCommands checks that a grant without effect is refused, and that a grant of everything
// causes a warning.
func TestCommands(t *testing.T) {
	outside := configtest.Write(t, "job.sh", "#!/bin/sh\n")
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
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nagents:\n  - {name: clerk, workdir: ./work, grants: {commands: "+c.grants+"}}\n"), nil)
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

// An escaped star stands for itself and does not grant other arguments.
func TestEscapedStarIsNoPattern(t *testing.T) {
	t.Parallel()
	for argv, warned := range map[string]bool{`[env, A=b, find, ., -name, "\\*.tmp"]`: false, `[env, A=b, find, ., -name, "*.tmp"]`: true} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "version: 1\nhome: ./home\nagents: [{name: a, grants: {commands: [{argv: "+argv+"}]}}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(cfg.Warnings) > 0; got != warned {
			t.Errorf("%s: %v", argv, cfg.Warnings)
		}
	}
}

// Programs and scripts that begin with ./ are relative to the configuration file, wherever a
// command is configured. A playbook runs the same program.
func TestProgramsBesideTheFile(t *testing.T) {
	t.Parallel()
	file := configtest.Write(t, "rouse.yaml", `home: ./home
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

	cfg, err := configtest.Load(file, nil)
	if !strings.Contains(fmt.Sprint(err), "only-there.sh") { // a program that the agent can change
		t.Errorf("%v", err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	got := fmt.Sprint(cfg.Agents[0].Commands()[0].Argv, cfg.Agents[0].Commands()[0].Written, cfg.Agents[0].Commands()[1].Argv, config.AllServers(cfg.MCP)[0].Argv, config.AllServers(cfg.MCP)[0].Read,
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
	own := filepath.Dir(configtest.Write(t, "rouse-test-tool", "#!/bin/sh\n"))
	if err := os.Chmod(filepath.Join(own, "rouse-test-tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", own+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "home: ./home\nagents: [{name: a, grants: {commands: [{argv: [rouse-test-tool, '*']}]}}]\n"), nil)
	if want := "write argv: [" + filepath.Join(own, "rouse-test-tool") + ", '*'], and the same path"; err != nil || !strings.Contains(fmt.Sprint(cfg.Warnings), want) {
		t.Errorf("%v %v", err, cfg.Warnings)
	}
}

// TestStoredSecrets checks that references to the secret store are allowed only in settings that
// no model and no record contains, and that their values are masked in the output.
func TestStoredSecrets(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", `
models: [{name: m, provider: openai, model: x, base_url: "http://127.0.0.1:1/v1", api_key: secret:one, headers: {X-Plain: "Bearer ${secret:two}"}}]
agents:
  - name: a
    grants:
      network: [{host: API.example.com, methods: [POST]}, {host: "*.wild.example"}, {host: "192.168.1.5:8080", private: true}]
      secrets: [{name: three, only_to: api.example.com}, {name: four}]
`)

	set := map[string]string{"secret:one": "canary-one", "secret:two": "canary-two", "secret:three": "canary-three", "secret:four": "canary-four"}
	cfg, err := configtest.Load(path, set)
	if err != nil {
		t.Fatal(err)
	}
	if m := cfg.Models[0]; m.APIKey != "canary-one" || m.Headers["X-Plain"] != "Bearer canary-two" {
		t.Errorf("the model has %+v", m)
	}

	for _, want := range set {
		if !slices.Contains(cfg.Secrets.Values, want) {
			t.Errorf("%s is not known as a secret: %q", want, cfg.Secrets.Values)
		}
	}

	shown, err := yaml.Show(cfg)
	if err != nil || strings.Contains(string(shown), "canary") {
		t.Errorf("it is shown (%v):\n%s", err, shown)
	}

	a := &cfg.Agents[0]
	if got, want := fmt.Sprint(a.Network()), fmt.Sprint([]web.Grant{{Host: "API.example.com", Methods: []string{"POST"}}, {Host: "*.wild.example"}, {Host: "192.168.1.5:8080", Private: true}}); got != want {
		t.Errorf("hosts %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(a.Secrets()), fmt.Sprint([]tool.SecretGrant{{Name: "three", OnlyTo: "api.example.com", Value: "canary-three"}, {Name: "four", Value: "canary-four"}}); got != want {
		t.Errorf("secrets %s, want %s", got, want)
	}

	var refs []string
	for _, r := range cfg.Secrets.Refs {
		refs = append(refs, fmt.Sprintf("%s: %s at %s:%d", r.Name, r.Path, r.Of, r.At.Line))
	}

	if got, want := strings.Join(refs, "\n"), `one: models[0].api_key at model m:2
two: models[0].headers.X-Plain at model m:2
three: agents[0].grants.secrets[0] at agent a:7
four: agents[0].grants.secrets[1] at agent a:7`; got != want {
		t.Errorf("it is asked for at\n%s\nwant\n%s", got, want)
	}

	set["secret:one"] = "canary-new!"
	again, err := configtest.Load(path, set)
	if err != nil || config.Compare(cfg, again).Empty() {
		t.Errorf("another value changes nothing (%v)", err)
	}

	set["secret:four"] = "canary-4444"
	third, err := configtest.Load(path, set)
	if err != nil || config.Compare(again, third).Empty() {
		t.Errorf("another value of a grant changes nothing (%v)", err)
	}
}

func TestGrantMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"agents: [{name: a, instructions: 'secret:k'}]":                                                                   "a: agents[0].instructions: a secret cannot stand here; it can under api_key",
		"agents: [{name: a, instructions: 'say ${secret:k}'}]":                                                            "a secret cannot stand here",
		"agents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: notify, with: {url: 'secret:k'}}]}]":           "a secret cannot stand here",
		"mcp: [{name: pg, argv: [/opt/pg], env: {DATABASE_URI: 'secret:none'}}]":                                          "pg: mcp[0].env.DATABASE_URI: the secret none is not set; set it with: rouse secrets set none",
		"models: [{name: m, provider: openai, model: x, api_key: 'secret:locked'}]":                                       "the secret locked cannot be read: the keyring gave no answer",
		"models: [{name: m, provider: openai, model: x, api_key: 'Bearer ${secret:none}'}]":                               ":1:57: m: models[0].api_key: the secret none is not set; set it with: rouse secrets set none",
		"models: [{name: m, provider: openai, model: x, api_key: 'secret:lines'}]":                                        ":1:57: m: models[0].api_key: holds a line break or another control character, which no key does; set the secret again, in one line",
		"models: [{name: m, provider: openai, model: x, headers: {X-A: 'a ${secret:lines}'}}]":                            "models[0].headers.X-A: holds a line break or another control character, which no header does; set it again, in one line",
		"agents: [{name: a, grants: {secrets: [{name: k}, {name: k}]}}]":                                                  "granted twice",
		"agents: [{name: a, grants: {secrets: [{name: 'a b'}]}}]":                                                         "is not the name of a secret",
		"agents: [{name: a, grants: {secrets: [{name: none}]}}]":                                                          "the secret none is not set; set it with: rouse secrets set none",
		"agents: [{name: a, grants: {secrets: [{name: k, only_to: '*.example.com'}]}}]":                                   "must be one host",
		"agents: [{name: a, grants: {secrets: [{name: k, only_to: 'https://example.com'}]}}]":                             "must be one host",
		"agents: [{name: a, grants: {secrets: [{name: k, only_to: example.com}]}}]":                                       "warning: no host under grants.network is example.com",
		"agents: [{name: a, grants: {network: [{host: 'https://example.com'}]}}]":                                         "write a host like api.example.com",
		"agents: [{name: a, grants: {network: [{host: '0x7f.1'}]}}]":                                                      "is a number and not an address",
		"agents: [{name: a, grants: {network: [{host: example.com, methods: [get]}]}}]":                                   `"get" is none of GET, HEAD`,
		"agents: [{name: a, grants: {network: [{host: '*'}]}}]":                                                           "warning: lets the agent ask any host, also",
		"agents: [{name: a, grants: {network: [{host: '*.com'}]}}]":                                                       "warning: lets the agent ask any host below com, also",
		"agents: [{name: a, grants: {network: [{host: example.com}], secrets: [{name: k, only_to: 'Example.com:443'}]}}]": "warning: no host",
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text+"\n"), map[string]string{"secret:k": "value", "secret:lines": "canary\nof two lines"})
		said := fmt.Sprint(err)
		for _, w := range cfg.Warnings {
			said += "\n" + w.String()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s\nsays %s\nwant %s", text, said, want)
		}
	}
}

const oneModel = "timezone: Europe/Berlin\nmodels: [{name: m, provider: openai, model: x, base_url: 'http://localhost'}]\n"

// TestSelfScheduling checks that agents cannot plan runs without the block. With it they get the
// limits of the mode, and each limit can be changed.
func TestSelfScheduling(t *testing.T) {
	preset := func(mode schedule.Mode, change func(*schedule.Limits)) schedule.Limits {
		l, _ := schedule.Preset(mode)
		if l.Zone = nil; change != nil {
			change(&l)
		}
		return l
	}
	for text, want := range map[string]schedule.Limits{
		"":                                  {},
		"self_scheduling: {enabled: false}": {},
		"self_scheduling: {enabled: false, mode: project}": {},
		"self_scheduling: {enabled: true}":                 preset(schedule.ModeAmbient, nil),
		"self_scheduling: {}":                              preset(schedule.ModeAmbient, nil),
		"self_scheduling: {mode: reactive}":                preset(schedule.ModeReactive, nil),
		"self_scheduling: {mode: manual}":                  preset(schedule.ModeManual, nil),
		"self_scheduling: {daily_cap: 0}":                  preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.DailyCap = 0 }),
		"self_scheduling: {enabled: true, mode: project, horizon: 2d, min_interval: 0s, daily_cap: 9, quiet_hours: 23:30-6:00, days: [mon-fri, Sunday], max_chain: 4}": {
			Mode: schedule.ModeProject, Horizon: 48 * time.Hour, DailyCap: 9, Quiet: schedule.Quiet{From: 23*60 + 30, To: 6 * 60}, Days: 0b0111111, MaxChain: 4},
		"self_scheduling: {quiet_hours: none, days: mon}": preset(schedule.ModeAmbient, func(l *schedule.Limits) { l.Quiet, l.Days = schedule.Quiet{}, 2 }),
	} {
		path := configtest.Write(t, "rouse.yaml", oneModel+"agents: [{name: a, "+text+"}]\n")
		for range 2 { // as written and as shown
			cfg, err := configtest.Load(path, nil)
			if err != nil || len(cfg.Warnings) > 0 {
				t.Fatalf("%s: %v %v", text, err, cfg.Warnings)
			}

			got, ok := cfg.SelfScheduling(&cfg.Agents[0])
			if ok && got.Zone.String() != "Europe/Berlin" {
				t.Errorf("%s: zone %s", text, got.Zone)
			}
			if got.Zone = nil; got != want || ok != (want.Mode != "") {
				t.Errorf("%s: %+v %t, want %+v", text, got, ok, want)
			}

			shown, err := yaml.Show(cfg)
			if err != nil {
				t.Fatal(err)
			}

			path = configtest.Write(t, "rouse.yaml", string(shown))
		}
	}
}

// TestSelfSchedulingMistakes checks that invalid values are refused at their position with a hint.
func TestSelfSchedulingMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"true":                      `self_scheduling: must be a mapping of keys, not "true"; write self_scheduling: {enabled: true}`,
		"{enabled: yes please}":     `self_scheduling.enabled: must be true or false, not "yes please"`,
		"{mode: ambiant}":           `self_scheduling.mode: "ambiant" is none of ambient, reactive, project, manual; did you mean "ambient"?`,
		"{horizon: 0s}":             `self_scheduling.horizon: must be more than 0; leave it out for its default`,
		"{horizon: soon}":           `self_scheduling.horizon: "soon" is not a length of time like 30s, 15m, 6h or 7d`,
		"{min_interval: -1m}":       `self_scheduling.min_interval: "-1m" is not a length of time like 30s, 15m, 6h or 7d`,
		"{min_interval: 8d}":        `self_scheduling: min_interval 8d is longer than horizon 7d`,
		"{daily_cap: few}":          `self_scheduling.daily_cap: must be a whole number from 0 on, not "few"`,
		"{quiet_hours: night}":      `self_scheduling.quiet_hours: "night" is neither none nor hours like 22:00-07:00`,
		"{quiet_hours: ''}":         `self_scheduling.quiet_hours: "" is neither none nor hours like 22:00-07:00`,
		"{quiet_hours: 0:00-24:00}": `self_scheduling.quiet_hours: "0:00-24:00" is the whole day; use mode: manual to have no wakes`,
		"{days: [mon, someday]}":    `self_scheduling.days[1]: "someday" is neither a day like mon or Monday nor a range like mon-fri`,
		"{days: []}":                `self_scheduling.days: is empty, which allows no day; leave it out for all days; to let only the owner plan, write mode: manual`,
		"{max_chain: 0}":            `self_scheduling.max_chain: must be more than 0; leave it out for its default`,
		"{quiet_hour: none}":        `self_scheduling: unknown key "quiet_hour"; did you mean "quiet_hours"?`,
	} {
		_, err := configtest.Load(configtest.Write(t, "rouse.yaml", oneModel+"agents:\n- name: a\n  self_scheduling: "+text+"\n"), nil)
		var all *config.Errors
		if !errors.As(err, &all) || len(all.Problems) != 1 || !strings.Contains(all.Problems[0].String(), ":5:") || !strings.HasSuffix(all.Problems[0].String(), "agents[0]."+want) {
			t.Errorf("%s:\n%v\nwant %s", text, err, want)
		}
	}
}

// TestSelfSchedulingWarnings checks the warnings about settings that prevent permitted wakes.
func TestSelfSchedulingWarnings(t *testing.T) {
	for text, want := range map[string][]string{
		"agents: [{name: a, self_scheduling: {}}]": {`agents[0].self_scheduling: warning: a wake needs a model, and the agent "a" has none`},
		oneModel + "agents: [{name: a, self_scheduling: {mode: manual, min_interval: 1h, horizon: 1d, max_chain: 2}}]": {
			"agents[0].self_scheduling.min_interval: warning: has no effect with mode: manual", "agents[0].self_scheduling.max_chain: warning: has no effect"},
		oneModel + "agents: [{name: a, self_scheduling: {}, tools: {allow: [db_*, notify]}}]":                     {"may not use schedule_next_run"},
		oneModel + "agents: [{name: a, self_scheduling: {}, tools: {deny: ['*_next_run']}}]":                      {"may not use schedule_next_run"},
		oneModel + "agents: [{name: a, self_scheduling: {mode: manual}, tools: {deny: ['*_next_run']}}]":          nil,
		"agents: [{name: a, self_scheduling: {enabled: false, min_interval: 1h}, tools: {deny: ['*_next_run']}}]": nil,
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), nil)
		if err != nil || len(cfg.Warnings) != len(want) {
			t.Errorf("%s: %v %v", text, err, cfg.Warnings)
			continue
		}

		for i, w := range want {
			if !strings.Contains(cfg.Warnings[i].String(), w) {
				t.Errorf("%s: %s, want %s", text, cfg.Warnings[i], w)
			}
		}
	}
}

// TestPlaybooksThatPlan checks that only agents that plan their own runs have the tools for it.
func TestPlaybooksThatPlan(t *testing.T) {
	with := map[string]string{"schedule_next_run": ", with: {in_seconds: 60, instructions: look}"}
	for _, name := range []string{"schedule_next_run", "cancel_next_run"} {
		for block, refused := range map[string]bool{"": true, ", self_scheduling: {enabled: false}": true, ", self_scheduling: {}": false} {
			text := fmt.Sprintf("%sagents: [{name: a%s}]\njobs: [{name: j, agent: a, playbook: [{call: %s%s}]}]\n", oneModel, block, name, with[name])
			_, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), nil)
			want := fmt.Sprintf(`jobs[0].playbook[0].call: the agent "a" does not plan its own runs, so it has no %s; give it self_scheduling: {mode: ambient}`, name)
			if (err != nil) != refused || (refused && !strings.Contains(err.Error(), want)) {
				t.Errorf("%q %s: %v", block, name, err)
			}
		}
	}
}

// config show prints the effective limits, whatever their source.
func TestSelfSchedulingIsShown(t *testing.T) {
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", oneModel+"agents: [{name: a, self_scheduling: {daily_cap: 0}}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}

	shown, err := yaml.Show(cfg)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	_, block, _ := strings.Cut(string(shown), "self_scheduling:\n")
	for line := range strings.Lines(block) {
		if got = append(got, strings.TrimSpace(line)); len(got) == 7 {
			break
		}
	}

	want := []string{"enabled: true # default", "mode: ambient # default", "horizon: 7d", "min_interval: 1h", "daily_cap: 0", "quiet_hours: 22:00-07:00", "days:"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q in\n%s", got, want, shown)
	}
}
