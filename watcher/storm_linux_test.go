package watcher_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"rouse/internal/ledger/event"
	"rouse/watcher"
)

// TestMappedWrite checks that a write through a memory mapping, which causes no event, is found by
// the periodic scan.
func TestMappedWrite(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.startWith(watcher.Options{Rescan: 100 * time.Millisecond}, b.inbox())
	b.write("inbox/a.csv", strings.Repeat("a", 4096))
	b.what = "a run"
	b.until(func() bool { return b.count("in") == 1 })
	f, err := os.OpenFile(b.path("inbox/a.csv"), os.O_RDWR, 0)
	b.must(err)
	defer f.Close()

	page, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	b.must(err)
	copy(page, strings.Repeat("b", 4096))
	b.must(syscall.Munmap(page))
	b.must(f.Sync()) // sets the time of the file at the latest
	b.must(f.Close())
	b.what = "another"
	b.until(func() bool { return b.count("in") == 2 })
	if d := b.changes("in")[1]; d.File.Hash != hashOf([]byte(strings.Repeat("b", 4096))) {
		t.Errorf("%+v", d.File)
	}
}

// TestNameThatIsNoText checks that a name that is not UTF-8 is reported as a problem, and that
// other files go on.
func TestNameThatIsNoText(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start(b.inbox())
	b.write("inbox/\xff\xfe.csv", "1")
	b.what = "the problem shows"
	b.until(func() bool { return strings.Contains(b.status("in").Problem, "not UTF-8") })
	b.write("inbox/a.csv", "1")
	b.what = "a run of the other"
	b.until(func() bool { return b.count("in") == 1 })
	b.must(os.Rename(b.path("inbox/\xff\xfe.csv"), b.path("inbox/b.csv")))
	b.what = "a run of it by its new name"
	b.until(func() bool { return b.count("in") == 2 })
	b.watcher.Scan()
	b.what = "no problem is left"
	b.until(func() bool { return b.status("in").Problem == "" })
	events, err := b.ledger.Events.List(t.Context(), event.Filter{Job: "in"})
	b.must(err)
	told := 0
	for _, e := range events {
		if e.Kind == "watch.unreadable" {
			told++
		}
	}

	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
