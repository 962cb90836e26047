package ledger_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/budget"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/integrity"
	"rouse/internal/ledger/outbox"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/wake"
)

// must0 fails the test if err is not nil.
func must0(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// auditedLedger creates a ledger with rows for every kind of check.
func auditedLedger(t *testing.T, dir string) {
	t.Helper()
	l, ctx := openIn(t, dir), t.Context()
	must0(t, l.BeginEpoch(ctx, 0))
	now := time.Now()
	_, err := l.SyncJobs(ctx, now.Add(-time.Hour), []ledger.JobSpec{{Name: "j", Agent: "a", ScheduleHash: "1"}})
	must0(t, err)
	due := func(ago time.Duration, decision domain.Decision) ledger.Due {
		return ledger.Due{Job: "j", Agent: "a", Nominal: now.Add(-ago), Actual: now.Add(-ago), Decision: decision, Overlap: domain.OverlapAllow}
	}
	rows, err := l.RecordDue(ctx, now, []ledger.Due{due(2*time.Minute, domain.DecisionRun), due(time.Minute, domain.DecisionMissed)}, map[string]time.Time{"j": now})
	must0(t, err)

	// A run with a step that costs money, a call, and artifacts of both sizes, in its second
	// attempt.
	run := rows[0].Run
	_, a, err := l.StartAttempt(ctx, run)
	must0(t, err)
	must0(t, l.Interrupt(ctx, a, "killed", nil))
	_, a, err = l.StartAttempt(ctx, run)
	must0(t, err)
	must0(t, l.Steps.StartStep(ctx, a, steps.Step{Number: 1, StartedAt: now}))
	id, _, err := l.Budget.Reserve(ctx, a, budget.Reservation{Step: 1, Day: now.AddDate(0, 0, -3).Format(time.DateOnly), Agent: "a", Job: "j", Usage: ledger.Usage{TokensIn: 10, CostMicroUSD: 50}})
	must0(t, err)
	used := ledger.Usage{TokensIn: 7, TokensOut: 2, CostMicroUSD: 30}
	_, err = l.Budget.Settle(ctx, id, used, "")
	must0(t, err)
	must0(t, l.Steps.FinishStep(ctx, a, steps.Step{Number: 1, Usage: used, StartedAt: now, FinishedAt: now, Message: json.RawMessage(`"` + strings.Repeat("long ", 20_000) + `"`)}))
	must0(t, l.Steps.StartCall(ctx, a, ledger.Call{Step: 1, Index: 0, ID: "c", Key: "k", Tool: "t", Args: json.RawMessage(`{}`), Effect: domain.EffectRead, StartedAt: now}))
	must0(t, l.Steps.FinishCall(ctx, a, ledger.Call{Step: 1, Index: 0, State: domain.CallDone, Envelope: json.RawMessage(`{}`), StartedAt: now, FinishedAt: now}))
	for key, size := range map[string]int{"small": 10, "large": 200_000} {
		_, err := l.Artifacts.Add(ctx, a, artifact.Artifact{Agent: "a", Key: key, Name: key}, []byte(strings.Repeat("x", size)))
		must0(t, err)
	}
	must0(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess, Exit: domain.ExitEnded, Steps: 1, Calls: 1, Usage: used, Notices: []ledger.Notice{{Run: run, Channel: "c", Title: "done"}}}))

	// A claimed file, and a run that asks a question.
	accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerWatch, Claim: &claim.Claim{Job: "j", Path: "/in/1", Hash: "h"}}, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual})
	must0(t, err)
	_, a, err = l.StartAttempt(ctx, accepted[0].Run)
	must0(t, err)
	must0(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	_, a, err = l.StartAttempt(ctx, accepted[1].Run)
	must0(t, err)
	must0(t, l.Finish(ctx, a, ledger.Result{Wait: &inbox.Question{Title: "Go on?", Expires: time.Hour}}))
	failAndBlock(t, l)
	_, err = l.Wakes.Set(ctx, wake.Wake{Agent: "a", At: time.Now().Add(time.Hour), AskedAt: time.Now().Add(time.Hour), Priority: "normal", ScheduledBy: ledger.ByUser}, wake.Usage{})
	must0(t, err)
	must0(t, l.Close())
}

