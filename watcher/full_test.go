//go:build linux

package watcher_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/watcher"
	"rouse/watcher/after"
)

// TestAfterToAFullDisk checks that a move to a full disk reports an error, keeps the file and
// leaves no partial copy. Other files and jobs go on. After there is room again, the file is moved,
// and no run is repeated.
func TestAfterToAFullDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	small := b.path("small")
	b.must(os.Mkdir(small, 0o755))
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}

	t.Cleanup(func() {
		if err := syscall.Unmount(small, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})

	w := b.inbox()
	w.OnSuccess = after.Rule{Action: "move", Dir: small}
	b.write("other/.keep", "")
	other := watcher.Watch{Job: "other", Agent: "a", Path: b.path("other"), Settle: w.Settle, OnSuccess: after.Rule{Action: "move", Dir: b.path("other/done")}}
	b.outcome = domain.OutcomeSuccess
	b.startWith(watcher.Options{Rescan: 50 * time.Millisecond}, w, other)

	text := strings.Repeat("x", 100<<10)
	b.write("inbox/long.csv", text)
	b.what = "the problem shows"
	b.until(func() bool {
		problem := b.status("in").Problem
		return strings.Contains(problem, "long.csv could not be dealt with after its run") && strings.Contains(problem, "no space left on device")
	})
	b.holds("inbox/long.csv", text)
	b.write("inbox/short.csv", "1")
	b.write("other/b.csv", "2")
	b.what = "what fits is moved, and what goes elsewhere"
	b.until(func() bool { return b.has("small/short.csv") && b.has("other/done/b.csv") })
	b.holds("inbox/long.csv", text)
	if p := b.status("other").Problem; p != "" {
		t.Error(p)
	}

	b.must(syscall.Mount("tmpfs", small, "tmpfs", syscall.MS_REMOUNT, "size=1m"))
	b.what = "it is done once there is room"
	b.until(func() bool { return !b.has("inbox/long.csv") && b.status("in").Problem == "" })
	b.holds("small/long.csv", text)
	if left, err := os.ReadDir(small); err != nil || len(left) != 2 {
		t.Errorf("%v (%v)", left, err)
	}
	if got := b.paths("in"); len(got) != 2 || got[b.path("inbox/long.csv")] != 1 || got[b.path("inbox/short.csv")] != 1 {
		t.Errorf("%v", got)
	}
}

func (b *bench) holds(name, want string) {
	b.t.Helper()
	if got, err := os.ReadFile(b.path(name)); err != nil || string(got) != want {
		b.t.Errorf("%s holds %.40q (%v), want %.40q", name, got, err, want)
	}
}
