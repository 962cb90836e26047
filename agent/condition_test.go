package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/model/modeltest"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agentdb/changelog"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/runs"
)

// seen is the recorded result of a condition.
type seen struct {
	Gate, Value, Error string
	OK                 bool
}

func (b *bench) gateEvents(run int64) []seen {
	b.t.Helper()
	events, err := b.ledger.Events.List(b.t.Context(), event.Filter{Run: run})
	if err != nil {
		b.t.Fatal(err)
	}

	var out []seen
	for _, e := range events {
		if e.Kind != "gate" {
			continue
		}

		var s seen
		if err := json.Unmarshal(e.Data, &s); err != nil {
			b.t.Fatalf("%s: %v", e.Data, err)
		}
		out = append(out, s)
	}

	return out
}

// gated runs a job with these conditions once, started manually.
func (b *bench) gated(gates ...plan.Condition) (ledger.Result, []seen) {
	b.t.Helper()
	for i := range gates {
		if gates[i].Where == "" {
			gates[i].Where = "rouse.yaml:14"
		}
		if len(gates[i].Command) > 0 && !confining() { // the checks of commands are the same without a sandbox
			gates[i].Unconfined = "this machine confines nothing"
		}
	}

	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", When: gates, Playbook: []playbook.Call{{Name: "todo", With: map[string]any{"markdown": "- [ ] x"}}}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	return res, b.gateEvents(id)
}

func (b *bench) insert(what string) {
	b.t.Helper()
	db, release, err := b.pool.Get(b.t.Context(), "clerk")
	if err != nil {
		b.t.Fatal(err)
	}
	defer release()

	if _, err := db.Insert(b.t.Context(), changelog.By{}, "log", []map[string]any{{"what": what}}); err != nil {
		b.t.Fatal(err)
	}
}

// TestFalseConditionCostsNothing checks that a false condition ends the run before any request to a
// model, and records the value.
func TestFalseConditionCostsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, modeltest.Turn{Text: "done"})
	b.table()
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "{{ .Nonsense }}", When: []plan.Condition{
		{SQL: "select count(*) > 0\n  from log", Where: "rouse.yaml:14"}, {SQL: "select count(*) from nowhere", Where: "rouse.yaml:15"},
	}}
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeSkipped || res.Error != `gate: sql "select count(*) > 0 from log" gave 0 (rouse.yaml:14)` {
		t.Errorf("%+v", res)
	}
	if n := len(b.server.Requests()); n > 0 {
		t.Errorf("the model was asked %d times", n)
	}
	if got := b.gateEvents(id); len(got) != 1 || got[0] != (seen{Gate: `sql "select count(*) > 0 from log"`, Value: "0"}) {
		t.Errorf("the later gate is not asked: %+v", got)
	}

	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}

	// The owner retries the run after the condition has become true.
	b.insert("one")
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "Go.", When: b.plan.Jobs["j"].When[:1]}
	if _, err := b.ledger.Retry(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || len(b.server.Requests()) != 1 {
		t.Errorf("%+v", res)
	}
}

// TestSQLCondition checks that one value of the agent's database decides, by the same rules as for
// an expectation.
func TestSQLCondition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.table()
	b.insert("one")
	b.insert("two")

	for _, c := range []struct {
		sql     string
		outcome domain.Outcome
		say     string
	}{
		{"select count(*) from log", domain.OutcomeSuccess, "2"},
		{"select 0.5", domain.OutcomeSuccess, "0.5"},
		{"select 'yes'", domain.OutcomeSuccess, `"yes"`},
		{"select what from log where what = 'one' limit 1;", domain.OutcomeSuccess, `"one"`},
		{"select 0", domain.OutcomeSkipped, "gave 0 ("},
		{"select null", domain.OutcomeSkipped, "gave NULL ("},
		{"select ''", domain.OutcomeSkipped, `gave "" (`},
		{"select '0'", domain.OutcomeSkipped, `gave "0" (`},
		{"select 1 from log where what = 'three'", domain.OutcomeSkipped, "gave no row ("},
		{"select :last_success = '0001-01-01T00:00:00.000Z' and :last_run = :last_success and :now > '2026' and length(:now) = 24", domain.OutcomeSuccess, "1"},
		{"select count(*) from log where _created_at < :now", domain.OutcomeSuccess, "2"},
		{"select what from log", domain.OutcomeError, "could not be checked (rouse.yaml:14): it gives more than one row"},
		{"select 1, 2", domain.OutcomeError, "it gives 2 columns"},
		{"select :last_sucess", domain.OutcomeError, "a condition has :last_success, :last_run and :now"},
		{"selec 1", domain.OutcomeError, "could not be checked"},
		{"select whta from log", domain.OutcomeError, `no such column: whta`},
		{"delete from log", domain.OutcomeError, "could not be checked"},
		{"select 1; drop table log", domain.OutcomeError, "one statement at a time"},
		{"select count(*) from expenses", domain.OutcomeError, `no such table: expenses; there are log; create it (rouse call clerk db_create_table …), or put a condition before this one that is false without it: sql: "select count(*) from sqlite_schema where name = 'expenses'"`},
		{"select count(*) from sqlite_schema where name = 'expenses'", domain.OutcomeSkipped, "gave 0"},
	} {
		res, events := b.gated(plan.Condition{SQL: c.sql})
		text := res.Error
		if c.outcome == domain.OutcomeSuccess && len(events) == 1 {
			text = events[0].Value
		}
		if res.Outcome != c.outcome || !strings.Contains(text, c.say) || len(events) != 1 || events[0].OK != (c.outcome == domain.OutcomeSuccess) {
			t.Errorf("%s: %+v, %+v", c.sql, res, events)
		}
	}

	if n := b.count(); n != 2 {
		t.Errorf("%d rows", n)
	}

	forever := "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
	begin := time.Now()
	res, _ := b.gated(plan.Condition{SQL: forever, Timeout: 50 * time.Millisecond})
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "it took longer than 50ms") || time.Since(begin) > 5*time.Second {
		t.Errorf("%+v after %s", res, time.Since(begin))
	}
}

