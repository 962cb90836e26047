package skills_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rouse/internal/contract"
	"rouse/skills"
)

// tree writes files to a new directory. Keys are slash-separated paths.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func describe(problems []skills.Problem) string {
	var out []string
	for _, p := range problems {
		mark := ""
		if p.Warning {
			mark = "?"
		}
		out = append(out, fmt.Sprintf("%d:%s%s", p.Line, p.Rule, mark))
	}

	return strings.Join(out, " ")
}

// TestRules checks each rule with Validate and Load (AGS-01, AGS-02, AGS-03, AGS-04, AUT-02,
// YOA-07, C-10). Validate reports an error. Load reports a warning if the skill is usable.
func TestRules(t *testing.T) {
	fields, lenient, loader, heads, settled := contract.Of(t, "AGS-01"), contract.Of(t, "AGS-04"), contract.Of(t, "AUT-02"), contract.Of(t, "YOA-07"), contract.Of(t, "C-10")
	most, long := fields.Number("64"), strings.Repeat("x", fields.Number("1,024")+1)
	longest := fields.Number("500")
	unknown := fields.Quote("field-unknown")
	whole := "---\n"
	for _, f := range fields.Between("Fields: ", ". Others") {
		whole += map[string]string{"name": "name: pdf\n", "metadata": "metadata:\n  version: 1.0\n"}[f]
		if f != "name" && f != "metadata" {
			whole += f + ": Reads\n"
		}
	}
	named, described := loader.Quote("name")+": pdf\n", loader.Quote("description")+": x\n"
	for name, c := range map[string]struct{ text, strict, lenient string }{
		"the fields":            {whole + "---\n", "", ""},
		"of the loader":         {loader.Quote("---") + "\n" + named + described + "---\n", "", ""},
		"not the fields":        {whole + "other: x\n---\n", "9:" + unknown, "9:" + settled.Quote("field-unknown") + "?"},
		"quotes":                {"---\nname: \"pdf\"\ndescription: 'x'\n---\n", "", ""},
		"good":                  {"---\nname: pdf\ndescription: Reads PDF.\n---\nDo it.", "", ""},
		"all fields":            {"---\nname: pdf\ndescription: >\n  Reads\n  PDF.\nlicense: MIT\ncompatibility: poppler\nmetadata:\n  version: 1.0\nallowed-tools: Read Bash(pdftotext *)\n---\n", "", ""},
		"CRLF and BOM":          {"\ufeff---\r\nname: pdf\r\ndescription: Reads PDF.\r\n---\r\nDo it.\r\n", "1:encoding", ""},
		"dashes in a value":     {"---\nname: pdf\ndescription: Reads --- and writes --- PDF.\n---\n", "", ""},
		"empty file":            {"", "1:frontmatter-missing", "1:" + heads.Quote("frontmatter-missing")},
		"no head":               {"# PDF\n", "1:frontmatter-missing", "1:frontmatter-missing"},
		"head that is no line":  {"--- # x\nname: pdf\n---\n", "1:frontmatter-missing", "1:frontmatter-missing"},
		"open head":             {"---\nname: pdf\ndescription: x\n", "1:frontmatter-open", "1:" + heads.Quote("frontmatter-open")},
		"only a mark":           {"---", "1:frontmatter-open", "1:frontmatter-open"},
		"empty head":            {"---\n---\nx", "2:frontmatter-mapping", "2:" + heads.Quote("frontmatter-mapping")},
		"a list":                {"---\n- name\n---\n", "2:frontmatter-mapping", "2:frontmatter-mapping"},
		"a colon in a value":    {"---\nname: pdf\ndescription: Use when: it is a PDF\n---\n", "3:frontmatter-yaml", "3:frontmatter-yaml?"},
		"a tab":                 {"---\nname: pdf\ndescription: x\nmetadata:\n\ta: b\n---\n", "5:frontmatter-yaml", "5:frontmatter-yaml?"},
		"hopeless":              {"---\nname: [pdf\ndescription: x\n---\n", "3:frontmatter-yaml", "3:frontmatter-yaml"},
		"twice":                 {"---\nname: pdf\nname: pdf2\ndescription: x\n---\n", "3:field-twice", "3:field-twice?"},
		"unknown field":         {"---\nname: pdf\ndescription: x\nversion: 2\n---\n", "4:field-unknown", "4:field-unknown?"},
		"keys in capitals":      {"---\nName: pdf\nDescription: x\n---\n", "1:name-missing 1:description-missing 2:field-unknown 3:field-unknown", ""},
		"no name":               {"---\ndescription: x\n---\n", "1:name-missing", "1:name-missing?"},
		"a list for a name":     {"---\nname:\n  - pdf\ndescription: x\n---\n", "2:name-missing", "2:name-missing?"},
		"long name":             {"---\nname: " + strings.Repeat("p", most+1) + "\ndescription: x\n---\n", "2:name-length 2:name-directory", "2:" + lenient.Quote("name-length") + "? 2:name-directory?"},
		"as long as can be":     {"---\nname: " + strings.Repeat("p", most) + "\ndescription: " + long[1:] + "\ncompatibility: " + long[:longest] + "\n---\n", "2:name-directory", "2:name-directory?"},
		"another script":        {"---\nname: größe-测试\ndescription: x\n---\n", "2:name-directory", "2:name-directory?"},
		"wide letters":          {"---\nname: ｐｄｆ\ndescription: x\n---\n", "", ""},
		"capitals":              {"---\nname: PDF\ndescription: x\n---\n", "2:name-case 2:name-directory", "2:name-case? 2:name-directory?"},
		"hyphens":               {"---\nname: pdf--\ndescription: x\n---\n", "2:name-hyphen 2:name-directory", "2:name-hyphen? 2:name-directory?"},
		"characters":            {"---\nname: pdf_tool/s\ndescription: x\n---\n", "2:name-characters 2:name-directory", "2:name-characters? 2:name-directory?"},
		"a line in the name":    {"---\nname: \"pdf\\nx\"\ndescription: x\n---\n", "2:name-characters", "2:name-characters"},
		"another directory":     {"---\nname: pdf2\ndescription: x\n---\n", "2:" + settled.Quote("name-directory"), "2:" + lenient.Quote("name-directory") + "?"},
		"no description":        {"---\nname: pdf\n---\n", "1:" + heads.Quote("description-missing"), "1:" + lenient.Quote("description-missing")},
		"an empty description":  {"---\nname: pdf\ndescription: '  '\n---\n", "3:description-missing", "3:description-missing"},
		"a long description":    {"---\nname: pdf\ndescription: " + long + "\n---\n", "3:description-length", "3:" + lenient.Quote("description-length") + "?"},
		"compatibility: a list": {"---\nname: pdf\ndescription: x\ncompatibility:\n  - a\n---\n", "4:compatibility-type", "4:compatibility-type?"},
		"long compatibility":    {"---\nname: pdf\ndescription: x\ncompatibility: " + long[:longest+1] + "\n---\n", "4:compatibility-length", "4:compatibility-length?"},
		"brackets":              {"---\nname: pdf\ndescription: x\nallowed-tools: [Read, Write]\n---\n", "4:yaml-style", ""},
		"anchors":               {"---\nname: pdf\ndescription: &d x\nlicense: MIT\n---\n", "3:yaml-style", ""},
		"all at once":           {"---\nname: PDF-\ndescription: ''\nfoo: 1\n---\n", "2:name-case 2:name-hyphen 2:name-directory 3:description-missing 4:field-unknown", "4:field-unknown? 2:name-case? 2:name-hyphen? 2:name-directory? 3:description-missing"},
		"Latin-1":               {"---\nname: pdf\ndescription: caf\xe9\n---\n", "1:encoding", "1:encoding"},
		"UTF-16":                {"\xff\xfe-\x00-\x00-\x00", "0:encoding", "0:encoding"},
		"bomb": {"---\nname: pdf\ndescription: x\nmetadata:\n  a: &a [x,x,x,x,x,x,x,x,x]\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n  c: [*b,*b,*b,*b,*b,*b,*b]\n---\n",
			"5:yaml-style 6:yaml-style 7:yaml-style", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(tree(t, map[string]string{"pdf/SKILL.md": c.text}), "pdf")
			if got := describe(skills.Validate(dir)); got != c.strict {
				t.Errorf("strict: %s, want %s", got, c.strict)
			}

			s, problems := skills.Load(dir)
			if got := describe(problems); got != c.lenient {
				t.Errorf("lenient: %s, want %s", got, c.lenient)
			}

			refused := slices.ContainsFunc(problems, func(p skills.Problem) bool { return !p.Warning })
			if (s == nil) != refused {
				t.Errorf("skill %v, problems %v", s, problems)
			}

			for _, p := range problems {
				if !strings.HasPrefix(p.File, dir) || p.Message == "" {
					t.Errorf("%v does not say where or what", p)
				}
			}
		})
	}
}

