package ledger

import (
	"testing"

	"rouse/internal/domain"
)

// TestWaitingRuns checks which runs wait for a retry, a model or a person, and that a run of a
// backfill yields while it is queued.
func TestWaitingRuns(t *testing.T) {
	for name, c := range map[string]struct {
		run                            Run
		retry, postponed, person, back bool
	}{
		"queued":               {run: Run{State: domain.StateQueued, Trigger: domain.TriggerSchedule}},
		"queued of a backfill": {run: Run{State: domain.StateQueued, Trigger: domain.TriggerBackfill}, back: true},
		"on, of a backfill":    {run: Run{State: domain.StateRunning, Trigger: domain.TriggerBackfill}},
		"to be tried again":    {run: Run{State: domain.StateWaiting, WaitingFor: domain.WaitRetry}, retry: true},
		"without a model":      {run: Run{State: domain.StateWaiting, WaitingFor: domain.WaitRetry, Postponements: 1}, retry: true, postponed: true},
		"with an answer":       {run: Run{State: domain.StateWaiting, WaitingFor: domain.WaitResume, Postponements: 1}},
		"for an answer":        {run: Run{State: domain.StateWaiting, WaitingFor: domain.WaitInput, Postponements: 1}, person: true},
		"for an approval":      {run: Run{State: domain.StateWaiting, WaitingFor: domain.WaitApproval}, person: true},
		"paused by its skill":  {run: Run{State: domain.StateWaiting, WaitingFor: domain.WaitPause}, person: true},
		"over":                 {run: Run{State: domain.StateFinished, Postponements: 1}},
	} {
		if r := c.run; r.WaitsForRetry() != c.retry || r.Postponed() != c.postponed || r.WaitsForPerson() != c.person || r.Yields() != c.back {
			t.Errorf("%s: retry %t, postponed %t, person %t, yields %t", name, r.WaitsForRetry(), r.Postponed(), r.WaitsForPerson(), r.Yields())
		}
	}
}
