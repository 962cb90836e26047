package model_test

import (
	"math"
	"testing"

	"rouse/agent/model"
)

func TestCost(t *testing.T) {
	p := model.Price{Input: 3, Output: 15, Cached: 0.3}
	for _, c := range []struct {
		usage model.Usage
		want  int64
	}{
		{model.Usage{}, 0},
		{model.Usage{Input: 1_000_000}, 3_000_000},
		{model.Usage{Input: 1_000_000, Cached: 1_000_000}, 300_000},
		{model.Usage{Input: 1000, Output: 200, Cached: 400}, 600*3 + 120 + 200*15},
		{model.Usage{Input: 1000, Cached: 400, Written: 400}, 600*3 + 120 + 300},
		{model.Usage{Input: 1000, Cached: 400, Written: 1 << 50}, 600*3 + 120 + 450},
		{model.Usage{Input: 1000, Cached: 400, Written: 400, WrittenLong: 100}, 600*3 + 120 + 225 + 300},
		{model.Usage{Input: 1000, Written: 1000, WrittenLong: 1 << 50}, 2 * 1000 * 3},
		{model.Usage{Input: 1, Cached: 1}, 1},                          // rounded up
		{model.Usage{Input: -5, Output: -5, Cached: -5}, 0},            // a server that lies
		{model.Usage{Input: 10, Cached: 11}, 30},                       // more cached than there was
		{model.Usage{Input: 10, Cached: -3}, 30},                       //
		{model.Usage{Output: math.MaxInt64}, (1 << 40) * 15},           // implausible
		{model.Usage{Input: 100_000, Cached: 100_000}, 30_000},         // no rounding up
		{model.Usage{Input: 333_333, Cached: 33_333}, 900_000 + 10000}, //
	} {
		if got := p.Cost(c.usage); got != c.want {
			t.Errorf("%+v costs %d, want %d", c.usage, got, c.want)
		}
	}

	if got := (model.Price{Output: math.MaxFloat64}).Cost(model.Usage{Output: 1}); got != math.MaxInt64/2 {
		t.Errorf("without end: %d", got)
	}
}