// Entries that are not regular text files are rejected without blocking, by Validate too (AGS-03).
// SKILL.md has precedence over skill.md (AGS-02).
func TestNotAFile(t *testing.T) {
	row, reader := contract.Of(t, "AGS-03"), contract.Of(t, "AGS-02")
	dir := tree(t, map[string]string{
		"file": "x", "empty/x": "", "folder/SKILL.md/x": "", "big/SKILL.md": "---\nname: big\ndescription: x\n---\n" + strings.Repeat("x", skills.MaxFile),
		"head/SKILL.md": "---\nname: head\nx: " + strings.Repeat("x", 70<<10) + "\ndescription: x\n---\n", "module/manifest.json": "[]", "module/module.ts": "", "outside.md": "---\nname: out\ndescription: x\n---\n", "out/x": "", "lower/skill.md": "---\nname: lower\ndescription: x\n---\n",
	})
	if runtime.GOOS != "windows" {
		if err := os.Symlink("../outside.md", filepath.Join(dir, "out/SKILL.md")); err != nil {
			t.Fatal(err)
		}
	}

	for name, want := range map[string]string{
		"nowhere": "0:" + row.Quote("path-missing"), "file": "0:" + row.Quote("not-a-directory"), "empty": "0:" + row.Quote("file-missing"), "folder": "0:not-regular", "big": "0:too-large", "head": "1:frontmatter-open 1:too-large",
		"module": "1:field-type", "out": "0:link-outside", "lower": "",
	} {
		if name == "out" && runtime.GOOS == "windows" {
			continue
		}
		if _, problems := skills.Load(filepath.Join(dir, name)); describe(problems) != want {
			t.Errorf("%s: %s, want %s", name, describe(problems), want)
		}
		if got := describe(skills.Validate(filepath.Join(dir, name))); name != "head" && name != "module" && got != want {
			t.Errorf("strict, %s: %s, want %s", name, got, want)
		}
	}

	colon := tree(t, map[string]string{"SKILL.md": reader.Quote("---") + "\nname: a\ndescription: Use when: it is late\n---\n"})
	if s, problems := skills.Load(colon); s == nil || s.Description != "Use when: it is late" || !strings.Contains(describe(problems), reader.Quote("frontmatter-yaml")+"?") {
		t.Errorf("a colon: %+v %v", s, problems)
	}
	both := tree(t, map[string]string{reader.Quote("skill.md"): "---\nname: b\ndescription: of the second\n---\n", reader.Quote("SKILL.md"): "---\nname: a\ndescription: of the first\n---\n"})
	if entries, err := os.ReadDir(both); err != nil || len(entries) < 2 {
		return // the file system ignores case
	}
	if s, problems := skills.Load(both); s == nil || s.Description != "of the first" {
		t.Errorf("%+v %v", s, problems)
	}
}

