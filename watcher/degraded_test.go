package watcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"rouse/internal/ledger/event"
	"rouse/internal/nofollow"
	"rouse/watcher/after"
)

func (d *harness) start() {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- d.w.Run(ctx) }()
	d.t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			d.t.Error(err)
		}
	})

	select {
	case <-d.w.Ready():
	case <-time.After(3 * time.Minute):
		d.t.Fatal("the watcher is not ready")
	}
}

func (d *harness) until(what string, ok func() bool) {
	d.t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		changed := d.w.ledger.Changed()
		if ok() {
			return
		}

		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			d.t.Fatalf("%s did not happen: %+v", what, d.w.Status(d.t.Context()))
		}
	}
}

func (d *harness) runs() int {
	d.t.Helper()
	c, err := d.w.ledger.Runs.Counts(d.t.Context())
	d.must(err)
	return c.Queued
}

// TestLimitReached checks that a root that the system cannot watch (ENOSPC, EMFILE) is polled, and
// that its status reports this. Other folders still get events.
func TestLimitReached(t *testing.T) {
	for _, limit := range []error{syscall.ENOSPC, syscall.EMFILE} {
		t.Run(limit.Error(), func(t *testing.T) {
			t.Parallel()
			d := newHarness(t)
			d.w.rescan = 200 * time.Millisecond
			d.must(os.Mkdir(d.path("other"), 0o755))
			add := d.w.subs.addWatch
			d.w.subs.addWatch = func(dir string) error {
				if dir == d.path("inbox") {
					return limit
				}
				return add(dir)
			}

			d.must(d.w.Set(t.Context(), []Watch{
				{Job: "in", Path: d.path("inbox"), Settle: 20 * time.Millisecond},
				{Job: "other", Path: d.path("other"), Settle: 20 * time.Millisecond},
			}))
			d.start()
			st := d.w.Status(t.Context())
			if !strings.Contains(st[0].Degraded, "limit of watched folders") || st[1].Degraded != "" {
				t.Errorf("%+v", st)
			}

			d.write("other/a.csv", "1")
			d.until("a run", func() bool { return d.runs() == 1 })
			d.write("inbox/a.csv", "1")
			d.until("a run by polling", func() bool { return d.runs() == 2 })
		})
	}
}

// TestLinkBeforeTheSubscription checks that a link is reported at once if it replaces a watched
// folder just before the subscription to its parent. No event reports this link.
func TestLinkBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(os.Mkdir(d.path("work"), 0o755))
	link := sync.OnceValue(func() error { return os.Symlink(d.path("inbox"), d.path("work/in")) })
	add := d.w.subs.addWatch
	d.w.subs.addWatch = func(dir string) error {
		d.must(link())
		return add(dir)
	}

	d.must(d.w.Set(t.Context(), []Watch{{Job: "in", Path: d.path("work/in"), Settle: 20 * time.Millisecond, Boundary: nofollow.NewBoundary(d.path("work"))}}))
	d.start()
	if st := d.w.Status(t.Context())[0]; st.State != StateMissing || !strings.Contains(st.Problem, "is a link, and lies in") {
		t.Errorf("%+v", st)
	}
}

// TestNoInstance checks that all folders are polled if the system provides no file-system watcher.
func TestNoInstance(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.subs.close())
	d.w.subs = newSubscriptions(nil, errors.New("no instance"))
	d.set(after.Rule{})
	d.start()
	if st := d.w.Status(t.Context())[0]; !strings.Contains(st.Degraded, "no instance") {
		t.Errorf("%+v", st)
	}

	d.write("inbox/a.csv", "1")
	d.until("a run by polling", func() bool { return d.runs() == 1 })
}

// TestInstanceComesLater checks that each scan asks the system for a file-system watcher again if
// there was none at the start.
func TestInstanceComesLater(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.must(d.w.subs.close())
	var asked atomic.Int32
	d.w.subs = newSubscriptions(nil, syscall.EMFILE)
	d.w.subs.open = func() (*fsnotify.Watcher, error) {
		if asked.Add(1) < 3 {
			return nil, syscall.EMFILE
		}
		return openEvents()
	}
	d.w.rescan = 20 * time.Millisecond
	d.set(after.Rule{})
	d.start()
	d.until("a folder with events", func() bool { return d.w.Status(t.Context())[0].Degraded == "" })
	// The folder is no longer polled, so only an event can report the file.
	if st := d.w.Status(t.Context())[0]; st.Subscriptions != 1 || asked.Load() != 3 {
		t.Errorf("%+v, asked %d times", st, asked.Load())
	}
	d.write("inbox/a.csv", "1")
	d.until("a run", func() bool { return d.runs() == 1 })
}

