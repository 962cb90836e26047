package watcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"rouse/agentdb/ledger"
)

// meanwhile is a queue before whose transactions something happens.
type meanwhile struct {
	*ledger.Ledger
	before func()
	called bool
	err    error
}

func (m *meanwhile) Enqueue(ctx context.Context, reqs ...ledger.Request) ([]ledger.Accepted, error) {
	m.called = true
	m.before()
	accepted, err := m.Ledger.Enqueue(ctx, reqs...)
	m.err = err
	return accepted, err
}

// readEarly is a folder with one file that was read and is not due yet.
func (d *harness) readEarly(name, content string) (*folder, string) {
	d.t.Helper()
	d.set(After{})
	f := d.w.folders["in"]
	f.scan(d.t.Context(), "start")

	path, before := d.write(name, content), time.Now().Add(-time.Hour)
	d.must(os.Chtimes(path, before, before))
	f.debouncer.observe(path, time.Now(), stampAt(d, path), hintArrived)
	for it := f.debouncer.first(); !it.early.takeable(); { // once the step of the clock is over in which it was written
		it.early, it.due = nil, time.Now()
		f.lookEarly(d.t.Context())
	}
	return f, path
}

func stampAt(d *harness, path string) stamp {
	d.t.Helper()
	info, err := os.Lstat(path)
	d.must(err)
	return stampOf(info)
}

// takeOnTime takes the file while its window ends.
func (d *harness) takeOnTime(f *folder, q *meanwhile) {
	d.t.Helper()
	q.Ledger, d.w.queue = d.w.ledger, q
	it := f.debouncer.first()
	for !q.called || errors.Is(q.err, errLate) { // a machine that is busy may be late for it
		it.due, it.early.tried = time.Now().Add(headStart/2), false
		f.takeOnTime(d.t.Context())
	}
	d.w.queue = d.w.ledger
}

// hashesOfRuns are the hashes of the files that runs were accepted for.
func (d *harness) hashesOfRuns() (out []string) {
	d.t.Helper()
	runs, err := d.w.ledger.Runs(d.t.Context(), ledger.RunFilter{Limit: 10})
	d.must(err)
	for _, r := range runs {
		var detail ledger.Detail
		d.must(json.Unmarshal(r.Detail, &detail))
		out = append(out, detail.File.Hash)
	}
	return out
}

// A file that changes in any way after it was read early is not taken for what was read, and a run of what it is then comes in its time.
func TestChangedAfterItWasReadEarly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(d *harness, f *folder, path string)
		taken  bool // on time
		later  int  // runs once its window is over in the usual way
	}{
		"nothing": {func(*harness, *folder, string) {}, true, 1},
		"longer":  {func(d *harness, _ *folder, _ string) { d.write("inbox/a.csv", "longer") }, false, 0},
		"other bytes of the same size and time": {func(d *harness, _ *folder, path string) {
			st := stampAt(d, path)
			d.write("inbox/a.csv", "new")
			d.must(os.Chtimes(path, st.modTime(), st.modTime()))
		}, false, 1},
		"touched": {func(d *harness, _ *folder, path string) { d.must(os.Chtimes(path, time.Now(), time.Now())) }, false, 0},
		"another in its place": {func(d *harness, _ *folder, path string) {
			st, other := stampAt(d, path), d.write("other", "new")
			d.must(os.Chtimes(other, st.modTime(), st.modTime()))
			d.must(os.Rename(other, path))
		}, false, 0},
		"gone":         {func(d *harness, _ *folder, path string) { d.must(os.Remove(path)) }, false, 0},
		"another name": {func(d *harness, _ *folder, path string) { d.must(os.Link(path, d.path("name"))) }, false, 0},
		"an event":     {func(_ *harness, f *folder, path string) { f.noteEvent(path, false) }, false, 1},
		"opened for writing": {func(d *harness, _ *folder, path string) {
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			d.must(err)
			d.t.Cleanup(func() { w.Close() })
			r, err := os.Open(path)
			d.must(err)
			defer r.Close()
			if !openForWriting(r) {
				d.t.Skip("this file system gives no leases")
			}
		}, false, 0},
		"a folder instead": {func(d *harness, _ *folder, path string) {
			d.must(os.Remove(path))
			d.must(os.Mkdir(path, 0o755))
		}, false, 0},
		"its folder is gone": {func(d *harness, _ *folder, path string) { d.must(os.Rename(d.path("inbox"), d.path("away"))) }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newHarness(t)
			f, path := d.readEarly("inbox/a.csv", "old")
			q := &meanwhile{before: func() {}}
			c.change(d, f, path)
			d.takeOnTime(f, q)
			if got := d.hashesOfRuns(); (len(got) == 1) != c.taken || f.debouncer.has(path) == c.taken || errors.Is(q.err, ledger.ErrNotConfirmed) == c.taken {
				t.Fatalf("accepted with %v (%v); it waits: %t", got, q.err, f.debouncer.has(path))
			}

			if it := f.debouncer.first(); it != nil {
				it.due = time.Now()
			}
			f.claimReady(t.Context())
			got := d.hashesOfRuns()
			if len(got) != c.later {
				t.Fatalf("later accepted with %v", got)
			}
			if len(got) == 1 {
				content, err := os.ReadFile(path)
				d.must(err)
				if sum := sha256.Sum256(content); got[0] != hex.EncodeToString(sum[:]) {
					t.Errorf("accepted with %v, which is not the hash of %q", got, content)
				}
			}
		})
	}
}

// A claim that is made after a file was read early is honoured: on time, and when its window is over in the usual way.
func TestClaimedAfterItWasReadEarly(t *testing.T) {
	t.Parallel()
	for _, onTime := range []bool{true, false} {
		d := newHarness(t)
		f, path := d.readEarly("inbox/a.csv", "old")
		it := f.debouncer.first()
		elsewhere := func() {
			_, err := d.w.ledger.Enqueue(t.Context(), request(f.Watch, path, it.early.stamp, it.early.unclaimed))
			d.must(err)
		}

		if onTime {
			d.takeOnTime(f, &meanwhile{before: elsewhere})
		} else {
			elsewhere()
			it.due = time.Now()
			f.claimReady(t.Context())
		}
		if got := d.hashesOfRuns(); len(got) != 1 || f.debouncer.has(path) {
			t.Errorf("on time %t: accepted with %v; it waits: %t", onTime, got, f.debouncer.has(path))
		}
	}
}

// While one folder waits in the system itself, another one does not: its file is due as any other.
func TestOneFolderWaitsInTheSystem(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	f, _ := d.readEarly("inbox/a.csv", "old")
	if !d.w.lockPrecise() {
		t.Fatal("nobody waits, and it cannot")
	}

	it := f.debouncer.first()
	it.due = time.Now().Add(headStart + maxPrecise/2)
	if at, waited := f.beforeTakenOnTime(it.due); waited || !at.Equal(it.due) {
		t.Errorf("it has waited (%t), or is to wait until %s", waited, at)
	}
	f.takeOnTime(t.Context())
	if got := d.hashesOfRuns(); len(got) != 0 || it.early.tried {
		t.Errorf("accepted with %v", got)
	}
}
