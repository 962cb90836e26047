package control

import (
	"fmt"
	"testing"
	"time"
)

// TestThrottle checks that each caller has a number of requests per minute, which refill evenly
// (OSA-26).
func TestThrottle(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var th throttle
	for _, c := range []struct {
		caller string
		after  time.Duration
		wait   time.Duration
	}{
		{"token", 0, 0}, {"token", 0, 0},
		{"token", 0, 30 * time.Second},
		{"session 1", 0, 0}, // another caller
		{"token", 20 * time.Second, 10 * time.Second},
		{"token", 30 * time.Second, 0},
		{"token", 30 * time.Second, 30 * time.Second},
		{"token", -time.Hour, 30 * time.Second}, // the clock was set back
		{"token", 24 * time.Hour, 0}, {"token", 24 * time.Hour, 0}, {"token", 24 * time.Hour, 30 * time.Second},
	} {
		if wait := th.take(c.caller, 2, begin.Add(c.after)); wait.Round(time.Second) != c.wait {
			t.Errorf("%s after %s waits %s, want %s", c.caller, c.after, wait, c.wait)
		}
	}

	for i := range 3 * maxCallers {
		th.take(fmt.Sprint(i), 2, begin.Add(25*time.Hour+time.Duration(i)*time.Second))
	}
	if len(th.callers) > maxCallers {
		t.Errorf("%d callers are kept", len(th.callers))
	}
}
