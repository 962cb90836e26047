package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config"
)

var tools = []string{"todo", "complete", "notify", "db_schema", "db_create_table", "db_insert", "db_import", "db_query", "file_read", "file_write"}

// write makes files and returns the path of the first.
func write(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, files[0])
}

func load(path string, env map[string]string) (*config.Config, error) {
	return config.Load(config.LoadOptions{Path: path, Tools: tools, Getenv: func(name string) string {
		if name == "HOME" && env[name] == "" {
			return "/home/someone"
		}
		return env[name]
	}})
}

const valid = `version: 1
home: ./state
timezone: Europe/Berlin
limits: {runs: 8, drain: 1m}
defaults: {retry: {attempts: 2, on: error}, notify: {on: [error]}}
models:
  - {name: local, provider: openai, base_url: "http://127.0.0.1:8080/v1", model: qwen, api_key: "${TEST_KEY}"}
agents:
  - name: bookkeeper
    workdir: ./books
    database: {quota: 10MiB}
    grants: {read: [./statements]}
    bounds: {wall: 1d, steps: 5}
jobs:
  - name: morning
    agent: bookkeeper
    schedule: "0 8 * * 1-5"
    retry: {backoff: 5s}
    prompt: "Costs $${5}, since {{ .LastSuccess }}"
  - name: inbox
    agent: bookkeeper
    watch: {path: ., include: "*.csv", on_success: {move: ./done}, on_failure: delete}
    playbook:
      - call: db_import
        with: {table: expenses, path: "{{ .File.Path }}", max_rows: 10}
        save: imported
      - {call: notify, if: imported.rows_imported > 0, with: {title: "{{ .imported.rows_imported }} rows"}}
`

func TestLoad(t *testing.T) {
	path := write(t, "rouse.yaml", valid)
	dir := filepath.Dir(path)
	cfg, err := load(path, map[string]string{"TEST_KEY": "sk-canary"})
	if err != nil {
		t.Fatal(err)
	}
	a, m, in := cfg.Agents[0], cfg.Jobs[0], cfg.Jobs[1]
	for what, ok := range map[string]bool{
		"home":       cfg.Home == config.Path(filepath.Join(dir, "state")),
		"limits":     cfg.Limits.Runs == 8 && time.Duration(cfg.Limits.Drain) == time.Minute,
		"workdir":    a.Workdir == config.Path(filepath.Join(dir, "books")),
		"size":       a.Database.Quota == 10<<20,
		"days":       time.Duration(a.Bounds.Wall) == 24*time.Hour,
		"defaults":   m.Retry.Attempts == 2 && time.Duration(m.Retry.Backoff) == 5*time.Second && m.Retry.On[0] == "error" && len(m.Notify.On) == 1,
		"escaping":   m.Prompt == "Costs ${5}, since {{ .LastSuccess }}",
		"one word":   len(in.Watch.Include) == 1 && in.Watch.Include[0] == "*.csv",
		"after":      in.Watch.OnSuccess == config.After{Action: "move", Dir: filepath.Join(dir, "done")} && in.Watch.OnFailure.Action == "delete",
		"free":       in.Playbook[0].With["max_rows"] == 10,
		"position":   in.Playbook[1].At.Line == 27 && m.At.Line == 15,
		"secret":     len(cfg.Secrets()) == 1 && cfg.Secrets()[0] == "sk-canary",
		"keep":       m.Keep.String() == "90d",
		"no problem": len(cfg.Warnings) == 0,
	} {
		if !ok {
			t.Errorf("%s: %+v", what, cfg)
		}
	}
	shown, err := cfg.Show()
	if err != nil || strings.Contains(string(shown), "sk-canary") || !strings.Contains(string(shown), "on_miss: run_once # default") {
		t.Errorf("show (%v):\n%s", err, shown)
	}
}