// failAndBlock leaves a closed incident, an open incident, a blocked run, and a run that was
// blocked.
func failAndBlock(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	ctx := t.Context()
	begin := func() ledger.Attempt {
		accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual})
		must0(t, err)
		_, a, err := l.StartAttempt(ctx, accepted[0].Run)
		must0(t, err)
		return a
	}
	tell := &incident.EndNotices{Notices: []incident.EndNotice{{Notice: ledger.Notice{Job: "j", Channel: "c", Title: "told"}, Every: 1}}}
	for _, outcome := range []domain.Outcome{domain.OutcomeError, domain.OutcomeError, domain.OutcomeSuccess, domain.OutcomeTimeout} {
		must0(t, l.Finish(ctx, begin(), ledger.Result{Outcome: outcome, Tell: tell}))
	}
	open, err := l.Incidents.List(ctx, incident.Filter{})
	must0(t, err)
	_, err = l.Incidents.Acknowledge(ctx, open[0].ID, "seen")
	must0(t, err)
	must0(t, l.Outbox.Append(ctx, ledger.Notice{Key: outbox.FallbackKey + "1", Job: "j", Channel: "other", Title: "told", Incident: open[0].ID}))

	by := []ledger.Obstacle{{Kind: "secret", Source: "secret/api", Text: "the secret api is not there"}}
	accepted, err := l.Enqueue(ctx, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual}, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerManual})
	must0(t, err)
	must0(t, l.HoldRuns(ctx, ledger.Hold{Run: accepted[0].Run, By: by}, ledger.Hold{Run: accepted[1].Run, By: by}))
	must0(t, l.ReleaseRuns(ctx, accepted[1].Run))
}

