package pause

import (
	"testing"

	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"lastOutcomes": {SQL: lastOutcomes, By: "runs_ended (job=? AND finished_at>?)"},
	})
}
