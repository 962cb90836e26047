package yaml

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rouse/cmd/internal/config"
)

// Every key has a description and a valid example.
func TestKeysHaveExamples(t *testing.T) {
	for _, k := range Keys() {
		if k.Says == "" {
			t.Errorf("%s: its tag say is missing", k.Path)
		}

		file := filepath.Join(t.TempDir(), "rouse.yaml")
		d := newDecoder(func(string) string { return "" })
		d.Secret = func(string) (string, bool, error) { return "value", true, nil }
		root := d.parse(file, []byte(k.Example))
		if root == nil {
			t.Errorf("%s: the example is no YAML: %v\n%s", k.Path, d.problems, k.Example)
			continue
		}

		var cfg config.Config
		d.value(root, "", reflect.ValueOf(&cfg).Elem(), config.Field{})
		for _, p := range d.problems {
			// An example shows one key without the required keys beside it.
			if strings.Contains(p.Message, "is missing") {
				continue
			}
			t.Errorf("%s: %s in its example, which is the tag eg\n%s", k.Path, p, k.Example)
		}
		if strings.HasSuffix(strings.TrimSpace(k.Example), ":") || strings.Contains(k.Example, ": }") || strings.Contains(k.Example, "[]\n") {
			t.Errorf("%s: neither default, enum nor type make an example: give it the tag eg\n%s", k.Path, k.Example)
		}
	}
}

// A key is found by the end of its path, in the notation of messages or editors. A misspelt key
// gets a hint.
func TestFindKeys(t *testing.T) {
	for name, want := range map[string]string{
		"schedule": "jobs[].schedule", "jobs[].schedule": "jobs[].schedule", "jobs.schedule": "jobs[].schedule", "Watch.Path": "jobs[].watch.path",
		"defaults.retry.attempts": "jobs[].retry.attempts", "price.input": "models[].price.input agents[].executor.price.input jobs[].executor.price.input",
		"model": "models[].model agents[].model jobs[].model", "models": "models[]", "log.level:": "log.level",
	} {
		found, hint := FindKeys(name)
		var paths []string
		for _, k := range found {
			paths = append(paths, k.Path)
		}
		if got := strings.Join(paths, " "); got != want || hint != "" {
			t.Errorf("%s is %q (%s), want %q", name, got, hint, want)
		}
	}

	for name, want := range map[string]string{"shedule": `did you mean "schedule"?`, "jobs.shedule": `did you mean "jobs.schedule"?`, "watch.patth": `did you mean "watch.path"?`, "xyzzy": "", "": ""} {
		if found, hint := FindKeys(name); found != nil || hint != want {
			t.Errorf("%s: %d keys, %q, want %q", name, len(found), hint, want)
		}
	}
}

// The complete documentation of some keys.
func TestKeyInFull(t *testing.T) {
	for _, want := range []Key{
		{Path: "log.level", Type: "a text", Values: []string{"debug", "info", "warn", "error"}, Default: "info", Env: "ROUSE_LOG_LEVEL", Where: "in log", Example: "log:\n  level: info\n"},
		{Path: "jobs[].retry.attempts", Type: "a whole number", Default: "1", Where: "in jobs[].retry, and for all jobs in defaults.retry", Example: "agents: [{name: bookkeeper}]\njobs:\n  - name: morning-report\n    agent: bookkeeper\n    prompt: Write the report.\n    retry:\n      attempts: 1\n"},
		{Path: "jobs[].watch.path", Type: "a path", Required: true, Where: "in jobs[].watch", Example: "agents: [{name: bookkeeper}]\njobs:\n  - name: morning-report\n    agent: bookkeeper\n    prompt: Write the report.\n    watch:\n      path: ./inbox\n"},
		{Path: "agents[].grants.commands[].argv", Type: "a list of text, or one alone", Required: true, Where: "in agents[].grants.commands[]",
			Example: "agents:\n  - name: bookkeeper\n    grants:\n      commands:\n        - argv: [pandoc, '*.md', -o, '*.html']\n"},
	} {
		found, _ := FindKeys(want.Path)
		if len(found) != 1 {
			t.Fatalf("%s: %d keys", want.Path, len(found))
		}
		got := found[0]
		got.Says, got.Keys = "", nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	}
}

// The reference contains all keys of the example file and the starter.
func TestKeysOfExampleFile(t *testing.T) {
	text, err := os.ReadFile("../../../../config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		name, _, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, " ") {
			continue
		}
		if found, hint := FindKeys(name); len(found) == 0 {
			t.Errorf("config.example.yaml has the key %s, and rouse explain does not (%s)", name, hint)
		}
	}
}
