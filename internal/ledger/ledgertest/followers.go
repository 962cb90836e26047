package ledgertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/runs"
)

func follows(job, after string, on ...domain.Outcome) ledger.Successor {
	return ledger.Successor{Job: job, Agent: "of-" + job, After: after, Outcomes: on}
}

// followersOf returns the runs that were queued after other runs, each with the run it follows.
func followersOf(t *testing.T, l *ledger.Ledger) (out []string) {
	t.Helper()
	for _, r := range must[[]ledger.Run](t)(l.Runs.List(t.Context(), runs.Filter{Trigger: domain.TriggerAfter})) {
		var d ledger.TriggerDetail
		ok(t, json.Unmarshal(r.Detail, &d))
		if r.Key != ledger.FollowerKey(d.After.Run, r.Job) || r.Agent != "of-"+r.Job {
			t.Errorf("a run that follows: %+v", r)
		}
		out = append(out, fmt.Sprintf("%s after %s %d (%s)", r.Job, d.After.Job, d.After.Run, d.After.Outcome))
	}
	slices.Sort(out)
	return out
}

// followers tests that the end of a run queues its successors in the same transaction, once for
// each run. They get the results of the run, and are queued only for the outcomes they are
// configured for.
func followers(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	ok(t, l.SetSuccessors(ctx, []ledger.Successor{
		follows("report", "import", domain.OutcomeSuccess), follows("alarm", "import", domain.OutcomeError, domain.OutcomeCancelled), follows("last", "report", domain.OutcomeSuccess),
	}))

	end := func(run int64, res ledger.Result) {
		t.Helper()
		ok(t, l.Finish(ctx, start(t, l, run), res)) //nolint:contextcheck // start has that of the test
	}
	expect := func(want ...string) {
		t.Helper()
		if got := followersOf(t, open(t)); !slices.Equal(got, want) {
			t.Errorf("followed:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}

	// A successor gets the artifacts and the taint of the run.
	first := enqueue(t, l, manual("import"))[0].Run
	a := start(t, l, first)
	ok(t, l.Labels.RecordTaint(ctx, a, label.TaintUpdate{Taint: "AB"}))
	must[artifact.Artifact](t)(l.Artifacts.Add(ctx, a, artifact.Artifact{Agent: "a", Key: "k", Name: "sums.csv", Description: "sums"}, []byte("1;2")))
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "12 rows"}))
	expect(fmt.Sprintf("report after import %d (success)", first))
	report, found, err := l.Runs.ByKey(ctx, ledger.FollowerKey(first, "report"))
	ok(t, err)
	var d ledger.TriggerDetail
	ok(t, json.Unmarshal(report.Detail, &d))
	if !found || report.Taint != "AB" || report.State != domain.StateQueued || d.After.Summary != "12 rows" || len(d.After.Artifacts) != 1 || d.After.Artifacts[0].Name != "sums.csv" || d.After.Artifacts[0].Size != 3 {
		t.Errorf("it begins with %+v (%+v)", d.After, report)
	}

	// A successor can have successors, too.
	end(report.ID, ledger.Result{Outcome: domain.OutcomeSuccess})
	expect(fmt.Sprintf("last after report %d (success)", report.ID), fmt.Sprintf("report after import %d (success)", first))

	// The last outcome counts: a failed attempt that is retried queues no successor. A run retried
	// by a user queues each successor at most once.
	failed := enqueue(t, l, manual("import"))[0].Run
	end(failed, ledger.Result{Outcome: domain.OutcomeError, RetryAt: noon})
	end(failed, ledger.Result{Outcome: domain.OutcomeError, Error: "no disk"})
	alarm := fmt.Sprintf("alarm after import %d (error)", failed)
	had := followersOf(t, l)
	if len(had) != 3 || had[0] != alarm {
		t.Fatalf("after an error: %q", had)
	}
	for range 2 {
		must[ledger.Run](t)(l.Retry(ctx, failed))
		end(failed, ledger.Result{Outcome: domain.OutcomeSuccess})
	}
	expect(append(had[:3:3], fmt.Sprintf("report after import %d (success)", failed))...)

	// A run that is cancelled before it begins counts as ended. A dry run does not, and runs of
	// other jobs have no successors.
	cancelled := enqueue(t, l, manual("import"))[0].Run
	must[ledger.Run](t)(l.RequestCancel(ctx, cancelled, "not needed"))
	had = followersOf(t, l)
	if !slices.Contains(had, fmt.Sprintf("alarm after import %d (cancelled)", cancelled)) {
		t.Errorf("after the end of one that had not begun: %q", had)
	}
	trial := manual("import")
	trial.Detail.DryRun = true
	for _, r := range []ledger.Request{trial, manual("other"), manual("")} {
		end(enqueue(t, l, r)[0].Run, ledger.Result{Outcome: domain.OutcomeSuccess})
	}
	expect(had...)

	// A changed configuration applies to runs that end afterwards.
	ok(t, l.SetSuccessors(ctx, []ledger.Successor{follows("last", "import", domain.OutcomeSuccess)}))
	run := enqueue(t, l, manual("import"))[0].Run
	end(run, ledger.Result{Outcome: domain.OutcomeSuccess})
	ok(t, l.SetSuccessors(ctx, nil))
	end(enqueue(t, l, manual("import"))[0].Run, ledger.Result{Outcome: domain.OutcomeSuccess})
	had = append(had, fmt.Sprintf("last after import %d (success)", run))
	slices.Sort(had)
	expect(had...)
}

