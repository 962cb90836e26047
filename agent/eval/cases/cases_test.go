package cases_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/eval/cases"
	"rouse/agent/preview"
	"rouse/agent/sandbox"
	"rouse/skills"
	"rouse/skills/module"
)

// TestMain runs the tests, and the processes that they start from this binary.
func TestMain(m *testing.M) {
	sandbox.Child()
	module.Child()
	preview.Child()
	os.Exit(m.Run())
}

// scaffold writes a new skill, and changes its manifest and its module.
func scaffold(t *testing.T, mode skills.Mode, change map[string]any, source string) *skills.Skill {
	t.Helper()
	folder, err := skills.Scaffold{Name: "my-skill", Mode: mode, Author: "somebody"}.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(folder, "manifest.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	manifest := map[string]any{}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		t.Fatal(err)
	}
	for key, value := range change {
		manifest[key] = value
	}
	if raw, err = json.Marshal(manifest); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if source != "" {
		if err := os.WriteFile(filepath.Join(folder, "module.ts"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	s, problems := skills.Load(folder)
	if s == nil || s.Manifest == nil {
		t.Fatal(problems)
	}
	return s
}

func play(t *testing.T, s *skills.Skill, c cases.Case, o cases.Options) cases.Report {
	t.Helper()
	o.Dir = filepath.Join(t.TempDir(), "case")
	r, err := cases.Play(t.Context(), s, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestScaffoldPassesItsCase checks that new skills of `rouse skills new` pass their own case, in
// each mode.
func TestScaffoldPassesItsCase(t *testing.T) {
	t.Parallel()
	if raced {
		t.Skip("modules do not run under the race detector")
	}
	for _, mode := range skills.Modes() {
		s := scaffold(t, mode, nil, "")
		all, err := cases.Read(s.Dir)
		if err != nil || len(all) != 1 || all[0].About == "" || len(all[0].Expect.Output) == 0 {
			t.Fatalf("%s: %+v (%v)", mode, all, err)
		}
		if r := play(t, s, all[0], cases.Options{}); len(r.Problems) > 0 {
			t.Errorf("%s: %q", mode, r.Problems)
		}
		if problems := skills.Validate(s.Dir); len(problems) > 0 {
			t.Errorf("%s: its folder of cases bothers: %v", mode, problems)
		}
	}
}

const everything = `
export async function execute(args: any, host: any) {
  await host.run.pause("for a while");
  const note = await host.filesystem.readFile((await host.filesystem.openFile()).handleId);
  const state = (await host.workspace.getState()) ?? {n: 0};
  const said = await host.llm.complete({purposeId: "summary", messages: [{role: "user", content: "Say of " + note.trim()}]});
  const first = await host.run.requestInput({title: "First", message: "?"});
  const second = await host.run.requestInput({title: "Second", message: "?", inputSchema: {type: "object", properties: {good: {type: "boolean"}}, required: ["good"]}});
  await host.workspace.setState({n: state.n + 1, more: true});
  const a = await host.workspace.createArtifact({type: "text", title: "A", content: "one"});
  await host.workspace.updateArtifact(a.id, {content: "two", status: "done"});
  await host.filesystem.writeFile("out/b.txt", said.text + "\n");
  const ran = args.run ? await host.tools.invoke("system_execute_command", {command: "echo", args: ["hello"]}) : {stdout: ""};
  return {text: said.text, answers: [first, second.good], config: host.config?.language ?? "", net: typeof host.network, ran: ran.stdout.trim()};
}
`

var asks = map[string]any{
	"permissions":       []any{map[string]string{"kind": "filesystem", "scope": "write", "description": "d"}, map[string]string{"kind": "network", "scope": "s", "description": "d"}, map[string]string{"kind": "llm", "scope": "summary", "description": "d"}},
	"outputSchema":      map[string]any{"type": "object"},
	"inputSchema":       map[string]any{"type": "object"},
	"bridgeRequirement": "optional",
}

func parse(t *testing.T, text string) cases.Case {
	t.Helper()
	c, err := cases.Parse("it", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const whole = `{
  "files": {"notes/a.txt": "rain\n"}, "file": "notes/a.txt", "workspace": "w", "state": {"n": 4},
  "answers": [{"contains": "Say of rain", "text": "Wet."}],
  "inbox": [{"title": "First", "answer": "go"}, {"title": "paused", "answer": "continue"}, {"title": "Second", "answer": {"good": true}}],
  "expect": {"output": {"text": "Wet.", "answers": ["go", true], "net": "undefined"}, "files": {"out/b.txt": "Wet."}, "state": {"n": 5},
    "artifacts": [{"title": "A", "type": "text", "status": "done", "version": 2, "contains": "two"}]}
}`

// TestPlay checks that a case gives a skill only its files, model and owner, and that all results
// are compared.
func TestPlay(t *testing.T) {
	t.Parallel()
	if raced {
		t.Skip("modules do not run under the race detector")
	}
	s := scaffold(t, skills.ModeFlow, asks, everything)
	if r := play(t, s, parse(t, whole), cases.Options{}); len(r.Problems) > 0 {
		t.Fatalf("%q", r.Problems)
	}

	for name, c := range map[string]struct{ from, to, problem string }{
		"the outcome":     {`"expect": {`, `"expect": {"outcome": "error", `, "the outcome is success, wanted error"},
		"the message":     {`"expect": {`, `"expect": {"message": "never said", `, `wanted something with "never said"`},
		"the output":      {`"Wet.", "answers": ["go", true]`, `"Dry.", "answers": ["go", true]`, `output.text is "Wet.", wanted "Dry."`},
		"a list":          {`["go", true]`, `["go"]`, `output.answers is ["go",true], wanted ["go"]`},
		"what is missing": {`"net": "undefined"`, `"nets": 1`, "output.nets is missing, wanted 1"},
		"a file":          {`{"out/b.txt": "Wet."}`, `{"out/b.txt": "Dry.", "out/c.txt": "x"}`, `the file out/b.txt holds "Wet.", wanted "Dry."`},
		"the state":       {`"state": {"n": 5}`, `"state": {"n": 6}`, "state.n is 5, wanted 6"},
		"an artifact":     {`"version": 2`, `"version": 3`, `no artifact is {"contains":"two"`},
		"its content":     {`"contains": "two"`, `"contains": "three"`, `there are: "A" (text, done, version 2)`},
		"a question":      {`{"title": "Second", "answer": {"good": true}}`, `{"title": "Third", "answer": {"good": true}}`, `it waits for an answer to "worker: Second"`},
		"no question":     {`"inbox": [`, `"inbox": [{"title": "Zeroth", "answer": "x"}, `, `nothing in the inbox had the title "Zeroth"`},
		"the model":       {`"contains": "Say of rain"`, `"contains": "Say of snow"`, "has no answer to this"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(whole, c.from, c.to, 1)
			if text == whole {
				t.Fatal("nothing was changed")
			}
			r := play(t, s, parse(t, text), cases.Options{})
			if !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, c.problem) }) {
				t.Errorf("%q, want %s", r.Problems, c.problem)
			}
		})
	}
}

// needTierA skips a test if tier A is missing. A run with content from the web needs it for
// programs.
func needTierA(t *testing.T) {
	t.Helper()
	box, err := sandbox.New(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	if tier, lacks := box.Tier(t.Context()); !tier.AtLeast(sandbox.TierNamespaces) {
		t.Skipf("this machine confines programs on tier %s: %v", tier, lacks)
	}
}

// TestPlayCommands checks that programs of a case run only if the caller allows it.
func TestPlayCommands(t *testing.T) {
	t.Parallel()
	if raced {
		t.Skip("modules do not run under the race detector")
	}
	needTierA(t)
	s := scaffold(t, skills.ModeFlow, asks, everything)
	c := parse(t, strings.Replace(strings.Replace(whole, `{`, `{"input": {"run": true}, "commands": [["echo", "*"]],`, 1), `"net": "undefined"`, `"ran": "hello"`, 1))
	if _, err := cases.Play(t.Context(), s, c, cases.Options{Dir: filepath.Join(t.TempDir(), "case")}); err == nil || !strings.Contains(err.Error(), "runs programs of this machine (echo *)") {
		t.Errorf("not allowed: %v", err)
	}
	if r := play(t, s, c, cases.Options{Commands: true}); len(r.Problems) > 0 {
		t.Errorf("%q", r.Problems)
	}
}

// TestRead checks that the error for an invalid case contains the position, and that links do not
// lead out of the skill.
func TestRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{\n\"inptu\": {}}":                `cannot be read: unknown field "inptu"`,
		"{\n\"input\": }":                  "line 2: cannot be read: invalid character",
		`{"input": [1]}`:                   "input is no object",
		`{"state": null, "input": "x"}`:    "input is no object",
		`{} {}`:                            "more than one JSON value",
		`{"file": "a"}`:                    `file is "a", which is none of its files`,
		`{"answers": [{"contains": "a"}]}`: "answers[0].text is missing",
		`{"answers": [{"contains": [""], "text": "a"}]}`: "answers[0].contains holds an empty text",
		`{"inbox": [{"title": "a"}]}`:                    "inbox[0] needs a title",
		`{"commands": [[]]}`:                             "commands[0] names no program",
	} {
		if _, err := cases.Parse("it", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}

	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "a.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, skills.CasesFolder)); err != nil {
		t.Skip(err)
	}
	if all, err := cases.Read(dir); len(all) > 0 {
		t.Errorf("%+v (%v)", all, err)
	}

	s := scaffold(t, skills.ModeDeclarative, nil, "")
	if _, err := cases.Play(t.Context(), s, parse(t, `{"files": {"../a": "x"}}`), cases.Options{Dir: filepath.Join(t.TempDir(), "case")}); err == nil || !strings.Contains(err.Error(), "not below the working folder") {
		t.Errorf("a file elsewhere: %v", err)
	}
}

// TestPlaySettings checks that a skill gets its settings and secrets. Its recorded result must not
// contain the secrets, and has a maximum size.
func TestPlaySettings(t *testing.T) {
	t.Parallel()
	if raced {
		t.Skip("modules do not run under the race detector")
	}
	s := scaffold(t, skills.ModeDeclarative, map[string]any{
		"inputSchema": map[string]any{"type": "object"}, "outputSchema": map[string]any{"type": "object"},
		"requiredBindings": []any{map[string]any{"name": "api", "scope": "s", "description": "d", "required": true}},
	}, `export async function execute(args: any, host: any) {
  return {language: host.config.language, secret: await host.vault.resolveBinding("api"), many: "x".repeat(args.many ?? 0)};
}`)
	schema := `{"type": "object", "properties": {"language": {"type": "string"}}, "required": ["language"]}`
	if err := os.WriteFile(filepath.Join(s.Dir, "config-schema.json"), []byte(schema), 0o600); err != nil {
		t.Fatal(err)
	}

	given := `{"config": {"language": "en"}, "secrets": {"api": "hidden-value-1"}, `
	r := play(t, s, parse(t, given+`"expect": {"output": {"language": "en"}, "message": "en"}}`), cases.Options{})
	if len(r.Problems) > 0 || strings.Contains(r.Run.Summary, "hidden-value-1") {
		t.Errorf("%q %s", r.Problems, r.Run.Summary)
	}
	r = play(t, s, parse(t, given+`"expect": {"output": {"secret": "hidden-value-1"}}}`), cases.Options{})
	if len(r.Problems) != 1 || strings.Contains(r.Problems[0], `output.secret is "hidden-value-1"`) {
		t.Errorf("the record has the secret: %q", r.Problems)
	}
	r = play(t, s, parse(t, given+`"input": {"many": 20000}, "expect": {"output": {"language": "en"}}}`), cases.Options{})
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "too large to be compared: 20 KiB") {
		t.Errorf("much: %q", r.Problems)
	}

	for text, want := range map[string]string{
		`{"config": {"language": 1}, "secrets": {"api": "x"}}`: "config does not fit the skill: language",
		`{"secrets": {"api": "x"}}`:                            "config does not fit the skill: required",
	} {
		if _, err := cases.Play(t.Context(), s, parse(t, text), cases.Options{Dir: filepath.Join(t.TempDir(), "case")}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	r = play(t, s, parse(t, `{"config": {"language": "en"}}`), cases.Options{})
	if !strings.Contains(strings.Join(r.Problems, " "), "the secret api, and the agent is not granted it") {
		t.Errorf("without the secret: %q", r.Problems)
	}
}
