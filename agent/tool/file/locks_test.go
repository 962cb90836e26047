package file_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/tool"
)

// appender makes a process of this test append to the log in a folder: "FOLDER|LOCKS|NAME|LINES".
// Optional.
const appender = "ROUSE_TEST_FILE_APPENDER"

const lanes = 16

// TestAppendsOfProcesses runs sixteen runs in each of two processes that append to one file. Half
// of them use another name of the folder. No line may be lost, and no append may fail because of
// another (OSA-32). ROUSE_TEST_FILE_LINES is the number of lines per run.
func TestAppendsOfProcesses(t *testing.T) {
	t.Parallel()
	dir, locks := t.TempDir(), filepath.Join(t.TempDir(), "locks")
	lines, err := strconv.Atoi(cmp.Or(os.Getenv("ROUSE_TEST_FILE_LINES"), "6"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Skip(err)
	}

	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAppender$", "-test.v")
	other.Env = append(os.Environ(), fmt.Sprintf("%s=%s-link|%s|other|%d", appender, dir, locks, lines))
	var said strings.Builder
	other.Stdout, other.Stderr = &said, &said
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}

	appendLines(t, dir, locks, "mine", lines)
	if err := other.Wait(); err != nil {
		t.Fatalf("the other process: %v\n%s", err, said.String())
	}

	text, err := os.ReadFile(filepath.Join(dir, "log.txt"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		count[line]++
	}
	for _, name := range []string{"mine", "other"} {
		for lane := range lanes {
			for n := range lines {
				if line := fmt.Sprintf("%s %d %d\n", name, lane, n); count[line] != 1 {
					t.Errorf("%q is there %d times", line, count[line])
				}
			}
		}
	}
}

// TestAppender is the other process.
func TestAppender(t *testing.T) {
	spec := os.Getenv(appender)
	if spec == "" {
		t.Skip("a part of TestAppendsOfProcesses")
	}

	parts := strings.Split(spec, "|")
	lines, err := strconv.Atoi(parts[3])
	if err != nil {
		t.Fatal(err)
	}
	appendLines(t, parts[0], parts[1], parts[2], lines)
}

// appendLines appends lines from many runs concurrently.
func appendLines(t *testing.T, dir, locks, name string, lines int) {
	t.Helper()
	b := newBench(t, dir)
	b.locks = tool.NewLocks(locks)

	var all sync.WaitGroup
	for lane := range lanes {
		call := b.run(t)
		all.Go(func() {
			for n := range lines {
				if e, _ := call("file_write", map[string]any{"path": "log.txt", "mode": "append", "content": fmt.Sprintf("%s %d %d\n", name, lane, n)}); !e.OK {
					t.Errorf("%s %d %d: %s", name, lane, n, e.Message)
				}
			}
		})
	}
	all.Wait()
}

// TestAppendBesideAProgram checks an append while a program writes without locks between the read
// and the rename. The program's text must not be lost, and the append must not fail (OSA-32).
func TestAppendBesideAProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, path := newBench(t, dir), filepath.Join(dir, "log.txt")

	// The announcement comes right before the rename. The program writes at the first one.
	b.onWrite = sync.OnceValue(func() error { return appendTo(path, "from a program\n") })

	if e, _ := b.run(t)("file_write", map[string]any{"path": "log.txt", "mode": "append", "content": "mine\n"}); !e.OK {
		t.Fatal(e.Message)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "from a program\nmine\n" {
		t.Errorf("%q %v", text, err)
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// TestWaitForATurn checks that a waiting call returns an error and releases its place if its run
// ends.
func TestWaitForATurn(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.locks = tool.NewLocks(t.TempDir())

	// The first call holds the lock until the second call has ended.
	inTurn, goOn := make(chan struct{}), make(chan struct{})
	b.onWrite = sync.OnceValue(func() error { close(inTurn); <-goOn; return nil })
	first, done := b.run(t), make(chan tool.Envelope)
	go func() {
		e, _ := first("file_write", map[string]any{"path": "a.txt", "content": "first\n"})
		done <- e
	}()
	<-inTurn

	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	b.ctx = ctx
	if e, _ := b.run(t)("file_write", map[string]any{"path": "a.txt", "mode": "append", "content": "second\n"}); e.OK {
		t.Error("two changes of one file were made at the same time")
	}
	close(goOn)
	if e := <-done; !e.OK {
		t.Error(e.Message)
	}

	b.ctx = nil
	if e, _ := b.run(t)("file_write", map[string]any{"path": "a.txt", "mode": "append", "content": "third\n"}); !e.OK || b.text("a.txt") != "first\nthird\n" {
		t.Errorf("%s: %q", e.Message, b.text("a.txt"))
	}
}
