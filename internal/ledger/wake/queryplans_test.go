package wake

import (
	"testing"

	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"countWakes": {SQL: countWakes, By: "runs_by_self (agent=? AND started_at>? AND started_at<?)"},
	})
}
