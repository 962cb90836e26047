package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// post is a Channel with a programmable result.
type post struct {
	mu   sync.Mutex
	sent []string // titles
	said []string // texts
	do   func(n ledger.Notice) error

	receipt Receipt
}

func (p *post) Send(_ context.Context, m Message) (Receipt, error) {
	n := m.Notice
	n.Body = m.text()
	p.mu.Lock()
	p.sent, p.said = append(p.sent, n.Title), append(p.said, n.Body)
	do := p.do
	p.mu.Unlock()
	if do != nil {
		return p.receipt, do(n)
	}
	return p.receipt, nil
}

func (p *post) texts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.said)
}

func (p *post) titles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}

func (p *post) Check(context.Context) error { return nil }

func inBubble(t *testing.T, channels map[string]Channel, test func(t *testing.T, l *ledger.Ledger)) {
	t.Helper()
	inBubbleWith(t, Options{Channels: channels}, func(t *testing.T, l *ledger.Ledger, _ *Notifier) { test(t, l) })
}

func inBubbleWith(t *testing.T, o Options, test func(t *testing.T, l *ledger.Ledger, n *Notifier)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}

		o.Ledger = l
		n := New(o)

		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- n.Run(ctx) }()
		test(t, l, n)
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
	if err := l.Outbox.Append(t.Context(), ledger.Notice{Channel: channel, Title: title, Job: "j"}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func left(t *testing.T, l *ledger.Ledger) []ledger.Notice {
	t.Helper()
	synctest.Wait()
	out, err := l.Outbox.Undelivered(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// deliverAll sends the due notices and waits for the channels to finish.
func deliverAll(t *testing.T, n *Notifier) {
	t.Helper()
	if _, err := n.deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.senders.Wait()
}

func TestDelivers(t *testing.T) {
	p := &post{}
	inBubble(t, map[string]Channel{"desktop": p}, func(t *testing.T, l *ledger.Ledger) {
		put(t, l, "desktop", "one")
		put(t, l, "desktop", "two")
		if got := strings.Join(p.titles(), " "); got != "one two" || len(left(t, l)) != 0 {
			t.Errorf("sent %s, left %v", got, left(t, l))
		}
	})
}

// A failing channel is retried with growing delays, up to the limit.
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
		if n := left(t, l); n[0].State != ledger.NoticeFailed || n[0].Tries != maxTries || len(p.titles()) != maxTries {
			t.Errorf("after two days: %+v, %d tries", n, len(p.titles()))
		}
	})
}

// Without a desktop, a notice waits without using up its attempts. It is delivered once there is a
// desktop.
func TestUnavailableChannel(t *testing.T) {
	var there atomic.Bool
	p := &post{do: func(ledger.Notice) error {
		if there.Load() {
			return nil
		}
		return ErrUnavailable
	}}

	inBubble(t, map[string]Channel{"desktop": p}, func(t *testing.T, l *ledger.Ledger) {
		put(t, l, "desktop", "one")
		time.Sleep(72 * time.Hour)
		if n := left(t, l); len(n) != 1 || n[0].Tries != 0 || n[0].State != ledger.NoticePending {
			t.Errorf("%+v", n)
		}

		there.Store(true)
		time.Sleep(unavailablePause)
		if n := left(t, l); len(n) != 0 {
			t.Errorf("%+v", n)
		}
	})
}

