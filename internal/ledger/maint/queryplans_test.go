package maint

import (
	"testing"

	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"oldRuns":               {SQL: oldRuns, By: "runs_ended (job=? AND finished_at<?)"},
		"oldOccurrences":        {SQL: oldOccurrences.statement(), By: "PRIMARY KEY (job=? AND nominal<?)"},
		"oldEvents":             {SQL: oldEvents.statement(), By: "events_alone (job=? AND at<?)"},
		"prunableNames":         {SQL: prunableNames, By: "events_alone (job>?)", Few: true},
		"prunableNames of runs": {SQL: prunableNames, By: "runs_by_job (job>?)", Few: true},
		"oldOfAnyKind":          {SQL: oldOfAnyKind, By: "runs_ended (job=? AND finished_at<?)", Few: true},
		"oldIncidents":          {SQL: oldIncidents.statement(), By: "incidents_by_job (job=? AND last_at<?)"},
		"oldNotices":            {SQL: oldNotices.statement(), By: "outbox_by_run (run=?)"},
	})
}
