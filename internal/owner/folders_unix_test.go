package owner

import (
	"os"
	"path/filepath"
	"testing"
)

// OSL-19: the file and every folder above it decide whether another user could write a definition.
func TestWritableByOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "conf", "rouse.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		file, folder os.FileMode
		says         string
	}{
		{0o644, 0o755, ""}, {0o600, 0o700, ""}, {0o646, 0o755, "may be written by everybody (mode 0646)"},
		{0o644, 0o757, "lies in " + filepath.Dir(path) + ", which may be written by everybody (mode 0757)"},
		{0o644, 0o777 | os.ModeSticky, ""},
	} {
		if err := os.Chmod(path, c.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(path), c.folder); err != nil {
			t.Fatal(err)
		}
		if got := WritableByOthers(path); got != c.says {
			t.Errorf("%v in %v: %q, want %q", c.file, c.folder, got, c.says)
		}
	}
}
