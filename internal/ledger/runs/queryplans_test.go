package runs

import (
	"testing"

	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store/plantest"
)

func TestQueryPlans(t *testing.T) {
	plantest.Check(t, map[string]plantest.Query{
		"runs of wakes":         {SQL: runsOf(Filter{Woken: true, Agent: "a"}), By: "runs_by_wake (agent=? AND triggered_by=?"},
		"wakes of a job":        {SQL: runsOf(Filter{Woken: true, Job: "j"}), By: "runs_by_trigger (triggered_by=?"},
		"lastSuccessAt":         {SQL: lastSuccessAt, By: "runs_ended (job=?)"},
		"lastEndAt":             {SQL: lastEndAt, By: "runs_by_job (job=? AND id<?)"},
		"heldRuns":              {SQL: heldRuns, By: "runs_unfinished (state=?)", Few: true},
		"waitingForPersons":     {SQL: waitingForPersons, By: "runs_unfinished (state=?)", Few: true},
		"rowsBefore":            {SQL: rowsBefore, By: "o USING PRIMARY KEY (job=? AND nominal<?)"},
		"rowsFrom":              {SQL: rowsFrom, By: "o USING PRIMARY KEY (job=? AND nominal>?)"},
		"othersBefore":          {SQL: othersBefore, By: "runs_by_job (job=? AND id>? AND id<?)"},
		"othersFrom":            {SQL: othersFrom, By: "runs_by_job (job=? AND id>? AND id<?)"},
		"runRange":              {SQL: runRange, By: "SCALAR SUBQUERY 2; SEARCH runs USING COVERING INDEX runs_by_job (job=?)"}, // one for each end
		"anyRunRange":           {SQL: anyRunRange, By: "SCALAR SUBQUERY 2; SEARCH runs"},
		"anyRunFrom":            {SQL: anyRunFrom, By: "PRIMARY KEY (rowid>?)"},
		"lastRuns":              {SQL: lastRuns, By: "r USING COVERING INDEX runs_by_job (job=?)", Few: true},
		"runsByID":              {SQL: `select id from runs where id in (` + record.IdPlaces + `)`, By: "PRIMARY KEY (rowid=?)"},
		"lastUsages":            {SQL: lastUsages, By: "runs_by_job (job=?)"},
		"notRun":                {SQL: notRun, By: "occurrences_not_run (nominal>? AND nominal<?)", Few: true},
		"their stretches too":   {SQL: notRun, By: "occurrences_long (through>?)", Few: true},
		"runsEnded":             {SQL: runsEnded, By: "runs_ended (job=? AND finished_at>? AND finished_at<?)", Few: true},
		"runs after":            {SQL: runsOf(Filter{After: 1}), By: "PRIMARY KEY (rowid>?)"},
		"runs of a job":         {SQL: runsOf(Filter{Job: "j", Before: 9}), By: "runs_by_job (job=? AND id<?)"},
		"runs of an agent":      {SQL: runsOf(Filter{Agent: "a", Before: 9}), By: "runs_by_agent (agent=? AND id<?)"},
		"both":                  {SQL: runsOf(Filter{Job: "j", Agent: "a"}), By: "runs_by_job (job=?)"},
		"ended of a job":        {SQL: runsOf(Filter{Job: "j", State: "finished", Before: 9}), By: "runs_by_job (job=? AND id<?)"},
		"failed of a job":       {SQL: runsOf(Filter{Job: "j", Agent: "a", Outcome: "error", Before: 9}), By: "runs_by_job_outcome (job=? AND outcome=? AND id<?)"},
		"what failed":           {SQL: runsOf(Filter{Outcome: "error", State: "finished", Trigger: "manual"}), By: "runs_by_outcome (outcome=?)"},
		"failed of an agent":    {SQL: runsOf(Filter{Agent: "a", Outcome: "error", After: 3}), By: "runs_by_agent_outcome (agent=? AND outcome=? AND id>?)"},
		"what was asked for":    {SQL: runsOf(Filter{Trigger: "manual", Before: 9}), By: "runs_by_trigger (triggered_by=? AND id<?)"},
		"asked for of a job":    {SQL: runsOf(Filter{Job: "j", Trigger: "manual"}), By: "runs_by_job (job=?)"},
		"asked for of an agent": {SQL: runsOf(Filter{Agent: "a", Trigger: "manual"}), By: "runs_by_agent (agent=?)"},
		"asked for and waits":   {SQL: runsOf(Filter{State: "waiting", Trigger: "manual"}), By: "runs_unfinished (state=?)"},
		"unfinished":            {SQL: unfinished, By: "runs_unfinished (state=?)", Few: true},
		"countUnfinished":       {SQL: countUnfinished, By: "COVERING INDEX runs_unfinished"},
		"what runs":             {SQL: runsOf(Filter{State: "running"}), By: "runs_unfinished (state=?)"},
		"runs of a job now":     {SQL: runsOf(Filter{Job: "j", State: "queued"}), By: "runs_open (job=?)"},
		"what an agent waits":   {SQL: runsOf(Filter{Agent: "a", State: "waiting"}), By: "runs_unfinished (state=?)"},
		"runFrom":               {SQL: runFrom, By: "runs_by_job (job=? AND id>?)"},
		"delayedRuns":           {SQL: delayedRuns, By: "runs_due (not_before>?)"},
		"occurrences of a job":  {SQL: occurrencesBetween("j"), By: "o USING PRIMARY KEY (job=? AND nominal>? AND nominal<?)", Few: true},
		"their stretches":       {SQL: occurrencesBetween("j"), By: "occurrences_long (through>?)", Few: true},
		"occurrences of all":    {SQL: occurrencesBetween(""), By: "occurrences_by_time (nominal>? AND nominal<?)", Few: true},
		"all stretches":         {SQL: occurrencesBetween(""), By: "occurrences_long (through>?)", Few: true},
	})
}

func runsOf(f Filter) string {
	query, _ := runsQuery(f)
	return query
}
