package yaml

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// Key is the documentation of a key of rouse.yaml, built from the tags that the decoder uses.
type Key struct {
	Path     string   `json:"key"` // such as jobs[].watch.path
	Type     string   `json:"type"`
	Values   []string `json:"values,omitempty"`  // allowed values; empty means any value of the type
	Default  string   `json:"default,omitempty"` // default as YAML, or in words if it depends on something else
	Required bool     `json:"required"`          // required if its parent is given
	Secret   bool     `json:"secret,omitempty"`  // value is never shown or stored
	Env      string   `json:"env,omitempty"`     // variable that can set it
	Says     string   `json:"description,omitempty"`
	Where    string   `json:"where"`          // parent of the key in words, and other places for it
	Example  string   `json:"example"`        // YAML from the top level of the file
	Keys     []string `json:"keys,omitempty"` // keys below it
}

// Keys returns all keys, each after its parent.
func Keys() []Key {
	var r referrer
	r.walk(reflect.TypeFor[config.Config](), "", false)
	return r.out
}

// FindKeys returns the keys with a path that ends with a name, such as jobs.schedule. If there are
// no such keys, hint suggests the nearest.
func FindKeys(name string) (found []Key, hint string) {
	all := Keys()
	wanted := plainPath(name)
	for _, k := range all {
		if plain := plainPath(k.Path); plain == wanted {
			return []Key{k}, ""
		} else if strings.HasSuffix(plain, "."+wanted) {
			found = append(found, k)
		}
	}
	if len(found) > 0 || wanted == "" {
		return found, ""
	}
	return nil, text.DidYouMean(strings.TrimSpace(name), nearNames(all, wanted))
}

// nearNames returns the candidates for a misspelt name: the last parts of each path, as many as
// wanted has.
func nearNames(all []Key, wanted string) (out []string) {
	parts := strings.Count(wanted, ".") + 1
	for _, k := range all {
		plain := strings.Split(plainPath(k.Path), ".")
		out = append(out, strings.Join(plain[max(len(plain)-parts, 0):], "."))
	}
	return out
}

// plainPath returns a path without [] and with defaults replaced by jobs.
func plainPath(path string) string {
	path = strings.ReplaceAll(strings.ToLower(strings.Trim(path, " .:")), "[]", "")
	if rest, ok := strings.CutPrefix(path, "defaults."); ok {
		return "jobs." + rest
	}
	return path
}

// referrer collects keys.
type referrer struct{ out []Key }

// walk collects the keys of a struct. owned is true below a key that only jobs have, not defaults.
func (r *referrer) walk(t reflect.Type, path string, owned bool) (names []string) {
	for _, f := range config.Fields(t) {
		names = append(names, f.Key)
		ft := t.Field(f.Index).Type
		here := config.Join(path, f.Key)
		if isList(ft) && structOf(ft) != nil {
			here += "[]"
		}

		at := len(r.out)
		r.out = append(r.out, keyOfField(ft, f, path, here, owned || f.JobOnly))
		// The keys of defaults are those of jobs and are not repeated.
		if inner := structOf(ft); inner != nil && f.Key != "defaults" {
			r.out[at].Keys = r.walk(inner, here, owned || f.JobOnly)
		}
	}
	return names
}

func keyOfField(t reflect.Type, f config.Field, parent, path string, owned bool) Key {
	k := Key{
		Path: path, Type: typeWords(t), Default: f.Default + f.DefaultDoc, Required: f.Required, Secret: f.Secret, Says: f.Doc,
		Where: whereText(parent, owned), Example: under(path, example(t, f)),
	}
	if f.Enum != "" {
		k.Values = strings.Split(f.Enum, "|")
	}
	if t == reflect.TypeFor[config.After]() {
		k.Values = []string{"leave", "delete", "{move: FOLDER}"}
	}
	if f.Env {
		k.Env = environmentName(path)
	}
	return k
}

func whereText(parent string, owned bool) string {
	switch {
	case parent == "":
		return "at the top of the file"
	case strings.HasPrefix(parent, "jobs[]") && !owned:
		return fmt.Sprintf("in %s, and for all jobs in %s", parent, strings.Replace(parent, "jobs[]", "defaults", 1))
	}
	return "in " + parent
}

// structOf returns the struct type of a setting or its items, or nil if it is not a struct with
// keys.
func structOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[config.After]() {
		return nil
	}
	return t
}

func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice }

// typeWords describes the type of a setting.
func typeWords(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return typeWords(t.Elem())
	case t == reflect.TypeFor[config.After]():
		return "what becomes of a file"
	case t == reflect.TypeFor[config.Name]():
		return "a name"
	case shortForm(t) == "Path":
		return "a path, or a mapping"
	case shortForm(t) != "":
		return "a name, or a mapping"
	}

	switch t.Kind() {
	case reflect.Slice:
		words := "a list of " + strings.TrimPrefix(strings.TrimPrefix(typeWords(t.Elem()), "a "), "an ")
		if t.Elem().Kind() == reflect.Struct && shortForm(t.Elem()) == "" {
			words += "s"
		} else if oneWillDo(t.Elem()) {
			words += ", or one alone"
		}
		return words
	case reflect.Struct:
		return "a mapping"
	case reflect.Map:
		return "a mapping of names to values"
	case reflect.Interface:
		return "any value"
	}
	return typeName(t)
}

