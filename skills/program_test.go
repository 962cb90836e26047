package skills_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rouse/skills"
)

// program creates a folder sums with a valid program, changed by files. The value "" omits a file.
func program(t testing.TB, files map[string]string) string {
	t.Helper()
	all := map[string]string{"sums/manifest.json": goodManifest, "sums/module.ts": goodModule, "sums/docs.md": "# Sums\n\nAdds columns up.\n"}
	for name, text := range files {
		all["sums/"+name] = text
		if text == "" {
			delete(all, "sums/"+name)
		}
	}
	return filepath.Join(tree(t, all), "sums")
}

// places formats problems as "file:line rule", with a ? after warnings.
func places(problems []skills.Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, filepath.Base(p.File)+":"+describe([]skills.Problem{p}))
	}
	return strings.Join(out, ", ")
}

// wasmEmpty is an empty WebAssembly module, and wasmSum is its SHA-256.
const (
	wasmEmpty = "\x00asm\x01\x00\x00\x00"
	wasmSum   = "93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476"
)

// wasmOf returns the wasm field of a manifest. An empty audit hash becomes null.
func wasmOf(source, hash string) string {
	audit := "null"
	if hash != "" {
		audit = strconv.Quote(hash)
	}
	return `[{"moduleId": "m", "sourceKind": "url", "sourceUrl": "` + source + `", "sourceLanguage": "rust", "exports": [], "memoryLimitMB": 1, "auditHash": ` + audit + `}]`
}

// TestProgramRules violates each rule for the files of a program with one fixture (OSL-01, OSL-05).
// The secrets are concatenated here, so that this file does not contain any.
func TestProgramRules(t *testing.T) {
	unbound := with(t, map[string]string{"requiredBindings": "[]"})
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"good":                  {nil, ""},
		"no docs":               {map[string]string{"docs.md": ""}, ""},
		"settings":              {map[string]string{"config-schema.json": `{"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}`}, ""},
		"no manifest":           {map[string]string{"manifest.json": ""}, "manifest.json:0:manifest-missing"},
		"no module":             {map[string]string{"module.ts": ""}, "module.ts:0:module-missing"},
		"nothing is exported":   {map[string]string{"module.ts": "function execute() {}\n"}, "module.ts:0:execute-missing?"},
		"exported as a value":   {map[string]string{"module.ts": "export const execute = async () => ({});\n"}, ""},
		"exported by name":      {map[string]string{"module.ts": "async function run() {}\nexport { run as execute };\n"}, ""},
		"exported as CommonJS":  {map[string]string{"module.ts": "exports.execute = async () => ({});\n"}, ""},
		"no text":               {map[string]string{"module.ts": goodModule + "\xff"}, "module.ts:0:encoding"},
		"a huge module":         {map[string]string{"module.ts": goodModule + strings.Repeat("x", 4<<20)}, "module.ts:0:too-large"},
		"WebAssembly":           {map[string]string{"manifest.json": with(t, map[string]string{"wasm": wasmOf("m.wasm", "sha256:"+wasmSum)}), "m.wasm": wasmEmpty}, ""},
		"WebAssembly, no audit": {map[string]string{"manifest.json": with(t, map[string]string{"wasm": wasmOf("m.wasm", "")}), "m.wasm": wasmEmpty}, "manifest.json:0:wasm-audit?"},
		"WebAssembly: other":    {map[string]string{"manifest.json": with(t, map[string]string{"wasm": wasmOf("m.wasm", wasmSum)}), "m.wasm": wasmEmpty + "\x00\x01\x00"}, "manifest.json:0:wasm"},
		"WebAssembly: far away": {map[string]string{"manifest.json": with(t, map[string]string{"wasm": wasmOf("https://m.example/m.wasm", "")})}, "manifest.json:0:wasm"},
		"settings: a list":      {map[string]string{"config-schema.json": "[]"}, "config-schema.json:1:schema-root"},
		"settings: no object":   {map[string]string{"config-schema.json": `{"type": "string"}`}, "config-schema.json:1:schema-root"},
		"settings: no JSON":     {map[string]string{"config-schema.json": "type: object"}, "config-schema.json:1:json"},
		"settings: no schema":   {map[string]string{"config-schema.json": `{"type": "object", "properties": 1}`}, "config-schema.json:1:schema"},
		"a key of a provider":   {map[string]string{"module.ts": goodModule + "// s" + "k-" + strings.Repeat("a1", 12) + "\n"}, "module.ts:4:secret"},
		"a key of AWS":          {map[string]string{"docs.md": "# A\n\nAKI" + "A" + strings.Repeat("Q", 16) + "\n"}, "docs.md:3:secret"},
		"a token of GitHub":     {map[string]string{"docs.md": "gh" + "p_" + strings.Repeat("Zz0", 12)}, "docs.md:1:secret"},
		"a token of Slack":      {map[string]string{"docs.md": "xo" + "xb-1"}, "docs.md:1:secret"},
		"what looks like one":   {map[string]string{"module.ts": goodModule + "const apiKey = \"abc\";\n"}, "module.ts:4:secret-like?"},
		"a placeholder":         {map[string]string{"module.ts": goodModule + "const token = \"__OSL_SECRET[bank]__\";\n"}, ""},
		"a placeholder unbound": {map[string]string{"manifest.json": unbound, "docs.md": "# A\n__OSL_SECRET[bank]__\n"}, "docs.md:2:placeholder?"},
		"another name":          {map[string]string{"manifest.json": with(t, map[string]string{"name": `"adder"`})}, "manifest.json:0:name-manifest?"},
		"with instructions":     {map[string]string{"SKILL.md": skill("sums", "Adds.")}, ""},
		"instructions by another name": {map[string]string{"SKILL.md": skill("adder", "Adds.")},
			"SKILL.md:2:name-directory, manifest.json:0:name-manifest?"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := program(t, c.files)
			problems := skills.Validate(dir)
			if got := places(problems); got != c.want {
				t.Errorf("%s, want %s\n%v", got, c.want, problems)
			}
			for _, p := range problems {
				if strings.Contains(p.Message, strings.Repeat("Q", 16)) || !strings.HasPrefix(p.File, dir) {
					t.Errorf("%v gives a secret away, or another place", p)
				}
			}
		})
	}

	t.Run("a folder that is no slug", func(t *testing.T) {
		dir := filepath.Join(tree(t, map[string]string{"My_Sums/manifest.json": goodManifest, "My_Sums/module.ts": goodModule}), "My_Sums")
		if got := places(skills.Validate(dir)); got != "My_Sums:0:slug, manifest.json:0:name-manifest?" {
			t.Error(got)
		}

		dir = filepath.Join(tree(t, map[string]string{"2sums/manifest.json": strings.Replace(goodManifest, `"sums"`, `"2sums"`, 1), "2sums/module.ts": goodModule}), "2sums")
		if got := places(skills.Validate(dir)); got != "2sums:0:slug, manifest.json:2:slug" {
			t.Error(got)
		}
	})
	t.Run("links", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("links need a privilege there")
		}
		dir := program(t, map[string]string{"module.ts": "", "docs.md": ""})
		if err := errors.Join(os.Symlink("/etc/hostname", filepath.Join(dir, "module.ts")), os.Symlink("manifest.json", filepath.Join(dir, "docs.md"))); err != nil {
			t.Fatal(err)
		}
		if got := places(skills.Validate(dir)); got != "module.ts:0:link-outside" {
			t.Error(got)
		}
		if s, problems := skills.Load(dir); s != nil || describe(problems) != "0:link-outside" {
			t.Errorf("%v %v", s, problems)
		}
	})
}

