package condition

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rouse/internal/nofollow"
)

// TestConditionsFollowNoLinkOfAgents checks that conditions and expectations do not look behind a
// link that an agent could have made.
func TestConditionsFollowNoLinkOfAgents(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	err = errors.Join(os.MkdirAll(at("work/in"), 0o700), os.MkdirAll(at("out"), 0o700), os.WriteFile(at("work/in/a.csv"), []byte("x"), 0o600),
		os.WriteFile(at("out/a.csv"), []byte("x"), 0o600), os.WriteFile(at("out/go.mod"), []byte("module secret"), 0o600), os.Symlink(at("out"), at("work/link")), os.Symlink(at("work"), at("owners")))
	if err != nil {
		t.Fatal(err)
	}

	b := nofollow.NewBoundary(at("work"))
	for path, behind := range map[string]bool{at("work/in/a.csv"): false, at("owners/in/a.csv"): false, at("work/link/a.csv"): true, at("owners/link/a.csv"): true} {
		if _, err := ContentHash(t.Context(), b, path); (err != nil) != behind {
			t.Errorf("%s is hashed: %v", path, err)
		}
		if why := fileUnmet(b, path, time.Time{}); (why != "") != behind {
			t.Errorf("%s as an expected file: %q", path, why)
		}
		if o, ok := statOutput(t.Context(), b, path); ok == behind || ok && o.Path != at("work/in/a.csv") {
			t.Errorf("%s as an output: %+v %t", path, o, ok)
		}

		for _, pattern := range []string{path, filepath.Join(filepath.Dir(path), "*.csv")} {
			if found, err := findFile(t.Context(), b, pattern); (found == "") != behind || err != nil {
				t.Errorf("%s as a condition: %q %v", pattern, found, err)
			}
		}
	}

	if found, err := findFile(t.Context(), b, at("work/**/go.mod")); found != "" || err != nil {
		t.Errorf("a pattern led to %q, %v", found, err)
	}
}

// TestNamesOfMacs checks that files are found if their names use a different Unicode form than the
// configured paths.
func TestNamesOfMacs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "entwu\u0308rfe", "U\u0308bung.txt")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}

	b := nofollow.NewBoundary()
	for path, want := range map[string]string{"entw\u00fcrfe/\u00dcbung.txt": "present", "entw\u00fcrfe/\u00dc*.txt": file, "*/\u00dcbung.txt": file, "**/?bung.txt": file, "\u00dcbung.txt": ""} {
		if found, err := findFile(t.Context(), b, filepath.Join(dir, filepath.FromSlash(path))); found != want || err != nil {
			t.Errorf("%s: %q, %v", path, found, err)
		}
	}
	if why := fileUnmet(b, spelled(b, filepath.Join(dir, "entw\u00fcrfe", "\u00dcbung.txt")), time.Time{}); why != "" {
		t.Error(why)
	}
}
