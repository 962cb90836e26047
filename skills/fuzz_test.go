package skills_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"rouse/skills"
)

// FuzzSkill checks that Load and Validate accept any SKILL.md and report problems with valid
// positions. A loaded skill has a name, a description and instructions. A skill that Validate
// accepts loads without warnings.
func FuzzSkill(f *testing.F) {
	for _, seed := range []string{
		"", "---", "---\n---\n", skill("pdf", "x"), "---\r\nname: pdf\r\ndescription: a: b\r\n---\r\nx", "---\nname: pdf\ndescription: |\n  a\n  b\n---\n",
		"---\nname: *x\n---\n", "---\n? a\n: b\n---\n", "---\nname: !!binary AAAA\ndescription: x\n---\n", "---\nmetadata: {a: {b: [c]}}\ndescription: x\n---\n", "\xff\xfe", "---\n\t\n---",
	} {
		f.Add(seed)
	}

	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		dir := filepath.Join(dir, "pdf")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}

		strict := skills.Validate(dir)
		s, problems := skills.Load(dir)
		for _, p := range append(strict, problems...) {
			if p.Rule == "" || p.Message == "" || p.File == "" || p.Line > strings.Count(text, "\n")+1 {
				t.Errorf("%+v", p)
			}
		}

		if len(strict) == 0 && (s == nil || len(problems) > 0) {
			t.Errorf("valid, and %v", problems)
		}
		if s == nil {
			return
		}
		if s.Name == "" || s.Description == "" || strings.ContainsFunc(s.Name, unicode.IsControl) {
			t.Errorf("%+v", s)
		}

		if _, err := s.Content(); err != nil && !strings.Contains(err.Error(), "UTF-8") {
			t.Error(err)
		}
	})
}