func skill(name, description string) string {
	return fmt.Sprintf("---\nname: %s\ndescription: %s\n---\nHow to %s.\n", name, description, name)
}

// TestDiscoverStops checks that the search stops after 2,000 directories, including the root, and
// reports it (AGS-05).
func TestDiscoverStops(t *testing.T) {
	t.Parallel()
	row := contract.Of(t, "AGS-05")
	levels := strings.Repeat("d/", row.Number("6")-1)
	project := row.Quote(".agents/skills")
	roots := tree(t, map[string]string{
		"user/" + levels + "six/SKILL.md": skill("six", "x"), "user/" + levels + "d/seven/SKILL.md": skill("seven", "x"), "user/csv/SKILL.md": skill("csv", "of the user"), project + "/csv/SKILL.md": skill("csv", "of the project"),
		"user/" + row.Quote(".git") + "/a/SKILL.md": skill("a", "x"), "user/" + row.Quote("node_modules") + "/b/SKILL.md": skill("b", "x"),
	})
	c := skills.Discover(skills.Root{Path: filepath.Join(roots, "user"), Source: "user", Trusted: true}, skills.Root{Path: filepath.Join(roots, project), Source: "project", Trusted: true})
	var names []string
	for _, s := range c.Skills() {
		names = append(names, s.Name+" "+s.Description)
	}
	if got := strings.Join(names, ", "); got != "csv of the project, six x" || !strings.Contains(describe(c.Problems()), row.Quote("shadowed")) {
		t.Errorf("%s; %v", got, c.Problems())
	}

	most := row.Number("2,000")
	dir := t.TempDir()
	problems := func() int {
		return len(skills.Discover(skills.Root{Path: dir, Source: "user", Trusted: true}).Problems())
	}
	for i := range most - 1 {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if n := problems(); n != 0 {
		t.Errorf("2,000 directories: %d problems", n)
	}
	if err := os.Mkdir(filepath.Join(dir, "one more"), 0o700); err != nil {
		t.Fatal(err)
	}
	if n := problems(); n != 1 {
		t.Errorf("2,001 directories: %d problems", n)
	}
}

// A later root overrides an earlier one, but a broken or untrusted skill does not. Add accepts a
// skill at any path (YOA-06, AGS-05, AGS-06, AUT-03).
func TestDiscover(t *testing.T) {
	order, trust, list := contract.Of(t, "YOA-06"), contract.Of(t, "AGS-06"), contract.Of(t, "AUT-03")
	dir := tree(t, map[string]string{
		"user/csv/SKILL.md": skill("csv", "of the user"), "user/pdf/SKILL.md": skill("pdf", "of the user"), "user/group/deep/SKILL.md": skill("deep", "below a group"),
		"user/csv/inner/SKILL.md": skill("inner", "part of another skill"), "user/node_modules/x/SKILL.md": skill("x", "no"), "user/.git/y/SKILL.md": skill("y", "no"),
		"user/1/2/3/4/5/six/SKILL.md": skill("six", "six levels down"), "user/1/2/3/4/5/6/7/SKILL.md": skill("seven", "too deep"),
		"project/csv/SKILL.md": skill("CSV", "of the project"), "project/pdf/" + order.Quote("SKILL.md"): "---\nname: pdf\n---\n", "strange/evil/SKILL.md": skill("evil", "no"), "elsewhere/linked/SKILL.md": skill("linked", "elsewhere"),
	})

	if runtime.GOOS != "windows" {
		for link, to := range map[string]string{"user/out": "../elsewhere/linked", "user/loop": ".", "user/again": "pdf"} {
			if err := os.Symlink(to, filepath.Join(dir, filepath.FromSlash(link))); err != nil {
				t.Fatal(err)
			}
		}
	}

	c := skills.Discover(
		skills.Root{Path: filepath.Join(dir, "user"), Source: "user", Trusted: true},
		skills.Root{Path: filepath.Join(dir, "missing"), Source: "missing", Trusted: true},
		skills.Root{Path: filepath.Join(dir, "strange"), Source: "strange"},
		skills.Root{Path: filepath.Join(dir, "project"), Source: "project", Trusted: true})

	var got []string
	for _, s := range c.Skills() {
		got = append(got, s.Name+" "+s.Source)
	}
	if want := "CSV project, deep user, pdf user, six user"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}

	var rules []string
	for _, p := range c.Problems() {
		rules = append(rules, string(p.Rule)+" "+filepath.Base(p.File))
	}

	want := []string{"limit 7", trust.Quote("untrusted") + " evil", "name-case SKILL.md", "name-directory SKILL.md", "shadowed SKILL.md", "description-missing SKILL.md"}
	if runtime.GOOS != "windows" {
		want = slices.Insert(want, 1, "link-outside out")
	}
	if !slices.Equal(rules, want) {
		t.Errorf("%q, want %q", rules, want)
	}
	if s, ok := c.Get("csv"); !ok || s.Description != "of the project" {
		t.Errorf("csv: %v", s)
	}
	if _, ok := c.Get("evil"); ok {
		t.Error("a root that is not trusted gave a skill")
	}

	before := len(c.Problems())
	if s := c.Add(filepath.Join(dir, "elsewhere", "linked"), "path"); s == nil || s.Source != "path" {
		t.Errorf("by its path: %+v", s)
	}
	if s, ok := c.Get(list.Quote("Linked") + " "); !ok || s.Description != "elsewhere" || len(c.Skills()) != 5 || len(c.Problems()) != before {
		t.Errorf("by its path: %+v, %d skills, %v", s, len(c.Skills()), c.Problems()[before:])
	}
	if s := c.Add(filepath.Join(dir, "project", "pdf"), "path"); s != nil || len(c.Problems()) != before+1 {
		t.Errorf("a broken one: %+v, %v", s, c.Problems()[before:])
	}
	if s, ok := c.Get("pdf"); !ok || s.Description != "of the user" {
		t.Errorf("a broken one has replaced %+v", s)
	}
}

