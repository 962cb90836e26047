package inbox

import (
	"testing"

	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"openItems": {SQL: openItems, By: "inbox_by_id"},
	})
}