// TestExports checks that declared tool handlers and lifecycle hooks must be exported (OSL-05).
func TestExports(t *testing.T) {
	hooks := with(t, map[string]string{"lifecycleHooks": `["onInstall", {"name": "onUpgrade"}, "onFire"]`})
	for name, c := range map[string]struct {
		manifest string
		exports  []string
		want     string
	}{
		"all":                  {goodManifest, []string{"add", "execute", "onInstall"}, ""},
		"no handler":           {goodManifest, []string{"execute", "onInstall"}, "tools[0].handlerExport export-missing"},
		"no hook":              {goodManifest, []string{"add", "execute"}, "lifecycleHooks[0] export-missing"},
		"neither":              {goodManifest, nil, "lifecycleHooks[0] export-missing, tools[0].handlerExport export-missing"},
		"hooks of both kinds":  {hooks, []string{"add"}, "lifecycleHooks[0] export-missing, lifecycleHooks[1] export-missing"},
		"a hook not declared":  {goodManifest, []string{"add", "onInstall", "onDisable"}, "lifecycleHooks hook-undeclared?"},
		"hooks, none declared": {with(t, map[string]string{"lifecycleHooks": ""}), []string{"add", "onEnable"}, "lifecycleHooks hook-undeclared?"},
		"no JSON":              {"{", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			problems := skills.CheckExports(program(t, map[string]string{"manifest.json": c.manifest}), c.exports)
			if got := rules(problems); got != c.want {
				t.Errorf("%s, want %s\n%v", got, c.want, problems)
			}
			for _, p := range problems {
				if p.Line < 1 || filepath.Base(p.File) != "manifest.json" {
					t.Errorf("%+v has no place", p)
				}
			}
		})
	}
}

