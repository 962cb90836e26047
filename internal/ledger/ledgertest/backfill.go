package ledgertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
)

// backfill tests that a scheduled time without a run gets one backfill run, however often it is
// requested. Its row records the earlier decision. A scheduled time that has a run does not change.
func backfill(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	at := func(hours int) ledger.Due { return due("j", noon.Add(time.Duration(hours)*time.Hour), "skip") }
	record := func(d ledger.Due, decision domain.Decision, reason string) runs.Occurrence {
		t.Helper()
		return recordDue(t, l, decided(d, decision, reason))
	}

	ran := recordDue(t, l, at(0))
	ok(t, l.Finish(ctx, start(t, l, ran.Run), ledger.Result{Outcome: domain.OutcomeError}))
	record(at(1), domain.DecisionMissed, "no daemon ran")
	record(at(2), domain.DecisionSkipped, "")
	late := recordDue(t, l, at(3))
	ok(t, l.Finish(ctx, start(t, l, late.Run), ledger.Result{Outcome: domain.OutcomeSkipped, Error: "condition: no new file"}))
	recorded(t, l, late.Run, "run.finished", "no new file")
	stretch := decided(at(5), domain.DecisionMissed, "asleep")
	stretch.Through, stretch.Instants = at(9).Nominal, 5
	recordDue(t, l, stretch)

	asked := []ledger.Due{at(0), at(1), at(2), at(3), at(4), at(5), at(7)}
	want := []string{"0: run " + fmt.Sprint(ran.Run) + " ", "1: new backfilled, was missed: no daemon ran", "2: new backfilled, was skipped",
		"3: new backfilled, was skipped: condition: no new file", "4: new backfilled", "5: new backfilled, was missed: asleep", "7: new backfilled"}
	tell := func(all []runs.Occurrence) []string {
		var out []string
		for _, o := range all {
			run := "new"
			if o.Run <= late.Run {
				run = fmt.Sprint("run ", o.Run)
			}
			out = append(out, fmt.Sprintf("%.0f: %s %s", o.Nominal.Sub(noon).Hours(), run, o.Reason))
		}
		return out
	}

	first := must[[]runs.Occurrence](t)(l.Backfill(ctx, noon, asked))
	if got := tell(first); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("backfilled:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	second := must[[]runs.Occurrence](t)(l.Backfill(ctx, noon, asked))
	for i, o := range second {
		if o.Run != first[i].Run || o.Reason != first[i].Reason {
			t.Errorf("asked again: %+v, first %+v", o, first[i])
		}
	}
	for _, o := range first {
		if again := recordDue(t, l, due("j", o.Nominal, "allow")); again.Run != o.Run {
			t.Errorf("the scheduler saw the instant again, and ran it as %d beside %d", again.Run, o.Run)
		}
	}

	r := get(t, l, first[4].Run)
	if r.Trigger != domain.TriggerBackfill || !r.ScheduledAt.Equal(at(4).Nominal) || r.State != domain.StateQueued || !r.Yields() {
		t.Errorf("a backfilled run: %+v", r)
	}

	// If a backfill run is skipped before it begins, its scheduled time can be backfilled again.
	ok(t, l.Finish(ctx, start(t, l, r.ID), ledger.Result{Outcome: domain.OutcomeSkipped, Error: "condition: no new file"}))
	again := must[[]runs.Occurrence](t)(l.Backfill(ctx, noon, []ledger.Due{at(4)}))[0]
	if again.Run == r.ID || again.Reason != "backfilled, was skipped: condition: no new file" {
		t.Errorf("a backfill that was skipped, again: %+v", again)
	}

	// A row is kept as long as its run, even if its scheduled time is long past.
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, noon.Add(100*24*time.Hour), []ledger.JobSpec{{Name: "j", ScheduleHash: "1"}}))
	long := noon.Add(100 * 24 * time.Hour)
	old := must[[]runs.Occurrence](t)(l.Backfill(ctx, long, []ledger.Due{at(11)}))[0]
	must[int](t)(l.Maint.Prune(ctx, long, func(string) time.Duration { return 30 * 24 * time.Hour }))
	if left := rows(t, l, "j", at(11).Nominal, at(11).Nominal); len(left) != 1 || left[0].Run != old.Run {
		t.Errorf("an instant of long ago that was backfilled today: %+v", left)
	}
}

// backfillYields tests that queued backfill runs do not affect overlap decisions. A running
// backfill run counts like any other run.
func backfillYields(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for i, overlap := range []domain.Overlap{domain.OverlapSkip, domain.OverlapQueueOne, domain.OverlapQueueAll, domain.OverlapCancel} {
		job := string(overlap)
		var past []ledger.Due
		for h := range 120 {
			past = append(past, due(job, noon.Add(-time.Duration(h+1)*time.Hour), overlap))
		}
		queued := must[[]runs.Occurrence](t)(l.Backfill(ctx, noon, past))

		o := recordDue(t, l, due(job, noon.Add(time.Duration(i)*time.Minute), overlap))
		if o.Decision != domain.DecisionRun {
			t.Errorf("%s: due beside a queued backfill: %+v", overlap, o)
		}
		if r := get(t, l, queued[0].Run); r.State != domain.StateQueued || r.CancelReason != "" {
			t.Errorf("%s: the backfill is %+v", overlap, r)
		}
	}

	on := must[[]runs.Occurrence](t)(l.Backfill(ctx, noon, []ledger.Due{due("on", noon, "skip")}))[0]
	start(t, l, on.Run)
	if o := recordDue(t, l, due("on", noon.Add(time.Minute), "skip")); o.Decision != domain.DecisionSkipped {
		t.Errorf("due while a backfilled run is on: %+v", o)
	}
}
