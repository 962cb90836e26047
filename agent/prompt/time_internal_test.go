package prompt

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestResultClock checks that a result contains the time if a minute has passed since the last one.
func TestResultClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := (&ResultClock{zone: time.FixedZone("X", 3600), told: time.Now()}).Now
		for _, step := range []struct {
			wait time.Duration
			want string
		}{{0, ""}, {59 * time.Second, ""}, {time.Second, "2000-01-01T01:01:00+01:00"}, {30 * time.Second, ""}, {time.Hour, "2000-01-01T02:01:30+01:00"}} {
			time.Sleep(step.wait) // fake time of the synctest bubble
			if got := now("k"); got != step.want {
				t.Errorf("after %s: %q, want %q", step.wait, got, step.want)
			}
		}
	})
}
