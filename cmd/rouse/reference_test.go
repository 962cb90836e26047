package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/agent/clirun"
	"rouse/agent/plan/vars"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/plan"
	"rouse/internal/ledger/event"
	"rouse/skills/install"
)

var update = flag.Bool("update", false, "write docs/reference again")

// page is a file of docs/reference.
type page struct {
	name, about string
	write       func(t *testing.T, w *bytes.Buffer)
}

var referencePages = []page{
	{"tools.md", "the tools of agents: arguments, effect, grants, an example call (also `rouse tools`)", writeTools},
	{"configuration.md", "every key of `rouse.yaml`: type, default, where it stands, an example (also `rouse explain KEY`)", writeKeys},
	{"templates.md", "what templates and expressions can name", writeTemplates},
	{"events.md", "the kinds of events that `rouse logs` and `/v1/events` show", writeEvents},
	{"exit-codes.md", "what the exit codes of commands mean (also `rouse help exit-codes`)", writeExitCodes},
	{"json.md", "the JSON that `--json` prints, by command", writeJSONShapes},
}

// TestReference compares docs/reference with the program. Update its pages with
//
//	go test ./cmd/rouse -run TestReference -update
func TestReference(t *testing.T) {
	endtoend.Unraced(t)
	const dir = "../../docs/reference"
	index := page{name: "README.md", write: func(_ *testing.T, w *bytes.Buffer) {
		fmt.Fprint(w, "# Reference\n\n")
		fmt.Fprint(w, "Made of what the program itself goes by; a test fails when it says something else.\n\n| page | what it has |\n|---|---|\n")
		for _, p := range referencePages {
			fmt.Fprintf(w, "| [%s](%s) | %s |\n", p.name, p.name, p.about)
		}
	}}

	for _, p := range append([]page{index}, referencePages...) {
		var want bytes.Buffer
		p.write(t, &want)
		file := filepath.Join(dir, p.name)
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}

		got, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if line := firstDifference(string(got), want.String()); line != "" {
			t.Errorf("docs/reference/%s is not what the program goes by; go test ./cmd/rouse -run TestReference -update writes it again: %s", p.name, line)
		}
	}
}

// firstDifference returns the first line that differs, or "" if there is none.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return fmt.Sprintf("line %d is missing: %s", i+1, b[i])
		case i >= len(b):
			return fmt.Sprintf("line %d is too many: %s", i+1, a[i])
		case a[i] != b[i]:
			return fmt.Sprintf("line %d is %q, want %q", i+1, a[i], b[i])
		}
	}
	return ""
}

// cellText escapes a text for a cell of a Markdown table.
func cellText(s string) string {
	s = strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
	return strings.TrimSpace(s)
}

func writeTools(t *testing.T, w *bytes.Buffer) {
	t.Helper()
	fmt.Fprint(w, "# Tools\n\nWhat agents, playbooks and `rouse call` can call. Skills and MCP servers bring further ones. A `*` marks an argument that must be given.\n\n")
	var others []toolReport
	for _, s := range agent.Specs() {
		r, err := reportOf(s)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Listed() {
			others = append(others, r)
			continue
		}
		writeTool(w, r)
	}

	fmt.Fprint(w, "## Of modules and agent programs\n\nNeither lists of tools nor people can name these: modules of skills call them as methods of `host` ([skill modules](../guides/skill-modules.md)), and agent programs are recorded with them.\n\n| tool | effect | what |\n|---|---|---|\n")
	for _, r := range others {
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", r.Name, r.Effect, cellText(r.Summary))
	}
}