// TestIndex checks the exact XML of the index, with escapes. It is empty if there are no skills
// (YOA-08, AGS-07).
func TestIndex(t *testing.T) {
	row := contract.Of(t, "YOA-08")
	got := skills.Index([]*skills.Skill{{Name: "csv", Description: `a < b & "c" > 'd'`, File: "/s/csv/SKILL.md"}, {Name: "pdf", Description: "Reads.", File: "/s/pdf/SKILL.md"}})
	want := `<available_skills>
  <skill>
    <name>csv</name>
    <description>a &lt; b &amp; &quot;c&quot; &gt; &apos;d&apos;</description>
    <location>/s/csv/SKILL.md</location>
  </skill>
  <skill>
    <name>pdf</name>
    <description>Reads.</description>
    <location>/s/pdf/SKILL.md</location>
  </skill>
</available_skills>`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, part := range append(row.Between("index of skills is ", ". The characters"), row.Between("The characters ", " are escaped")...) {
		if !strings.Contains(got, part) {
			t.Errorf("%q is not in\n%s", part, got)
		}
	}
	if got := skills.Index(nil); got != "" {
		t.Errorf("%q for no skill", got)
	}
}

// TestSection checks the exact output of the catalog style (AUT-06).
func TestSection(t *testing.T) {
	row := contract.Of(t, "AUT-06")
	list := []*skills.Skill{{Name: "csv", Description: "Cleans\n CSV."}}
	details := []skills.Details{{Skill: &skills.Skill{Name: "pdf", Description: "Reads PDF.", Dir: filepath.FromSlash("/s/pdf")}, Instructions: "Read it."}}
	want := `## Agent Skills

### Skill Catalog

- **pdf**: Reads PDF.
- **csv**: Cleans CSV.

To use a skill without details below, load it with load_skill and follow its instructions.

### Critical Rules for Using Skills

Paths in a skill's instructions are relative to its Root Path. Tools need absolute paths: put the Root Path before them. Examples with the Root Path /s/pdf:
- ./scripts/run.sh is /s/pdf/scripts/run.sh
- scripts/run.sh is /s/pdf/scripts/run.sh

### Skill Details

#### pdf

Root Path: /s/pdf

Read it.
`
	got := filepath.ToSlash(skills.Section(list, details))
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, part := range row.Between("The block of skills is ", ", its root path") {
		if !strings.Contains(got, part+"\n") {
			t.Errorf("%q is not a line of\n%s", part, got)
		}
	}
	if got := skills.Section(list, nil); strings.Contains(got, "Root Path") || strings.Contains(got, "Details") || strings.Contains(got, "Rules") {
		t.Errorf("rules without a preloaded skill: %s", got)
	}
	if got := skills.Section(nil, details); !strings.Contains(got, "- **pdf**: Reads PDF.") || strings.Contains(got, "load_skill") {
		t.Errorf("without a skill to load: %s", got)
	}
	if got := skills.Section(nil, nil); got != "" {
		t.Errorf("%q for no skill", got)
	}
}

