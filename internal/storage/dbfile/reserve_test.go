package dbfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"rouse/internal/storage/dbfile"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	database := filepath.Join(t.TempDir(), "x.db")
	path := database + "-reserve"
	size := func() int64 {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			return -1
		}
		return info.Size()
	}
	r := dbfile.NewReserve(database, 1<<16)
	keep := func(why string) {
		t.Helper()
		if err := r.Keep(); err != nil || size() != 1<<16 || r.Gone() {
			t.Errorf("%s: %v, %d bytes, gone %t", why, err, size(), r.Gone())
		}
	}

	keep("made")
	keep("there already")
	if err := r.Release(); err != nil || size() != -1 || !r.Gone() {
		t.Errorf("%v, %d bytes, gone %t", err, size(), r.Gone())
	}
	if err := r.Release(); err != nil {
		t.Error("freed twice:", err)
	}
	keep("made again")

	// A file left by a killed process, and a link in place of the reserve.
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep("one that is too short")
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(canary, path); err != nil {
		t.Skip(err)
	}
	keep("a link")
	if text, err := os.ReadFile(canary); err != nil || string(text) != "as it was" {
		t.Errorf("%q %v", text, err)
	}

	// More than any disk has.
	vast := dbfile.NewReserve(filepath.Join(t.TempDir(), "y.db"), 1<<60)
	if err := vast.Keep(); err != nil || !vast.Gone() {
		t.Errorf("a reserve of %d bytes: %v, gone %t", vast.Needs()/2, err, vast.Gone())
	}
}
