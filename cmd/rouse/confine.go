package main

import (
	"context"
	"strings"

	"rouse/agent/sandbox"
	"rouse/cmd/internal/web"
)

// checkConfinement tries how strongly commands can be confined here. It stops no run by itself: a
// job whose commands need more says so when it is run.
func checkConfinement(ctx context.Context) web.Check {
	c := web.Check{Name: "confinement", OK: true}
	s, err := sandbox.New(sandbox.Options{})
	if err != nil {
		c.Detail = "commands cannot be confined, so none is started: " + err.Error()
		return c
	}
	defer func() { _ = s.Close() }()
	tier, lacks := s.Tier(ctx)
	c.Detail = "tier " + string(tier)
	if tier == sandbox.TierD {
		c.Detail = "commands cannot be confined (tier D), so none is started"
	}
	if len(lacks) > 0 {
		c.Detail += "; " + strings.Join(lacks, "; ")
	}
	return c
}
