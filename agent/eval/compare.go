package eval

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agentdb"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

func (st *scenarioRun) compare(ctx context.Context, run ledger.Run) ([]string, error) {
	problems := []string{}
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	outcome := string(run.Outcome)
	if run.State != domain.StateFinished {
		outcome = string(run.State)
	}

	if outcome != st.Want.Outcome {
		report("the outcome is %s, wanted %s: %s", outcome, st.Want.Outcome, strings.TrimSpace(run.Error+" "+run.Summary))
	}

	wrong, err := st.CompareFiles(st.Want.Files)
	if err != nil {
		return nil, err
	}
	problems = append(problems, wrong...)

	for _, name := range st.Want.Absent {
		if _, err := os.Lstat(filepath.Join(st.Work, filepath.FromSlash(name))); !errors.Is(err, fs.ErrNotExist) {
			report("there is a file %s, wanted none (%v)", name, err)
		}
	}

	if err := st.compareRows(ctx, report); err != nil {
		return nil, err
	}

	// A real model may achieve the result in another way.
	if st.script != nil {
		if err := st.compareMechanics(ctx, run, report); err != nil {
			return nil, err
		}
	}

	return problems, nil
}

func (st *scenarioRun) compareRows(ctx context.Context, report func(string, ...any)) error {
	if len(st.Want.Rows) == 0 {
		return nil
	}

	db, release, err := st.pool.Get(ctx, Worker)
	if err != nil {
		return err
	}
	defer release()

	for _, query := range slices.Sorted(maps.Keys(st.Want.Rows)) {
		got := "nothing"
		rows, err := db.Query(ctx, agentdb.QuerySpec{SQL: query})
		switch {
		case err != nil: // the model may not have created the table; this is a problem, not an error
			got = err.Error()
		case len(rows.Rows) == 1 && len(rows.Columns) == 1:
			got = fmt.Sprint(rows.Rows[0][rows.Columns[0]])
		}

		if got != st.Want.Rows[query] {
			report("%q gives %s, wanted %s", query, got, st.Want.Rows[query])
		}
	}

	return nil
}

// compareMechanics compares the record, and the requests to the script, with the expected way to
// the result.
func (st *scenarioRun) compareMechanics(ctx context.Context, run ledger.Run, report func(string, ...any)) error {
	want := st.Want.Script
	calls, err := st.Ledger.Steps.Calls(ctx, run.ID)
	if err != nil {
		return err
	}

	steps, err := st.Ledger.Steps.List(ctx, run.ID)
	if err != nil {
		return err
	}

	if want.Exit != "" && run.Exit != want.Exit {
		report("the exit is %s, wanted %s", run.Exit, want.Exit)
	}

	if said := run.Summary + " " + run.Error; !strings.Contains(said, want.Says) {
		report("the record says %q, wanted %q", strings.TrimSpace(said), want.Says)
	}

	states := map[domain.CallState]int{}
	for _, c := range calls {
		states[c.State]++
	}

	for _, state := range slices.Sorted(maps.Keys(want.Calls)) {
		if states[state] != want.Calls[state] {
			report("%d calls are %s, wanted %d", states[state], state, want.Calls[state])
		}
	}

	for _, words := range want.Notices {
		n := 0
		for _, s := range steps {
			n += strings.Count(strings.Join(s.Notices, "\n"), words)
		}
		// A notice must be in one request only. A notice in the history would be in all later
		// requests.
		if requests := st.script.requestsWith(words); n != 1 || requests != 1 {
			report("the notice %q is in %d steps of the record and %d requests, wanted in one", words, n, requests)
		}
	}

	for _, words := range want.Sees {
		if st.script.requestsWith(words) == 0 {
			report("no request held %q", words)
		}
	}

	if left := len(st.Script) - len(st.script.requests); left > 0 {
		report("%d turns of the script were not asked for", left)
	}

	return nil
}