// Notices read while a channel was sending may already be sent, and are not sent again.
func TestReadWhileSending(t *testing.T) {
	t.Parallel()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	begun, release := make(chan struct{}), make(chan struct{})
	p := &post{do: func(ledger.Notice) error { close(begun); <-release; return nil }}
	n := New(Options{Ledger: l, Channels: map[string]Channel{"desktop": p}})
	if err := l.Outbox.Append(t.Context(), ledger.Notice{Channel: "desktop", Title: "one", Job: "j"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-begun

	busy := n.sending()
	due, err := l.Outbox.Pending(t.Context(), n.now(), pageSize)
	if err != nil || len(due) != 1 {
		t.Fatalf("%+v, %v", due, err)
	}
	close(release)
	n.senders.Wait()
	n.sendAll(t.Context(), due, busy)
	n.senders.Wait()
	if sent := p.titles(); len(sent) != 1 {
		t.Errorf("sent %v", sent)
	}
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
		if n := left(t, l); len(n) != 1 || !strings.Contains(n[0].Error, "did not answer") || len(p.titles()) != 2 {
			t.Errorf("%+v, sent %v", n, p.titles())
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

// A hanging channel delays only its own notices.
func TestHangingChannelAlone(t *testing.T) {
	good := &post{}
	bad := &post{}
	inBubble(t, map[string]Channel{"good": good, "bad": bad}, func(t *testing.T, l *ledger.Ledger) {
		release := make(chan struct{})
		defer close(release)

		bad.mu.Lock()
		bad.do = func(ledger.Notice) error { <-release; return nil }
		bad.mu.Unlock()
		for range 5 {
			put(t, l, "bad", "hangs")
		}

		put(t, l, "good", "one")
		time.Sleep(sendTimeout + time.Second)
		if got := good.titles(); len(got) != 1 {
			t.Errorf("sent: %v", got)
		}
	})
}

// However many notices are due for a hanging channel, the other channels send theirs at once, and
// digests are sent on time. When the channel works again, it sends all its notices in order.
func TestHangingChannelWithMuchDue(t *testing.T) {
	good, bad, mail := &post{}, &post{}, &post{}
	o := Options{Channels: map[string]Channel{"good": good, "bad": bad, "mail": mail}, Rules: map[string]Rules{"mail": daily(t, "daily at 00:30", "UTC")}}
	inBubbleWith(t, o, func(t *testing.T, l *ledger.Ledger, _ *Notifier) {
		release := make(chan struct{})
		bad.mu.Lock()
		bad.do = func(ledger.Notice) error { <-release; return nil }
		bad.mu.Unlock()

		var much []ledger.Notice
		for i := range 4 * pageSize {
			much = append(much, ledger.Notice{Channel: "bad", Title: fmt.Sprint(i), Job: "j"})
		}
		if err := l.Outbox.Append(t.Context(), much...); err != nil {
			t.Fatal(err)
		}
		put(t, l, "good", "one")
		time.Sleep(2 * lookAgain)
		put(t, l, "good", "two")
		time.Sleep(2 * lookAgain)
		if got := strings.Join(good.titles(), " "); got != "one two" {
			t.Errorf("the other channel has %q", got)
		}
		time.Sleep(31 * time.Minute) // the fake clock starts at midnight
		if got := mail.titles(); len(got) != 1 {
			t.Errorf("digests: %q", got)
		}

		close(release)
		time.Sleep(time.Hour)
		rest, err := l.Outbox.Undelivered(t.Context(), len(much))
		if err != nil || len(rest) != 0 {
			t.Errorf("%d are left (%v)", len(rest), err)
		}
	})
}

// TestLastingFault makes a channel fail for many notices. The log warns once per cause, and again
// after the channel has worked.
func TestLastingFault(t *testing.T) {
	var log strings.Builder
	var fault atomic.Value
	var tries atomic.Int64
	fault.Store("post: connection refused")
	p := &post{do: func(ledger.Notice) error {
		if why, _ := fault.Load().(string); why != "" {
			return fmt.Errorf("%s (local port %d)", why, 40000+tries.Add(1))
		}
		return nil
	}}

	inBubbleWith(t, Options{Channels: map[string]Channel{"hook": p}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, l *ledger.Ledger, _ *Notifier) {
		for i, c := range []struct {
			fault             string
			warnings, repairs int
		}{{"post: connection refused", 1, 0}, {"post: status 503", 2, 0}, {"", 2, 1}, {"post: connection refused", 3, 1}} {
			fault.Store(c.fault)
			for n := range 50 {
				put(t, l, "hook", fmt.Sprint(i, " ", n))
			}
			time.Sleep(time.Hour)
			if warned, over := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "a channel delivers again"); warned != c.warnings || over != c.repairs {
				t.Errorf("%d. %q: %d warnings and %d repairs, want %d and %d:\n%s", i+1, c.fault, warned, over, c.warnings, c.repairs, log.String())
			}
		}
		if tries.Load() < 300 {
			t.Errorf("%d tries", tries.Load())
		}
	})
}

// OSA-80: without a notifier, each notice is logged once and waits. The next successful notice, or
// a manual one, causes the waiting notices to be delivered.
func TestChannelComesBack(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		var there atomic.Bool
		var log strings.Builder
		p := &post{do: func(ledger.Notice) error {
			if there.Load() {
				return nil
			}
			return unavailable("nobody is here")
		}}

		inBubbleWith(t, Options{Channels: map[string]Channel{"desktop": p}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, l *ledger.Ledger, n *Notifier) {
			put(t, l, "desktop", "one")
			put(t, l, "desktop", "two")
			time.Sleep(10*unavailablePause + time.Minute)
			if got := strings.Count(log.String(), "waits in the outbox"); got != 2 || !strings.Contains(log.String(), "nobody is here") {
				t.Errorf("logged %d times:\n%s", got, log.String())
			}

			there.Store(true)
			if byHand {
				if err := n.Send(t.Context(), "desktop", "rouse", "hello"); err != nil {
					t.Error(err)
				}
			} else {
				put(t, l, "desktop", "three")
			}

			if rest := left(t, l); len(rest) != 0 {
				t.Errorf("%+v", rest)
			}
		})
	}
}

// Notices that waited for a desktop are retried at the next start, before their retry time.
func TestStartRetriesUnavailable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	if err := l.Outbox.Append(t.Context(), ledger.Notice{Channel: "desktop", Title: "one"}); err != nil {
		t.Fatal(err)
	}

	there := false
	p := &post{do: func(ledger.Notice) error {
		if there {
			return nil
		}
		return ErrUnavailable
	}}

	for range 2 {
		n := New(Options{Ledger: l, Channels: map[string]Channel{"desktop": p}})
		deliverAll(t, n)
		<-n.recovered
		if err := n.retryUnavailable(t.Context()); err != nil {
			t.Fatal(err)
		}
		deliverAll(t, n)

		there = true
	}

	if rest, err := l.Outbox.Undelivered(t.Context(), 10); err != nil || len(rest) != 0 || len(p.titles()) != 2 {
		t.Errorf("%+v (%v), sent %v", rest, err, p.titles())
	}
}

// If the channels are replaced while the notifier runs, each notice goes to the new channel of that
// name. If there is none, the notice records an error.
func TestSetChannels(t *testing.T) {
	old, fresh := &post{}, &post{}
	inBubbleWith(t, Options{Channels: map[string]Channel{"ops": old}}, func(t *testing.T, l *ledger.Ledger, n *Notifier) {
		tell := func(channel, title string) {
			if err := l.Outbox.Append(t.Context(), ledger.Notice{Channel: channel, Title: title}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}

		tell("ops", "one")
		n.SetChannels(map[string]Channel{"ops": fresh, "team": fresh}, nil)
		tell("ops", "two")
		tell("team", "three")
		n.SetChannels(map[string]Channel{"team": fresh}, nil)
		tell("ops", "four")
		if one, two := old.titles(), fresh.titles(); !slices.Equal(one, []string{"one"}) || !slices.Equal(two, []string{"two", "three"}) {
			t.Errorf("before %v, after %v", one, two)
		}
		if rest, err := l.Outbox.Undelivered(t.Context(), 10); err != nil || len(rest) != 1 || !strings.Contains(rest[0].Error, `no channel "ops"`) {
			t.Errorf("%+v (%v)", rest, err)
		}
	})
}

func TestHeadless(t *testing.T) {
	d := desktop{getenv: func(string) string { return "" }}
	if _, err := d.Send(t.Context(), Message{Notice: ledger.Notice{Title: "x"}}); err != nil && !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}

	d.getenv = func(string) string { return "unix:path=" + filepath.Join(t.TempDir(), "none") }
	if err := d.Check(t.Context()); runtime.GOOS == "linux" && !errors.Is(err, ErrUnavailable) {
		t.Errorf("a bus that is not there: %v", err)
	}
}

// Text from any source has no special meaning to the programs that show it.
func TestPlain(t *testing.T) {
	for _, c := range []struct{ goos, text, want string }{
		{"linux", "a\x00b\x1b[31m\nc", "a\uFFFDb\nc"},
		{"linux", "--help", "\u2212-help"},
		{"linux", "$(rm -rf ~) `x`", "$(rm -rf ~) `x`"},
		{"windows", "$(calc) `n \"@ \u201d@ ]]>", "\uff04(calc) 'n '@ '@ ]] >"},
	} {
		if got := plain(c.goos, c.text); got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", c.goos, c.text, got, c.want)
		}
	}
	if got := inMarkup(true, `<a href="x">&`); got != `&lt;a href="x"&gt;&amp;` {
		t.Errorf("%q", got)
	}
}