// broken returns the names and messages of the checks that report violations in a closed ledger.
func broken(t *testing.T, dir string) (checks []string, texts []string) {
	t.Helper()
	l, err := ledger.OpenReadOnly(t.Context(), ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")}, &ledger.ReadOnlyError{Why: "it is audited"})
	must0(t, err)
	defer func() { must0(t, l.Close()) }()
	must0(t, integrity.Audit(t.Context(), l.DB, l.Blobs, integrity.Options{Begin: func(integrity.Check) {}, Found: func(v integrity.Violation) error {
		if !slices.Contains(checks, v.Check) {
			checks = append(checks, v.Check)
		}
		texts = append(texts, v.Check+": "+v.Text)
		return nil
	}}))
	return checks, texts
}

// withoutKeys returns SQL that removes the keys of a table, so that it accepts duplicate rows as
// after damage of its index.
func withoutKeys(table string) string {
	return "create table copied as select * from " + table + "; drop table " + table + "; alter table copied rename to " + table + ";"
}

// TestAuditFindsDamage checks that each damage is found by the check for it, and by no other check.
func TestAuditFindsDamage(t *testing.T) {
	t.Parallel()
	sound := t.TempDir()
	auditedLedger(t, sound)
	if checks, texts := broken(t, sound); len(checks) > 0 {
		t.Fatalf("nothing is wrong yet: %q", texts)
	}

	damages := map[string][]string{
		"occurrence-once":    {withoutKeys("occurrences") + "insert into occurrences select * from occurrences where decision = 'missed'"},
		"occurrence-run":     {"update occurrences set run = 0 where decision = 'run'; update runs set key = 'x' where id = 1", "update occurrences set decision = 'perhaps' where decision = 'missed'"},
		"occurrence-one-run": {"update occurrences set run = 1"},
		"run-occurrence":     {"update occurrences set run = 0, decision = 'skipped' where decision = 'run'"},
		"watermark":          {"update jobs set watermark = watermark - 90000"},
		"claim-once":         {"insert into runs (key, job, agent, triggered_by, detail, state, outcome, queued_at, finished_at) values ('file/1/2', 'j', 'a', 'manual', '{}', 'finished', 'success', 1, 2)"},
		"claim-run":          {"update claims set outcome = ''", "update claims set outcome = 'error'", "update claims set outcome = '', run = 99"},
		"wake-one":           {withoutKeys("slots") + "insert into slots select * from slots"},
		"epochs":             {"update epochs set last_run = 5 where n = 2", "update epochs set last_run = first_run + 9 where n = 1"},
		"run-state":          {"update runs set outcome = '' where id = 1", "update runs set finished_at = 0 where id = 1", "update runs set waiting_for = 'rain' where id = 1"},
		"run-times":          {"update runs set finished_at = started_at - 1 where id = 1"},
		"attempt-numbers":    {"update attempts set number = 0 where run = 1 and number = 1"},
		"attempt-fence":      {"update attempts set state = 'running', finished_at = 0 where run = 1 and number = 1", "update attempts set finished_at = 0 where run = 1 and number = 2"},
		"attempt-order":      {"update attempts set started_at = 5, finished_at = 10 where run = 1 and number = 2; update runs set started_at = 5 where id = 1"},
		"call-ended":         {"update calls set state = 'running'"},
		"call-step":          {"update calls set step = 9"},
		"run-rows":           {"insert into file_ops (run, agent, batch, at, type, root, path, after_hash) values (99, 'a', 'b', 1, 'write', '/', '/x', '')", "insert into artifacts select 99, 99, job, agent, chain, 'n', at, 'n', '', 1, 0, size, hash, content, 0, '', '', '', '', '', '', 0, 0 from artifacts where name = 'small'"},
		"event-numbers":      {"delete from events where run = 1 and seq = 2"},
		"question-asked":     {"update inbox set state = 'withdrawn'"},
		"question-needed":    {"update runs set state = 'finished', waiting_for = '', outcome = 'success', finished_at = started_at where state = 'waiting'"},
		"notice-run":         {"update outbox set run = 99", "update outbox set state = 'lost'"},
		"review-run":         {"insert into workspaces (agent, skill, name, status, status_by, state, lock_version, review, created_at, updated_at) values ('a', 's', 'n', 'active', 'user', '{}', 1, 99, 1, 1)"},
		"spent-run":          {"update runs set cost_micro_usd = 31 where id = 1", "update runs set tokens_in = 0 where id = 1"},
		"spent-month":        {"update spending set cost_micro_usd = cost_micro_usd - 1 where length(period) = 7", "update spending set tokens = 0 where scope = 'job' and length(period) = 7"},
		"spent-day":          {"update spending set cost_micro_usd = 31 where scope = 'daemon'", "update spending set tokens = 1000 where scope = 'job'", "delete from spending where scope = 'agent'"},
		"spent-steps":        {"update spending set cost_micro_usd = 29"},
		"reserved-run":       {"insert into reservations (run, attempt, step, day, agent, job, tokens_in, tokens_out, cost_micro_usd, at) values (1, 2, 1, '1999-01-01', 'a', 'j', 0, 0, 0, 1)"},
		"reserved-day":       {"update spending set reserved_tokens = 5"},
		"incident-one":       {withoutKeys("incidents") + "insert into incidents select * from incidents where closed_at = 0; update outbox set incident = 0"},
		"incident-state": {"update incidents set closed_at = 0 where closed_at <> 0", "update incidents set closed_at = last_at + 1 where closed_at = 0", "update incidents set failures = 0 where closed_at = 0",
			"update incidents set last_run = 0 where closed_at = 0", "update runs set job = 'k' where id = (select max(closed_by) from incidents)", "update incidents set acked_at = 0"},
		"incident-closed": {"update incidents set closed_by = 4 where closed_by <> 0"},
		"incident-told":   {"update incidents set told = told - 1 where closed_at <> 0"},
		"incident-times":  {"update incidents set closed_at = 5 where closed_at <> 0", "update incidents set last_at = 5 where closed_at = 0", "update incidents set acked_at = 5 where acked_at <> 0"},
		"run-blocked": {"update runs set blocked_until = 0 where id = 1; update runs set blocked_since = 1, blocked_by = '[]' where id = 1", "update runs set blocked_by = '' where blocked_by <> ''",
			"update runs set blocked_since = 0 where blocked_since <> 0"},
		"blocked-times": {"update runs set blocked_until = 5 where blocked_until <> 0", "update obstacles set over_at = 5"},
		"value-owner":   {"delete from blobs"},
		"artifact":      {"update artifacts set content = 'eXl5' where name = 'small'", "update artifacts set content = '?' where name = 'small'", "update artifacts set size = 11 where name = 'small'"},
	}

	for check, statements := range damages {
		for _, statement := range statements {
			t.Run(check, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				must0(t, os.CopyFS(dir, os.DirFS(sound)))
				db, err := sql.Open("sqlite", filepath.Join(dir, "ledger.db"))
				must0(t, err)
				_, err = db.ExecContext(t.Context(), statement)
				must0(t, err)
				must0(t, db.Close())
				if checks, texts := broken(t, dir); len(checks) != 1 || checks[0] != check {
					t.Errorf("after %s: %q", statement, texts)
				}
			})
		}
	}

	t.Run("each row", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		must0(t, os.CopyFS(dir, os.DirFS(sound)))
		db, err := sql.Open("sqlite", filepath.Join(dir, "ledger.db"))
		must0(t, err)
		_, err = db.ExecContext(t.Context(), "insert into deliveries (run, body) values (98, ''), (99, '')")
		must0(t, errors.Join(err, db.Close()))
		if _, texts := broken(t, dir); len(texts) != 2 || !strings.Contains(texts[0], "98") || !strings.Contains(texts[1], "99") {
			t.Errorf("of two rows without their runs: %q", texts)
		}
	})

	files := map[string]func(path string) error{
		"gone":    os.Remove,
		"another": func(path string) error { return os.WriteFile(path, []byte("another"), 0o600) },
	}
	for name, damage := range files {
		t.Run("value-file/"+name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must0(t, os.CopyFS(dir, os.DirFS(sound)))
			found, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*"))
			must0(t, err)
			must0(t, damage(found[0]))
			if checks, texts := broken(t, dir); len(texts) != 1 || checks[0] != "value-file" {
				t.Errorf("%q", texts)
			}
		})
	}
	t.Run("intact", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		must0(t, os.CopyFS(dir, os.DirFS(sound)))
		db, err := sql.Open("sqlite", filepath.Join(dir, "ledger.db"))
		must0(t, err)
		var page, size int64
		must0(t, db.QueryRowContext(t.Context(), "select rootpage from sqlite_schema where name = 'inbox_by_hash'").Scan(&page))
		must0(t, db.QueryRowContext(t.Context(), "pragma page_size").Scan(&size))
		must0(t, db.Close())
		f, err := os.OpenFile(filepath.Join(dir, "ledger.db"), os.O_WRONLY, 0)
		must0(t, err)
		_, err = f.WriteAt([]byte(strings.Repeat("\xff", 64)), (page-1)*size)
		must0(t, err)
		must0(t, f.Close())
		if checks, texts := broken(t, dir); len(checks) != 1 || checks[0] != "intact" {
			t.Errorf("%q", texts)
		}
	})

	tried := map[string]bool{"value-file": true, "intact": true}
	for check := range damages {
		tried[check] = true
	}
	for _, c := range integrity.Checks() {
		if !tried[c.Name] {
			t.Errorf("no damage is tried for the check %s", c.Name)
		}
	}
}

// TestAuditWhileValuesAreRemoved checks that a value that is removed with its runs during the audit
// is not reported.
func TestAuditWhileValuesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	auditedLedger(t, dir)
	l := openIn(t, dir)
	must0(t, integrity.Audit(t.Context(), l.DB, l.Blobs, integrity.Options{
		Begin: func(c integrity.Check) {
			if c.Name == "value-file" {
				must0(t, errors.Join(l.Exec(t.Context(), "delete from blobs"), os.RemoveAll(filepath.Join(dir, "blobs"))))
			}
		},
		Found: func(v integrity.Violation) error {
			t.Errorf("%s: %s", v.Check, v.Text)
			return nil
		},
	}))
}
