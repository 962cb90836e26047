package incident

import (
	"testing"

	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"openIncidents":  {SQL: openIncidents, By: "incidents_now", Few: true},
		"openOfJob":      {SQL: openOfJob, By: "incidents_now_by_job (job=?)"},
		"countFailed":    {SQL: countFailed, By: "incidents_open (job=? AND kind=?)"},
		"closeOpen":      {SQL: closeOpen, By: "INDEX incidents_now_by_job (job=?)"},
		"incidentsOfJob": {SQL: incidentsOfJob, By: "incidents_by_job (job=?)", Few: true},
	})
}
