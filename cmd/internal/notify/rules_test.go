package notify

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/ledger"
	"rouse/scheduler/schedule"
)

// A delivery is proven only if the channel confirms it. The response is recorded.
func TestReceipts(t *testing.T) {
	t.Parallel()
	for want, receipt := range map[string]Receipt{ledger.NoticeDelivered: {Proven: true, Answer: "200 OK"}, ledger.NoticeUnverified: {}} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			inBubble(t, map[string]Channel{"a": &post{receipt: receipt}}, func(t *testing.T, l *ledger.Ledger) {
				put(t, l, "a", "hello")
				last, _, err := l.Outbox.Last(t.Context(), "a")
				if err != nil || last.State != want || last.Answer != receipt.Answer || last.Tries != 1 {
					t.Errorf("%+v, %v", last, err)
				}
			})
		})
	}
}

// A notice during quiet hours waits until they end, with the reason recorded and no attempt used
// up. Other channels are not affected.
func TestQuietHours(t *testing.T) {
	t.Parallel()
	quiet, loud := &post{}, &post{}
	hours, err := schedule.ParseQuiet("22:00-07:00")
	if err != nil {
		t.Fatal(err)
	}

	o := Options{Channels: map[string]Channel{"quiet": quiet, "loud": loud}, Rules: map[string]Rules{"quiet": {Quiet: hours, Zone: time.UTC}}}
	inBubbleWith(t, o, func(t *testing.T, l *ledger.Ledger, _ *Notifier) { // the fake clock starts at midnight
		put(t, l, "quiet", "hello")
		put(t, l, "loud", "hello")
		left := left(t, l)
		if len(left) != 1 || left[0].Channel != "quiet" || left[0].Tries != 0 || left[0].Error != QuietHours+"22:00-07:00" || len(quiet.titles()) != 0 || len(loud.titles()) != 1 {
			t.Fatalf("%+v", left)
		}

		time.Sleep(7*time.Hour - time.Second)
		synctest.Wait()
		if len(quiet.titles()) != 0 {
			t.Error("it was sent in quiet hours")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if last, _, _ := l.Outbox.Last(t.Context(), "quiet"); len(quiet.titles()) != 1 || last.Error != "" || last.State == ledger.NoticePending {
			t.Errorf("%+v", last)
		}
	})
}

// The fallback gets a notice once: immediately if the channel cannot work here, otherwise after
// three attempts. Two channels that are each other's fallback do not loop.
func TestFallback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		after time.Duration
	}{
		"cannot work here": {fmt.Errorf("the desktop %w", ErrUnavailable), 0},
		"down":             {errors.New("broken pipe"), 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fail := func(ledger.Notice) error { return c.err }
			down, other := &post{do: fail}, &post{do: fail}
			o := Options{Channels: map[string]Channel{"down": down, "other": other}, Rules: map[string]Rules{"down": {Fallback: "other"}, "other": {Fallback: "down"}}}
			inBubbleWith(t, o, func(t *testing.T, l *ledger.Ledger, _ *Notifier) {
				put(t, l, "down", "hello")
				if c.after > 0 {
					time.Sleep(c.after - time.Second)
					synctest.Wait()
					if n := len(other.titles()); n != 0 {
						t.Errorf("told %d times before the third try", n)
					}
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if told := other.texts(); len(told) != 1 || !strings.Contains(told[0], "the channel down did not take it: "+c.err.Error()) {
					t.Fatalf("told %q", told)
				}

				time.Sleep(48 * time.Hour)
				synctest.Wait()
				if n := len(left(t, l)); n != 2 {
					t.Errorf("%d notices, want the first and the one that stands in for it", n)
				}
			})
		})
	}
}
