package load_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
)

func TestLoad(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", configtest.Valid, "in/.keep", "")
	dir := filepath.Dir(path)
	cfg, err := configtest.Load(path, map[string]string{"TEST_KEY": "sk-canary"})
	if err != nil {
		t.Fatal(err)
	}

	a, m, in := cfg.Agents[0], cfg.Jobs[0], cfg.Jobs[1]
	for what, ok := range map[string]bool{
		"home":       cfg.Home == config.Path(filepath.Join(dir, "state")),
		"limits":     cfg.Limits.Runs == 8 && cfg.Limits.RunsPerAgent == 1 && time.Duration(cfg.Limits.Drain) == time.Minute,
		"workdir":    a.Workdir == config.Path(filepath.Join(dir, "books")),
		"size":       a.Database.Quota == 10<<20,
		"days":       time.Duration(a.Bounds.Wall) == 24*time.Hour,
		"defaults":   m.Retry.Attempts == 2 && time.Duration(m.Retry.Backoff) == 5*time.Second && m.Retry.On[0] == "error" && len(m.Notify.On) == 1,
		"presets":    time.Duration(m.Retry.MaxBackoff) == 15*time.Minute && m.OnMiss == "run_once" && config.On(m.Resume) && in.Watch.Existing == "process",
		"never told": in.Notify.On != nil && len(in.Notify.On) == 0,
		"inherited":  m.Bounds.Calls == 9 && m.Bounds.Steps == 5 && m.Bounds.Wall == a.Bounds.Wall && m.Bounds.Output == 1<<20,
		"model":      a.Model == "local",
		"escaping":   m.Prompt == "Costs ${5}, since {{ .LastSuccess }}",
		"one word":   len(in.Watch.Include) == 1 && in.Watch.Include[0] == "*.csv",
		"after":      in.Watch.OnSuccess == config.After{Action: "move", Dir: filepath.Join(dir, "done")} && in.Watch.OnFailure.Action == "delete",
		"free":       in.Playbook[0].With["max_rows"] == 10 && in.Playbook[2].With["row"].(map[string]any)["day"] == "2026-11-21",
		"position":   in.Playbook[1].At.Line == 28 && m.At == config.Position{File: path, Line: 15, Column: 5},
		"secret":     slices.Equal(cfg.Secrets.Values, []string{"sk-canary"}),
		"keep":       m.Keep.String() == "90d",
		"no problem": len(cfg.Warnings) == 0,
	} {
		if !ok {
			t.Errorf("%s: %+v", what, cfg)
		}
	}
}

// All mistakes of a configuration are reported at once, in the order of the files, with position
// and hint. The golden files define the exact messages.
func TestMistakes(t *testing.T) {
	for _, name := range []string{"mistakes", "includes", "aliases", "design"} {
		t.Run(name, func(t *testing.T) {
			cfg, err := configtest.Load(filepath.Join("testdata", name, "rouse.yaml"), map[string]string{"EMPTY": ""})
			var all *config.Errors
			if !errors.As(err, &all) {
				t.Fatalf("%v", err)
			}

			lines := []string{all.Error()}
			for _, w := range cfg.Warnings {
				lines = append(lines, w.String())
			}

			configtest.Golden(t, filepath.Join("testdata", name, "want.txt"), filepath.ToSlash(strings.Join(lines, "\n"))+"\n")
		})
	}
}

// Every key of the design is accepted.
func TestKnowsEveryKey(t *testing.T) {
	for _, name := range []string{"rouse.yaml", "daemon.yaml"} {
		set := map[string]string{"secret:anthropic": "sk-0123", "secret:bank": "money", "secret:slack_url": "slack://hook:T00000000-B00000000-000000000000000000000000@webhook", "secret:api": "key-0123", "secret:x": "key-0124"}
		if _, err := configtest.Load(filepath.Join("testdata", "design", name), set); err != nil {
			t.Error(err)
		}
	}
}

func TestBrokenFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, say string }{
		"empty":            {"", "is empty"},
		"a list":           {"- a\n", ":1:1: the file must be a mapping of keys, not a list"},
		"a bare star":      {"jobs:\n  - schedule: */5 * * * *\n", `quote texts that begin with *, like schedule: "*/5 * * * *"`},
		"tabs":             {"version: 1\nagents:\n\t- name: a\n", ":3:1: this is not YAML: found character that cannot start any token while scanning for the next token; indent with spaces"},
		"open bracket":     {"version: 1\njobs: [\n", ":3:1: this is not YAML"},
		"open brace":       {"a: {b: c\n\n", "that begins in line 1"},
		"colon":            {"version: 1\nprompt: a: b\n", ":2:10: this is not YAML: mapping values are not allowed in this context; quote"},
		"twice":            {"version: 1\nversion: 1\n", ":2:1: version: is given twice, first in line 1"},
		"two documents":    {"version: 1\n---\nversion: 1\n", "a second document begins here"},
		"second is broken": {"version: 1\n---\n\t-", "this is not YAML"},
		"null":             {"version:\n", "must be a whole number, not nothing"},
		"nothing listed":   {"jobs:\n", "must be a list, not nothing"},
		"binary":           {"\x00\x01\x02", "this is not YAML"},
		"deep":             {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested too deeply"},
		"secret":           {"models: [{name: m, provider: openai, model: x, api_key: 'secret:k'}]\n", ":1:57: m: models[0].api_key: the secret k is not set; set it with: rouse secrets set k"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configtest.Load(configtest.Write(t, "rouse.yaml", c.text), nil)
			if err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v, want %q", err, c.say)
			}
		})
	}

	if _, err := configtest.Load(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil || !strings.Contains(err.Error(), "rouse init") {
		t.Errorf("a file that is missing: %v", err)
	}
	if _, err := configtest.Load(t.TempDir(), nil); err == nil {
		t.Error("a folder was read")
	}

	large := configtest.Write(t, "rouse.yaml", "#"+strings.Repeat(" ", 5<<20))
	if _, err := configtest.Load(large, nil); err == nil || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Errorf("%v", err)
	}
}

// Included files extend the lists of the main file. Paths in them are relative to them.
func TestInclude(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", "include: ['conf/*/*.yaml', '*.yaml']\nagents: [{name: a}]\ndefaults: {keep: 1d}\n",
		"conf/jobs/one.yaml", "include: two.yaml\njobs: [{name: j, agent: b, prompt_file: ask.md}]\n",
		"conf/jobs/two.yaml", "agents: [{name: b, workdir: ./w}]\n", "conf/jobs/ask.md", "Now.\n")
	cfg, err := configtest.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(filepath.Dir(path), "conf", "jobs")
	want := []string{path, filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml"), filepath.Join(dir, "ask.md")}
	if !slices.Equal(cfg.Files, want) {
		t.Errorf("files %q, want %q", cfg.Files, want)
	}

	j := cfg.Jobs[0]
	if cfg.Agents[1].Workdir != config.Path(filepath.Join(dir, "w")) || j.Prompt != "Now.\n" || j.PromptFile != "" || j.Keep.String() != "1d" || j.At.File != want[1] {
		t.Errorf("%+v", cfg)
	}
}

