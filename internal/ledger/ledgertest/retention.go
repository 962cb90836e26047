package ledgertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/budget"
	"rouse/internal/ledger/claim"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/steps"
)

const day = 24 * time.Hour

// keepLong returns a retention of 90 days for the job "long", and of 30 days for other jobs.
func keepLong(job string) time.Duration {
	if job == "long" {
		return 90 * day
	}
	return 30 * day
}

// oldRecord records occurrences of three jobs and events of two jobs, up to 81 days before now. It
// returns a run that has an old event.
func oldRecord(t *testing.T, l *ledger.Ledger, now time.Time) int64 {
	t.Helper()
	ctx := t.Context()
	ago := func(days float64) time.Time { return now.Add(-time.Duration(days * float64(day))) }
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, ago(99), []ledger.JobSpec{{Name: "j", ScheduleHash: "1"}, {Name: "long", ScheduleHash: "1"}, {Name: "behind", ScheduleHash: "1"}}))
	instants := []float64{60, 31, 30.001, 30, 29.9, 1}
	var all []ledger.Due
	for _, job := range []string{"j", "long", "behind"} {
		for _, days := range instants {
			all = append(all, decided(due(job, ago(days), "skip"), domain.DecisionMissed, ""))
		}
	}

	over, reaching := decided(due("j", ago(80), "skip"), domain.DecisionMissed, "over"), decided(due("j", ago(81), "skip"), domain.DecisionMissed, "reaching")
	// The first stretch is completely old. The second reaches into the retention period.
	over.Through, reaching.Through, reaching.Instants = ago(31), ago(29), 1000
	all = append(all, over, reaching)
	must[[]runs.Occurrence](t)(l.RecordDue(ctx, now, all, map[string]time.Time{"j": now, "long": now, "behind": ago(50)}))

	for _, job := range []string{"j", "", "unknown"} {
		for _, days := range []float64{50, 31, 29} {
			ok(t, l.Events.Append(ctx, ledger.Event{Kind: "watch.degraded", Job: job, At: ago(days)}))
		}
	}

	// Events of a run are deleted with their run, however old they are.
	run := enqueue(t, l, manual("j"))[0].Run
	ok(t, l.Events.Append(ctx, ledger.Event{Kind: "of a run", Job: "j", Run: run, At: ago(50)}))
	return run
}

// pruneTime tests that old occurrences and events are deleted unless they are still needed.
func pruneTime(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	now := time.Now().Add(100 * day)
	run := oldRecord(t, l, now)
	removed := must[int](t)(l.Maint.Prune(ctx, now, keepLong))
	for range 2 { // the second time has no effect
		if removed != 0 {
			t.Errorf("%d runs removed", removed)
		}

		for job, want := range map[string]string{"j": "1 29.9 30 81", "long": "1 29.9 30 30.001 31 60", "behind": "1 29.9 30 30.001 31"} {
			var left []string
			for _, o := range rows(t, l, job, time.Time{}, now) {
				left = append(left, fmt.Sprintf("%.5g", now.Sub(o.Nominal).Hours()/24))
			}
			if got := strings.Join(left, " "); got != want {
				t.Errorf("%s: instants of %s days ago are left, want %s", job, got, want)
			}
		}

		var events []string
		for _, e := range must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{})) {
			if e.Kind == "watch.degraded" || e.Kind == "of a run" {
				events = append(events, fmt.Sprintf("%s %.0f", e.Job, now.Sub(e.At).Hours()/24))
			}
		}
		if got := strings.Join(events, ", "); got != "j 29,  29, unknown 29, j 50" {
			t.Errorf("events left: %s", got)
		}

		removed = must[int](t)(l.Maint.Prune(ctx, now, keepLong))
	}

	// The watermark is later than the deleted occurrence, so it does not come due again.
	st := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, now, []ledger.JobSpec{{Name: "j", ScheduleHash: "1"}}))["j"]
	if !st.Watermark.Equal(now) {
		t.Errorf("the watermark after the retention: %+v", st)
	}
	if _, err := l.Runs.Get(ctx, run); errors.Is(err, ledger.ErrNotFound) {
		t.Error("an unfinished run was removed")
	}
}

// pruneMany tests deletions that need more than one transaction.
func pruneMany(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	const n = 4500
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, noon, []ledger.JobSpec{{Name: "j", ScheduleHash: "1"}}))
	all := make([]ledger.Due, n)
	for i := range all {
		all[i] = decided(due("j", noon.Add(time.Duration(i)*time.Second), "skip"), domain.DecisionMissed, "")
	}

	later := noon.Add(n * time.Second)
	must[[]runs.Occurrence](t)(l.RecordDue(ctx, noon, all, map[string]time.Time{"j": later}))
	must[int](t)(l.Maint.Prune(ctx, later.Add(time.Hour), func(string) time.Duration { return time.Hour }))
	if left := rows(t, l, "j", noon, later); len(left) != 0 {
		t.Errorf("%d instants are left", len(left))
	}
	if events := kinds(t, l, event.Filter{Limit: 2 * n}); events != "" {
		t.Errorf("%d bytes of events are left", len(events))
	}
}

