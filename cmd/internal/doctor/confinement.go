package doctor

import (
	"context"
	"strings"
	"sync"
	"time"

	"rouse/agent/sandbox"
	"rouse/cmd/internal/api"
	"rouse/internal/noexec"
)

// confinement caches how strongly commands can be confined, because the check starts programs.
type confinement struct {
	mu    sync.Mutex
	at    time.Time
	found api.Check
}

// check tests how strongly commands can be confined. If ctx forbids programs, it returns the last
// result.
func (c *confinement) check(ctx context.Context, scratch string, zone *time.Location) api.Check {
	c.mu.Lock()
	defer c.mu.Unlock()

	if noexec.Is(ctx) {
		found := c.found
		if c.at.IsZero() {
			found = Passed("confinement", "not tried yet")
			found.NotTried = "how strongly commands can be confined (rouse doctor tries it)"
		} else {
			found.Detail += "; tried " + api.LocalTime(c.at, zone) + ", and again by rouse doctor"
		}
		return found
	}

	found := checkConfinement(ctx, scratch)
	if ctx.Err() == nil { // otherwise the test was cancelled
		c.found, c.at = found, time.Now()
	}
	return found
}

// checkConfinement tests how strongly commands can be confined on this machine. A weak tier does
// not fail the check, because a run that needs a stronger one reports it.
func checkConfinement(ctx context.Context, scratch string) api.Check {
	s, err := sandbox.New(sandbox.Options{Scratch: scratch})
	if err != nil {
		return Passed("confinement", "commands cannot be confined, so none is started: "+err.Error())
	}
	defer func() { _ = s.Close() }()

	tier, lacks := s.Tier(ctx)
	said := "tier " + string(tier)
	if tier == sandbox.TierNone {
		said = "commands cannot be confined (tier D), so none is started"
	}
	return Passed("confinement", strings.Join(append([]string{said}, lacks...), "; "))
}
