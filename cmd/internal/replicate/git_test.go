package replicate

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/backup"
)

// A restore from a continuous copy never contains a repository that git recognizes, even if an
// older rouse or a stranger wrote the copy.
func TestRepositoriesComeBackDisarmed(t *testing.T) {
	t.Parallel()
	store, home := newDisk(t), newHome(t)
	at := filepath.Join(home, "projects", ".git", "config")
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte("[core]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p := start(t, home, store)
	p.write("a")
	p.untilCopied()
	p.end()

	fetched := filepath.Join(t.TempDir(), "fetched")
	if err := os.Mkdir(fetched, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Fetch(t.Context(), store, time.Time{}, fetched); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(fetched, "home", "projects", "disarmed-git-1")
	if _, err := os.Stat(filepath.Join(copied, "config")); err != nil {
		t.Error(err)
	}

	for _, forged := range []bool{false, true} {
		if forged {
			manifest := filepath.Join(fetched, "manifest.json")
			text, err := os.ReadFile(manifest)
			if err != nil {
				t.Fatal(err)
			}
			var m backup.Manifest
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			for i, e := range m.Entries {
				m.Entries[i].Path, m.Entries[i].Was = strings.Replace(e.Path, "disarmed-git-1", ".git", 1), ""
			}
			// The before.json of a running command. At the next start, repositories that it does
			// not list would be disarmed.
			note := filepath.Join(fetched, "home", "commands", "rouse-command-1", "before.json")
			m.Entries = append(m.Entries, backup.Entry{Path: backup.HomeEntry("commands/rouse-command-1/before.json"), Mode: 0o600})
			if err := errors.Join(os.MkdirAll(filepath.Dir(note), 0o700), os.WriteFile(note, []byte("{}"), 0o600), os.Rename(copied, filepath.Join(filepath.Dir(copied), ".git")), backup.Finish(fetched, m)); err != nil {
				t.Fatal(err)
			}
		}

		back := filepath.Join(t.TempDir(), "home")
		r, err := backup.Restore(t.Context(), backup.RestoreOptions{Source: fetched, Home: back}, func(string) (func(), error) { return func() {}, nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(back, "commands")); err == nil || slices.Contains(r.Dropped, "commands") != forged {
			t.Errorf("forged: %t: notes of commands came along (%v)", forged, r.Dropped)
		}
		was := filepath.Join(back, "projects", ".git")
		if len(r.Disarmed) != 1 || r.Disarmed[0].Path != was || !strings.HasSuffix(r.Disarmed[0].Undo(), "disarmed-git-1 "+was) {
			t.Errorf("forged: %t: %+v", forged, r.Disarmed)
		}
		if _, err := os.Lstat(was); err == nil {
			t.Errorf("forged: %t: git finds it", forged)
		}
		if _, err := os.Stat(filepath.Join(back, "projects", "disarmed-git-1", "config")); err != nil {
			t.Error(err)
		}
	}
}