// TestConditionKnowsTheLastRun checks that the times in a condition are those of runs that were not
// skipped.
func TestConditionKnowsTheLastRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	finish := func(outcome domain.Outcome) {
		t.Helper()
		id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
		_, a, err := b.ledger.StartAttempt(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.ledger.Finish(t.Context(), a, ledger.Result{Outcome: outcome}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * time.Millisecond) // times in the ledger are whole milliseconds
	}

	finish(domain.OutcomeSuccess)
	finish(domain.OutcomeError)
	for range 5 {
		finish(domain.OutcomeSkipped)
	}

	runs, err := b.ledger.Runs.List(t.Context(), runs.Filter{Job: "j"})
	if err != nil || len(runs) != 7 {
		t.Fatal(runs, err)
	}

	const layout = "2006-01-02T15:04:05.000Z"
	failure, success := runs[5].FinishedAt.UTC().Format(layout), runs[6].FinishedAt.UTC().Format(layout)
	if res, events := b.gated(plan.Condition{SQL: "select :last_success || ' ' || :last_run"}); res.Outcome != domain.OutcomeSuccess || events[0].Value != `"`+success+" "+failure+`"` {
		t.Errorf("%+v, want %s %s", events, success, failure)
	}
}

// TestFileCondition checks that a path or a pattern is true if a file exists.
func TestFileCondition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"in/a.csv", "in/deep/er/b.pdf", "in/.hidden", "in/[odd].txt", "in/folder.d/x"} {
		path := filepath.Join(b.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	at := func(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }
	for name, value := range map[string]string{
		"in":               "present",
		"in/a.csv":         "present",
		"in/[odd].txt":     "present",
		"in/*.csv":         at("in/a.csv"),
		"in/**/*.{pdf,md}": at("in/deep/er/b.pdf"),
		"in/.h*":           at("in/.hidden"),
		"in/b.csv":         "absent",
		"in/a.csv/x":       "absent",
		"nowhere/**":       "absent",
		"in/*.d":           "absent", // a pattern matches only files
		"in/h*":            "absent",
	} {
		want := domain.OutcomeSuccess
		if value == "absent" {
			want = domain.OutcomeSkipped
		}

		res, events := b.gated(plan.Condition{File: at(name)})
		if res.Outcome != want || events[0].Value != value {
			t.Errorf("%s: %+v, %+v", name, res, events)
		}

		inverted, _ := b.gated(plan.Condition{File: at(name), Not: true})
		if inverted.Outcome == want {
			t.Errorf("not %s: %+v", name, inverted)
		}
	}

	if res, _ := b.gated(plan.Condition{File: at("in/a.csv"), Not: true}); !strings.HasPrefix(res.Error, `gate: not file "`) || !strings.HasSuffix(res.Error, `gave present (rouse.yaml:14)`) {
		t.Errorf("%s", res.Error)
	}
	if res, _ := b.gated(plan.Condition{File: at("in/**/*.csv"), Timeout: time.Nanosecond}); res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "it took longer than 1ns") {
		t.Errorf("%+v", res)
	}
	if os.Getuid() <= 0 {
		return // root and Windows can read every folder
	}

	if err := os.Chmod(at("in/deep"), 0); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.Chmod(at("in/deep"), 0o700) })
	for name, want := range map[string]domain.Outcome{"in/**/*.pdf": domain.OutcomeError, "in/deep/er/b.pdf": domain.OutcomeError, "in/**/*.csv": domain.OutcomeSuccess} {
		if res, _ := b.gated(plan.Condition{File: at(name)}); res.Outcome != want {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestConditionsAreCheckedOnce checks that conditions are not checked again after a run has begun.
// They are checked again if they were never all checked.
func TestConditionsAreCheckedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	flag := filepath.Join(b.dir, "flag")
	gates := []plan.Condition{{SQL: "select 1", Where: "rouse.yaml:3"}, {File: flag, Where: "rouse.yaml:4"}}
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", When: gates, Playbook: []playbook.Call{{Name: "file_read", With: map[string]any{"path": "later.txt"}}}}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	first := b.run(id) // fails, because the file does not exist yet
	if first.Outcome != domain.OutcomeError || len(b.gateEvents(id)) != 2 {
		t.Fatalf("%+v, %+v", first, b.gateEvents(id))
	}
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}

	first.RetryAt = time.Now()
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, first); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "work", "later.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || len(b.gateEvents(id)) != 2 {
		t.Errorf("%+v, %+v", res, b.gateEvents(id))
	}

	// The attempt was interrupted before all conditions were checked, so the next attempt checks
	// them.
	id = b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	_, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ledger.Interrupt(t.Context(), a, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if res := b.run(id); res.Outcome != domain.OutcomeSkipped || !strings.HasSuffix(res.Error, "gave absent (rouse.yaml:4)") {
		t.Errorf("%+v", res)
	}

	// A condition could not be checked, and the run is retried. The conditions must be checked
	// again.
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", When: []plan.Condition{{SQL: "select 1"}, {SQL: "select count(*) from log"}}, Playbook: []playbook.Call{{Name: "todo"}}}
	id = b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	res := b.run(id)
	if res.Outcome != domain.OutcomeError || !strings.Contains(res.Error, "no such table: log") {
		t.Fatalf("%+v", res)
	}

	res.RetryAt = time.Now()
	if err := b.ledger.Finish(t.Context(), ledger.Attempt{Run: id, Number: 1}, res); err != nil {
		t.Fatal(err)
	}

	b.table()
	if res := b.run(id); res.Outcome != domain.OutcomeSkipped || !strings.Contains(res.Error, "gave 0") {
		t.Errorf("%+v", res)
	}
}