func writeTool(w *bytes.Buffer, r toolReport) {
	fmt.Fprintf(w, "## %s\n\n%s\n\n- effect: %s\n- given to: %s\n", r.Name, r.Description, effectTexts[r.Effect], r.GivenTo)
	if r.AliasOf != "" {
		fmt.Fprintf(w, "- another name of: [%s](#%[1]s)\n", r.AliasOf)
	}
	if len(r.Grants) > 0 {
		fmt.Fprintf(w, "- grants: `%s`\n", strings.Join(r.Grants, "`, `"))
	}
	if r.OnDemand {
		fmt.Fprint(w, "- listed: on demand\n")
	}
	if r.Ends {
		fmt.Fprint(w, "- a success ends the run, or its attempt\n")
	}

	if len(r.Arguments) > 0 {
		fmt.Fprint(w, "\n| argument | value | meaning |\n|---|---|---|\n")
	}
	for _, a := range r.Arguments {
		name, kind := a.Name, a.Type
		if a.Required {
			name += " *"
		}
		if len(a.Values) > 0 {
			kind = strings.Join(a.Values, ", ")
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", name, kind, cellText(a.Description))
	}

	example := r.Command
	if example == "" {
		example = string(r.Example)
	}
	fmt.Fprintf(w, "\n    %s\n\n", example)
}

func writeKeys(_ *testing.T, w *bytes.Buffer) {
	fmt.Fprint(w, "# Configuration\n\nEvery key of `rouse.yaml`. `[]` marks a list, whose items have the keys below. What is said of `jobs[]` can stand in `defaults`, for all jobs, unless a job alone can have it. `rouse config schema` prints the same as a JSON Schema.\n\n")
	section := ""
	for _, k := range yaml.Keys() {
		top, _, _ := strings.Cut(strings.ReplaceAll(k.Path, "[]", ""), ".")
		if top != section {
			section = top
			fmt.Fprintf(w, "## %s\n\n", section)
		}

		fmt.Fprintf(w, "### `%s`\n\n%s\n\n- type: %s\n", k.Path, cellText(k.Says), cellText(keyType(k)))
		if d := keyDefault(k); d != "" {
			fmt.Fprintf(w, "- default: %s\n", cellText(d))
		}
		fmt.Fprintf(w, "- where: %s\n", k.Where)
		if k.Env != "" {
			fmt.Fprintf(w, "- variable: `%s`\n", k.Env)
		}
		fmt.Fprintf(w, "\n```yaml\n%s```\n\n", k.Example)
	}
}

func writeTemplates(_ *testing.T, w *bytes.Buffer) {
	fmt.Fprint(w, "# Templates and expressions\n\nTemplates are those of Go's text/template: `{{ .File.Name }}`. An expression, after `= ` or in `if`, `that` and the like, is in expr-lang and names the same without the dot: `= File.Size > 1000`. A name that a run does not have is an error, which `rouse config check` finds.\n\n| name | type | in | meaning |\n|---|---|---|---|\n")
	for _, v := range vars.Values() {
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", v.Name, v.Type, v.In, cellText(v.Says))
	}
	fmt.Fprint(w, "\nBeside these, calls of a playbook know each result that was saved before them by its `save:`, and within `each:` the value `item` and its place `index`, from 0 on. An `expect: that:` knows the `result` of its call.\n\n")
	fmt.Fprintf(w, "The arguments of an executor (`executor.argv`) know `%s` alone: what comes from outside could be an option there.\n", strings.Join(clirun.ArgvNames(), "`, `"))
}

func writeEvents(_ *testing.T, w *bytes.Buffer) {
	fmt.Fprint(w, "# Events\n\nThe record of what happened, oldest first: `rouse logs`, `rouse logs --json`, `GET /v1/events`. Each has `id`, `at`, `kind` and `data`; one of a run also `run`, `seq` and `job`. `rouse logs --kind run.*` shows some of them.\n\n| kind | when | data |\n|---|---|---|\n")
	for _, k := range event.Kinds() {
		says := k.Says
		if k.Live {
			says += " (live: not on record, and told with `live=true`)"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", k.Kind, cellText(says), cellText(k.Data))
	}
}

func writeExitCodes(_ *testing.T, w *bytes.Buffer) {
	fmt.Fprint(w, "# Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, c := range exitCodes {
		fmt.Fprintf(w, "| %d | %s |\n", c.code, cellText(c.says))
	}
	fmt.Fprint(w, "\nCommands whose result can be a finding say in their help that they exit 1 on it: `rouse config check`, `rouse doctor`, `rouse audit`, `rouse status`, `rouse run --wait` and others.\n")
}

// jsonShapes lists the types that commands print with --json.
var jsonShapes = []struct {
	command string
	value   any
}{
	{"rouse backfill JOB", api.Backfill{}}, {"rouse budget", api.Budget{}}, {"rouse config check", checked{}}, {"rouse config reload", api.Reload{}},
	{"rouse db AGENT backups", []api.Backup{}}, {"rouse db AGENT query SQL", api.Rows{}}, {"rouse db AGENT schema", api.Schema{}}, {"rouse doctor", []api.Check{}}, {"rouse engine status", api.Engine{}},
	{"rouse explain", []yaml.Key{}}, {"rouse explain KEY", []yaml.Key{}}, {"rouse explain --request JOB", plan.FirstRequest{}}, {"rouse grants", standingPermission{}}, {"rouse inbox", []api.Item{}}, {"rouse incidents", []api.Incident{}}, {"rouse jobs", []api.Job{}},
	{"rouse logs", api.Event{}}, {"rouse next", []api.Occurrence{}}, {"rouse pause", []api.Pause{}}, {"rouse run JOB", api.Run{}}, {"rouse runs", []api.Run{}}, {"rouse show RUN", api.RunDetail{}},
	{"rouse simulate", []simulatedOccurrence{}}, {"rouse skills list", install.Inventory{}}, {"rouse wake", []api.AgentWake{}}, {"rouse status", api.Status{}}, {"rouse tools", []toolReport{}}, {"rouse tools TOOL", toolReport{}},
	{"rouse undo RUN", api.Undo{}}, {"rouse version", versionReport{}}, {"rouse webhooks", []api.Webhook{}}, {"rouse why JOB", []api.Explanation{}}, {"rouse workspaces", []api.Workspace{}}, {"rouse workspaces show WORKSPACE", api.WorkspaceDetail{}},
}

func writeJSONShapes(t *testing.T, w *bytes.Buffer) {
	t.Helper()
	shapes := shapeWriter{comments: map[string]map[string]string{}, types: map[string]reflect.Type{}}
	fmt.Fprint(w, "# JSON\n\nWith `--json` a command prints one JSON document; `rouse logs` a document a line. Times are RFC 3339 in UTC, with `null` for none; ids are texts. Keys may be added; those that are here keep their meaning. The same types answer `GET /v1/…`, which `/v1/openapi.json` describes as a whole.\n\n| command | prints |\n|---|---|\n")
	for _, s := range jsonShapes {
		fmt.Fprintf(w, "| `%s --json` | %s |\n", s.command, shapes.typeName(reflect.TypeOf(s.value)))
	}

	// Writing a type adds the types of its fields.
	written := map[string]string{}
	for len(written) < len(shapes.types) {
		for _, name := range slices.Sorted(maps.Keys(shapes.types)) {
			if _, done := written[name]; !done {
				written[name] = shapes.describe(t, shapes.types[name])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		fmt.Fprintf(w, "\n## %s\n\n%s", name, written[name])
	}
}

// shapeWriter describes types by their fields and the comments on them.
type shapeWriter struct {
	comments map[string]map[string]string // "Run.ID" to its comment, by package folder
	types    map[string]reflect.Type
}

// typeName returns the JSON name of a type and registers the type for its description.
func (s *shapeWriter) typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[api.Time](), reflect.TypeFor[time.Time]():
		return "time"
	case reflect.TypeFor[json.RawMessage]():
		return "any value"
	}

	switch t.Kind() {
	case reflect.Pointer:
		return s.typeName(t.Elem())
	case reflect.Slice, reflect.Array:
		return "list of " + s.typeName(t.Elem())
	case reflect.Map:
		return "mapping to " + s.typeName(t.Elem())
	case reflect.Struct:
		name := t.Name()
		if name == "" {
			return "object"
		}
		if other, known := s.types[name]; known && other != t {
			name = filepath.Base(t.PkgPath()) + "." + name
		}
		s.types[name] = t
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(strings.ReplaceAll(name, ".", "")))
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Interface:
		return "any value"
	}
	return "number"
}

func (s *shapeWriter) describe(t *testing.T, typ reflect.Type) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("| key | type | meaning |\n|---|---|---|\n")
	s.fields(t, &out, typ)
	return out.String()
}

