package dispatch

import (
	"testing"
	"time"

	"rouse/internal/domain"
)

// TestMissedReason checks that an occurrence that is half a minute late is on time, and that one
// within its catch-up window still runs.
func TestMissedReason(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		late   time.Duration
		want   string
	}{
		{Policy{OnMiss: domain.MissSkip}, 30 * time.Second, ""},
		{Policy{OnMiss: domain.MissSkip}, 31 * time.Second, "missed by 31s; on_miss is skip"},
		{Policy{CatchupWindow: time.Hour}, time.Hour, ""},
		{Policy{CatchupWindow: time.Hour}, time.Hour + time.Second, "missed by 1h0m1s, more than the catch-up window of 1h0m0s"},
		{Policy{}, 24 * time.Hour, ""},
		{Policy{}, 24*time.Hour + time.Second, "missed by 24h0m1s, more than the catch-up window of 24h0m0s"},
	} {
		if got := missedReason(c.policy, c.late); got != c.want {
			t.Errorf("late by %s: %q, not %q", c.late, got, c.want)
		}
	}
}
