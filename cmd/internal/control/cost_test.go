package control

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rouse/internal/ledger"
)

// TestCostRow checks that the cost of several runs is a multiple of the cost of one. The median
// must be within the range of costs. At least 90 % of runs must cost no more than the high
// estimate.
func TestCostRow(t *testing.T) {
	if r := costRow(7, nil); r.Runs != 7 || r.PastRuns != 0 || r.HighUSD != 0 {
		t.Errorf("without a history: %+v", r)
	}
	var ten []ledger.Usage
	for i := range 10 {
		ten = append(ten, ledger.Usage{CostMicroUSD: int64(10-i) * 1_000_000, TokensIn: 100, TokensOut: int64(i)})
	}
	if r := costRow(3, ten); r.PastRuns != 10 || r.RunMedianUSD != 5.5 || r.RunHighUSD != 9 || r.MedianUSD != 16.5 || r.HighUSD != 27 || r.RunHighTokens != 108 || r.HighTokens != 324 {
		t.Errorf("of ten: %+v", r)
	}

	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.Int64Range(0, 5_000_000), 1, 60).Draw(t, "costs")
		runs := rapid.IntRange(0, 500).Draw(t, "runs")
		var last []ledger.Usage
		for _, c := range costs {
			last = append(last, ledger.Usage{CostMicroUSD: c, TokensIn: c / 100})
		}
		r := costRow(runs, last)

		slices.Sort(costs)
		least, most := float64(costs[0])/1e6, float64(costs[len(costs)-1])/1e6
		if r.RunMedianUSD < least || r.RunHighUSD < r.RunMedianUSD-1e-6 || r.RunHighUSD > most || r.MedianUSD > r.HighUSD+1e-6 || r.HighUSD > most*float64(runs)+1e-6 {
			t.Fatalf("%+v of %v", r, costs)
		}
		within := 0
		for _, c := range costs {
			if float64(c)/1e6 <= r.RunHighUSD {
				within++
			}
		}
		if within*100 < 90*len(costs) || r.HighTokens != r.RunHighTokens*int64(runs) {
			t.Fatalf("%d of %d cost no more than %v: %+v", within, len(costs), r.RunHighUSD, r)
		}
	})
}