// TestGoneBeforeTheSubscription checks that a folder that vanishes between its opening and its
// subscription is missing, and that its return is noticed.
func TestGoneBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	add, first := d.w.subs.addWatch, true
	d.w.subs.addWatch = func(dir string) error {
		if dir == d.path("inbox") && first {
			first = false
			if err := os.Rename(dir, d.path("away")); err != nil {
				return err
			}
		}
		return add(dir)
	}

	d.set(after.Rule{})
	d.start()
	d.until("the folder is missing", func() bool { return d.w.Status(t.Context())[0].State == StateMissing })
	d.must(os.Rename(d.path("away"), d.path("inbox")))
	d.until("the folder is back", func() bool { return d.w.Status(t.Context())[0].State == StateIdle })
	d.write("inbox/a.csv", "1")
	d.until("a run", func() bool { return d.runs() == 1 })
}

// TestOverflow checks that lost events (an overflow) cause a scan, which is recorded.
func TestOverflow(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.set(after.Rule{})
	d.start()
	d.must(d.w.subs.events.Remove(d.path("inbox"))) // no event reports the file
	d.write("inbox/a.csv", "1")
	d.w.subs.events.Errors <- fsnotify.ErrEventOverflow
	d.until("a run", func() bool { return d.runs() == 1 })
	d.write("inbox/b.csv", "2") // the scan has restored the subscription
	d.until("another run", func() bool { return d.runs() == 2 })
	if shown := d.rescans("overflow"); shown != 1 {
		t.Errorf("%d events of the scan", shown)
	}
}

// TestQueueRunsOver checks that a scan finds the files after a real overflow of the system's event
// queue.
func TestQueueRunsOver(t *testing.T) {
	t.Parallel()
	size, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip("this system does not say how long its queue is")
	}

	longest, err := strconv.Atoi(strings.TrimSpace(string(size)))
	if err != nil || longest > 1<<17 {
		t.Skipf("the queue is too long to be filled: %s", size)
	}

	d := newHarness(t)
	d.set(after.Rule{})
	d.start()
	one, two := d.write("inbox/one.tmp", ""), d.write("inbox/two.tmp", "") // ignored files
	d.w.subs.mu.Lock()                                                     // blocks the reader of events
	for i := range longest + 10_000 {
		d.must(os.Chmod([]string{one, two}[i%2], 0o600|os.FileMode(i/2%2)))
	}

	const n = 50
	for i := range n {
		d.write(fmt.Sprintf("inbox/%d.csv", i), fmt.Sprint(i))
	}

	d.w.subs.mu.Unlock()
	d.until("a run of each file", func() bool { return d.runs() >= n })
	d.until("the scan shows", func() bool { return d.rescans("overflow") > 0 })
	if got := d.runs(); got != n {
		t.Errorf("%d runs", got)
	}
}

func (d *harness) rescans(why string) int {
	d.t.Helper()
	events, err := d.w.ledger.Events.List(d.t.Context(), event.Filter{Job: "in"})
	d.must(err)
	n := 0
	for _, e := range events {
		if e.Kind == "watch.rescanned" && strings.Contains(string(e.Data), why) {
			n++
		}
	}

	return n
}

// TestPeriodicScan checks that a periodic scan that finds unreported files records an event, and
// that other periodic scans record none.
func TestPeriodicScan(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.w.rescan = 50 * time.Millisecond
	var deaf atomic.Bool
	add := d.w.subs.addWatch
	d.w.subs.addWatch = func(dir string) error {
		if deaf.Load() {
			return nil
		}
		return add(dir)
	}

	d.set(after.Rule{})
	d.start()
	first := d.w.Status(t.Context())[0].LastScan
	d.until("another scan", func() bool { return d.w.Status(t.Context())[0].LastScan.After(first) })
	deaf.Store(true)
	d.must(d.w.subs.events.Remove(d.path("inbox")))
	events, err := d.w.ledger.Events.List(t.Context(), event.Filter{Job: "in"})
	d.must(err)
	if len(events) != 0 {
		t.Errorf("%+v", events)
	}

	d.write("inbox/a.csv", "1")
	d.until("a run", func() bool { return d.runs() == 1 })
	events, err = d.w.ledger.Events.List(t.Context(), event.Filter{Job: "in", Limit: 1})
	d.must(err)
	if len(events) != 1 || events[0].Kind != "watch.rescanned" || !strings.Contains(string(events[0].Data), "periodic") {
		t.Errorf("%+v", events)
	}
}
