package tool_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rouse/agent/tool"
)

// TestMasks checks that masked places are protected by their own path, before they exist, and
// behind a link. A grant below a masked place is not masked.
func TestMasks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"home/ledger.db", "home/agents/x/work/mine.txt", "rouse.yaml", "skills/tax/SKILL.md", "free.txt"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("canary"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Symlink("home", filepath.Join(dir, "way")); err != nil {
		t.Skip("no links here")
	}
	if err := os.Symlink("skills/tax", filepath.Join(dir, "tax")); err != nil {
		t.Fatal(err)
	}

	roots, err := tool.NewRoots(dir, []tool.Grant{{Path: filepath.Join(dir, "home/agents/x/work"), Write: true}, {Path: dir, Write: true}})
	if err != nil {
		t.Fatal(err)
	}

	roots.Mask(tool.ProtectedPaths{ReadOnly: []string{filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "jobs.d", "more.yaml"), filepath.Join(dir, "skills")}, Hidden: []string{filepath.Join(dir, "way")}}.Resolved())
	read := func(path string) bool {
		f, err := roots.Open(path)
		if err == nil {
			f.Close()
		}
		return err == nil
	}

	write := func(path string) bool {
		p, err := roots.Resolve(path, true)
		if err != nil {
			return false
		}
		defer p.Close()
		return p.CheckWrite() == nil
	}

	for path, want := range map[string][2]bool{
		"free.txt": {true, true}, "rouse.yaml": {true, false}, "sub/../rouse.yaml": {true, false}, "jobs.d/more.yaml": {false, false},
		"skills/tax/SKILL.md": {true, false}, "skills/new/SKILL.md": {false, false}, "skills": {true, false}, "tax/SKILL.md": {true, false}, "tax/new.md": {false, false},
		"home/ledger.db": {false, false}, "way/ledger.db": {false, false}, "home": {false, false}, "home/agents/y": {false, false},
		"home/agents/x/work/mine.txt": {true, true}, filepath.Join(dir, "home/ledger.db"): {false, false}, "rouse.yaml.bak": {false, true},
	} {
		if r, w := read(path), write(path); (path != "rouse.yaml.bak" && r != want[0]) || w != want[1] {
			t.Errorf("%s: read %v, written %v, want %v", path, r, w, want)
		}
	}

	if got := roots.ProgramMasks(); !slices.Contains(got, filepath.Join(dir, "jobs.d/more.yaml")) || !slices.Contains(got, filepath.Join(dir, "home")) || slices.Contains(got, filepath.Join(dir, "rouse.yaml")) {
		t.Errorf("a confined program would not see %v", got)
	}
	if got, _ := roots.ProgramPaths(nil); !slices.Contains(got, filepath.Join(dir, "rouse.yaml")) || slices.Contains(got, filepath.Join(dir, "home")) {
		t.Errorf("a confined program would read %v", got)
	}
}
