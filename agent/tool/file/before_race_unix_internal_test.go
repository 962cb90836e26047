//go:build unix

package file

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"rouse/internal/nofollow"
)

// TestKeptFileBecomesAPipe checks that reading does not block if a pipe replaces the file.
// ROUSE_TEST_RACES is the number of attempts in hundreds. Many attempts are needed to hit the race.
func TestKeptFileBecomesAPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, file, pipe := filepath.Join(dir, "a"), filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}

	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Rename(name, file)
				_ = os.Rename(pipe, name)
				_ = os.Rename(name, pipe)
				_ = os.Rename(file, name)
			}
		}
	})
	defer swapping.Wait()
	defer close(stop)

	rounds := 3000
	if n, err := strconv.Atoi(os.Getenv("ROUSE_TEST_RACES")); err == nil {
		rounds = 100 * n
	}
	for range rounds {
		content, err := readWithin(nofollow.UntrustedDirs{}, dir, name)
		if err == nil && string(content) != "text" {
			t.Fatalf("read %q", content)
		}
	}
}