// example returns an example value of a setting in the flow form of YAML.
func example(t reflect.Type, f config.Field) string {
	if f.Example != "" {
		return f.Example
	}
	if inner := structOf(t); inner != nil {
		return mappingExample(t, inner)
	}
	if t.Kind() == reflect.Pointer {
		return example(t.Elem(), f)
	}
	if t.Kind() == reflect.Slice && f.Default == "" {
		return "[" + example(t.Elem(), f) + "]"
	}
	return scalarExample(t, f)
}

// mappingExample returns an example with the required keys, or else with the first key.
func mappingExample(t, inner reflect.Type) string {
	fields := config.Fields(inner)
	var parts []string
	for _, f := range fields {
		if f.Required {
			parts = append(parts, f.Key+": "+example(inner.Field(f.Index).Type, f))
		}
	}
	if len(parts) == 0 {
		f := fields[0]
		parts = append(parts, f.Key+": "+example(inner.Field(f.Index).Type, f))
	}

	out := "{" + strings.Join(parts, ", ") + "}"
	if t.Kind() == reflect.Slice {
		return "[" + out + "]"
	}
	return out
}

func scalarExample(t reflect.Type, f config.Field) string {
	if f.Enum != "" && f.Default == "" {
		word, _, _ := strings.Cut(f.Enum, "|")
		return strings.TrimSuffix(word, "*")
	}
	if t.Kind() == reflect.Bool {
		return fmt.Sprint(f.Default != "true") // the default needs no line
	}
	if f.Default != "" {
		return f.Default
	}

	switch t {
	case reflect.TypeFor[config.Duration]():
		return "15m"
	case reflect.TypeFor[config.Size]():
		return "10MiB"
	}
	if f.Secret {
		return "secret:NAME"
	}
	return ""
}

// besides lists lines that make an example valid. They belong in the mapping at place, if the path
// of the key begins with one of shown. Later lines replace earlier ones; -KEY removes a line.
var besides = []struct {
	place, shown string
	lines        []string
}{
	{"", "jobs[]", []string{"agents: [{name: bookkeeper}]"}},
	{"jobs[]", "jobs[]", []string{"prompt: Write the report."}},
	{"", "agents[].model jobs[].model", []string{"models: [{name: local, provider: ollama, model: 'qwen3:8b'}]"}},
	{"", "agents[].channels jobs[].notify.channels", []string{"notifications: [{name: ops, kind: desktop}]"}},
	{"", "agents[].mcp", []string{"mcp: [{name: files, argv: [/opt/mcp/files-server]}]"}},
	{"agents[].self_scheduling", "agents[].self_scheduling.horizon", []string{"min_interval: 10m"}},
	{"agents[]", "agents[].sandbox", []string{"reason: its programs are confined by the container"}},
	{"agents[]", "agents[].reason", []string{"sandbox: off"}},
	{"dashboard", "dashboard.proxy", []string{"hosts: [box.example.net]"}},
	{"replicate", "replicate.access_key replicate.secret_key",
		[]string{"access_key: secret:s3_key", "secret_key: secret:s3_secret", "to: s3://bucket/rouse?region=eu-central-1"}},
	{"engine", "engine.blobs engine.access_key engine.secret_key", []string{"postgres: secret:postgres"}},
	{"engine", "engine.access_key engine.secret_key", []string{"access_key: secret:s3_key", "secret_key: secret:s3_secret", "blobs: s3://bucket"}},
	{"models[]", "models[]", []string{"model: 'qwen3:8b'", "provider: ollama"}},
	{"models[]", "models[].api models[].base_url models[].api_key", []string{"model: gpt-5-mini", "provider: openai"}},
	{"models[]", "models[].recording", []string{"-model", "provider: replay"}},
	{"mcp[]", "mcp[]", []string{"argv: [/opt/mcp/files-server]"}},
	{"mcp[]", "mcp[].url mcp[].headers mcp[].private_network mcp[].oauth", []string{"-argv", "url: https://mcp.example.com/mcp"}},
	{"mcp[].oauth", "mcp[].oauth.client_secret", []string{"issuer: https://login.example.com"}},
	{"calendars[]", "calendars[]", []string{"file: ./closed.ics"}},
	{"calendars[]", "calendars[].holidays calendars[].url", []string{"-file"}},
	{"calendars[]", "calendars[].private_network calendars[].refresh", []string{"-file", "url: https://example.com/closed.ics"}},
	{"jobs[]", "jobs[].prompt_file jobs[].playbook[] jobs[].skill", []string{"-prompt"}},
	{"jobs[]", "jobs[].input jobs[].workspace", []string{"-prompt", "skill: csv-report"}},
	{"jobs[].playbook[]", "jobs[].playbook[]", []string{"with: {title: done}"}},
	{"", runsLs, []string{"agents: [{name: bookkeeper, grants: {commands: [{argv: [ls]}]}}]"}},
	{"jobs[].playbook[]", runsLs, []string{"with: {command: ls}", "call: shell_run"}},
	{"", "jobs[].playbook[].expect.status", []string{"agents: [{name: bookkeeper, grants: {network: [{host: example.com}]}}]"}},
	{"jobs[].playbook[]", "jobs[].playbook[].expect.status", []string{"with: {url: 'https://example.com/'}", "call: web_fetch"}},
	{"jobs[]", "jobs[].playbook[].each", []string{"watch: {path: ./inbox, mode: batch}"}},
	{"jobs[].watch", "jobs[].watch.max_wait jobs[].watch.max_files", []string{"mode: batch"}},
	{"jobs[].when[]", "jobs[].when[].write jobs[].when[].read jobs[].when[].network jobs[].when[].sandbox jobs[].when[].reason",
		[]string{"command: [./has-news.sh]"}},
	{"jobs[].when[]", "jobs[].when[].sandbox", []string{"reason: it only asks the clock"}},
	{"jobs[].when[]", "jobs[].when[].reason", []string{"sandbox: off"}},
	{"jobs[].when[]", "jobs[].when[].not jobs[].when[].timeout", []string{"file: ./inbox"}},
	{"jobs[]", "jobs[].when[].that", []string{"webhook: {path: /hooks/bank, secret: secret:bank}"}},
	{"jobs[].expect[]", "jobs[].expect[].timeout", []string{"command: [make, test]"}},
	{"notifications[]", "notifications[].url", []string{"kind: url"}},
	{"notifications[]", "notifications[].secret", []string{"url: https://example.net/notices", "kind: webhook"}},
}

