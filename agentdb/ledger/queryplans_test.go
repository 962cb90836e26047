package ledger

import (
	"database/sql"
	"path/filepath"
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

	for name, c := range map[string]struct {
		query, by string // what its plan has to say
		few       bool   // rows to sort: jobs, stretches, or what is waiting
	}{
		"countWakes":           {query: countWakes, by: "runs_by_self (agent=? AND started_at>? AND started_at<?)"},
		"lastWake":             {query: lastWake, by: "runs_by_wake (agent=?)"},
		"lastOutcomes":         {query: lastOutcomes, by: "runs_ended (job=? AND finished_at>?)"},
		"lastSuccess":          {query: lastSuccess, by: "runs_ended (job=?)"},
		"overlappingRuns":      {query: overlappingRuns, by: "runs_open (job=?)"},
		"countRunning":         {query: countRunning, by: "runs_unfinished (state=?)"},
		"oneOccurrence":        {query: oneOccurrence, by: "o USING PRIMARY KEY (job=? AND nominal=?)"},
		"skipOccurrence":       {query: skipOccurrence, by: "occurrences_by_run (run=?)"},
		"runOccurrence":        {query: runOccurrence, by: "occurrences_by_run (run=?)"},
		"oldRuns":              {query: oldRuns, by: "runs_ended (job=? AND finished_at<?)"},
		"oldOccurrences":       {query: oldOccurrences, by: "PRIMARY KEY (job=? AND nominal<?)"},
		"oldEvents":            {query: oldEvents, by: "events_alone (job=? AND at<?)"},
		"prunableNames":        {query: prunableNames, by: "events_alone (job>?)", few: true},
		"rowsBefore":           {query: rowsBefore, by: "o USING PRIMARY KEY (job=? AND nominal<?)"},
		"rowsFrom":             {query: rowsFrom, by: "o USING PRIMARY KEY (job=? AND nominal>?)"},
		"othersBefore":         {query: othersBefore, by: "runs_by_job (job=? AND id>? AND id<?)"},
		"othersFrom":           {query: othersFrom, by: "runs_by_job (job=? AND id>? AND id<?)"},
		"runRange":             {query: runRange, by: "SCALAR SUBQUERY 2; SEARCH runs USING COVERING INDEX runs_by_job (job=?)"}, // one for each end
		"runFrom":              {query: runFrom, by: "runs_by_job (job=? AND id>?)"},
		"delayedRuns":          {query: delayedRuns, by: "runs_due (not_before>?)"},
		"eventsBetween":        {query: eventsBetween(1), by: "events_alone (job=? AND at>? AND at<?)"},
		"occurrences of a job": {query: occurrencesBetween("j"), by: "o USING PRIMARY KEY (job=? AND nominal>? AND nominal<?)", few: true},
		"their stretches":      {query: occurrencesBetween("j"), by: "occurrences_long (through>?)", few: true},
		"occurrences of all":   {query: occurrencesBetween(""), by: "occurrences_by_time (nominal>? AND nominal<?)", few: true},
		"all stretches":        {query: occurrencesBetween(""), by: "occurrences_long (through>?)", few: true},
	} {
		rows, err := l.read.QueryContext(t.Context(), `explain query plan `+c.query, 1, 2, 3, 4, 5)
		plan, err := collect(rows, err, func(rows *sql.Rows) (string, error) {
			var id, parent, unused int
			var detail string
			err := rows.Scan(&id, &parent, &unused, &detail)
			return detail, err
		})
		if text := strings.Join(plan, "; "); err != nil || !strings.Contains(text, c.by) {
			t.Errorf("%s: %s, want %s: %v", name, text, c.by, err)
		}

		for _, step := range plan {
			table, scan := strings.CutPrefix(step, "SCAN ")
			table, _, _ = strings.Cut(table, " ")
			large := table == "runs" || table == "events" || table == "occurrences" || table == "o" || table == "r"
			sorts := strings.HasPrefix(step, "USE TEMP B-TREE FOR ORDER BY") && !c.few
			if scan && large || sorts {
				t.Errorf("%s: %s", name, strings.Join(plan, "; "))
				break
			}
		}
	}
}
