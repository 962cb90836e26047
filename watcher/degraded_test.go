package watcher

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"rouse/agentdb/ledger"
)

func (d *desk) start() {
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
	case <-time.After(20 * time.Second):
		d.t.Fatal("the watcher is not ready")
	}
}

func (d *desk) until(what string, ok func() bool) {
	d.t.Helper()
	deadline := time.After(20 * time.Second)
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

func (d *desk) runs() int {
	d.t.Helper()
	c, err := d.w.ledger.Counts(d.t.Context())
	d.must(err)
	return c.Queued
}

// A root that the system cannot watch (ENOSPC, EMFILE) is polled, and its status says so;
// the others are told as ever.
func TestLimitReached(t *testing.T) {
	for _, limit := range []error{syscall.ENOSPC, syscall.EMFILE} {
		t.Run(limit.Error(), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.w.rescan = 200 * time.Millisecond
			d.must(os.Mkdir(d.path("other"), 0o755))
			add := d.w.arms.add
			d.w.arms.add = func(dir string) error {
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

// A system without a file-system watcher makes every folder be polled.
func TestNoInstance(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.must(d.w.arms.close())
	d.w.arms = newArms(nil, errors.New("no instance"))
	d.set(After{})
	d.start()
	if st := d.w.Status(t.Context())[0]; !strings.Contains(st.Degraded, "no instance") {
		t.Errorf("%+v", st)
	}
	d.write("inbox/a.csv", "1")
	d.until("a run by polling", func() bool { return d.runs() == 1 })
}

// Lost events (an overflow) cost nothing but a scan, which shows.
func TestOverflow(t *testing.T) {
	d := newDesk(t)
	d.set(After{})
	d.start()
	d.must(d.w.arms.events.Remove(d.path("inbox"))) // so that no event tells of it
	d.write("inbox/a.csv", "1")
	d.w.arms.events.Errors <- fsnotify.ErrEventOverflow
	d.until("a run", func() bool { return d.runs() == 1 })
	d.write("inbox/b.csv", "2") // the scan has armed it again
	d.until("another run", func() bool { return d.runs() == 2 })
	events, err := d.w.ledger.Events(t.Context(), ledger.EventFilter{Job: "in"})
	d.must(err)
	shown := 0
	for _, e := range events {
		if e.Kind == "watch.rescanned" && strings.Contains(string(e.Data), "overflow") {
			shown++
		}
	}
	if shown != 1 {
		t.Errorf("%d events of the scan", shown)
	}
}

// The periodic scan finds what no event told of, and says so; one that finds nothing
// writes nothing.
func TestPeriodicScan(t *testing.T) {
	d := newDesk(t)
	d.w.rescan = 50 * time.Millisecond
	d.set(After{})
	d.start()
	first := d.w.Status(t.Context())[0].Rescanned
	d.until("another scan", func() bool { return d.w.Status(t.Context())[0].Rescanned.After(first) })
	d.w.arms.add = func(string) error { return nil }
	d.must(d.w.arms.events.Remove(d.path("inbox")))
	events, err := d.w.ledger.Events(t.Context(), ledger.EventFilter{Job: "in"})
	d.must(err)
	if len(events) != 0 {
		t.Errorf("%+v", events)
	}
	d.write("inbox/a.csv", "1")
	d.until("a run", func() bool { return d.runs() == 1 })
	events, err = d.w.ledger.Events(t.Context(), ledger.EventFilter{Job: "in", Limit: 1})
	d.must(err)
	if len(events) != 1 || events[0].Kind != "watch.rescanned" || !strings.Contains(string(events[0].Data), "periodic") {
		t.Errorf("%+v", events)
	}
}