func (s *shapeWriter) fields(t *testing.T, out *strings.Builder, typ reflect.Type) {
	t.Helper()
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if f.Anonymous && key == "" && inner.Kind() == reflect.Struct {
			s.fields(t, out, inner)
			continue
		}
		if !f.IsExported() || key == "-" {
			continue
		}
		if key == "" {
			key = f.Name
		}

		says := s.commentsOf(t, typ.PkgPath())[typ.Name()+"."+f.Name]
		if strings.Contains(options, "omit") {
			says = strings.TrimSuffix("left out where empty; "+says, "; ")
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", key, s.typeName(f.Type), cellText(says))
	}
}

// commentsOf returns the comments on the fields of a package's types.
func (s *shapeWriter) commentsOf(t *testing.T, pkg string) map[string]string {
	t.Helper()
	if known, ok := s.comments[pkg]; ok {
		return known
	}

	out := map[string]string{}
	s.comments[pkg] = out
	dir := filepath.Join("../..", strings.TrimPrefix(pkg, "rouse/"))
	if pkg == "main" || strings.HasSuffix(pkg, "cmd/rouse") {
		dir = "."
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range fields.Fields.List {
				says := strings.TrimSpace(f.Doc.Text() + " " + f.Comment.Text())
				for _, name := range f.Names {
					out[spec.Name.Name+"."+name.Name] = withoutName(name.Name, strings.Join(strings.Fields(says), " "))
				}
			}
			return true
		})
	}
	return out
}

