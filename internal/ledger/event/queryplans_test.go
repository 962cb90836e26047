package event

import (
	"testing"

	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"events of a run": {SQL: eventsOf(Filter{Run: 1}), By: "events_by_run (run=?)"},
		"events of a job": {SQL: eventsOf(Filter{Job: "j"}), By: "events_by_job (job=? AND id>?)"},
		"new events":      {SQL: eventsOf(Filter{After: 1}), By: "PRIMARY KEY (rowid>?)"},
		"eventsBetween":   {SQL: eventsBetween(1), By: "events_alone (job=? AND at>? AND at<?)"},
	})
}

func eventsOf(f Filter) string {
	query, _ := eventsQuery(f)
	return query
}
