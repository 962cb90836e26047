package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/incident"
	"rouse/scheduler/schedule"
)

// daily returns the rules of a channel with a daily digest.
func daily(t *testing.T, at, zone string) Rules {
	t.Helper()
	z, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	d, err := schedule.ParseDaily(at)
	if err != nil {
		t.Fatal(err)
	}
	return Rules{Zone: z, Digest: &d}
}

// end records the end of a job's run.
func end(t *testing.T, l *ledger.Ledger, job string, res ledger.Result) {
	t.Helper()
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: job, Agent: "clerk", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	_, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	res.Tell = &incident.EndNotices{}
	if err := l.Finish(t.Context(), a, res); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// A digest is sent once a day, even if nothing ran. It lists runs, failures, waiting items and
// cost. The fake clock starts at midnight UTC on 1 January 2000.
func TestDigest(t *testing.T) {
	p := &post{receipt: Receipt{Proven: true}}
	o := Options{Channels: map[string]Channel{"mail": p}, Rules: map[string]Rules{"mail": daily(t, "daily at 08:00", "UTC")}}
	inBubbleWith(t, o, func(t *testing.T, l *ledger.Ledger, _ *Notifier) {
		end(t, l, "report", ledger.Result{Outcome: domain.OutcomeSuccess, Usage: ledger.Usage{TokensIn: 900, TokensOut: 100, CostMicroUSD: 12_300}})
		for range 3 {
			end(t, l, "backup", ledger.Result{Outcome: domain.OutcomeError, Error: "the disk is full", Kind: "shell_run unmet"})
		}
		end(t, l, "backup", ledger.Result{Outcome: domain.OutcomeTimeout, Error: "too slow"})
		if _, err := l.Incidents.Acknowledge(t.Context(), 2, ""); err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: "ask", Agent: "clerk", Trigger: domain.TriggerManual})
		if err != nil {
			t.Fatal(err)
		}
		_, a, err := l.StartAttempt(t.Context(), accepted[0].Run)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Finish(t.Context(), a, ledger.Result{Wait: &inbox.Question{Kind: inbox.KindInput, Title: "ask asks", Message: "Which?", Expires: 30 * 24 * time.Hour}}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(7*time.Hour + 59*time.Minute)
		synctest.Wait()
		if got := p.titles(); len(got) != 0 {
			t.Fatalf("before 08:00: %q", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := p.titles(); len(got) != 1 || got[0] != "rouse: 5 runs, 4 failed, 1 waiting for you" {
			t.Fatalf("%q", got)
		}
		const want = `2000-01-01 00:00 to 2000-01-01 08:00 UTC
backup: 3 error, 1 timeout
report: 1 success
incident 1, backup: shell_run unmet, 3 failures (rouse ack 1): the disk is full
incident 2, backup: timeout, 1 failure (acknowledged): too slow
waits for you (item 1): ask asks
cost: $0.0123, 1000 tokens`
		if got := p.texts()[0]; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}

		end(t, l, "backup", ledger.Result{Outcome: domain.OutcomeSuccess})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := p.texts(); len(got) != 2 || !strings.Contains(got[1], "recovered: backup (timeout), backup (shell_run unmet)") || !strings.HasPrefix(got[1], "2000-01-01 08:00 to 2000-01-02 08:00 UTC\nbackup: 1 success\n") {
			t.Errorf("the second: %q", got)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := p.titles(); len(got) != 3 || got[2] != "rouse: nothing ran, 1 waiting for you" {
			t.Errorf("an empty day: %q", got)
		}
	})
}

// A daemon that was off at the digest's time sends one digest at its next start, covering all
// missed days. Another start sends no digest.
func TestDigestAfterAbsence(t *testing.T) {
	path := t.TempDir() + "/ledger.db"
	synctest.Test(t, func(t *testing.T) {
		p := &post{}
		o := Options{Channels: map[string]Channel{"mail": p}, Rules: map[string]Rules{"mail": daily(t, "daily at 08:00", "UTC")}}
		serve := func(length time.Duration) {
			t.Helper()
			l, err := ledger.Open(t.Context(), ledger.Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			o.Ledger = l
			runFor(t, o, length)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}

		serve(time.Hour) // until 01:00
		time.Sleep(80 * time.Hour)
		for range 4 { // from 09:00 on the fourth day
			serve(time.Minute)
		}
		if got := p.texts(); len(got) != 1 || !strings.HasPrefix(got[0], "2000-01-01 00:00 to 2000-01-04 09:00 UTC") {
			t.Fatalf("%q", got)
		}

		serve(24 * time.Hour)
		if got := p.texts(); len(got) != 2 || !strings.HasPrefix(got[1], "2000-01-04 09:00 to 2000-01-05 08:00 UTC") {
			t.Errorf("the next: %q", got)
		}
	})
}

// runFor runs a notifier for the given time.
func runFor(t *testing.T, o Options, length time.Duration) {
	t.Helper()
	n := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- n.Run(ctx) }()
	time.Sleep(length)
	synctest.Wait()
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// Like any notice, a digest waits for the end of quiet hours, falls back to another channel, and is
// retried.
func TestDigestIsANotice(t *testing.T) {
	quiet, down := daily(t, "daily at 08:00", "UTC"), daily(t, "daily at 08:00", "UTC")
	quiet.Quiet, down.Fallback = schedule.Quiet{From: 7 * 60, To: 9 * 60}, "quiet"
	p, broken := &post{}, &post{do: func(ledger.Notice) error { return fmt.Errorf("down: %w", ErrUnavailable) }}
	o := Options{Channels: map[string]Channel{"quiet": p, "down": broken}, Rules: map[string]Rules{"quiet": quiet, "down": down}}
	inBubbleWith(t, o, func(t *testing.T, _ *ledger.Ledger, _ *Notifier) {
		time.Sleep(8*time.Hour + 30*time.Minute)
		synctest.Wait()
		if got := p.titles(); len(got) != 0 {
			t.Fatalf("in quiet hours: %q", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := p.texts(); len(got) != 2 || !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "for the channel down did not take it") }) {
			t.Errorf("%q", got)
		}
	})
}

// If the clock is set back after a digest, the next digest is not delayed until the clock catches
// up.
func TestDigestAfterClockAhead(t *testing.T) {
	p := &post{}
	inBubbleWith(t, Options{Channels: map[string]Channel{"mail": p}}, func(t *testing.T, l *ledger.Ledger, n *Notifier) {
		ahead := time.Now().AddDate(1, 0, 0)
		if _, err := l.Outbox.DigestThrough(t.Context(), "mail", ahead); err != nil {
			t.Fatal(err)
		}
		n.SetChannels(map[string]Channel{"mail": p}, map[string]Rules{"mail": daily(t, "daily at 08:00", "UTC")})
		time.Sleep(9 * time.Hour)
		synctest.Wait()
		if got := p.titles(); len(got) != 1 {
			t.Errorf("%q", got)
		}
	})
}

// A channel that gets a digest in a new configuration sends the first one at the next configured
// time.
func TestDigestByReload(t *testing.T) {
	p := &post{}
	inBubbleWith(t, Options{Channels: map[string]Channel{"mail": p}}, func(t *testing.T, _ *ledger.Ledger, n *Notifier) {
		time.Sleep(30 * time.Hour)
		n.SetChannels(map[string]Channel{"mail": p}, map[string]Rules{"mail": daily(t, "daily at 08:00", "UTC")})
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := p.texts(); len(got) != 1 || !strings.HasPrefix(got[0], "2000-01-02 06:00 to 2000-01-02 08:00 UTC") {
			t.Errorf("%q", got)
		}
	})
}

// A notice that waits for an unavailable channel fails after a week instead of waiting forever.
func TestUnavailableForAWeek(t *testing.T) {
	p := &post{do: func(ledger.Notice) error { return ErrUnavailable }}
	inBubble(t, map[string]Channel{"desktop": p}, func(t *testing.T, l *ledger.Ledger) {
		put(t, l, "desktop", "one")
		time.Sleep(6 * 24 * time.Hour)
		if n := left(t, l); n[0].State != ledger.NoticePending {
			t.Errorf("after six days: %+v", n)
		}
		time.Sleep(25 * time.Hour)
		if n := left(t, l); n[0].State != ledger.NoticeFailed || !strings.Contains(n[0].Error, ErrUnavailable.Error()) {
			t.Errorf("after a week: %+v", n)
		}
	})
}

// A channel that is down for days does not delay other channels. Its notices are recorded as
// failed, and the digest of another channel reports their number.
func TestDownForDays(t *testing.T) {
	p, broken := &post{}, &post{do: func(ledger.Notice) error { return errors.New("connection refused") }}
	o := Options{Channels: map[string]Channel{"mail": p, "chat": broken}, Rules: map[string]Rules{"mail": daily(t, "daily at 08:00", "UTC")}}
	inBubbleWith(t, o, func(t *testing.T, l *ledger.Ledger, _ *Notifier) {
		for i := range 3 {
			put(t, l, "chat", fmt.Sprint("to the chat ", i))
			put(t, l, "mail", fmt.Sprint("by mail ", i))
		}
		if got := p.titles(); len(got) != 3 {
			t.Errorf("the other channel has %q", got)
		}

		time.Sleep(4 * 24 * time.Hour)
		for _, n := range left(t, l) {
			if n.State != ledger.NoticeFailed || n.Tries != maxTries || n.Error != "connection refused" {
				t.Errorf("%+v", n)
			}
		}
		if n, tries := len(left(t, l)), len(broken.titles()); n != 3 || tries != 3*maxTries {
			t.Errorf("%d are left after %d tries", n, tries)
		}
		said := strings.Join(p.texts(), "\n")
		if strings.Count(said, "3 notices could not be delivered: rouse doctor") != 1 {
			t.Errorf("the digests say: %s", said)
		}
	})
}