// withoutName removes the name of a field from the beginning of its comment.
func withoutName(name, says string) string {
	rest, ok := strings.CutPrefix(says, name+" ")
	if !ok {
		return says
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return rest
}

// TestJSONShapes checks the output of commands against the reference, on a home with a run, an
// incident and a pause.
func TestJSONShapes(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
models: [{name: local, provider: openai, model: small, base_url: "http://127.0.0.1:1", api_key: none}]
agents: [{name: clerk, workdir: ./work}]
defaults: {notify: {on: []}}
jobs:
  - {name: ask, agent: clerk, model: local, prompt: Look.}
  - {name: report, agent: clerk, schedule: "0 8 * * *", playbook: [{call: complete, with: {summary: "Wrote the report, and a file of figures with it."}}]}
  - {name: broken, agent: clerk, playbook: [{call: db_query, with: {sql: select nothing from nowhere}}]}
`}), "rouse.yaml")
	endtoend.RunJSON(t, nil, "run", "report", "--json", "--config", config)
	if err := endtoend.Rouse(t, "run", "broken", "--config", config).Run(); err == nil {
		t.Error("a broken job succeeds")
	}
	endtoend.RunJSON(t, nil, "pause", "broken", "--json", "--config", config)

	arguments := map[string]string{"JOB": "report", "RUN": "2", "AGENT": "clerk", "SQL": "select 1 one", "TOOL": "db_query", "KEY": "schedule"}
	for _, s := range jsonShapes {
		words := strings.Fields(s.command)[1:]
		if strings.Contains(s.command, "WORKSPACE") || slices.Contains([]string{"audit", "undo", "backfill", "reload", "logs", "run", "status"}, words[len(words)-1]) || slices.Contains([]string{"undo", "backfill", "run"}, words[0]) {
			continue // these commands need more setup, or print one document per line
		}
		for i, word := range words {
			if given, ok := arguments[word]; ok {
				words[i] = given
			}
			if i > 0 && words[i-1] == "--request" {
				words[i] = "ask" // the only job with a prompt
			}
		}

		p := endtoend.Rouse(t, append(words, "--json", "--config", config)...)
		err := p.Run() // exit code 1 is fine, because doctor finds a problem
		dec := json.NewDecoder(&p.Out)
		dec.DisallowUnknownFields()
		into := reflect.New(reflect.TypeOf(s.value))
		if wrong := dec.Decode(into.Interface()); wrong != nil {
			t.Errorf("%s --json (%v): %v %s", s.command, err, wrong, p.Err.String())
		}
	}
}

// wordsLikeEvents lists strings in the source that look like a kind of event.
var wordsLikeEvents = []string{"config.worktree", "run.pause", "model.invalid"}

var eventKindText = regexp.MustCompile(`"([a-z]+\.[a-z]+)"`)

// TestEventKindsAreKnown checks that the reference lists exactly the kinds of events in the source.
func TestEventKindsAreKnown(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	known, prefixes := map[string]bool{}, map[string]bool{}
	for _, k := range event.Kinds() {
		if known[k.Kind] || k.Says == "" {
			t.Errorf("%s is described twice, or not", k.Kind)
		}
		known[k.Kind] = true
		if prefix, _, ok := strings.Cut(k.Kind, "."); ok {
			prefixes[prefix] = true
		}
	}

	named := map[string]bool{"paused": true, "resumed": true}
	for file, text := range sources(t) {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "ledgertest/") || strings.Contains(file, "modeltest/") || strings.HasSuffix(file, "/event_kinds.go") {
			continue
		}
		for _, m := range eventKindText.FindAllStringSubmatch(text, -1) {
			prefix, ending, _ := strings.Cut(m[1], ".")
			if !prefixes[prefix] || slices.Contains(wordsLikeEvents, m[1]) || slices.Contains([]string{"db", "md", "sh", "ts", "json", "yaml", "lock", "plist", "tar", "zst", "txt"}, ending) {
				continue
			}
			named[m[1]] = true
			if !known[m[1]] {
				t.Errorf("%s names the event %s, which internal/ledger/event_kinds.go does not describe", file, m[1])
			}
		}
		// The source appends the states of notices and the decisions on instants to these prefixes.
		for _, prefix := range []string{"notice.", "occurrence."} {
			if strings.Contains(text, `"`+prefix+`" +`) {
				for kind := range known {
					named[kind] = named[kind] || strings.HasPrefix(kind, prefix)
				}
			}
		}
	}
	for kind := range known {
		if !named[kind] {
			t.Errorf("%s is described, and nothing records it", kind)
		}
	}
}
