package notify

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agentdb/ledger"
)

// post is a channel that does what it is told.
type post struct {
	mu   sync.Mutex
	sent []string
	do   func(n ledger.Notice) error
}

func (p *post) Send(_ context.Context, n ledger.Notice) error {
	p.mu.Lock()
	p.sent = append(p.sent, n.Title)
	p.mu.Unlock()
	if p.do != nil {
		return p.do(n)
	}
	return nil
}

func (p *post) Check(context.Context) error { return nil }

func inBubble(t *testing.T, channels map[string]Channel, test func(t *testing.T, l *ledger.Ledger)) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		n, err := New(Options{Ledger: l, Channels: channels})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- n.Run(ctx) }()
		test(t, l)
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func put(t *testing.T, l *ledger.Ledger, channel, title string) {
	t.Helper()
	if err := l.AppendNotices(t.Context(), ledger.Notice{Channel: channel, Title: title, Job: "j"}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func left(t *testing.T, l *ledger.Ledger) []ledger.Notice {
	t.Helper()
	synctest.Wait()
	out, err := l.Undelivered(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDelivers(t *testing.T) {
	p := &post{}
	inBubble(t, map[string]Channel{"desktop": p}, func(t *testing.T, l *ledger.Ledger) {
		put(t, l, "desktop", "one")
		put(t, l, "desktop", "two")
		if got := strings.Join(p.sent, " "); got != "one two" || len(left(t, l)) != 0 {
			t.Errorf("sent %s, left %v", got, left(t, l))
		}
	})
}

// A channel that fails is tried again with growing pauses, and given up in the end.
func TestFailingChannel(t *testing.T) {
	p := &post{do: func(ledger.Notice) error { return errors.New("broken pipe") }}
	inBubble(t, map[string]Channel{"desktop": p}, func(t *testing.T, l *ledger.Ledger) {
		put(t, l, "desktop", "one")
		if n := left(t, l); len(n) != 1 || n[0].Tries != 1 || n[0].State != ledger.NoticePending || n[0].Error != "broken pipe" {
			t.Errorf("%+v", n)
		}
		time.Sleep(61 * time.Second)
		if n := left(t, l); n[0].Tries != 2 {
			t.Errorf("after a minute: %+v", n)
		}
		time.Sleep(48 * time.Hour)
		if n := left(t, l); n[0].State != ledger.NoticeFailed || n[0].Tries != maxTries || len(p.sent) != maxTries {
			t.Errorf("after two days: %+v, %d tries", n, len(p.sent))
		}
	})
}

// Without a desktop a notice waits and keeps its tries; a desktop that comes gets it.
func TestAway(t *testing.T) {
	var there atomic.Bool
	p := &post{do: func(ledger.Notice) error {
		if there.Load() {
			return nil
		}
		return ErrAway
	}}
	inBubble(t, map[string]Channel{"desktop": p}, func(t *testing.T, l *ledger.Ledger) {
		put(t, l, "desktop", "one")
		time.Sleep(72 * time.Hour)
		if n := left(t, l); len(n) != 1 || n[0].Tries != 0 || n[0].State != ledger.NoticePending {
			t.Errorf("%+v", n)
		}
		there.Store(true)
		time.Sleep(awayPause)
		if n := left(t, l); len(n) != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestHangingChannel(t *testing.T) {
	p := &post{}
	inBubble(t, map[string]Channel{"desktop": p}, func(t *testing.T, l *ledger.Ledger) {
		release := make(chan struct{})
		defer close(release)
		p.do = func(n ledger.Notice) error {
			if n.Title == "hangs" {
				<-release
			}
			return nil
		}
		put(t, l, "desktop", "hangs")
		put(t, l, "desktop", "next")
		time.Sleep(30 * time.Second)
		if n := left(t, l); len(n) != 1 || !strings.Contains(n[0].Error, "did not answer") || len(p.sent) != 2 {
			t.Errorf("%+v, sent %v", n, p.sent)
		}
	})
}

func TestUnknownChannel(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, l *ledger.Ledger) {
		put(t, l, "pager", "one")
		if n := left(t, l); len(n) != 1 || !strings.Contains(n[0].Error, `no channel "pager"`) {
			t.Errorf("%+v", n)
		}
	})
}

func TestHeadless(t *testing.T) {
	d := desktop{getenv: func(string) string { return "" }}
	if err := d.Send(t.Context(), ledger.Notice{Title: "x"}); err != nil && !errors.Is(err, ErrAway) {
		t.Errorf("%v", err)
	}
}

// TestDesktop proves the real thing: with a session bus and a notification daemon (dunst)
// the notice of a finished run arrives with its text. .ci/run provides both and sets
// ROUSE_TEST_DBUS.
func TestDesktop(t *testing.T) {
	if os.Getenv("ROUSE_TEST_DBUS") == "" {
		t.Skip("ROUSE_TEST_DBUS is not set; .ci/run sets it")
	}
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: "inbox", Agent: "a", Trigger: ledger.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	_, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	res := ledger.Result{Outcome: ledger.OutcomeSuccess, Notices: []ledger.Notice{{Run: a.Run, Job: "inbox", Channel: "desktop", Title: "5 expenses", Body: "Most went to food", Outcome: ledger.OutcomeSuccess}}}
	if err := l.Finish(t.Context(), a, res); err != nil {
		t.Fatal(err)
	}
	n, err := New(Options{Ledger: l, Channels: map[string]Channel{"desktop": Desktop()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rest, err := l.Undelivered(t.Context(), 10); err != nil || len(rest) != 0 {
		t.Fatalf("undelivered: %+v (%v)", rest, err)
	}
	// dunst acknowledges a notice once it has taken it, so its history and its screen have it now.
	for _, action := range [][]string{{"close-all"}, {"history"}} {
		out, err := exec.CommandContext(t.Context(), "dunstctl", action...).CombinedOutput()
		if err != nil {
			t.Fatalf("dunstctl %s: %v\n%s", action[0], err, out)
		}
		if action[0] == "history" {
			for _, want := range []string{"5 expenses", "Most went to food", "inbox: success"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q did not arrive:\n%s", want, out)
				}
			}
		}
	}
}
