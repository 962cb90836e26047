package loop_test

import (
	"testing"
	"time"

	"rouse/agent/loop"
)

// byDefault holds the default bounds of a run.
var byDefault = loop.Bounds{Steps: 30, Calls: 100, Wall: 10 * time.Minute, Idle: 5 * time.Minute, Output: 1 << 20}

// TestBoundsAfterAnAttempt checks that an attempt that continues has the remaining bounds, and at
// least one step, one call and one token. A missing bound stays missing.
func TestBoundsAfterAnAttempt(t *testing.T) {
	given := loop.Bounds{Steps: 8, Calls: 9, Wall: time.Minute, Idle: time.Second, Tokens: 1000, CostMicroUSD: 500, Output: 10}
	left := func(steps, calls int, tokens, cost int64) loop.Bounds {
		b := given
		b.Steps, b.Calls, b.Tokens, b.CostMicroUSD = steps, calls, tokens, cost
		return b
	}
	none := loop.Bounds{Steps: -1, Calls: -1, Wall: -1, Idle: -1, Output: -1}
	rest := byDefault
	rest.Steps, rest.Calls = 27, 96

	for name, c := range map[string]struct{ got, want loop.Bounds }{
		"nothing was used":     {given.After(0, 0, 0), given},
		"some of it":           {given.After(3, 4, 400), left(5, 5, 600, 500)},
		"all of it":            {given.After(8, 9, 1000), left(1, 1, 1, 500)},
		"more than all of it":  {given.After(80, 90, 10_000), left(1, 1, 1, 500)},
		"of the defaults":      {loop.Bounds{}.After(3, 4, 400), rest},
		"where there are none": {none.After(3, 4, 400), none},
		"the cost":             {given.AfterCost(200), left(8, 9, 1000, 300)},
		"all that it may cost": {given.AfterCost(500), left(8, 9, 1000, 1)},
		"no bound on the cost": {none.AfterCost(500), none},
		"the tokens alone":     {given.AfterTokens(400), left(8, 9, 600, 500)},
		"all of the tokens":    {given.AfterTokens(1001), left(8, 9, 1, 500)},
		"no bound on tokens":   {none.AfterTokens(400), none},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}

// TestBoundsExhausted checks that steps or tokens are exhausted with the last one, and never
// without a bound.
func TestBoundsExhausted(t *testing.T) {
	for name, c := range map[string]struct {
		bounds loop.Bounds
		steps  int
		tokens int64
		want   bool
	}{
		"the last step":                   {loop.Bounds{Steps: 8}, 8, 0, true},
		"the last but one":                {loop.Bounds{Steps: 8}, 7, 1 << 40, false},
		"as many as a run by default has": {loop.Bounds{}, 30, 0, true},
		"one less":                        {loop.Bounds{}, 29, 0, false},
		"steps without bound":             {loop.Bounds{Steps: -1}, 1000, 0, false},
		"the last token":                  {loop.Bounds{Tokens: 100}, 0, 100, true},
		"a token less":                    {loop.Bounds{Tokens: 100}, 29, 99, false},
		"either of them":                  {loop.Bounds{Steps: -1, Tokens: 100}, 1000, 100, true},
	} {
		if got := c.bounds.Exhausted(c.steps, c.tokens); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestBoundsWithin checks that the stricter of two bounds applies to each bound separately. No
// bound is the weakest, and an unset bound has its default.
func TestBoundsWithin(t *testing.T) {
	a := loop.Bounds{Steps: 8, Calls: 200, Wall: time.Minute, Idle: time.Hour, Tokens: 1000, Output: -1}
	b := loop.Bounds{Steps: 9, Calls: 100, Wall: time.Hour, Idle: time.Second, CostMicroUSD: 500, Output: 10}
	want := loop.Bounds{Steps: 8, Calls: 100, Wall: time.Minute, Idle: time.Second, Tokens: 1000, CostMicroUSD: 500, Output: 10}
	none := loop.Bounds{Steps: -1, Calls: -1, Wall: -1, Idle: -1, Output: -1}

	for name, c := range map[string]struct{ got, want loop.Bounds }{
		"each by itself":  {a.Within(b), want},
		"and back":        {b.Within(a), want},
		"none and some":   {none.Within(want), want},
		"some and none":   {want.Within(none), want},
		"none at all":     {none.Within(none), none},
		"nobody said any": {loop.Bounds{}.Within(loop.Bounds{}), byDefault},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
}
