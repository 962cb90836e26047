// Package cmdtest is what the tests of the commands, of the daemon and of the measurements share:
// a folder with files in it, a log that may be read while it is written, and waiting for what must
// happen.
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

// Patience is how long a test waits for what must happen before it takes the program to hang. It bounds
// nothing else: a machine may be slow, and a test that is cut off on one says nothing about the program.
const Patience = 3 * time.Minute

// Nobody is an address at which nothing answers.
const Nobody = "127.0.0.1:1"

// Isolate keeps the desktop, the models and the dashboard of whoever runs the tests from being reached.
func Isolate() error {
	for _, name := range []string{"DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} {
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	// Several daemons are at work at once.
	return errors.Join(os.Setenv("OLLAMA_HOST", Nobody), os.Setenv("ROUSE_DASHBOARD_LISTEN", "127.0.0.1:0"))
}

// AtOnce is how many parallel tests of a package run at the same time, unless -parallel says otherwise.
// Most of them wait for a timer, a process or the file system: one for each core would leave the
// cores idle.
const AtOnce = 8

// Widen has the parallel tests of a package run AtOnce. Its TestMain calls it.
func Widen() error { return flag.Set("test.parallel", strconv.Itoa(AtOnce)) }

// Write makes a folder with files and returns its path.
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

// Until waits until ok says yes, and fails the test when it never does.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within %s", what, Patience)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Log may be read while it is written.
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
