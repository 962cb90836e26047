package executor

import (
	"fmt"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/shell"
)

// TestCostOfAProgram checks the cost of a program for each combination of reported usage and
// configured price.
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

// TestImpossibleCost checks that an impossible cost or usage does not count as zero, and that the
// owner is told.
func TestImpossibleCost(t *testing.T) {
	t.Parallel()
	forms := map[string]string{
		"plain":  `{"result":"done","cost_usd":%s}`,
		"claude": `{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":%s}`,
	}
	for form, line := range forms {
		for _, c := range []struct {
			said  string
			known bool
			warns bool
		}{
			{"-50", false, true}, {"-0.000001", false, true}, {"1e308", false, true}, {"1e999", false, true}, {`"NaN"`, false, true}, {`"much"`, false, true}, {"{}", false, true}, {"10001", false, true},
			{"null", false, false}, {"0", true, false}, {"0.25", true, false}, {`"0.25"`, true, false},
		} {
			r := read(fmt.Appendf(nil, line+"\n", c.said), 100, nil)
			p := &program{Options: Options{Settings: Settings{Network: true}, UsualMicroUSD: 5, Launcher: &shell.Launcher{Roots: roots(t)}}}
			end := ending{reading: r, asJSON: true, argv0: "x"}
			spent, warned := p.spent(end, 400), len(p.warnings(end, file.Settled{})) > 0
			if r.CostKnown != c.known || (spent.EstimatedMicroUSD > 0) == c.known || warned != c.warns || strings.Contains(spent.Why, "impossible") != c.warns {
				t.Errorf("%s, %s: %+v %+v", form, c.said, r, spent)
			}
		}
	}

	for _, usage := range []string{`{"input_tokens":1e300,"output_tokens":1}`, `{"input_tokens":1,"output_tokens":2000000000}`} {
		r := read(fmt.Appendf(nil, `{"result":"done","usage":%s}`, usage), 100, nil)
		if !r.UsageWrong || r.Usage != (model.Usage{}) {
			t.Errorf("%s: %+v", usage, r)
		}
	}
}

func roots(t *testing.T) *tool.Roots {
	t.Helper()
	out, err := tool.NewRoots(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func lookup(t *testing.T, name string) model.Price {
	t.Helper()
	known, ok := model.Lookup(name)
	if !ok {
		t.Fatalf("the price of %s is not known", name)
	}
	return known.Price
}
