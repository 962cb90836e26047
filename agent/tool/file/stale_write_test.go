package file

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"rouse/agent/tool"
)

// A file that another run has changed between the read and the replacement is not overwritten. The
// writer gets an error and may retry.
func TestStaleWrite(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"rewritten": func(path string) error { return os.WriteFile(path, []byte("longer than before"), 0o600) },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("old"), 0o600), os.Rename(path+".new", path))
		},
		"removed": os.Remove,
		"created": func(path string) error { return os.WriteFile(path, []byte("new"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.txt")
			if name != "created" {
				if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			roots, err := tool.NewRoots(dir, nil)
			if err != nil {
				t.Fatal(err)
			}

			place, err := roots.Resolve("a.txt", true)
			if err != nil {
				t.Fatal(err)
			}
			defer place.Close()

			old, err := readCurrent(place, "a.txt")
			if err != nil {
				t.Fatal(err)
			}
			if err := change(path); err != nil {
				t.Fatal(err)
			}

			theirs, _ := os.ReadFile(path)
			file, err := writeTemp(place, "mine", 0)
			if err != nil {
				t.Fatal(err)
			}

			err = commit(place, "a.txt", file, old)
			var bad *tool.Refusal
			if !errors.As(err, &bad) || !bad.Retryable {
				t.Errorf("a stale write gave %v", err)
			}
			if now, _ := os.ReadFile(path); string(now) != string(theirs) {
				t.Errorf("%q became %q", theirs, now)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".rouse-*")); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}
