package ledger

import (
	"path/filepath"
	"rouse/internal/ledger/record"
	"rouse/internal/ledger/store"
	"strings"
	"testing"
)

// TestQueryPlans: with a million runs and twenty million events, what decides about time reads
// the few rows that it needs, in the order of an index.
func TestQueryPlans(t *testing.T) {
	l, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	var placeholders []any
	for i := range record.IdsAtOnce { // no query has more
		placeholders = append(placeholders, i)
	}

	for name, c := range map[string]struct {
		query, by string // what its plan has to say
		few       bool   // rows to sort: jobs, stretches, or what is waiting
	}{
		"runs of wakes":         {query: runsOf(RunFilter{Woken: true, Agent: "a"}), by: "runs_by_wake (agent=? AND triggered_by=?"},
		"wakes of a job":        {query: runsOf(RunFilter{Woken: true, Job: "j"}), by: "runs_by_trigger (triggered_by=?"},
		"countWakes":            {query: countWakes, by: "runs_by_self (agent=? AND started_at>? AND started_at<?)"},
		"lastWake":              {query: lastWake, by: "runs_by_wake (agent=? AND triggered_by=?)"},
		"lastOutcomes":          {query: lastOutcomes, by: "runs_ended (job=? AND finished_at>?)"},
		"lastSuccessAt":         {query: lastSuccessAt, by: "runs_ended (job=?)"},
		"lastEndAt":             {query: lastEndAt, by: "runs_by_job (job=? AND id<?)"},
		"overlappingRuns":       {query: overlappingRuns, by: "runs_open (job=?)"},
		"waitingBeside":         {query: waitingBeside, by: "runs_open (job=?)"},
		"heldRuns":              {query: heldRuns, by: "runs_unfinished (state=?)", few: true},
		"waitingForPersons":     {query: waitingForPersons, by: "runs_unfinished (state=?)", few: true},
		"countRunning":          {query: countRunning, by: "runs_unfinished (state=?)"},
		"oneOccurrence":         {query: oneOccurrence, by: "o USING PRIMARY KEY (job=? AND nominal=?)"},
		"skipOccurrence":        {query: skipOccurrence, by: "occurrences_by_run (run=?)"},
		"runOccurrence":         {query: runOccurrence, by: "occurrences_by_run (run=?)"},
		"oldRuns":               {query: oldRuns, by: "runs_ended (job=? AND finished_at<?)"},
		"oldOccurrences":        {query: oldOccurrences.statement(), by: "PRIMARY KEY (job=? AND nominal<?)"},
		"oldEvents":             {query: oldEvents.statement(), by: "events_alone (job=? AND at<?)"},
		"prunableNames":         {query: prunableNames, by: "events_alone (job>?)", few: true},
		"rowsBefore":            {query: rowsBefore, by: "o USING PRIMARY KEY (job=? AND nominal<?)"},
		"rowsFrom":              {query: rowsFrom, by: "o USING PRIMARY KEY (job=? AND nominal>?)"},
		"othersBefore":          {query: othersBefore, by: "runs_by_job (job=? AND id>? AND id<?)"},
		"othersFrom":            {query: othersFrom, by: "runs_by_job (job=? AND id>? AND id<?)"},
		"runRange":              {query: runRange, by: "SCALAR SUBQUERY 2; SEARCH runs USING COVERING INDEX runs_by_job (job=?)"}, // one for each end
		"anyRunRange":           {query: anyRunRange, by: "SCALAR SUBQUERY 2; SEARCH runs"},
		"anyRunFrom":            {query: anyRunFrom, by: "PRIMARY KEY (rowid>?)"},
		"lastRuns":              {query: lastRuns, by: "r USING COVERING INDEX runs_by_job (job=?)", few: true},
		"prunableNames of runs": {query: prunableNames, by: "runs_by_job (job>?)", few: true},
		"oldOfAnyKind":          {query: oldOfAnyKind, by: "runs_ended (job=? AND finished_at<?)", few: true},
		"runsByID":              {query: `select id from runs where id in (` + record.IdPlaces + `)`, by: "PRIMARY KEY (rowid=?)"},
		"lastUsages":            {query: lastUsages, by: "runs_by_job (job=?)"},
		"notRun":                {query: notRun, by: "occurrences_not_run (nominal>? AND nominal<?)", few: true},
		"their stretches too":   {query: notRun, by: "occurrences_long (through>?)", few: true},
		"lastNotice":            {query: lastNotice, by: "outbox_by_channel (channel=?)"},
		"undelivered":           {query: undelivered, by: "outbox_undelivered"},
		"runsEnded":             {query: runsEnded, by: "runs_ended (job=? AND finished_at>? AND finished_at<?)", few: true},
		"oldIncidents":          {query: oldIncidents.statement(), by: "incidents_by_job (job=? AND last_at<?)"},
		"oldNotices":            {query: oldNotices.statement(), by: "outbox_by_run (run=?)"},
		"openIncidents":         {query: openIncidents, by: "incidents_now", few: true},
		"openOfJob":             {query: openOfJob, by: "incidents_now_by_job (job=?)"},
		"countFailed":           {query: countFailed, by: "incidents_open (job=? AND kind=?)"},
		"closeOpen":             {query: closeOpen, by: "INDEX incidents_now_by_job (job=?)"},
		"incidentsOfJob":        {query: incidentsOfJob, by: "incidents_by_job (job=?)", few: true},
		"openItems":             {query: openItems, by: "inbox_by_id"},
		"events of a run":       {query: eventsOf(EventFilter{Run: 1}), by: "events_by_run (run=?)"},
		"events of a job":       {query: eventsOf(EventFilter{Job: "j"}), by: "events_by_job (job=? AND id>?)"},
		"new events":            {query: eventsOf(EventFilter{After: 1}), by: "PRIMARY KEY (rowid>?)"},
		"runs after":            {query: runsOf(RunFilter{After: 1}), by: "PRIMARY KEY (rowid>?)"},
		"runs of a job":         {query: runsOf(RunFilter{Job: "j", Before: 9}), by: "runs_by_job (job=? AND id<?)"},
		"runs of an agent":      {query: runsOf(RunFilter{Agent: "a", Before: 9}), by: "runs_by_agent (agent=? AND id<?)"},
		"both":                  {query: runsOf(RunFilter{Job: "j", Agent: "a"}), by: "runs_by_job (job=?)"},
		"ended of a job":        {query: runsOf(RunFilter{Job: "j", State: "finished", Before: 9}), by: "runs_by_job (job=? AND id<?)"},
		"failed of a job":       {query: runsOf(RunFilter{Job: "j", Agent: "a", Outcome: "error", Before: 9}), by: "runs_by_job_outcome (job=? AND outcome=? AND id<?)"},
		"what failed":           {query: runsOf(RunFilter{Outcome: "error", State: "finished", Trigger: "manual"}), by: "runs_by_outcome (outcome=?)"},
		"failed of an agent":    {query: runsOf(RunFilter{Agent: "a", Outcome: "error", After: 3}), by: "runs_by_agent_outcome (agent=? AND outcome=? AND id>?)"},
		"what was asked for":    {query: runsOf(RunFilter{Trigger: "manual", Before: 9}), by: "runs_by_trigger (triggered_by=? AND id<?)"},
		"asked for of a job":    {query: runsOf(RunFilter{Job: "j", Trigger: "manual"}), by: "runs_by_job (job=?)"},
		"asked for of an agent": {query: runsOf(RunFilter{Agent: "a", Trigger: "manual"}), by: "runs_by_agent (agent=?)"},
		"asked for and waits":   {query: runsOf(RunFilter{State: "waiting", Trigger: "manual"}), by: "runs_unfinished (state=?)"},
		"unfinished":            {query: unfinished, by: "runs_unfinished (state=?)", few: true},
		"countUnfinished":       {query: countUnfinished, by: "COVERING INDEX runs_unfinished"},
		"what runs":             {query: runsOf(RunFilter{State: "running"}), by: "runs_unfinished (state=?)"},
		"runs of a job now":     {query: runsOf(RunFilter{Job: "j", State: "queued"}), by: "runs_open (job=?)"},
		"what an agent waits":   {query: runsOf(RunFilter{Agent: "a", State: "waiting"}), by: "runs_unfinished (state=?)"},
		"runFrom":               {query: runFrom, by: "runs_by_job (job=? AND id>?)"},
		"delayedRuns":           {query: delayedRuns, by: "runs_due (not_before>?)"},
		"eventsBetween":         {query: eventsBetween(1), by: "events_alone (job=? AND at>? AND at<?)"},
		"occurrences of a job":  {query: occurrencesBetween("j"), by: "o USING PRIMARY KEY (job=? AND nominal>? AND nominal<?)", few: true},
		"their stretches":       {query: occurrencesBetween("j"), by: "occurrences_long (through>?)", few: true},
		"occurrences of all":    {query: occurrencesBetween(""), by: "occurrences_by_time (nominal>? AND nominal<?)", few: true},
		"all stretches":         {query: occurrencesBetween(""), by: "occurrences_long (through>?)", few: true},
	} {
		plan, err := store.List(store.Reads(t.Context(), l.DB), func(detail *string) []any {
			return []any{new(int), new(int), new(int), detail}
		}, `explain query plan `+c.query, placeholders...)
		if text := strings.Join(plan, "; "); err != nil || !strings.Contains(text, c.by) {
			t.Errorf("%s: %s, want %s: %v", name, text, c.by, err)
		}

		for _, step := range plan {
			table, scan := strings.CutPrefix(step, "SCAN ")
			table, _, _ = strings.Cut(table, " ")
			// Through an index that holds nothing but what is asked for, or at the end of one.
			scan = scan && !strings.Contains(step, "outbox_undelivered") && !strings.Contains(step, "inbox_by_id") && !strings.Contains(step, "runs_unfinished")
			large := table == "runs" || table == "events" || table == "occurrences" || table == "o" || table == "r" || table == "outbox" || table == "inbox"
			sorts := strings.HasPrefix(step, "USE TEMP B-TREE FOR ORDER BY") && !c.few
			if scan && large || sorts {
				t.Errorf("%s: %s", name, strings.Join(plan, "; "))
				break
			}
		}
	}
}

func runsOf(f RunFilter) string {
	query, _ := runsQuery(f)
	return query
}

func eventsOf(f EventFilter) string {
	query, _ := eventsQuery(f)
	return query
}