const runsLs = "jobs[].playbook[].must_succeed jobs[].playbook[].expect"

// wholes holds the examples that need two items of a list.
var wholes = map[string]string{
	"models[].fallback": "models:\n  - {name: main, provider: ollama, model: 'qwen3:8b', fallback: spare}\n  - {name: spare, provider: ollama, model: 'qwen3:4b'}\n",
	"jobs[].after[]":    followed + "after: fetch}\n", "jobs[].after[].job": followed + "after: [{job: fetch}]}\n", "jobs[].after[].on": followed + "after: [{job: fetch, on: [success]}]}\n",
}

const followed = "agents: [{name: bookkeeper}]\njobs:\n  - {name: fetch, agent: bookkeeper, every: 1h, prompt: Fetch the statements.}\n  - {name: report, agent: bookkeeper, prompt: Write the report., "

// under returns a complete file with a value at a path and the required lines beside it.
func under(path, value string) string {
	if whole := wholes[path]; whole != "" {
		return whole
	}
	var out strings.Builder
	indent, t, place := "", reflect.TypeFor[config.Config](), ""
	line := func(text string) {
		out.WriteString(indent + text + "\n")
		// Only the first key of an item has a dash.
		indent = strings.ReplaceAll(indent, "- ", "  ")
	}

	parts := strings.Split(path, ".")
	for i, part := range parts {
		name, inList := strings.CutSuffix(part, "[]")
		for _, beside := range beside(t, place, name, path) {
			line(beside)
		}
		if i == len(parts)-1 {
			line(name + ": " + value)
			break
		}

		line(name + ":")
		fields := config.Fields(t)
		t = structOf(t.Field(fields[slices.IndexFunc(fields, func(f config.Field) bool { return f.Key == name })].Index).Type)
		indent, place = indent+"  ", config.Join(place, part)
		if inList {
			indent += "- "
		}
	}
	return out.String()
}

// beside returns the lines that an example needs beside a key.
func beside(t reflect.Type, place, name, shown string) (lines []string) {
	keys := map[string]bool{name: true}
	add := func(line string) {
		if key, _, _ := strings.Cut(line, ":"); !keys[key] {
			keys[key] = true
			lines = append(lines, line)
		}
	}
	within := func(path string) bool {
		rest, ok := strings.CutPrefix(shown, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	for _, b := range slices.Backward(besides) {
		if b.place != place || !slices.ContainsFunc(strings.Fields(b.shown), within) {
			continue
		}
		for _, line := range slices.Backward(b.lines) {
			if out, ok := strings.CutPrefix(line, "-"); ok {
				keys[out] = true
			} else {
				add(line)
			}
		}
	}
	for _, f := range slices.Backward(config.Fields(t)) {
		if f.Required {
			add(f.Key + ": " + example(t.Field(f.Index).Type, f))
		}
	}
	slices.Reverse(lines)
	return lines
}
