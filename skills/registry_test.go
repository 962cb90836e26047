package skills_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rouse/internal/contract"
	"rouse/skills"
)

// entry returns a valid index entry, changed by more.
func entry(name string, more ...string) string {
	e := fmt.Sprintf(`{"name": %q, "description": "Adds.", "version": "1.2.0", "author": "somebody", "folderPath": "skills/%[1]s", "tags": ["money", "reports"]`, name)
	for _, m := range more {
		e += ", " + m
	}
	return e + "}"
}

// repository writes a repository with the program sums, an index and other files.
func repository(t testing.TB, index string, files map[string]string) string {
	t.Helper()
	all := map[string]string{"skills/index.json": index, "skills/sums/manifest.json": goodManifest, "skills/sums/module.ts": goodModule}
	for name, text := range files {
		all[name] = text
	}
	return tree(t, all)
}

// TestIndexRules violates each rule for an index with one fixture (OSL-01, OSL-05).
func TestIndexRules(t *testing.T) {
	for name, c := range map[string]struct{ index, want string }{
		"good":               {"[" + entry("sums") + "]", ""},
		"all mirrors":        {"[" + entry("sums", `"supportedPlatforms": []`, `"bridgeRequirement": "never"`, `"workspaceSupport": "none"`, `"compatibilityRequirements": ["fetch"]`, `"longRunningSupport": "none"`, `"userInputSupport": false`, `"artifactVersioningSupport": false`, `"executionMode": "declarative"`) + "]", ""},
		"no JSON":            {"[", "json"},
		"no list":            {"{}", "field-type"},
		"no object":          {`["sums"]`, "[0] field-type, index-unlisted?"},
		"no name":            {"[" + strings.Replace(entry("sums"), `"name": "sums", `, "", 1) + "]", "[0].name field-missing, [0].name name-manifest?"},
		"no description":     {"[" + strings.Replace(entry("sums"), `"description": "Adds.", `, "", 1) + "]", "[0].description field-missing"},
		"no version":         {"[" + strings.Replace(entry("sums"), `"version": "1.2.0", `, "", 1) + "]", "[0].version field-missing"},
		"no author":          {"[" + strings.Replace(entry("sums"), `"author": "somebody", `, "", 1) + "]", "[0].author field-missing"},
		"no folder":          {"[" + strings.Replace(entry("sums"), `"folderPath": "skills/sums", `, "", 1) + "]", "[0].folderPath field-missing, index-unlisted?"},
		"no tags":            {"[" + strings.Replace(entry("sums"), `, "tags": ["money", "reports"]`, "", 1) + "]", "[0].tags field-missing"},
		"tags: a text":       {"[" + strings.Replace(entry("sums"), `["money", "reports"]`, `"money"`, 1) + "]", "[0].tags field-type"},
		"a platform":         {"[" + entry("sums", `"supportedPlatforms": ["beos"]`) + "]", "[0].supportedPlatforms index-mismatch?, [0].supportedPlatforms[0] field-value"},
		"a bridge":           {"[" + entry("sums", `"bridgeRequirement": "maybe"`) + "]", "[0].bridgeRequirement field-value, [0].bridgeRequirement index-mismatch?"},
		"a flag":             {"[" + entry("sums", `"userInputSupport": "no"`) + "]", "[0].userInputSupport field-type, [0].userInputSupport index-mismatch?"},
		"workspace":          {"[" + entry("sums", `"workspaceSupport": "optional"`) + "]", "[0].workspaceSchemaVersion field-missing, [0].workspaceSupport index-mismatch?"},
		"another version":    {"[" + strings.Replace(entry("sums"), "1.2.0", "1.3.0", 1) + "]", "[0].version index-mismatch"},
		"another mode":       {"[" + entry("sums", `"executionMode": "flow"`) + "]", "[0].executionMode index-mismatch"},
		"another schema":     {"[" + entry("sums", `"workspaceSchemaVersion": "1.0.0"`) + "]", "[0].workspaceSchemaVersion index-mismatch"},
		"another name":       {"[" + strings.Replace(entry("sums"), `"name": "sums"`, `"name": "adder"`, 1) + "]", "[0].name name-manifest?"},
		"other needs":        {"[" + entry("sums", `"compatibilityRequirements": []`) + "]", "[0].compatibilityRequirements index-mismatch?"},
		"an unknown need":    {"[" + entry("sums", `"compatibilityRequirements": ["fetch", "teleport"]`) + "]", "[0].compatibilityRequirements index-mismatch?, [0].compatibilityRequirements[1] compatibility-unknown?"},
		"twice":              {"[" + entry("sums") + "," + entry("sums") + "]", "[1].name name-twice"},
		"a folder elsewhere": {"[" + strings.Replace(entry("sums"), "skills/sums", "../skills/sums", 1) + "]", "[0].folderPath index-folder, index-unlisted?"},
		"a folder not there": {"[" + entry("sums") + "," + entry("gone") + "]", "[1].folderPath index-folder"},
		"unlisted":           {"[]", "index-unlisted?"},
		"unknown field":      {"[" + entry("sums", `"licence": "MIT"`) + "]", "[0].licence field-unknown?"},
	} {
		t.Run(name, func(t *testing.T) {
			x := skills.ReadRegistry(repository(t, c.index, nil))
			if got := rules(x.Check()); got != c.want {
				t.Errorf("%s, want %s\n%v", got, c.want, x.Check())
			}
		})
	}
}

