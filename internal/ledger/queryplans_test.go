package ledger

import (
	"testing"

	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"lastWake":        {SQL: lastWake, By: "runs_by_wake (agent=? AND triggered_by=?)"},
		"overlappingRuns": {SQL: overlappingRuns, By: "runs_open (job=?)"},
		"waitingBeside":   {SQL: waitingBeside, By: "runs_open (job=?)"},
		"countRunning":    {SQL: countRunning, By: "runs_unfinished (state=?)"},
		"oneOccurrence":   {SQL: runs.OneOccurrence, By: "o USING PRIMARY KEY (job=? AND nominal=?)"},
		"skipOccurrence":  {SQL: skipOccurrence, By: "occurrences_by_run (run=?)"},
		"runOccurrence":   {SQL: runOccurrence, By: "occurrences_by_run (run=?)"},
	})
}
