package outbox

import (
	"testing"

	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"lastNotice":  {SQL: lastNotice, By: "outbox_by_channel (channel=?)"},
		"undelivered": {SQL: undelivered, By: "outbox_undelivered"},
	})
}
