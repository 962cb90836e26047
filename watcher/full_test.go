//go:build linux

package watcher

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"rouse/agentdb/ledger"
)

// A destination that is full fails visibly, keeps the file, leaves nothing of the try, and is
// tried again.
func TestAfterToAFullDisk(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	small := d.path("small")
	d.must(os.Mkdir(small, 0o755))
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := d.set(After{"move", small})
	text := strings.Repeat("x", 100<<10)
	c := d.run(w, d.write("inbox/a.csv", text), ledger.OutcomeSuccess)
	if got := d.settle(c); got.After != ledger.AfterFailed || !strings.Contains(d.note(), "no space") {
		t.Fatalf("%+v, %s", got, d.note())
	}
	d.read("inbox/a.csv", text)
	if left, err := os.ReadDir(small); err != nil || len(left) != 0 {
		t.Errorf("%v (%v)", left, err)
	}
	d.must(syscall.Mount("tmpfs", small, "tmpfs", syscall.MS_REMOUNT, "size=1m"))
	if _, err := Offer(t.Context(), d.w.ledger, w, d.path("inbox/a.csv")); err != nil { // as a scan does
		t.Fatal(err)
	}
	if got := d.settle(c); got.After != ledger.AfterDone {
		t.Errorf("%+v, %s", got, d.note())
	}
	d.read("small/a.csv", text)
	d.missing("inbox/a.csv")
}
