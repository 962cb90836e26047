package yaml_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	goyaml "go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

const schemaFile = "../../../../examples/rouse.schema.json"

// The output of show is an equivalent configuration: showing it again does not change it.
func TestShow(t *testing.T) {
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", strings.Replace(configtest.Valid, "${TEST_KEY}", "", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}

	first, err := yaml.Show(cfg)
	if err != nil {
		t.Fatal(err)
	}

	again, err := configtest.Load(configtest.Write(t, "rouse.yaml", string(first)), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, first)
	}

	second, err := yaml.Show(again)
	if err != nil || string(first) != string(second) {
		t.Errorf("(%v)\n%s\nbecame\n%s", err, first, second)
	}

	for _, want := range []string{"on_miss: run_once # default", "drain: 1m\n", "runs_per_agent: 1 # default", "'007'", "on: []", "$${5}", "a: null"} {
		if !strings.Contains(strings.ReplaceAll(string(first), `"007"`, "'007'"), want) {
			t.Errorf("%q is missing in\n%s", want, first)
		}
	}
}

// Any text survives being shown and read again: quotes, line ends, and texts that look like a
// number, a comment, a key or a variable.
func TestShowAnyText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rouse.yaml")
	texts := rapid.OneOf(rapid.StringMatching(`([ a#:'"\n\t${}!&*|>%@-]|[0-9]|\$\{A\}){1,20}`), rapid.String())
	reference := regexp.MustCompile(`\$\{[^}]*\}`)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ToValidUTF8(texts.Draw(t, "text"), "")
		escaped := reference.ReplaceAllStringFunc(text, func(m string) string { return "$" + m })
		raw := []byte("agents: [{name: a, instructions: " + strconv.QuoteToASCII(escaped) + "}]")
		for range 2 {
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}

			cfg, err := configtest.Load(path, nil)
			if err != nil && strings.Contains(err.Error(), "a secret cannot stand here") {
				return
			}
			if err != nil || cfg.Agents[0].Instructions != text {
				t.Fatalf("%q became %+v (%v) in\n%s", text, cfg.Agents, err, raw)
			}
			if raw, err = yaml.Show(cfg); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The schema is generated from the decoder's tags, and the schema file for editors is up to date.