// TestWhichRunsCheckConditions checks that conditions do not apply to runs with files or changes,
// or to runs without a job.
func TestWhichRunsCheckConditions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := filepath.Join(b.dir, "a.csv")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	file := ledger.TriggerDetail{File: &ledger.File{Path: path, Name: "a.csv", Size: 1, ModTime: info.ModTime()}}
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", When: []plan.Condition{{SQL: "select 0"}}, Playbook: []playbook.Call{{Name: "todo", With: map[string]any{"markdown": "x"}}}}
	for i, c := range []struct {
		request ledger.Request
		want    domain.Outcome
	}{
		{ledger.Request{Job: "j", Trigger: domain.TriggerSchedule}, domain.OutcomeSkipped},
		{ledger.Request{Job: "j", Trigger: domain.TriggerManual}, domain.OutcomeSkipped},
		{ledger.Request{Job: "j", Trigger: domain.TriggerAPI}, domain.OutcomeSkipped},
		{ledger.Request{Job: "j", Trigger: domain.TriggerWatch, Detail: file}, domain.OutcomeSuccess},
		{ledger.Request{Job: "j", Trigger: domain.TriggerManual, Detail: file}, domain.OutcomeSuccess},
		{ledger.Request{Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{Tool: "todo", Args: json.RawMessage(`{"markdown":"x"}`)}}, domain.OutcomeSuccess},
		{ledger.Request{Trigger: domain.TriggerManual, Detail: ledger.TriggerDetail{Prompt: "x"}}, domain.OutcomeSuccess},
	} {
		c.request.Agent = "clerk"
		accepted, err := b.ledger.Enqueue(t.Context(), c.request)
		if err != nil {
			t.Fatal(err)
		}
		if res := b.run(accepted[0].Run); res.Outcome != c.want {
			t.Errorf("%d: %+v", i, res)
		}
	}
}

// TestStopDuringACondition checks that a slow condition is abandoned without a record if the run
// must end.
func TestStopDuringACondition(t *testing.T) {
	t.Parallel()
	needShell(t)
	b := setup(t)
	b.plan.Jobs["j"] = plan.Job{Name: "j", Agent: "clerk", Prompt: "x", When: []plan.Condition{{Command: []string{"sleep", "1000"}, Timeout: time.Minute}}}
	b.runner.Set(b.plan)
	id := b.enqueue(ledger.Request{Job: "j", Agent: "clerk"})
	run, a, err := b.ledger.StartAttempt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}

	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	begin := time.Now()
	time.AfterFunc(100*time.Millisecond, func() { cancel(enough) })
	res, err := b.runner.Execute(ctx, run, a)
	if !errors.Is(err, enough) || time.Since(begin) > 10*time.Second || len(b.gateEvents(id)) > 0 || len(b.server.Requests()) > 0 {
		t.Errorf("%+v (%v) after %s", res, err, time.Since(begin))
	}
}