// TestDesktop checks a real desktop: with a session bus and a notification daemon (dunst), the
// notice of a finished run arrives with its exact text. .ci/run provides both and sets
// ROUSE_TEST_DBUS.
func TestDesktop(t *testing.T) {
	if os.Getenv("ROUSE_TEST_DBUS") == "" {
		t.Skip("ROUSE_TEST_DBUS is not set; .ci/run sets it")
	}

	blind := desktop{getenv: func(key string) string {
		if key == "DISPLAY" || key == "WAYLAND_DISPLAY" {
			return ""
		}
		return os.Getenv(key)
	}}
	if err := blind.Check(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a display and before a daemon runs: %v", err)
	}

	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	finishWithNotice(t, l, "5 expenses", "Most went to <food> & $(drinks)")
	n := New(Options{Ledger: l, Channels: map[string]Channel{"desktop": Desktop()}})
	if err := n.Check(t.Context())["desktop"]; err != nil {
		t.Errorf("doctor says: %v", err)
	}
	deliverAll(t, n)
	if rest, err := l.Outbox.Undelivered(t.Context(), 10); err != nil || len(rest) != 0 {
		t.Fatalf("undelivered: %+v (%v)", rest, err)
	}

	// dunst acknowledges a notice after accepting it, so its history and screen already contain it.
	dunst(t, "close-all")
	history := dunst(t, "history")
	for _, want := range []string{"5 expenses", "Most went to <food> & $(drinks)", "inbox: success", `"rouse"`} {
		if !strings.Contains(history, want) && !strings.Contains(history, inMarkup(true, want)) {
			t.Errorf("%q did not arrive:\n%s", want, history)
		}
	}
}