// TestContent checks the text that a model gets when it loads a skill (AUT-01, AUT-04, AGS-09,
// UNI-07). Paths are absolute, and at most 100 files are listed.
func TestContent(t *testing.T) {
	model, row := contract.Of(t, "AUT-01"), contract.Of(t, "AGS-09")
	dir := filepath.Join(tree(t, map[string]string{
		"csv/SKILL.md": "---\nname: csv\ndescription: x\n---\n\n\nRun scripts/clean.sh.\r\n\n", "csv/scripts/clean.sh": "", "csv/a&b.txt": "", "csv/.git/config": "",
	}), "csv")
	t.Chdir(filepath.Dir(dir))
	s, problems := skills.Load("csv")
	if s == nil {
		t.Fatal(problems)
	}

	got, err := s.Content()
	if err != nil {
		t.Fatal(err)
	}

	want := row.Quote(`<skill_content name="csv">`) + `
# Skill: csv

` + model.Quote("Root Path: ") + `DIR

Paths in a skill's instructions are relative to its Root Path. Tools need absolute paths: put the Root Path before them. Examples with the Root Path DIR:
- ./scripts/run.sh is DIR/scripts/run.sh
- scripts/run.sh is DIR/scripts/run.sh

Run scripts/clean.sh.

` + row.Quote("<skill_resources>") + `
  <file>a&amp;b.txt</file>
  <file>scripts/clean.sh</file>
</skill_resources>
</skill_content>`
	if got := filepath.ToSlash(strings.ReplaceAll(got, dir, "DIR")); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	most := row.Number("100")
	for i := range most - 1 { // one file too many
		if err := os.WriteFile(filepath.Join(dir, "scripts", fmt.Sprintf("n%02d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Content(); err != nil || strings.Count(got, "<file>") != most || !strings.Contains(got, "there are more than 100") {
		t.Errorf("%v: %s", err, got)
	}
	if err := os.Remove(filepath.Join(dir, "scripts", "n98")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Content(); err != nil || strings.Count(got, "<file>") != most || strings.Contains(got, "there are more") {
		t.Errorf("%v: %s", err, got)
	}
	if err := os.Remove(s.File); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Content(); err == nil || !strings.Contains(err.Error(), "SKILL.md") {
		t.Errorf("of a skill that is gone: %v", err)
	}
}

// TestAllowedTools checks the list forms of the standard and of other tools (AGS-13).
func TestAllowedTools(t *testing.T) {
	for text, want := range map[string][]string{
		"allowed-tools: Read Bash(git add *) Write": {"Read", "Bash(git add *)", "Write"},
		"allowed-tools: Read, Write":                {"Read", "Write"},
		"allowed-tools:\n  - Read\n  - Bash(a, b)":  {"Read", "Bash(a, b)"},
		"allowed-tools:":                            nil,
		"license: MIT":                              nil,
	} {
		s, problems := skills.Load(filepath.Join(tree(t, map[string]string{"pdf/SKILL.md": "---\nname: pdf\ndescription: x\n" + text + "\n---\n"}), "pdf"))
		if s == nil || !slices.Equal(s.AllowedTools, want) {
			t.Errorf("%s: %v (%v)", text, s, problems)
		}
	}
}

// TestSearch checks that the best match comes first and that entries without a common word are
// omitted (OSA-20).
func TestSearch(t *testing.T) {
	entries := []skills.Entry{
		{ID: "skill/csv-report", Name: "csv-report", Description: "Makes a monthly report of spending from CSV statements."},
		{ID: "skill/pdf-tools", Name: "pdf-tools", Description: "Reads, fills and merges PDF forms."},
		{ID: "skill/tax", Name: "tax", Description: "Prepares tax forms from a report."},
		{ID: "tool/db_query", Name: "db_query", Description: "Runs a read-only SQL query."},
	}

	for query, want := range map[string]string{
		"reporting":               "skill/csv-report skill/tax",
		"fill a PDF form":         "skill/pdf-tools skill/tax",
		"QUERY the db":            "tool/db_query",
		"how to use it when":      "",
		"":                        "",
		"blockchain":              "",
		"tax report from the csv": "skill/csv-report skill/tax",
	} {
		var ids []string
		for _, h := range skills.Search(query, entries, 10) {
			ids = append(ids, h.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}

	if hits := skills.Search("report form", entries, 1); len(hits) != 1 {
		t.Errorf("%v, want one", hits)
	}
}

// The frontmatter is found at any size, independent of the read buffer.
func TestFrontmatterInSteps(t *testing.T) {
	for _, size := range []int{4000, 4090, 4091, 4092, 4093, 4094, 4095, 4096, 4097, 8190, 8192, 8193, 60_000} {
		for _, mark := range []string{"---\n", "---\r\n", "--- \n", "---x: 1\n---\n", "---"} {
			text := "---\nname: pdf\ndescription: Reads PDF.\nmetadata:\n  pad: "
			text += strings.Repeat("x", max(size-len(text)-4, 0)) + "\n" + mark
			dir := filepath.Join(tree(t, map[string]string{"pdf/SKILL.md": text + strings.Repeat("Do it.\n", 3000)}), "pdf")
			if mark == "---" { // nothing follows
				if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			s, problems := skills.Load(dir)
			if s == nil || s.Description != "Reads PDF." {
				t.Errorf("%d bytes before %q: %+v, %s", size, mark, s, describe(problems))
			}
		}
	}
}

// A prompt lists skills up to its size limit, but at least one, and states the number of omitted
// skills.
func TestPromptIsBounded(t *testing.T) {
	for _, c := range []struct{ skills, description, named int }{{3, 10, 3}, {150, 10, 100}, {30, 2400, 10}, {2, 60_000, 1}} {
		files := map[string]string{}
		for i := range c.skills {
			name := fmt.Sprintf("s%03d", i)
			files[name+"/SKILL.md"] = "---\nname: " + name + "\ndescription: " + strings.Repeat("x", c.description) + "\n---\n"
		}

		v := skills.Discover(skills.Root{Path: tree(t, files), Trusted: true}).View("", nil)
		for _, style := range []string{skills.StyleIndex, skills.StyleCatalog} {
			text, err := v.Prompt(style)
			if err != nil {
				t.Fatal(err)
			}

			named := strings.Count(text, "<name>") + strings.Count(text, "- **")
			if rest := fmt.Sprintf("There are %d more skills", c.skills-c.named); named != c.named || strings.Contains(text, rest) != (c.skills > c.named) {
				t.Errorf("%+v, %s: %d are named", c, style, named)
			}
		}
	}
}