// An index and its folders are found in the layouts of repositories and archives (OSL-01, OSL-02).
func TestIndexIsFound(t *testing.T) {
	index := "[" + entry("sums") + "]"
	for name, c := range map[string]struct {
		files map[string]string
		at    string
	}{
		"repository":           {map[string]string{"skills/index.json": index, "skills/sums/manifest.json": goodManifest}, "."},
		"its folder of skills": {map[string]string{"skills/index.json": index, "skills/sums/manifest.json": goodManifest}, "skills"},
		"an archive of it":     {map[string]string{"repo-main/skills/index.json": index, "repo-main/skills/sums/manifest.json": goodManifest}, "."},
		"index at the root":    {map[string]string{"index.json": index, "skills/sums/manifest.json": goodManifest}, "."},
	} {
		dir := tree(t, c.files)
		x := skills.ReadRegistry(filepath.Join(dir, c.at))
		if x == nil || len(x.Folders()) != 1 || filepath.Base(x.Folders()[0]) != "sums" {
			t.Errorf("%s: %+v", name, x)
			continue
		}
		if tags := x.Tags(x.Folders()[0]); !slices.Equal(tags, []string{"money", "reports"}) {
			t.Errorf("%s: %v", name, tags)
		}
	}

	for name, files := range map[string]map[string]string{"nothing": {"README.md": "x"}, "two folders": {"a/index.json": index, "b/x": ""}} {
		if x := skills.ReadRegistry(tree(t, files)); x != nil {
			t.Errorf("%s: %+v", name, x)
		}
	}
}

// The tags of an index are searchable and shown with the skill. The tags of an untrusted root are
// ignored, because they could manipulate a search (OSL-34).
func TestTags(t *testing.T) {
	row := contract.Of(t, "OSL-34")
	if !strings.Contains(entry("sums"), row.Quote("tags")) {
		t.Fatal("the index has no tags")
	}
	dir := repository(t, "["+entry("sums")+"]", map[string]string{"skills/sums/" + row.Quote("docs.md"): "# How", "skills/new/SKILL.md": skill("new", "Is not listed yet.")})
	c := skills.Discover(skills.Root{Path: dir, Trusted: true})

	var entries []skills.Entry
	for _, s := range c.Skills() {
		entries = append(entries, s.Entry())
	}
	if len(entries) != 2 {
		t.Fatalf("an index hides what it does not list: %v", entries)
	}
	if s, _ := c.Get("sums"); s == nil {
		t.Fatal("sums is missing")
	} else if docs, err := s.Docs(); docs != "# How" || err != nil {
		t.Errorf("%q, %v", docs, err)
	}
	hits := skills.Search("money", entries, 5)
	if len(hits) != 1 || hits[0].Name != "sums" || !slices.Equal(hits[0].Tags, []string{"money", "reports"}) {
		t.Errorf("%+v", hits)
	}

	accept := func(string) (string, bool, error) { return "hash", true, nil }
	for _, s := range skills.Discover(skills.Root{Path: dir, Accept: accept}).Skills() {
		if s.Tags != nil {
			t.Errorf("%+v", s)
		}
	}
}

