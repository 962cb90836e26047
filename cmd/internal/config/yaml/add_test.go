package yaml_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v4"

	"rouse/cmd/internal/config/configtest"
	"rouse/cmd/internal/config/yaml"
)

const newItem = "# new\n- name: z\n  prompt: |\n    a\n\n    b\n  # more\n"

// indented replaces <2> by the item with two spaces before each line.
var indented = strings.NewReplacer("<0>", newItem, "<2>", indent("  "), "<4>", indent("    "))

func indent(by string) string {
	return strings.TrimSuffix(strings.ReplaceAll(by+strings.ReplaceAll(newItem, "\n", "\n"+by), by+"\n", "\n"), by)
}

func TestAdd(t *testing.T) {
	for name, c := range map[string]struct{ old, want string }{
		"at the end":  {"jobs:\n  - name: a\n", "jobs:\n  - name: a\n\n<2>"},
		"no section":  {"version: 1\n", "version: 1\n\njobs:\n<2>"},
		"like others": {"agents:\n- name: a\n", "agents:\n- name: a\n\njobs:\n<0>"},
		"other sections": {"jobs:\n  - name: a\n    # of a\n\n# of the agents\nagents: []\n",
			"jobs:\n  - name: a\n    # of a\n\n<2>\n# of the agents\nagents: []\n"},
		"no indentation": {"jobs:\n- name: a\n# of the agents\nagents: []\n", "jobs:\n- name: a\n\n<0># of the agents\nagents: []\n"},
		"wide":           {"jobs:\n    - name: a\n    - name: b\nx: 1", "jobs:\n    - name: a\n    - name: b\n<4>x: 1"},
		"no last end":    {"jobs:\n  - name: a", "jobs:\n  - name: a\n\n<2>"},
		"text at end":    {"jobs:\n  - prompt: |\n      a", "jobs:\n  - prompt: |\n      a\n\n<2>"},
		"kept ends":      {"jobs:\n  - prompt: |+\n      a\n", "jobs:\n  - prompt: |+\n      a\n<2>"},
		"empty":          {"jobs: # none\nx: 1\n", "jobs: # none\n<2>x: 1\n"},
		"brackets":       {"jobs: [] # none\n", "jobs: # none\n<2>"},
		"null":           {"jobs: ~\n", "jobs:\n<2>"},
		"only comments":  {"jobs:\n  # - name: a\n\nx: 1\n", "jobs:\n  # - name: a\n\n<2>\nx: 1\n"},
		"document ends":  {"jobs:\n  - name: a\n...\n", "jobs:\n  - name: a\n\n<2>...\n"},
		"a value jobs":   {"x: jobs\n", "x: jobs\n\njobs:\n<2>"},
		"a mark":         {"\xef\xbb\xbfjobs:\n  - name: a\n", "\xef\xbb\xbfjobs:\n  - name: a\n\n<2>"},
		"flow":           {"jobs: [{name: a}]\n", ""},
		"flow of a file": {"{version: 1}\n", ""},
		"an alias":       {"x: &a\n  - b\njobs: *a\n", ""},
		"a mapping":      {"jobs:\n  name: a\n", ""},
		"a text":         {"jobs: none\n", ""},
	} {
		for _, end := range []string{"\n", "\r\n"} {
			old, want := strings.ReplaceAll(c.old, "\n", end), strings.ReplaceAll(indented.Replace(c.want), "\n", end)
			got, line, err := yaml.Add([]byte(old), "jobs", newItem)
			if c.want == "" {
				if !errors.Is(err, yaml.ErrStyle) {
					t.Errorf("%s: %v\n%s", name, err, got)
				}
				continue
			}
			if err != nil || string(got) != want {
				t.Errorf("%s: %v\n%q\nwant\n%q", name, err, got, want)
				continue
			}
			if at := strings.Split(string(got), "\n")[line-1]; strings.TrimSpace(at) != "# new" {
				t.Errorf("%s: line %d is %q", name, line, at)
			}
		}
	}
}

// FuzzAdd checks that the lines of a configuration stay in order, and that only the new item
// changes its meaning.
func FuzzAdd(f *testing.F) {
	patterns := []string{"../load/testdata/*/*.yaml", "starter.yaml", "../../../../examples/*/rouse.yaml", "../../../rouse/templates/*/rouse.yaml"}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	f.Add("jobs:\n- a: |+\n\n\n# x\n  # y")
	f.Add("? jobs\n: - a\n  - b\n")
	f.Add("jobs: !!seq\n  - a: 'x\n\n    y'\r\n")
	f.Add("jobs: &x []\nagents: *x\n")

	f.Fuzz(func(t *testing.T, old string) {
		out, line, err := yaml.Add([]byte(old), "jobs", newItem)
		if err != nil {
			return
		}
		if line < 1 || line > bytes.Count(out, []byte("\n")) {
			t.Errorf("line %d", line)
		}

		rest := strings.Split(string(out), "\n")
		for i, one := range strings.Split(old, "\n") {
			want := strings.TrimRight(one, "\r")
			for len(rest) > 0 && strings.TrimRight(rest[0], "\r") != want && !emptied(rest[0], want) {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				t.Fatalf("line %d is gone: %q\n%s", i+1, one, out)
			}
			if i < strings.Count(old, "\n") {
				rest = rest[1:]
			}
		}

		var before, after map[string]any
		if goyaml.Unmarshal([]byte(old), &before) != nil || goyaml.Unmarshal(out, &after) != nil {
			return // a key is not a text, or is duplicate
		}
		jobs, _ := after["jobs"].([]any)
		had, _ := before["jobs"].([]any)
		if len(jobs) != len(had)+1 || !reflect.DeepEqual(jobs[len(had)], map[string]any{"name": "z", "prompt": "a\n\nb\n"}) {
			t.Fatalf("jobs: %v, before %v", jobs, had)
		}
		delete(before, "jobs")
		delete(after, "jobs")
		if strings.HasSuffix(old, "\n") && !reflect.DeepEqual(before, after) {
			t.Fatalf("%v became %v", before, after)
		}
	})
}

// emptied reports whether a line equals another one without its empty list.
func emptied(now, old string) bool {
	for _, empty := range []string{"[]", "~", "null", "Null", "NULL"} {
		if key, rest, ok := strings.Cut(old, empty); ok && strings.TrimRight(now, "\r") == strings.TrimRight(key, " ")+rest {
			return true
		}
	}
	return false
}

func TestLiteral(t *testing.T) {
	for _, text := range []string{
		"plain", "a: b # c", "two\nlines", "  indented\nlines\n", "${HOME} $${X}", "", "- x", "yes", strings.Repeat("long text ", 60),
		"\ttab\r\n", "{{ .Job }}", "ends\n\n", "no \xff UTF-8",
	} {
		yamlText := "version: 1\nagents: [{name: a}]\njobs:\n  - name: j\n    agent: a\n    prompt: " + yaml.Literal(text+".", "    ") + "\n"
		cfg, err := configtest.Load(configtest.Write(t, "rouse.yaml", yamlText), nil)
		if err != nil || cfg.Jobs[0].Prompt != strings.ToValidUTF8(text, "\ufffd")+"." {
			t.Errorf("%q: %v\n%s", text, err, yamlText)
		}
	}
}