// sameFollowers tests that unchanged successors are not written again, and that a change applies
// immediately.
func sameFollowers(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	ok(t, l.SetSuccessors(ctx, []ledger.Successor{follows("b", "import", domain.OutcomeSuccess), follows("c", "import", domain.OutcomeSuccess)}))
	before := l.Changed()
	ok(t, l.SetSuccessors(ctx, []ledger.Successor{follows("c", "import", domain.OutcomeSuccess), follows("b", "import", domain.OutcomeSuccess)}))
	select {
	case <-before:
		t.Error("the same followers in another order were written again")
	default:
	}

	other := follows("b", "import", domain.OutcomeSuccess)
	other.Agent = "another"
	for _, c := range []struct {
		f    ledger.Successor
		want string
	}{
		{other, "another's b"}, {follows("b", "import", domain.OutcomeSuccess), "of-b's b"}, {follows("b", "import", domain.OutcomeError), ""},
		{follows("b", "import", domain.OutcomeSuccess), "of-b's b"}, {follows("a", "import", domain.OutcomeSuccess), "of-a's a"}, {follows("a", "export", domain.OutcomeSuccess), ""},
	} {
		ok(t, l.SetSuccessors(ctx, []ledger.Successor{c.f}))
		run := enqueue(t, l, manual("import"))[0].Run
		ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSuccess}))
		var got string
		for _, r := range must[[]ledger.Run](t)(l.Runs.List(ctx, runs.Filter{Trigger: domain.TriggerAfter, After: run})) {
			got += r.Agent + "'s " + r.Job
		}
		if got != c.want {
			t.Errorf("%+v: followed by %q, want %q", c.f, got, c.want)
		}
	}
}

// followersRace tests that if two processes end a run, one of them succeeds and the successors are
// queued once.
func followersRace(t *testing.T, open Open) {
	two, ctx := [2]*ledger.Ledger{open(t), open(t)}, t.Context()
	ok(t, two[0].SetSuccessors(ctx, []ledger.Successor{follows("report", "import", domain.OutcomeSuccess, domain.OutcomeCancelled)}))
	for range 20 {
		run := enqueue(t, two[0], manual("import"))[0].Run
		a := start(t, two[1], run)
		atOnce(two, func(i int, l *ledger.Ledger) error {
			if i == 0 {
				return l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess})
			}
			return l.Interrupt(ctx, a, "gone", &ledger.Result{Outcome: domain.OutcomeCancelled})
		})
	}
	if got := followersOf(t, two[0]); len(got) != 20 || len(slices.Compact(got)) != 20 {
		t.Errorf("20 runs ended, and were followed by %d: %q", len(got), got)
	}
}