func finishWithNotice(t *testing.T, l *ledger.Ledger, title, body string) {
	t.Helper()
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: "inbox", Agent: "a", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}

	_, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}

	notice := ledger.Notice{Run: a.Run, Job: "inbox", Channel: "desktop", Title: title, Body: body, Outcome: domain.OutcomeSuccess}
	if err := l.Finish(t.Context(), a, ledger.Result{Outcome: domain.OutcomeSuccess, Notices: []ledger.Notice{notice}}); err != nil {
		t.Fatal(err)
	}
}

func dunst(t *testing.T, action string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dunstctl", action).CombinedOutput()
	if err != nil {
		t.Fatalf("dunstctl %s: %v\n%s", action, err, out)
	}
	return string(out)
}

// A sent notice ends with the address of its page. The stored notice does not, because the address
// can change after a restart.
func TestNoticesHaveTheirLink(t *testing.T) {
	t.Parallel()
	bodies := make(chan string, 2)
	o := Options{Channels: map[string]Channel{"a": &post{do: func(n ledger.Notice) error { bodies <- n.Body; return nil }}},
		Link: func(_ context.Context, n ledger.Notice) string {
			if n.Job == "" {
				return ""
			}
			return "http://127.0.0.1:7311/jobs/" + n.Job
		}}
	inBubbleWith(t, o, func(t *testing.T, l *ledger.Ledger, _ *Notifier) {
		if err := l.Outbox.Append(t.Context(), ledger.Notice{Job: "j", Channel: "a", Title: "t", Body: "It is done."}, ledger.Notice{Channel: "a", Title: "t", Body: "Alone."}); err != nil {
			t.Fatal(err)
		}
		if got := <-bodies; got != "It is done.\nhttp://127.0.0.1:7311/jobs/j" {
			t.Errorf("%q", got)
		}
		if got := <-bodies; got != "Alone." {
			t.Errorf("%q", got)
		}
	})
}