// Every mistake of a file is reported at once, at its place, with what was meant.
func TestAllProblemsAtOnce(t *testing.T) {
	path := write(t, "rouse.yaml", `version: 2
hom: ./x
limits: {runs: many}
agents:
  - name: a b
    modle: x
  - name: clerk
    model: nobody
    skills: [x]
    loop: phased
  - name: CLERK
jobs:
  - name: j
    agent: clrk
    schedule: "0 0 31 2 *"
    overlap: queue
    prompt: "{{ .Job"
    playbook: [{call: db_imprt}]
    webhook: {path: /x}
  - name: k
    agent: clerk
    prompt: ${MISSING}
    retry: [1]
    keep: soon
    every: 5m
    watch: {path: ./nowhere, mode: batch}
  - prompt: x
`)
	_, err := load(path, nil)
	var all *config.Errors
	if !errors.As(err, &all) {
		t.Fatalf("%v", err)
	}
	got := strings.ReplaceAll(err.Error(), path, "rouse.yaml")
	for _, want := range []string{
		`rouse.yaml:2:1: unknown key "hom"; did you mean "home"?`,
		`rouse.yaml:3:16: limits.runs: must be a whole number from 0 on, not "many"`,
		`rouse.yaml:5:11: agents[0].name: "a b" cannot be a name`,
		`rouse.yaml:6:5: agents[0]: unknown key "modle"; did you mean "model"?`,
		`rouse.yaml:9:5: agents[1].skills: not available in this version (skills)`,
		`rouse.yaml:10:11: agents[1].loop: "phased" is not available in this version`,
		`rouse.yaml:16:14: jobs[0].overlap: "queue" is none of skip, queue_one, queue_all, cancel_previous, allow`,
		`rouse.yaml:19:5: jobs[0].webhook: not available in this version (webhooks)`,
		`rouse.yaml:22:13: jobs[1].prompt: the environment variable "MISSING" is not set`,
		`rouse.yaml:23:12: jobs[1].retry: must be a mapping of keys, not a list`,
		`rouse.yaml:24:11: jobs[1].keep: "soon" is not a length of time`,
		`rouse.yaml:26:36: jobs[1].watch.mode: "batch" is not available in this version`,
		`rouse.yaml:27:5: jobs[2]: the key "name" is missing`,
		`rouse.yaml:27:5: jobs[2]: the key "agent" is missing`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nis missing in\n%s", want, got)
		}
	}
	if len(all.Problems) != 14 {
		t.Errorf("%d problems:\n%s", len(all.Problems), got)
	}
}

// What single values cannot tell is checked once they are right.
func TestReferences(t *testing.T) {
	path := write(t, "rouse.yaml", `version: 1
agents:
  - {name: clerk, model: nobody, tools: {allow: [db_*, shell_run, fiel_read]}}
  - {name: Clerk}
jobs:
  - name: j
    agent: clrk
    schedule: "0 0 31 2 *"
    prompt: "{{ .Job"
    notify: {channels: [pager]}
    expect: [{}]
  - name: k
    agent: clerk
    prompt: x
    playbook: [{call: db_imprt}, {call: file_edit}, {call: notify, if: "1 +"}]
    watch: {path: ./nowhere}
`)
	_, err := load(path, nil)
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.ReplaceAll(err.Error(), path, "rouse.yaml")
	for _, want := range []string{
		`:3:5: agents[0].model: there is no model "nobody"; no model is configured`,
		`:3:5: agents[0].tools: the tool "shell_run" is not available in this version`,
		`:3:5: agents[0].tools: there is no tool "fiel_read"; did you mean "file_read"?`,
		`:4:5: agents[1].name: the name "Clerk" is taken`,
		`:6:5: jobs[0].agent: there is no agent "clrk"; did you mean "clerk"?`,
		`never fires`, `the template of jobs[0].prompt is broken`, `there is no channel "pager"; there are desktop`, `jobs[0].expect[0]: give exactly one of file and sql`,
		`:12:5: jobs[1]: give exactly one of prompt, prompt_file and playbook`,
		`jobs[1].playbook[0].call: there is no tool "db_imprt"; did you mean "db_import"?`,
		`jobs[1].playbook[1].call: the tool "file_edit" is not available in this version`, `the expression of if is broken`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nis missing in\n%s", want, got)
		}
	}
}

func TestBrokenFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, say string }{
		"empty":        {"", "is empty"},
		"a list":       {"- a\n", "must be a mapping of keys, not a list"},
		"tabs":         {"version: 1\nagents:\n\t- name: a\n", ":3:"},
		"broken":       {"version: 1\njobs: [\n", "YAML syntax"},
		"twice":        {"version: 1\nversion: 1\n", ":2:1: version: is given twice, first in line 1"},
		"two files":    {"version: 1\n---\nversion: 1\n", "a second document"},
		"null":         {"version:\n", "must be a whole number, not nothing"},
		"binary":       {"\x00\x01\x02", "YAML syntax"},
		"secret":       {"version: 1\nmodels: [{name: m, provider: openai, model: x, api_key: 'secret:k'}]\n", "secret: is not available in this version"},
		"deep aliases": {"version: &a [*a]\n", "version"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(write(t, "rouse.yaml", c.text), nil)
			if err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v, want %q", err, c.say)
			}
		})
	}
	if _, err := load(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil || !strings.Contains(err.Error(), "rouse init") {
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestInclude(t *testing.T) {
	path := write(t, "rouse.yaml", "version: 1\ninclude: [more*.yaml]\nagents: [{name: a}]\n",
		"more1.yaml", "jobs:\n  - {name: j, agent: a, prompt: x}\n", "more2.yaml", "agents:\n  - {name: b, modle: x}\nhome: ./y\n")
	_, err := load(path, nil)
	if err == nil || !strings.Contains(err.Error(), `more2.yaml:2:15: agents[1]: unknown key "modle"`) || !strings.Contains(err.Error(), "more2.yaml:3:1: home: an included file holds only") {
		t.Errorf("%v", err)
	}
	self := write(t, "rouse.yaml", "version: 1\ninclude: rouse.yaml\n")
	if _, err := load(self, nil); err == nil || !strings.Contains(err.Error(), "includes itself") {
		t.Errorf("%v", err)
	}
}

func TestEnvironment(t *testing.T) {
	path := write(t, "rouse.yaml", "version: 1\nlog: {level: warn}\n")
	cfg, err := load(path, map[string]string{"ROUSE_LOG_FORMAT": "json", "ROUSE_LIMITS_RUNS": "7", "ROUSE_HOME": "/tmp/h"})
	if err != nil || cfg.Log.Level != "warn" || cfg.Log.Format != "json" || cfg.Limits.Runs != 7 || cfg.Home != "/tmp/h" {
		t.Errorf("%+v (%v)", cfg, err)
	}
	if _, err := load(path, map[string]string{"ROUSE_LOG_LEVEL": "loud"}); err == nil || !strings.Contains(err.Error(), "the environment or a flag") {
		t.Errorf("%v", err)
	}
}

// What the design's example uses is either read, or refused as not available: never unknown.
func TestKnowsEveryKey(t *testing.T) {
	path := write(t, "rouse.yaml", `version: 1
home: ./h
heartbeat_url: "https://x"
dashboard: {listen: "127.0.0.1:7311", off: true}
skills: {roots: [{path: ./s, trusted: true}]}
engine: {postgres: "postgres://x"}
limits: {runs: 4, runs_per_agent: 1, cost_usd_per_day: 5, tokens_per_day: 1, drain: 30s}
models: [{name: m, provider: openai, model: x, base_url: "http://x", fallback: m, context_window: 1, max_output: 1, price: {input: 1, output: 2, cached_input: 0.1}, timeout: 1s, idle: 1s, temperature: 0.5, headers: {a: b}}]
agents:
  - {name: a, model: m, instructions: x, workdir: ., loop: tools, enabled: true, database: {enabled: true, quota: 1MiB},
     self_scheduling: {enabled: true, mode: ambient, horizon: 1d, min_interval: 1h, daily_cap: 3, quiet_hours: "22:00-07:00", days: [mon]},
     skills: [x], skill_access: none, tools: {allow: [db_*], deny: [notify]}, on_denied: park, min_tier: B, sandbox: off, reason: x, budget: {cost_usd_per_day: 1, tokens_per_day: 1},
     grants: {read: [.], write: [.], commands: [{argv: [x], network: none}], network: [{host: h, methods: [GET]}], secrets: [{name: s, only_to: h}]},
     bounds: {steps: 1, calls: 1, wall: 1s, idle: 1s, tokens: 1, cost_usd: 1, output: 1KiB}}
jobs:
  - {name: j, agent: a, enabled: true, prompt: x, schedule: "@daily", every: 1h, at: "2030-01-01T00:00:00Z", timezone: UTC, exclude: [2026-12-25], on_miss: skip,
     catchup_window: 1h, max_catchup: 1, start_deadline: 1h, overlap: skip, jitter: 1s, run_on_start: true, pause_after_failures: 5, skill: s, input: {a: b},
     retry: {attempts: 1, backoff: 1s, max_backoff: 1s, on: [error]}, resume: true, when: [{sql: x}, {command: [x]}, {http: x}, {file: x}], expect: [{sql: x}],
     context_views: [x], record: true, undo_on_failure: true, keep: 1d, priority: low, bounds: {steps: 1}, budget: {tokens_per_day: 1}, model: m, webhook: {path: /x, secret: s},
     notify: {on: [waiting], channels: [desktop], title: x, body: x, every: 1h},
     watch: {path: ., include: [x], exclude: [x], recursive: true, mode: per_file, responsiveness: fast, max_wait: 1s, max_files: 1, existing: ignore, follow_symlinks: true, on_success: leave, on_failure: delete}}
notifications: [{name: d, kind: desktop}, {name: u, kind: url, url: x, secret: y, quiet_hours: z}]
`)
	_, err := load(path, nil)
	var all *config.Errors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	for _, p := range all.Problems {
		if !strings.Contains(p.Message, "not available in this version") {
			t.Errorf("%s", p)
		}
	}
	if len(all.Problems) < 30 {
		t.Errorf("only %d keys are refused:\n%v", len(all.Problems), err)
	}
}

// The example at the top of the project, and those in examples/, use no key that is refused.
func TestExamples(t *testing.T) {
	found, err := filepath.Glob("../../../examples/*/rouse.yaml")
	if err != nil || len(found) < 2 {
		t.Fatalf("examples: %v (%v)", found, err)
	}
	for _, path := range append(found, "../../../config.example.yaml") {
		if _, err := load(path, nil); err != nil {
			t.Errorf("%v", err)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), "# yaml-language-server:") {
			t.Errorf("%s does not begin with its schema", path)
		}
	}
	if _, err := load(write(t, "rouse.yaml", string(config.Starter())), nil); err != nil {
		t.Errorf("what init writes: %v", err)
	}
}

func TestSchema(t *testing.T) {
	raw, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Properties map[string]struct {
			Items struct {
				Required   []string
				Properties map[string]any
			}
		}
		AdditionalProperties bool
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	if s.AdditionalProperties || s.Properties["jobs"].Items.Properties["overlap"] == nil || strings.Join(s.Properties["jobs"].Items.Required, " ") != "name agent" {
		t.Errorf("%s", raw)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "90m": 90 * time.Minute} {
		if got, err := config.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "-5m", "5", "1e300d", "week"} {
		if got, err := config.ParseDuration(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// FuzzLoad: no text makes reading a configuration fail otherwise than by saying so.
func FuzzLoad(f *testing.F) {
	f.Add(valid)
	f.Add("version: 1\njobs: [{name: j, agent: a, playbook: [{call: x, each: [1]}]}]")
	path := write(f, "rouse.yaml", "")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // the fuzzer must not read other files
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if cfg, err := load(path, nil); err == nil {
			if _, err := cfg.Show(); err != nil {
				t.Error(err)
			}
		}
	})
}
