package control

import (
	"testing"

	"rouse/internal/ledger"
)

// TestForeseen checks that a forecast is the median of past runs times the number of coming runs.
// Without past runs, there is no forecast.
func TestForeseen(t *testing.T) {
	t.Parallel()
	ran := func(costs ...int64) (out []ledger.Usage) {
		for _, c := range costs {
			out = append(out, ledger.Usage{CostMicroUSD: c, TokensIn: c, TokensOut: c})
		}
		return out
	}

	for name, c := range map[string]struct {
		runs int
		last []ledger.Usage
		want forecast
	}{
		"nothing ran":     {3, nil, forecast{runs: 3, unknown: 3}},
		"one":             {2, ran(50), forecast{runs: 2, cost: 100, tokens: 200}},
		"two":             {1, ran(10, 30), forecast{runs: 1, cost: 20, tokens: 40}},
		"one went astray": {2, ran(10, 9000, 20), forecast{runs: 2, cost: 40, tokens: 80}},
		"free":            {4, ran(0, 0), forecast{runs: 4}},
	} {
		if got := foreseen(c.runs, c.last); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