// A catalog holds instructions and programs alike. A manifest.json of another tool is not a skill
// (OSL-01, OSL-02, UNI-08).
func TestDiscoverPrograms(t *testing.T) {
	broken := strings.Replace(goodManifest, `"2.0"`, `"1.0"`, 1)
	dir := tree(t, map[string]string{
		"words/SKILL.md":     skill("words", "Counts words."),
		"sums/manifest.json": goodManifest, "sums/module.ts": goodModule, "sums/docs.md": "# How sums add\n",
		"both/SKILL.md": skill("both", "Adds and tells how."), "both/manifest.json": strings.Replace(goodManifest, `"sums"`, `"both"`, 1), "both/module.ts": goodModule,
		"half/SKILL.md": skill("half", "Has a broken program."), "half/manifest.json": broken, "half/module.ts": goodModule,
		"wrong/manifest.json": broken, "wrong/module.ts": goodModule,
		"extension/manifest.json": `{"manifest_version": 3}`, "extension/inner/SKILL.md": skill("inner", "Lies below something else."),
		"typed/module.ts":      "export {}",
		"plugin/SKILL.md":      skill("plugin", "Has a manifest of its own."),
		"plugin/manifest.json": `{"manifest_version": 3}`,
	})
	c := skills.Discover(skills.Root{Path: dir, Trusted: true})

	var got []string
	for _, s := range c.Skills() {
		got = append(got, s.Name+" "+string(s.Kind()))
	}
	if want := "both both, half instructions, inner instructions, plugin instructions, sums module, words instructions"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	if want := "manifest.json:6:program?, manifest.json:6:schema-version"; places(c.Problems()) != want {
		t.Errorf("%s, want %s", places(c.Problems()), want)
	}

	s, _ := c.Get("sums")
	if s.Description != "Adds columns up." || s.Manifest.Version != "1.2.0" || filepath.Base(s.File) != "manifest.json" {
		t.Errorf("%+v", s)
	}
	if docs, err := s.Docs(); docs != "# How sums add" || err != nil {
		t.Errorf("%q (%v)", docs, err)
	}
	if files, _, err := s.Files(10); !slices.Equal(files, []string{"docs.md", "module.ts"}) || err != nil {
		t.Errorf("%v (%v)", files, err)
	}

	// The content tells a model that the skill is a program and includes its docs.
	text, err := s.Content()
	if err != nil || !strings.Contains(text, "This skill is a program") || !strings.Contains(text, "# How sums add") {
		t.Errorf("%s (%v)", text, err)
	}
	if index := skills.Index(c.Skills()); strings.Count(index, "<name>") != 6 || !strings.Contains(index, "<location>"+s.File+"</location>") {
		t.Errorf("%s", index)
	}
	if found, err := c.View("", nil).Find(s.File); found != s || err != nil {
		t.Errorf("by its file: %v (%v)", found, err)
	}
}

// The fingerprint changes if a program changes.
func TestFingerprintOfPrograms(t *testing.T) {
	dir := program(t, nil)
	for _, name := range []string{"manifest.json", "module.ts", "docs.md", "../index.json"} {
		before := skills.Fingerprint(filepath.Dir(dir))
		if err := os.WriteFile(filepath.Join(dir, name), []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		if skills.Fingerprint(filepath.Dir(dir)) == before {
			t.Errorf("%s was changed, and the fingerprint was not", name)
		}
	}
}

// A scaffolded skill of any mode is valid and declares the features that its module uses (OSL-12).
func TestScaffold(t *testing.T) {
	for _, mode := range skills.Modes() {
		dir := t.TempDir()
		s := skills.Scaffold{Name: "my-skill", Mode: mode, Author: "somebody"}
		folder, err := s.Write(dir)
		if err != nil {
			t.Fatal(err)
		}

		if problems := skills.Validate(folder); len(problems) > 0 {
			t.Errorf("%s: %v", mode, problems)
		}
		loaded, problems := skills.Load(folder)
		if loaded == nil || len(problems) > 0 || loaded.Manifest.ExecutionMode != mode || loaded.Description == "" {
			t.Fatalf("%s: %+v, %v", mode, loaded, problems)
		}

		module, err := os.ReadFile(filepath.Join(folder, "module.ts"))
		if err != nil {
			t.Fatal(err)
		}
		m, text := loaded.Manifest, string(module)
		for use, declared := range map[string]bool{"host.llm.": len(m.LLMUsage) > 0, "host.run.requestInput": m.UserInputSupport, "host.workspace.": m.WorkspaceSupport == skills.SupportRequired, "host.network": len(m.Sandbox.NetworkRules) > 0} {
			if strings.Contains(text, use) != declared {
				t.Errorf("%s: its module uses %s or not, and its manifest says %t", mode, use, declared)
			}
		}
		for _, u := range m.LLMUsage {
			if !strings.Contains(text, `purposeId: "`+u.PurposeID+`"`) {
				t.Errorf("%s: nothing asks for %s", mode, u.PurposeID)
			}
		}

		if _, err := s.Write(dir); !errors.Is(err, skills.ErrExists) {
			t.Errorf("again: %v", err)
		}
	}

	for _, s := range []skills.Scaffold{{Name: "My Skill", Mode: skills.ModeFlow}, {Name: "../x", Mode: skills.ModeFlow}, {Name: "x", Mode: "fast"}} {
		dir := t.TempDir()
		if folder, err := s.Write(dir); err == nil {
			t.Errorf("%+v: %s", s, folder)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%+v left %v", s, left)
		}
	}
	folder, err := skills.Scaffold{Name: "x", Mode: skills.ModeFlow, Author: "a", Description: `Says "hello" <b>`}.Write(t.TempDir())
	if s, problems := skills.Load(folder); err != nil || s == nil || s.Description != `Says "hello" <b>` {
		t.Errorf("%v %v %v", s, problems, err)
	}
}
