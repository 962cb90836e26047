package loop_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
)

// TestTurnsAreAskedAgain checks that a failed turn is retried as often as the policy allows, after
// growing delays and those that the server requests. An unreachable server is retried for longer,
// unless there is a fallback.
func TestTurnsAreAskedAgain(t *testing.T) {
	refused := &model.Error{Kind: model.KindUnavailable, Message: "refused", Retryable: true, Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}
	unreached := say(refused)
	silent := down(model.KindUnavailable, true)
	for name, c := range map[string]struct {
		turn      func(model.Request) []any
		fallbacks []loop.ModelInfo
		wall      time.Duration
		tries     int
		took      time.Duration
		why       string
	}{
		"refused each time":         {down(model.KindInvalidResponse, true), nil, 0, 4, 7 * time.Second, "nonsense"},
		"for good":                  {down(model.KindInvalidResponse, false), nil, 0, 1, 0, "nonsense"},
		"out of reach":              {unreached, nil, 0, 8, (1 + 2 + 4 + 8 + 16 + 20 + 20) * time.Second, "refused"},
		"reached, and silent":       {silent, nil, 0, 4, 7 * time.Second, "unavailable"},
		"begun, and broken off":     {say("half", &model.Error{Kind: model.KindUnavailable, Message: "gone", Retryable: true, Err: &net.OpError{Op: "dial", Err: errors.New("gone")}}), nil, 0, 4, 7 * time.Second, "gone"},
		"the longest pause":         {say(&model.Error{Kind: model.KindRateLimited, Message: "busy", Retryable: true, RetryAfter: loop.MaxRetryWait}), nil, 0, 4, 3 * loop.MaxRetryWait, "busy"},
		"a longer one":              {say(&model.Error{Kind: model.KindRateLimited, Message: "busy", Retryable: true, RetryAfter: loop.MaxRetryWait + 1}), nil, 0, 1, 0, "busy"},
		"out of reach, and another": {unreached, []loop.ModelInfo{{Name: "second"}}, 0, 4 + 8, (7 + 71) * time.Second, "refused"},
		"out of reach, as it says":  {say(model.Unreported{}, refused), nil, 0, 8, (1 + 2 + 4 + 8 + 16 + 20 + 20) * time.Second, "refused"},
		"until its time is over":    {unreached, nil, 10 * time.Second, 4, 10 * time.Second, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := withFallbacks(t, c.fallbacks, c.turn)
				b.o.Policy, b.o.Bounds.Wall = loop.Headless(), c.wall
				began := time.Now()
				res := b.run(t, t.Context())
				if took := time.Since(began); len(b.model.requests) != c.tries || took != c.took || !strings.Contains(fmt.Sprint(res.Error, res.Summary), c.why) {
					t.Errorf("%d tries in %s: %q, want %d in %s", len(b.model.requests), took, res.Error, c.tries, c.took)
				}
			})
		})
	}
}

// TestWhyATurnWasStillAsked checks that a run that times out during retries reports the failure,
// unless an answer had begun. Other reasons are reported unchanged.
func TestWhyATurnWasStillAsked(t *testing.T) {
	refused := say(&model.Error{Kind: model.KindRateLimited, Message: "busy", Retryable: true})
	const over = "the run took longer than its wall time of 10s"
	for name, c := range map[string]struct {
		turns []func(model.Request) []any
		want  string
	}{
		"in the first try":        {[]func(model.Request) []any{say(time.Hour)}, over},
		"in the second":           {[]func(model.Request) []any{refused, say(time.Hour)}, "busy; and " + over},
		"in an answer":            {[]func(model.Request) []any{refused, say("half", time.Hour)}, over},
		"a fault of its provider": {[]func(model.Request) []any{refused, say(errors.New("odd"))}, "odd"},
		"an empty answer":         {[]func(model.Request) []any{refused, say(), say("whole")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, c.turns...)
				b.o.Bounds.Wall = 10 * time.Second
				if res := b.run(t, t.Context()); !strings.HasSuffix(res.Error, c.want) || strings.Contains(res.Error, "busy") != strings.Contains(c.want, "busy") {
					t.Errorf("%q, want %q", res.Error, c.want)
				}
			})
		})
	}
}
