package agent_test

import (
	"os"
	"testing"
)

// mkfifo has no pipe to put in the place of a file here; a folder is no file either.
func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}
