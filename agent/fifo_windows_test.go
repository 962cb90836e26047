package agent_test

import (
	"os"
	"testing"
)

// mkfifo creates a folder, because there are no pipes here. A folder is not a regular file either.
func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}