func TestSchema(t *testing.T) {
	raw, err := yaml.Schema()
	if err != nil {
		t.Fatal(err)
	}

	configtest.Golden(t, schemaFile, string(raw)+"\n")
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}

	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}

	validate := func(text []byte) error {
		var v any
		if err := goyaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}

		plain, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(plain, &v)
		}
		if err != nil {
			t.Fatal(err)
		}

		return resolved.Validate(v)
	}

	for _, path := range append(examples(t), "../load/testdata/design/daemon.yaml", "../load/testdata/design/every.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if strings.HasSuffix(path, "every.yaml") {
			text = []byte(strings.ReplaceAll(string(text), "kind: url", "kind: desktop")) // a desktop channel needs no url
		}
		if err := validate(text); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}

	if err := validate([]byte(configtest.Valid)); err != nil {
		t.Error(err)
	}

	calls := func(one string) string {
		return "version: 1\nagents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [" + one + "]}]\n"
	}
	for _, text := range []string{
		calls("{call: db_schema}"), calls("{call: file_write, with: {path: '{{ .Job }}', content: a, mode: '{{ .Input.mode }}', dry_run: '= true'}}"),
		calls("{call: file_write, with: {path: a, content: a, dry_run: '${DRY}'}}"),
	} {
		if err := validate([]byte(text)); err != nil {
			t.Errorf("the schema refuses %s: %v", text, err)
		}
		if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), map[string]string{"DRY": "true"}); err != nil {
			t.Errorf("the decoder refuses %s: %v", text, err)
		}
	}

	for _, text := range []string{
		"jbs: []", "jobs: [{name: j}]", "jobs: [{name: j, agent: a, overlap: sometimes}]", "agents: [{name: 'a b'}]", "limits: {runs: 0}", "limits: {runs: many}",
		"defaults: {prompt: x}", "jobs: [{name: j, agent: a, watch: {path: x, on_success: burn}}]", "agents: [{name: a, tools: {allow: [[x]]}}]",
		calls("{call: file_wirte, with: {path: a, content: b}}"), calls("{call: file_write, with: {pth: a, content: b}}"), calls("{call: file_write, with: {path: a}}"),
		calls("{call: file_write}"), calls("{call: file_write, with: {path: a, content: b, mode: replace}}"), calls("{call: file_read, with: {path: a, max_chars: many}}"),
		calls("{call: db_create_table, with: {name: t, purpose: p, columns: [{nam: a, type: TEXT}]}}"),
	} {
		if validate([]byte(text)) == nil {
			t.Errorf("the schema takes %s", text)
		}
		if _, err := configtest.Load(configtest.Write(t, "rouse.yaml", text), nil); err == nil {
			t.Errorf("the decoder takes %s", text)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func examples(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../../../../examples/*/rouse.yaml")
	if err != nil || len(found) < 2 {
		t.Fatalf("examples: %v (%v)", found, err)
	}
	for i, path := range found {
		if filepath.Base(filepath.Dir(path)) == "night-coder" { // its README tells the user to create the repository
			copied := filepath.Join(t.TempDir(), "night-coder")
			if err := os.CopyFS(copied, os.DirFS(filepath.Dir(path))); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(copied), filepath.Base(schemaFile)), read(t, schemaFile), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(copied, "app", ".git"), 0o700); err != nil {
				t.Fatal(err)
			}
			found[i] = filepath.Join(copied, "rouse.yaml")
		}
	}
	return append(found, "../../../../config.example.yaml")
}

// The examples of the project use only valid keys, cause no warnings, and refer to the schema.
func TestExamples(t *testing.T) {
	for _, path := range examples(t) {
		cfg, err := configtest.Load(path, map[string]string{"secret:deploys": "a secret that its README has you set", "secret:ledger": "postgres://rouse@db.example.net/rouse"})
		if err != nil {
			t.Fatalf("%v", err)
		}

		for _, w := range cfg.Warnings {
			t.Errorf("%s", w)
		}

		first, _, _ := strings.Cut(string(read(t, path)), "\n")
		target, ok := strings.CutPrefix(strings.TrimSpace(first), "# yaml-language-server: $schema=")
		if !ok || !bytes.Equal(read(t, filepath.Join(filepath.Dir(path), target)), read(t, schemaFile)) {
			t.Errorf("%s begins with %q, which is not the schema", path, first)
		}
	}
}

// The starter is valid, also with its commented lines enabled.
func TestStarter(t *testing.T) {
	text := string(yaml.Starter())
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", text, "inbox/x.csv", ""), nil)
	if err != nil || len(cfg.Warnings) > 0 || len(cfg.Jobs) == 0 {
		t.Errorf("%+v (%v)", cfg, err)
	}
	if !strings.HasPrefix(text, "# yaml-language-server:") {
		t.Error("no schema")
	}

	for _, path := range []string{"", "../../../../config.example.yaml"} {
		if path != "" {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = strings.ReplaceAll(string(raw), "./examples/expenses/inbox", "./inbox")
		}

		all, err := configtest.Load(configtest.Write(t, "rouse.yaml", uncomment(text), "inbox/x.csv", "", "examples/x", ""), map[string]string{"OPENAI_API_KEY": "sk-canary"})
		if err != nil || len(all.Models) != 1 || len(all.Jobs) < 2 || len(all.Warnings) > 0 {
			t.Errorf("with its comments on: %+v (%v)\n%s", all, err, uncomment(text))
		}
	}
}

// uncomment removes the # from lines that contain YAML: a key or an item after "# ".
func uncomment(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		before, rest, found := strings.Cut(line, "# ")
		key, _, isKey := strings.Cut(strings.TrimLeft(rest, " -"), ":")
		if found && strings.TrimSpace(before) == "" && ((isKey && !strings.ContainsAny(key, " -")) || strings.HasPrefix(rest, "    ")) {
			line = before + rest
		}
		out = append(out, line)
	}

	return strings.Join(out, "")
}

// The secrets of a URL are masked wherever a configuration is shown, but its rest is shown.
func TestShowAddresses(t *testing.T) {
	cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", `version: 1
models:
  - {name: m, provider: openai, model: x, base_url: "https://me:hunter%402-and-more@example.com/v1?api_key=abcdef123456&region=north"}
agents:
  - {name: a, workdir: ./work, model: m}
jobs:
  - {name: j, agent: a, prompt: x, when: [{http: "https://status.example.com/?access_token=tok-998877&page=start"}]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}

	shown, err := yaml.Show(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter", "abcdef123456", "tok-998877"} {
		if strings.Contains(string(shown), secret) {
			t.Errorf("%s is shown:\n%s", secret, shown)
		}
	}
	for _, kept := range []string{"https://me:", "@example.com/v1?api_key=", "region=north", "page=start"} {
		if !strings.Contains(string(shown), kept) {
			t.Errorf("%s is not shown:\n%s", kept, shown)
		}
	}
}
