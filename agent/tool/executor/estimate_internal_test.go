package executor

import (
	"strings"
	"testing"

	"rouse/agent/model"
)

// TestCostOfAProgram checks the cost of a program for each combination of reported usage and configured price.
func TestCostOfAProgram(t *testing.T) {
	t.Parallel()
	usage := model.Usage{Input: 1000, Output: 100}
	priced := model.Price{Input: 10, Output: 20, Cached: 10}
	for name, c := range map[string]struct {
		reading   Reading
		settings  Settings
		usual     int64
		limit     int64
		cost      int64
		estimated string // basis of the estimate, "" if the cost was reported
	}{
		"reported":                       {reading: Reading{CostKnown: true, CostMicroUSD: 7}, settings: Settings{Network: true}, limit: 9, cost: 7},
		"tokens at the configured price": {reading: Reading{Usage: usage, Done: true}, settings: Settings{Network: true, Price: priced}, limit: 9, cost: 12_000},
		"tokens at the model's price":    {reading: Reading{Usage: usage, Done: true, Model: "gpt-4.1"}, settings: Settings{Network: true}, limit: 9, cost: lookup(t, "gpt-4.1").Cost(usage)},
		"ended before its report":        {reading: Reading{Usage: usage}, settings: Settings{Network: true, Price: priced}, limit: 9, cost: 12_000, estimated: "was ended before"},
		"text at the configured price":   {reading: Reading{Written: 400, Done: true}, settings: Settings{Network: true, Price: priced}, usual: 5, limit: 9, cost: 10*100 + 20*100, estimated: "its price"},
		"the usual cost":                 {reading: Reading{Written: 400, Done: true}, settings: Settings{Network: true}, usual: 5, limit: 9, cost: 5, estimated: "median"},
		"the limit":                      {reading: Reading{Written: 400, Done: true}, settings: Settings{Network: true}, limit: 9, cost: 9, estimated: "bounds.cost_usd"},
		"neither limit nor history":      {reading: Reading{Written: 400, Done: true}, settings: Settings{Network: true}, cost: 3*100 + 15*100, estimated: "typical price"},
		"a subscription":                 {reading: Reading{Written: 400, Done: true}, settings: Settings{Network: true, Free: true}, usual: 5, limit: 9},
		"without a network":              {reading: Reading{Written: 400, Done: true}, usual: 5, limit: 9},
		"its model was not asked":        {reading: Reading{Unavailable: true}, settings: Settings{Network: true}, usual: 5, limit: 9},
	} {
		t.Run(name, func(t *testing.T) {
			p := &program{Options: Options{Settings: c.settings, UsualMicroUSD: c.usual, Bounds: Bounds{CostMicroUSD: c.limit}}}
			got := p.spent(ending{reading: c.reading}, 400)
			if got.CostMicroUSD != c.cost || (got.EstimatedMicroUSD > 0) != (c.estimated != "") || !strings.Contains(got.Why, c.estimated) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func lookup(t *testing.T, name string) model.Price {
	t.Helper()
	known, ok := model.Lookup(name)
	if !ok {
		t.Fatalf("the price of %s is not known", name)
	}
	return known.Price
}
