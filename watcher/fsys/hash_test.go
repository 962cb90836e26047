package fsys

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestHashesByIdentity checks that a hash is found by the identity of its file under any name, or
// by the path if there is no identity.
func TestHashesByIdentity(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	file := Handle{root, "a"}
	info, err := file.Lstat()
	if err != nil {
		t.Fatal(err)
	}

	h := NewHashes()
	known, unidentified := StampOf(info), StampOf(info)
	want, err := h.Of(t.Context(), file, known)
	if err != nil {
		t.Fatal(err)
	}
	gone := file.Sibling("gone")
	if got, err := h.Of(t.Context(), gone, known); known.Inode != 0 && (err != nil || got != want) {
		t.Errorf("by another name: %s (%v), want %s", got, err, want)
	}

	unidentified.Inode = 0
	h.known.Put(h.stampHasher.Of(file.Path(), unidentified), sha256.Sum256([]byte("1")))
	if got, err := h.Of(t.Context(), file, unidentified); err != nil || got != want {
		t.Errorf("by its path: %s (%v), want %s", got, err, want)
	}
	if got, err := h.Of(t.Context(), gone, unidentified); err == nil {
		t.Errorf("another path without identity: %s", got)
	}
}
