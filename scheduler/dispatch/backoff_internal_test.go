package dispatch

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"rouse/internal/ledger"
)

// TestBackoff checks that the wait doubles with each try up to its maximum, and that it is
// shortened by up to a quarter, which differs between runs.
func TestBackoff(t *testing.T) {
	own := Policy{Backoff: 10 * time.Second, MaxBackoff: time.Minute}
	for _, c := range []struct {
		policy Policy
		tries  int
		most   time.Duration
	}{
		{own, 1, 10 * time.Second}, {own, 2, 20 * time.Second}, {own, 3, 40 * time.Second}, {own, 4, time.Minute}, {own, 5, time.Minute}, {own, 100, time.Minute},
		{Policy{}, 1, 30 * time.Second}, {Policy{}, 3, 2 * time.Minute}, {Policy{}, 6, 15 * time.Minute}, {Policy{}, 60, 15 * time.Minute},
		{Policy{Backoff: time.Hour, MaxBackoff: time.Minute}, 1, time.Minute},
	} {
		waits := map[time.Duration]bool{}
		for run := int64(1); run <= 50; run++ {
			wait := backoff(c.policy, run, c.tries)
			if wait > c.most || wait < c.most-c.most/4-1 {
				t.Fatalf("try %d of %+v waits for %s, want three quarters of %s at least", c.tries, c.policy, wait, c.most)
			}
			waits[wait] = true
		}
		if len(waits) < 40 {
			t.Errorf("fifty runs that fail together wait for %d different times", len(waits))
		}
	}
}

// TestPostponedTo checks that the waits of a run for its model grow, as long as the run may still
// start afterwards.
func TestPostponedTo(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		policy Policy
		run    ledger.Run
		until  time.Duration
		want   time.Duration // 0 if the run is too late
		key    string        // setting that ended it, if not catchup_window
	}{
		"first":                            {Policy{}, ledger.Run{QueuedAt: now}, 0, 5 * time.Minute, ""},
		"third":                            {Policy{}, ledger.Run{QueuedAt: now, Postponements: 2}, 0, 30 * time.Minute, ""},
		"any later one":                    {Policy{}, ledger.Run{QueuedAt: now, Postponements: 9}, 0, time.Hour, ""},
		"the model says when":              {Policy{}, ledger.Run{QueuedAt: now}, 20 * time.Minute, 20 * time.Minute, ""},
		"the last moment":                  {Policy{}, ledger.Run{QueuedAt: now.Add(-24*time.Hour + 5*time.Minute)}, 0, 5 * time.Minute, ""},
		"a moment later":                   {Policy{}, ledger.Run{QueuedAt: now.Add(-24*time.Hour + 5*time.Minute - 1)}, 0, 0, ""},
		"counted from its instant":         {Policy{CatchupWindow: time.Hour}, ledger.Run{QueuedAt: now, ScheduledAt: now.Add(-time.Hour)}, 0, 0, ""},
		"the last moment of a deadline":    {Policy{StartDeadline: 10 * time.Minute}, ledger.Run{QueuedAt: now.Add(-5 * time.Minute)}, 0, 5 * time.Minute, ""},
		"a moment after a deadline":        {Policy{StartDeadline: 10 * time.Minute}, ledger.Run{QueuedAt: now.Add(-5*time.Minute - 1)}, 0, 0, "start_deadline"},
		"a deadline counts from the queue": {Policy{StartDeadline: 10 * time.Minute}, ledger.Run{QueuedAt: now, ScheduledAt: now.Add(-time.Hour)}, 0, 5 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, tooLate := postponedTo(c.policy, c.run, now.Add(c.until), now)
			if want := now.Add(c.want); c.want == 0 && !got.IsZero() || c.want != 0 && !got.Equal(want) {
				t.Errorf("%s, want %s later", got, c.want)
			}
			if key := cmp.Or(c.key, "catchup_window"); (c.want == 0) != strings.Contains(tooLate, "raise "+key) {
				t.Errorf("%q, want %s", tooLate, key)
			}
		})
	}
}
