package install_test

import (
	"os"
	"path/filepath"
	"testing"

	"rouse/skills/install"
)

// FuzzArchive checks that any archive is rejected or becomes a skill in its folder, and that no
// other file is written.
func FuzzArchive(f *testing.F) {
	for _, pack := range []func(testing.TB, ...item) string{tarball, zipped} {
		for _, items := range [][]item{{{"csv/SKILL.md", csv, 0}}, {{"../SKILL.md", csv, 0}}, {{"csv/SKILL.md", csv, 0}, {"csv/x", "/etc", '2'}}} {
			content, err := os.ReadFile(pack(f, items...))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		above := t.TempDir()
		root := filepath.Join(above, "root")
		staged, err := install.Fetch(t.Context(), root, install.Source{From: file(t, content)})
		if err == nil {
			_, err = install.Install(t.Context(), root, staged, true)
			if err := staged.Close(); err != nil {
				t.Error(err)
			}
		}

		entries, _ := os.ReadDir(above)
		for _, e := range entries {
			if e.Name() != "root" {
				t.Errorf("%s is outside", e.Name())
			}
		}

		if _, lstat := os.Stat(filepath.Join(root, "csv")); err != nil && lstat == nil {
			t.Errorf("refused (%v), and there", err)
		}
	})
}
