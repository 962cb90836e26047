//go:build unix

package watcher_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"rouse/watcher"
)

// TestConvergeUnreadableFolder checks that the files of a temporarily unreadable folder do not
// count as removed.
func TestConvergeUnreadableFolder(t *testing.T) {
	b := newBench(t)
	b.write("inbox/sub/a.csv", "1")
	asSomebody(t, b.base)
	w := b.folder()
	w.Recursive = true
	b.startWith(watcher.Options{Rescan: 50 * time.Millisecond}, w)
	b.state(watcher.StateIdle)
	if err := os.Chmod(b.path("inbox/sub"), 0); err != nil {
		t.Fatal(err)
	}

	b.what = "the problem shows"
	b.until(func() bool { return b.status("in").Problem != "" })
	b.write("inbox/b.csv", "1")
	b.state(watcher.StateProcessing)
	if c := b.changes("in")[0].Changes; !slices.Equal(c.Added, []string{"b.csv"}) || len(c.Removed) != 0 {
		t.Errorf("%+v", c)
	}
	if err := os.Chmod(b.path("inbox/sub"), 0o755); err != nil {
		t.Fatal(err)
	}

	b.end(1, "success")
	b.state(watcher.StateIdle)
	if n := b.count("in"); n != 1 {
		t.Errorf("%d runs", n)
	}
}
