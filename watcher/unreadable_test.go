//go:build unix

package watcher_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/watcher"
	"rouse/watcher/after"
)

// TestUnreadable checks that an unreadable file is reported once, retried on each scan, and gets
// its run when it becomes readable.
func TestUnreadable(t *testing.T) {
	b := newBench(t)
	b.write("inbox/a.csv", "1")
	if err := os.Chmod(b.path("inbox/a.csv"), 0); err != nil {
		t.Fatal(err)
	}

	asSomebody(t, b.base)
	b.startWith(watcher.Options{Rescan: 100 * time.Millisecond}, b.inbox())
	b.what = "the problem shows"
	b.until(func() bool { return strings.Contains(b.status("in").Problem, "a.csv cannot be read") })
	seen := b.status("in").LastScan
	b.what = "another scan"
	b.until(func() bool { return b.status("in").LastScan.After(seen.Add(250 * time.Millisecond)) })
	events, err := b.ledger.Events.List(t.Context(), event.Filter{Job: "in"})
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Kind != "watch.unreadable" {
		t.Errorf("%+v", events)
	}
	if err := os.Chmod(b.path("inbox/a.csv"), 0o644); err != nil {
		t.Fatal(err)
	}

	b.what = "it is run"
	b.until(func() bool { return b.count("in") == 1 && b.status("in").Problem == "" })
}

// TestUnreadableFolder checks that an unreadable subfolder is reported as well.
func TestUnreadableFolder(t *testing.T) {
	b := newBench(t)
	b.write("inbox/sub/a.csv", "1")
	if err := os.Chmod(b.path("inbox/sub"), 0); err != nil {
		t.Fatal(err)
	}

	asSomebody(t, b.base)
	w := b.inbox()
	w.Recursive = true
	b.startWith(watcher.Options{Rescan: 50 * time.Millisecond}, w)
	b.what = "the problem shows"
	b.until(func() bool { return strings.Contains(b.status("in").Problem, "sub cannot be read") })
	if err := os.Chmod(b.path("inbox/sub"), 0o755); err != nil {
		t.Fatal(err)
	}

	b.what = "it is read"
	b.until(func() bool { return b.count("in") == 1 && b.status("in").Problem == "" })
}

// TestUnwritableDestination checks that a file stays in place and reports a problem while its
// destination cannot be written, and is moved afterwards.
func TestUnwritableDestination(t *testing.T) {
	b := newBench(t)
	w := b.inbox()
	w.OnSuccess = after.Rule{Action: "move", Dir: b.path("done/deep")}
	if err := os.Mkdir(b.path("done"), 0o755); err != nil {
		t.Fatal(err)
	}

	asSomebody(t, b.base)
	if err := os.Chmod(b.path("done"), 0o555); err != nil {
		t.Fatal(err)
	}

	b.outcome = domain.OutcomeSuccess
	b.startWith(watcher.Options{Rescan: 100 * time.Millisecond}, w)
	b.write("inbox/a.csv", "1")
	b.what = "the failure shows"
	b.until(func() bool {
		events, err := b.ledger.Events.List(t.Context(), event.Filter{})
		return err == nil && slices.ContainsFunc(events, func(e ledger.Event) bool {
			return e.Kind == "file.after" && strings.Contains(string(e.Data), "permission denied")
		})
	})
	if _, err := os.Stat(b.path("inbox/a.csv")); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(b.path("done"), 0o755); err != nil {
		t.Fatal(err)
	}

	b.what = "it is moved"
	b.until(func() bool { _, err := os.Stat(b.path("done/deep/a.csv")); return err == nil })
	if n := b.count("in"); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// asSomebody makes the test run as a user without permission to read all files.
func asSomebody(t *testing.T, dirs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}

	const nobody = 65534
	for dir := dirs[0]; dir != os.TempDir() && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}

	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil && !slices.Contains([]string{"sub"}, filepath.Base(path)) {
				return err
			}
			return os.Chown(path, nobody, nobody)
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	if err := syscall.Setreuid(-1, nobody); err != nil {
		t.Skipf("this test cannot become somebody who may not read everything: %v", err)
	}

	t.Cleanup(func() {
		if err := syscall.Setreuid(-1, 0); err != nil {
			t.Error(err)
		}
	})
}