func TestMergeKeys(t *testing.T) {
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", `agents: [{name: a}]
jobs:
  - &one {name: one, agent: a, prompt: x, retry: {attempts: 3}, keep: 1d}
  - {name: two, keep: 2d, <<: *one}
  - {<<: [{keep: 3d}, *one], name: three}
`), nil)
	if err != nil {
		t.Fatal(err)
	}

	for i, keep := range []string{"1d", "2d", "3d"} {
		if j := cfg.Jobs[i]; j.Keep.String() != keep || j.Retry.Attempts != 3 || j.Prompt != "x" {
			t.Errorf("%+v", j)
		}
	}
}

func TestEnvironment(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", "log: {level: warn}\nhome: ./h\n")
	cfg, err := configtest.Load(path, map[string]string{"ROUSE_LOG_FORMAT": "json", "ROUSE_LIMITS_RUNS": "7", "ROUSE_TIMEZONE": "Asia/Tokyo", "ROUSE_HOME": "h2"})
	if err != nil || cfg.Log.Level != "warn" || cfg.Log.Format != "json" || cfg.Limits.Runs != 7 || cfg.Zone().String() != "Asia/Tokyo" {
		t.Errorf("%+v (%v)", cfg, err)
	}
	if here, _ := filepath.Abs("h2"); string(cfg.Home) != here { // relative to the working directory, as in a shell
		t.Errorf("home %s", cfg.Home)
	}

	_, err = configtest.Load(path, map[string]string{"ROUSE_LOG_LEVEL": "loud", "ROUSE_LIMITS_DRAIN": "x"})
	if err == nil || !strings.Contains(err.Error(), `$ROUSE_LOG_LEVEL: log.level: "loud" is none of`) || !strings.Contains(err.Error(), "$ROUSE_LIMITS_DRAIN: limits.drain") {
		t.Errorf("%v", err)
	}

	flagged, err := load.Config(yaml.Options{Path: path, Home: filepath.Dir(path), Getenv: func(name string) string {
		return map[string]string{"ROUSE_HOME": "h2"}[name]
	}}, nil)
	if err != nil || string(flagged.Home) != filepath.Dir(path) {
		t.Errorf("a flag is stronger than the environment: %v (%v)", flagged.Home, err)
	}
}

// Variables under the key of a secret are known as secrets, and so are literal values of keys that
// only hold secrets.
func TestSecrets(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", `agents: [{name: a, instructions: "${PLAIN} ${SOME_TOKEN}"}]
models:
  - name: m
    provider: openai
    model: x
    base_url: http://${HOST_NAME}/v1
    api_key: literal-key
    headers: {Authorization: "Bearer abc-written", X-Team: "${TEAM}", Accept: "json-plain"}
jobs:
  - {name: j, agent: a, playbook: [{call: notify, with: {title: "${PLAIN}"}}, {call: db_insert, with: {table: t, row: {password: "${PASS}", token: "tk", url: "${SHORT}"}}}]}
`)

	cfg, err := configtest.Load(path, map[string]string{"PLAIN": "plain-text", "SOME_TOKEN": "tok-1", "HOST_NAME": "host-1", "TEAM": "team-1", "PASS": "pass-1-longer", "SHORT": "abc"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"pass-1-longer", "abc-written", "literal-key", "host-1", "team-1", "tok-1"}; !slices.Equal(cfg.Secrets.Values, want) {
		t.Errorf("%q, want %q", cfg.Secrets.Values, want)
	}
	if len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].String(), "fewer than 4 characters") {
		t.Errorf("%v", cfg.Warnings)
	}

	shown, err := yaml.Show(cfg)
	if err != nil {
		t.Fatal(err)
	}

	for _, secret := range cfg.Secrets.Values {
		if strings.Contains(string(shown), secret) {
			t.Errorf("%s is shown:\n%s", secret, shown)
		}
	}

	for _, plain := range []string{"plain-text ********", "Bearer ********", "json-plain"} {
		if !strings.Contains(string(shown), plain) {
			t.Errorf("%s is not shown:\n%s", plain, shown)
		}
	}
}

// Without a configured model, a key in the environment adds one, with a warning.
func TestModelOfEnvironment(t *testing.T) {
	path := configtest.Write(t, "rouse.yaml", "agents: [{name: a}]\n")
	cfg, err := configtest.Load(path, map[string]string{"OPENAI_API_KEY": "sk-canary"})
	if err != nil || len(cfg.Models) != 1 || cfg.Agents[0].Model != "openai" || cfg.Models[0].BaseURL != "https://api.openai.com/v1" || !slices.Contains(cfg.Secrets.Values, "sk-canary") {
		t.Fatalf("%+v (%v)", cfg, err)
	}
	if len(cfg.Warnings) != 1 || !strings.Contains(cfg.Warnings[0].String(), "prompts go to "+cfg.Models[0].Model) {
		t.Errorf("%v", cfg.Warnings)
	}
	if said := cfg.Warnings[0].String(); !strings.Contains(said, "for $0.25 (read) and $2 (written) per million tokens") || cfg.Limits.CostUSDPerDay != 5 {
		t.Errorf("%s; %v USD a day", said, cfg.Limits.CostUSDPerDay)
	}

	for text, env := range map[string]map[string]string{
		"agents: [{name: a}]\n":             nil,
		"models: []\nagents: [{name: a}]\n": {"OPENAI_API_KEY": "sk-canary"},
		"models: [{name: m, provider: openai, model: x, base_url: 'http://localhost'}]\n": {"OPENAI_API_KEY": "sk-canary"},
	} {
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), env)
		if err != nil || len(cfg.Warnings) > 0 || slices.ContainsFunc(cfg.Models, func(m config.Model) bool { return m.Name == "openai" }) {
			t.Errorf("%s: %+v (%v)", text, cfg, err)
		}
	}
}

// Suspicious but valid settings cause a warning. The daemon starts nevertheless.
func TestWarnings(t *testing.T) {
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", `home: ./state
agents:
  - {name: off, enabled: false}
  - {name: wide, workdir: ./work, grants: {read: [./nowhere], write: [./work]}}
  - {name: inner, workdir: ./work/inner}
jobs:
  - {name: a, agent: off, prompt: x, jitter: 1s, watch: {path: ./nowhere}}
`), nil)
	if err != nil {
		t.Fatal(err)
	}

	var paths []string
	for _, w := range cfg.Warnings {
		paths = append(paths, w.Path)
	}
	if want := []string{"agents[1].grants.read[0]", "agents[2].workdir", "jobs[0].agent", "jobs[0].jitter", "jobs[0].watch.path"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
}

func TestSchedules(t *testing.T) {
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", "timezone: Asia/Tokyo\nagents: [{name: a}]\njobs: [{name: j, agent: a, prompt: x, schedule: '0 8 * * *', every: 1h, at: '2030-01-01T00:00:00Z'}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}

	schedules, err := cfg.Schedules(&cfg.Jobs[0])
	if err != nil || len(schedules) != 3 {
		t.Fatalf("%v (%v)", schedules, err)
	}

	cron := schedules[2].Next(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	if want := time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC); !cron.Equal(want) {
		t.Errorf("%s, want 8 o'clock in Tokyo, %s", cron, want)
	}
}

func TestDurationsAndSizes(t *testing.T) {
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "90m": 90 * time.Minute, "0s": 0} {
		if got, err := config.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s (%v)", text, got, err)
		}
	}

	for _, text := range []string{"", "d", "-1d", "-5m", "5", "1e300d", "NaNd", "week"} {
		if got, err := config.ParseDuration(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}

	for d, want := range map[time.Duration]string{48 * time.Hour: "2d", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", time.Hour: "1h", 0: "0s"} {
		if got := config.Duration(d).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	for s, want := range map[config.Size]string{100 << 20: "100MiB", 1500: "1500B", 1 << 10: "1KiB", 0: "0B"} {
		if got := s.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A file that is not a configuration, or that expands to a huge one, is refused within limits.
func TestBounds(t *testing.T) {
	if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", strings.Repeat("k", 100_000)+": 1\n"), nil); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%d bytes about one long key", len(err.Error()))
	}

	var many strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&many, "k%d: 1\n", i)
	}

	_, err := configtest.Load(configtest.Write(t, "rouse.yaml", many.String()), nil)
	var all *config.Errors
	if !errors.As(err, &all) || len(all.Problems) > 1100 || !strings.Contains(err.Error(), "there are more than 1000 problems") {
		t.Errorf("%d problems", len(all.Problems))
	}

	merged := "a: &a {" + strings.ReplaceAll(strings.TrimSpace(many.String()), "\n", ", ") + "}\nb: {<<: *a}\nc: {<<: [*a, *a, *a, *a]}\n"
	if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", merged), nil); err == nil || !strings.Contains(err.Error(), "aliases make it too large") {
		t.Errorf("merged: %.200v", err)
	}
}
