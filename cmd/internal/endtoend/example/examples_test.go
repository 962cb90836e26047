package example

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestExpensesExample plays the example in the README. A dropped CSV becomes rows, the file moves,
// and a notice is queued. The same content again starts no run. A file with one more row starts one
// run that adds only that row.
func TestExpensesExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../examples/expenses/rouse.yaml")
	if err != nil {
		t.Fatal(err)
	}

	sample, err := os.ReadFile("../../../../examples/expenses/statements.csv")
	if err != nil {
		t.Fatal(err)
	}

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": string(text), "inbox/.gitkeep": ""})
	config, inbox := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "inbox", "statements.csv")
	p := endtoend.Serve(t, config)
	var runs []api.Run
	drop := func(text string) {
		t.Helper()
		if err := os.WriteFile(inbox, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cmdtest.Until(t, "the file moved away", func() bool { _, err := os.Stat(inbox); return os.IsNotExist(err) })
		endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
	}

	drop(string(sample))
	if len(runs) != 1 || runs[0].Outcome != "success" || runs[0].Trigger != "watch" || !strings.Contains(runs[0].Summary, "5 rows into expenses") {
		t.Fatalf("runs: %+v", runs)
	}
	if n := endtoend.CountRows(t, config, "select count(*) n from expenses"); n != 5 {
		t.Errorf("%d rows", n)
	}
	if _, err := os.Stat(filepath.Join(dir, "inbox", "done", "statements.csv")); err != nil {
		t.Error(err)
	}

	var checks []api.Check
	doctor := endtoend.Rouse(t, "doctor", "--json", "--config", config)
	if err := doctor.Run(); err != nil { // the channels check may fail without a desktop
		t.Errorf("doctor: %v\n%s", err, doctor.Out.String())
	}
	if err := json.Unmarshal(doctor.Out.Bytes(), &checks); err != nil {
		t.Error(err)
	}

	drop(string(sample))
	if len(runs) != 1 {
		t.Errorf("the same bytes ran again: %+v", runs)
	}

	// In binary fractions the sum of the three amounts would be 122.35000000000001.
	totals := endtoend.Rouse(t, "db", "bookkeeper", "query", "select sum(amount) total from expenses where category = 'food'", "--json", "--config", config)
	if err := totals.Run(); err != nil || !strings.Contains(totals.Out.String(), "122.35") || strings.Contains(totals.Out.String(), "122.350") {
		t.Errorf("%v: %s", err, &totals.Out)
	}

	// One more row, and a corrected one.
	drop(strings.Replace(string(sample), "19.95", "21.95", 1) + "2026-11-20,food,Cake,12.00\n")
	if len(runs) != 2 {
		t.Errorf("one row more gave %d runs", len(runs))
	}
	if n := endtoend.CountRows(t, config, "select count(*) n from expenses"); n != 6 {
		t.Errorf("%d rows after a file with one row more", n)
	}
	if n := endtoend.CountRows(t, config, "select count(*) n from expenses where description = 'Light bulbs' and amount = 21.95"); n != 1 {
		t.Error("the corrected amount is not there")
	}

	drop("day,category,description,amount\n2026-11-20,food\n")
	if runs[0].Outcome != "error" || !strings.Contains(runs[0].Error, "line 2") {
		t.Errorf("a ragged file: %+v", runs[0])
	}
	if _, err := os.Stat(filepath.Join(dir, "inbox", "failed", "statements.csv")); err != nil {
		t.Error(err)
	}
	if n := endtoend.CountRows(t, config, "select count(*) n from expenses"); n != 6 {
		t.Errorf("%d rows in the end", n)
	}

	p.Stop(t)
}

// TestHeartbeatExample checks that a schedule with six fields fires once per second, never early or
// twice, also after a restart.
func TestHeartbeatExample(t *testing.T) {
	t.Parallel() // it mostly waits
	text, err := os.ReadFile("../../../../examples/heartbeat/rouse.yaml")
	if err != nil {
		t.Fatal(err)
	}

	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": string(text)}), "rouse.yaml")
	var runs []api.Run
	for round := 1; round <= 2; round++ {
		p := endtoend.Serve(t, config)
		cmdtest.Until(t, "three more seconds", func() bool {
			endtoend.RunJSON(t, &runs, "runs", "--json", "-n", "100", "--outcome", "success", "--config", config)
			return len(runs) >= 3*round
		})
		p.Stop(t)
	}

	// From the second run on the table exists, which must not be a failure.
	var latest api.RunDetail
	endtoend.RunJSON(t, &latest, "show", runs[0].ID, "--json", "--config", config)
	for _, step := range latest.StepsDetail {
		for _, c := range step.Calls {
			if !c.OK {
				t.Errorf("%s: %s", c.Tool, c.Envelope)
			}
		}
	}

	seen := map[time.Time]bool{}
	for _, r := range runs {
		if seen[r.ScheduledAt.Time] {
			t.Errorf("%s fired twice", r.ScheduledAt)
		}

		seen[r.ScheduledAt.Time] = true
		if r.QueuedAt.Before(r.ScheduledAt.Time) || r.StartedAt.Before(r.ScheduledAt.Time) {
			t.Errorf("%s fired early: queued %s, started %s", r.ScheduledAt, r.QueuedAt, r.StartedAt)
		}
		if r.ScheduledAt.Nanosecond() != 0 {
			t.Errorf("%s is no full second", r.ScheduledAt)
		}
	}
}
