// Package cmdtest provides helpers for the tests of commands, of the daemon and for benchmarks:
// folders with files, a log that can be read while it is written, and waiting for a condition.
package cmdtest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Patience is the timeout after which a test considers the program hung. It is long because
// machines can be slow.
const Patience = 3 * time.Minute

// Nobody is an address that refuses connections.
const Nobody = "127.0.0.1:1"

// Isolate keeps tests away from the desktop, models and dashboard of the user.
func Isolate() error {
	for _, name := range []string{"DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	// Several daemons run at the same time.
	return errors.Join(os.Setenv("OLLAMA_HOST", Nobody), os.Setenv("ROUSE_DASHBOARD_LISTEN", "127.0.0.1:0"))
}

// AtOnce is the number of parallel tests in a package without -parallel. It exceeds the number of
// cores because most tests wait for a timer, a process or the file system.
const AtOnce = 8

// Widen makes a package run AtOnce parallel tests. TestMain calls it.
func Widen() error { return flag.Set("test.parallel", strconv.Itoa(AtOnce)) }

// Write creates a folder with files and returns its path.
func Write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// Until waits until ok returns true. It fails the test after Patience.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within %s", what, Patience)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Log is a buffer that can be read while it is written.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