// TestLayout checks the file names of a repository and a program (OSL-01, OSL-02).
func TestLayout(t *testing.T) {
	layout, found := contract.Of(t, "OSL-01"), contract.Of(t, "OSL-02")
	index, manifest, code := layout.Quote("skills/index.json"), layout.Quote("manifest.json"), layout.Quote("module.ts")
	files := map[string]string{index: "[" + entry("sums") + "]", "skills/sums/" + manifest: goodManifest, "skills/sums/" + code: goodModule,
		"skills/sums/" + layout.Quote("docs.md"): "# Sums", "skills/sums/" + layout.Quote("config-schema.json"): `{"type": "object", "properties": {"a": {"type": "string"}}}`}
	dir := tree(t, files)
	if x := skills.ReadRegistry(dir); x == nil || len(x.Check()) > 0 || filepath.Base(index) != found.Quote("index.json") {
		t.Errorf("%+v", x)
	}
	s, ok := skills.Discover(skills.Root{Path: dir, Trusted: true}).Get("sums")
	if !ok || s.Kind() != "module" {
		t.Fatalf("%+v", s)
	}
	if docs, err := s.Docs(); docs != "# Sums" || err != nil {
		t.Errorf("%q, %v", docs, err)
	}

	delete(files, index) // without an index, folders are searched
	if s, ok := skills.Discover(skills.Root{Path: tree(t, files), Trusted: true}).Get("sums"); !ok || filepath.Base(s.File) != found.Quote("manifest.json") {
		t.Errorf("without an index: %+v", s)
	}
	for _, name := range []string{manifest, found.Quote("module.ts")} {
		if problems := skills.Validate(program(t, map[string]string{name: ""})); !strings.Contains(places(problems), name+":0:") {
			t.Errorf("without %s: %s", name, places(problems))
		}
	}

	slug := regexp.MustCompile(layout.Quote("^[a-z][a-z0-9-]*$"))
	for _, name := range []string{"sums", "a", "a-1", "1a", "-a", "Sums", "sümme", "a_b", "a.b", "-"} {
		_, problems := skills.ReadManifest(program(t, map[string]string{"manifest.json": with(t, map[string]string{"name": strconv.Quote(name)})}))
		if refused := strings.Contains(rules(problems), "name slug"); refused == slug.MatchString(name) {
			t.Errorf("%q: %s", name, rules(problems))
		}
	}
}

// FuzzIndex checks that ReadRegistry accepts any index, reports problems with valid positions and
// returns no folder outside of the repository.
func FuzzIndex(f *testing.F) {
	for _, seed := range []string{"", "[]", "{}", "[[]]", "[" + entry("sums") + "]", `[{"folderPath": "../../etc", "tags": [""]}]`, `[{"folderPath": "skills/../.."}]`, `[{"folderPath": "/etc"}]`} {
		f.Add(seed)
	}

	dir := repository(f, "[]", nil)
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(filepath.Join(dir, "skills", "index.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		x := skills.ReadRegistry(dir)
		for _, p := range x.Check() {
			if p.Rule == "" || p.Message == "" || p.File == "" || p.Line > strings.Count(text, "\n")+1 {
				t.Errorf("%+v", p)
			}
		}
		for _, folder := range x.Folders() {
			if rel, err := filepath.Rel(dir, folder); err != nil || !filepath.IsLocal(rel) || rel == "." {
				t.Errorf("%s is outside", folder)
			}
		}
	})
}