// prunePauses tests that old pauses are deleted. The pause of a job is kept until the runs before
// it are deleted. Otherwise earlier failures would count again.
func prunePauses(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	rule := pause.Rule{After: 2}
	for range 2 {
		failing(t, l, "long", domain.OutcomeError, rule)
		failing(t, l, "short", domain.OutcomeError, rule)
	}

	for _, job := range []string{"long", "short"} {
		must[bool](t)(l.Pauses.End(ctx, pause.Job, job))
	}

	setPause(t, l, pause.All, "", day)
	setPause(t, l, pause.Agent, "over", 35*day)
	setPause(t, l, pause.Agent, "on", 0)
	setPause(t, l, pause.Agent, "ended", 0)
	setPause(t, l, pause.Job, "unknown", 35*day)
	must[bool](t)(l.Pauses.End(ctx, pause.Agent, "ended"))

	for _, want := range []string{"long over on unknown", "long on"} {
		time.Sleep(40 * day)
		must[int](t)(l.Maint.Prune(ctx, time.Now(), keepLong))

		var left []string
		for _, p := range pausesFrom(t, l, time.Time{}) {
			left = append(left, p.Name)
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("pauses left: %s, want %s", got, want)
		}
	}

	failing(t, l, "long", domain.OutcomeError, rule)
	if p := pausedJobs(t, l, "long"); len(p) != 1 || p[0].EndedAt.IsZero() {
		t.Errorf("failures from before a resume counted after the retention: %+v", p)
	}
}

func prune(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	drop := ledger.Request{Job: "old", Agent: "a", Trigger: domain.TriggerWatch, Claim: &claim.Claim{Job: "old", Path: "/a", Hash: "h"}}
	old, young, open1 := enqueue(t, l, drop)[0].Run, enqueue(t, l, manual("young"))[0].Run, enqueue(t, l, manual("old"))[0].Run
	for _, run := range []int64{old, young} {
		a := start(t, l, run)
		ok(t, l.Steps.StartStep(ctx, a, steps.Step{Number: 1, StartedAt: now}))
		large, err := json.Marshal(strings.Repeat("x", 100_000))
		ok(t, err)
		ok(t, l.Steps.FinishStep(ctx, a, steps.Step{Number: 1, Message: large}))
		ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	}

	n := must[int](t)(l.Maint.Prune(ctx, now.Add(48*time.Hour), func(job string) time.Duration {
		if job == "old" {
			return 24 * time.Hour
		}
		return 72 * time.Hour
	}))
	if n != 1 {
		t.Errorf("%d runs removed, want 1", n)
	}
	if _, err := l.Runs.Get(ctx, old); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("the old run: %v", err)
	}

	get(t, l, open1)
	if steps := must[[]steps.Step](t)(l.Steps.List(ctx, young)); len(steps[0].Message) < 100_000 {
		t.Error("a value that a kept run shares was removed")
	}
	// Claims are never pruned, because the file may still exist.
	if again := enqueue(t, l, drop)[0]; !again.Blocked {
		t.Errorf("retention made an old file new: %+v", again)
	}
}

// pruneSpending tests that sums are kept for more than a year.
func pruneSpending(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := begin(t, l, "j")
	for _, day := range []string{today, "2026-12-24"} {
		r := reservation(5, 5)
		r.Day = day
		id, _, err := l.Budget.Reserve(ctx, a, r)
		ok(t, err)
		must[[]budget.Spending](t)(l.Budget.Settle(ctx, id, ledger.Usage{CostMicroUSD: 5}, ""))
	}
	keep := func(string) time.Duration { return time.Hour }
	day := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	must[int](t)(l.Maint.Prune(ctx, day.AddDate(0, 0, 399), keep))
	if s := spent(t, l, today, budget.ScopeJob, "j"); s.CostMicroUSD != 5 {
		t.Errorf("not kept: %+v", s)
	}

	must[int](t)(l.Maint.Prune(ctx, day.AddDate(0, 0, 402), keep))
	if s := spent(t, l, today, budget.ScopeJob, "j"); s.CostMicroUSD != 0 {
		t.Errorf("kept for ever: %+v", s)
	}

	// The sum of a month is kept as long as one of its days.
	for _, c := range []struct {
		after              int // in days
		november, december int64
	}{{402, 5, 5}, {435, 0, 5}} {
		must[int](t)(l.Maint.Prune(ctx, day.AddDate(0, 0, c.after), keep))
		for month, want := range map[string]int64{"2026-11": c.november, "2026-12": c.december} {
			if s := spent(t, l, month, budget.ScopeJob, "j"); s.CostMicroUSD != want {
				t.Errorf("%s after %d days: %+v, want %d", month, c.after, s, want)
			}
		}
	}
}

// noticesOutliveRuns tests that a pending notice is delivered even if its run is deleted. It is
// deleted by the next pruning, even if it stays pending.
func noticesOutliveRuns(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	var notices []ledger.Notice
	for _, job := range []string{"j", "gone"} {
		run := enqueue(t, l, manual(job))[0].Run
		ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, Notices: []ledger.Notice{{Run: run, Job: job, Channel: "mail", Title: "failed"}}}))
	}
	notices = must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now().Add(time.Hour), 10))
	if len(notices) != 2 {
		t.Fatalf("%+v", notices)
	}

	now := time.Now().Add(31 * day)
	for i, left := range []int{2, 1, 0} {
		if removed := must[int](t)(l.Maint.Prune(ctx, now.Add(time.Duration(i)*10*day), keepLong)); removed != 2*((2-i)/2) {
			t.Errorf("%d. time: %d runs removed", i+1, removed)
		}
		if i == 0 { // read by its channel before the run was deleted
			notices[0].State, notices[0].Tries = ledger.NoticeDelivered, 1
			ok(t, l.Outbox.Update(ctx, notices[0]))
		}
		if n, found, err := l.Outbox.Last(ctx, "mail"); err != nil || found != (left > 0) || n.Run != 0 {
			t.Errorf("%d. time: %+v, %t (%v)", i+1, n, found, err)
		}
		if pending := len(must[[]ledger.Notice](t)(l.Outbox.Undelivered(ctx, 10))); pending != min(left, 1) {
			t.Errorf("%d. time: %d are pending", i+1, pending)
		}
		Audited(t, l)
	}
}
