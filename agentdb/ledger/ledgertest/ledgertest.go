// Package ledgertest holds every ledger to the same promises, whatever database is under it.
package ledgertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Open opens the same database each time it is called within one test.
type Open func(t *testing.T) *ledger.Ledger

// Run runs the conformance suite; make gives an Open on a new, empty database.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for name, test := range map[string]func(*testing.T, Open){
		"Budget": budget, "BudgetCrash": budgetCrash, "BudgetRace": budgetRace, "PruneSpending": pruneSpending,
		"Inbox": inbox, "InboxEnds": inboxEnds, "Recovery": recovery, "Infos": infos,
		"Approvals": approvals, "ApprovalsTogether": approvalsTogether, "OverTime": overTime, "Definitions": definitions, "Marks": marks, "TaintAtFirst": taintAtFirst,
		"KeyIsOneRun": keyIsOneRun, "Claims": claims, "Overlap": overlap, "DueOnce": dueOnce, "Watermarks": watermarks,
		"Fencing": fencing, "RetryLater": retryLater, "Interrupt": interrupt, "Cancel": cancel, "Retry": retryFinished,
		"Record": record, "Outbox": outbox, "Prune": prune, "Filters": filters, "Survives": survives, "Changed": changed,
		"Race": race, "AnyText": anyText, "CancelIsKept": cancelIsKept, "Took": took, "Unstarted": unstarted,
		"PauseRefused": pauseRefused, "PauseRace": pauseRace, "SlotRace": slotRace, "DueAgain": dueAgain, "DueRace": dueRace, "Stretches": stretches,
		"Burst": burst, "Delayed": delayed, "Crowd": crowd, "SkippedRun": skippedRun, "JobsSync": jobsSync, "PruneMany": pruneMany, "FileOps": fileOps, "Artifacts": artifacts,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}

	Watches(t, fresh)
	// These wait for hours, in a time of their own.
	for name, test := range map[string]func(*testing.T, Open){
		"PauseKept": pauseKept, "PauseCovers": pauseCovers, "PausedInstants": pausedInstants, "Replans": replans,
		"PauseAfterFailures": pauseAfterFailures, "PauseSays": pauseSays, "PauseOrder": pauseOrder, "PrunePauses": prunePauses,
		"SlotLastWins": slotLastWins, "SlotRefused": slotRefused, "SlotUsage": slotUsage, "SlotsKept": slotsKept, "SlotFires": slotFires,
		"SlotEarly": slotEarly, "SlotPaused": slotPaused, "SlotStale": slotStale, "SlotShed": slotShed, "SlotsApart": slotsApart, "SlotText": slotText,
		"Rewind": rewind, "PruneTime": pruneTime, "History": history,
	} {
		t.Run(name, func(t *testing.T) {
			open := fresh(t)
			synctest.Test(t, func(t *testing.T) { test(t, open) })
		})
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func manual(job string) ledger.Request {
	return ledger.Request{Job: job, Agent: "a", Trigger: domain.TriggerManual}
}

func enqueue(t *testing.T, l *ledger.Ledger, reqs ...ledger.Request) []ledger.Accepted {
	t.Helper()
	return must[[]ledger.Accepted](t)(l.Enqueue(t.Context(), reqs...))
}

func start(t *testing.T, l *ledger.Ledger, run int64) ledger.Attempt {
	t.Helper()
	_, a, err := l.StartAttempt(t.Context(), run)
	ok(t, err)
	return a
}

func get(t *testing.T, l *ledger.Ledger, run int64) ledger.Run {
	t.Helper()
	return must[ledger.Run](t)(l.Run(t.Context(), run))
}

func keyIsOneRun(t *testing.T, open Open) {
	l := open(t)
	req := manual("j")
	req.Key = "k"
	first := enqueue(t, l, req, req, manual("j"))
	second := enqueue(t, l, req)
	if !first[0].New || first[1].New || second[0].New || first[0].Run != first[1].Run || first[0].Run != second[0].Run {
		t.Errorf("one key gave several runs: %+v %+v", first, second)
	}
	if !first[2].New || first[2].Run == first[0].Run {
		t.Errorf("a request without a key did not give its own run: %+v", first[2])
	}
}

// claims follows one content through its life: taken, done, seen again, failed, taken over.
func claims(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	drop := ledger.Request{Job: "inbox", Agent: "a", Trigger: domain.TriggerWatch,
		Claim: &ledger.Claim{Job: "inbox", Path: "/in/a.csv", Hash: "h1", Size: 3}}
	one := enqueue(t, l, drop)[0]
	if again := enqueue(t, l, drop)[0]; !again.Blocked || again.Run != one.Run || again.Outcome != "" {
		t.Errorf("an unfinished claim does not block: %+v", again)
	}

	ok(t, l.Finish(ctx, start(t, l, one.Run), ledger.Result{Outcome: domain.OutcomeError, Error: "no"}))
	pending := must[[]ledger.ClaimStatus](t)(l.PendingAfter(ctx, 10))
	if len(pending) != 1 || pending[0].Run != one.Run || pending[0].Outcome != domain.OutcomeError {
		t.Fatalf("the after-move of a finished run is not pending: %+v", pending)
	}

	moved(t, l, pending[0], "/in/failed/a.csv")
	two := enqueue(t, l, drop)[0]
	if !two.New || two.Run == one.Run {
		t.Fatalf("a failed claim blocks: %+v", two)
	}

	ok(t, l.Finish(ctx, start(t, l, two.Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	for _, c := range must[[]ledger.ClaimStatus](t)(l.PendingAfter(ctx, 10)) {
		moved(t, l, c, "/in/done/a.csv")
	}

	if third := enqueue(t, l, drop)[0]; !third.Blocked || third.Outcome != domain.OutcomeSuccess {
		t.Errorf("a done claim does not block: %+v", third)
	}
	if again := must[[]ledger.ClaimStatus](t)(l.PendingAfter(ctx, 10)); len(again) != 1 {
		t.Errorf("the same bytes dropped again get no after-move: %+v", again)
	}

	blocked := 0
	for _, e := range must[[]ledger.Event](t)(l.Events(ctx, ledger.EventFilter{Job: "inbox"})) {
		if e.Kind == "file.blocked" {
			blocked++
		}
	}

	if blocked != 1 {
		t.Errorf("%d file.blocked events, want 1", blocked)
	}

	other := drop
	other.Claim = &ledger.Claim{Job: "inbox", Path: "/in/a.csv", Hash: "h2"}
	if changed := enqueue(t, l, other)[0]; !changed.New {
		t.Errorf("changed bytes did not run: %+v", changed)
	}
}

func due(job string, at time.Time, overlap domain.Overlap) ledger.Due {
	return ledger.Due{Job: job, Agent: "a", Source: "cron", Nominal: at, Actual: at, Decision: domain.DecisionRun, Overlap: overlap}
}

func overlap(t *testing.T, open Open) {
	l, ctx, at := open(t), t.Context(), time.Unix(1_700_000_000, 0).UTC()
	// Two instants per policy: one while the first run is queued, one while it runs.
	cases := []struct {
		policy        domain.Overlap
		queued, while domain.Decision
	}{
		{"skip", "skipped", "skipped"}, {"queue_one", "skipped", "run"}, {"queue_all", "run", "run"}, {"allow", "run", "run"}, {"cancel_previous", "run", "run"},
	}
	for _, c := range cases {
		first := must[[]ledger.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due(string(c.policy), at, c.policy)}, nil))[0]
		second := must[[]ledger.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due(string(c.policy), at.Add(time.Minute), c.policy)}, nil))[0]
		if first.Decision != "run" || second.Decision != c.queued {
			t.Errorf("%s: %s while queued, want %s (%s)", c.policy, second.Decision, c.queued, second.Reason)
		}

		if c.policy == "cancel_previous" {
			if r := get(t, l, first.Run); r.Outcome != domain.OutcomeCancelled {
				t.Errorf("cancel_previous left the queued run %s/%s", r.State, r.Outcome)
			}
			continue
		}

		start(t, l, first.Run)
		if second.Run != 0 {
			_, err := l.RequestCancel(ctx, second.Run, "out of the way")
			ok(t, err)
		}

		third := must[[]ledger.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due(string(c.policy), at.Add(2*time.Minute), c.policy)}, nil))[0]
		if third.Decision != c.while {
			t.Errorf("%s: %s while running, want %s (%s)", c.policy, third.Decision, c.while, third.Reason)
		}
	}
}

// dueOnce: however often an instant is reported, it has one row and one run.
func dueOnce(t *testing.T, open Open) {
	ctx, at := t.Context(), time.Unix(1_700_000_000, 0).UTC()
	l := open(t)
	first := must[[]ledger.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due("j", at, "allow")}, nil))
	for range 3 {
		again := must[[]ledger.Occurrence](t)(l.RecordDue(ctx, at.Add(time.Hour), []ledger.Due{due("j", at, "allow")}, nil))
		if again[0].Run != first[0].Run {
			t.Errorf("an instant got a second run: %+v", again)
		}
	}

	missed := due("j", at.Add(time.Second), "skip")
	missed.Decision, missed.Reason = domain.DecisionMissed, "the machine slept"
	must[[]ledger.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{missed}, nil))
	rows := must[[]ledger.Occurrence](t)(l.Occurrences(ctx, "j", at.Add(-time.Hour), at.Add(time.Hour), 10))
	if len(rows) != 2 || rows[0].Decision != domain.DecisionMissed || rows[0].Reason != "the machine slept" || rows[1].Run != first[0].Run {
		t.Errorf("occurrences: %+v", rows)
	}
}

func watermarks(t *testing.T, open Open) {
	l, ctx, at := open(t), t.Context(), time.Unix(1_700_000_000, 0).UTC()
	spec := ledger.JobSpec{Name: "j", Agent: "a", ScheduleHash: "1"}
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, at, []ledger.JobSpec{spec}))
	later := at.Add(time.Hour)
	must[[]ledger.Occurrence](t)(l.RecordDue(ctx, later, nil, map[string]time.Time{"j": later}))
	must[[]ledger.Occurrence](t)(l.RecordDue(ctx, later, nil, map[string]time.Time{"j": at})) // never backwards
	same := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, later.Add(time.Hour), []ledger.JobSpec{spec}))["j"]
	if !same.Watermark.Equal(later) || !same.Anchor.Equal(at) {
		t.Errorf("an unchanged job lost its place: %+v", same)
	}

	spec.ScheduleHash = "2"
	changed := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, later.Add(2*time.Hour), []ledger.JobSpec{spec}))["j"]
	if !changed.Watermark.Equal(later.Add(2 * time.Hour)) {
		t.Errorf("a changed schedule does not start from now: %+v", changed)
	}
}

// fencing: an attempt that is not the running one changes nothing.
func fencing(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	old := start(t, l, run)
	if _, _, err := l.StartAttempt(ctx, run); !errors.Is(err, ledger.ErrNotClaimable) {
		t.Errorf("a running run was started again: %v", err)
	}

	ok(t, l.Interrupt(ctx, old, "gone", nil))
	current := start(t, l, run)
	now := time.Now()
	writes := map[string]error{
		"Finish":     l.Finish(ctx, old, ledger.Result{Outcome: domain.OutcomeSuccess}),
		"StartStep":  l.StartStep(ctx, old, ledger.Step{Number: 1, StartedAt: now}),
		"FinishStep": l.FinishStep(ctx, old, ledger.Step{Number: 1}),
		"StartCall":  l.StartCall(ctx, old, ledger.Call{Step: 1, Tool: "t", StartedAt: now}),
		"FinishCall": l.FinishCall(ctx, old, ledger.Call{Step: 1}),
		"Interrupt":  l.Interrupt(ctx, old, "again", nil),
	}
	for name, err := range writes {
		if !errors.Is(err, ledger.ErrFenced) {
			t.Errorf("%s by an old attempt: %v, want ErrFenced", name, err)
		}
	}

	ok(t, l.Finish(ctx, current, ledger.Result{Outcome: domain.OutcomeNothing}))
	if err := l.Finish(ctx, current, ledger.Result{Outcome: domain.OutcomeError}); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("a run finished twice: %v", err)
	}
	if r := get(t, l, run); r.Outcome != domain.OutcomeNothing || r.Attempt != 2 || r.Interruptions != 1 {
		t.Errorf("run: %+v", r)
	}
}

func retryLater(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	at := time.Now().Add(time.Hour)
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, Error: "flaky", RetryAt: at, Steps: 2, Usage: ledger.Usage{TokensIn: 5}}))
	if r := get(t, l, run); r.State != domain.StateWaiting || r.WaitingFor != domain.WaitRetry || r.Outcome != "" {
		t.Errorf("run: %+v", r)
	}
	if c := must[[]ledger.Run](t)(l.Claimable(ctx, time.Now(), 0, 10)); len(c) != 0 {
		t.Errorf("claimable before its time: %+v", c)
	}
	if next := must[time.Time](t)(l.NextDue(ctx, time.Now())); next.UnixMilli() != at.UnixMilli() {
		t.Errorf("next due %v, want %v", next, at)
	}

	if c := must[[]ledger.Run](t)(l.Claimable(ctx, at, 0, 10)); len(c) != 1 {
		t.Errorf("not claimable at its time: %+v", c)
	}

	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSuccess, Steps: 3, Usage: ledger.Usage{TokensIn: 7}}))
	if r := get(t, l, run); r.Steps != 5 || r.Usage.TokensIn != 12 || r.Error != "" {
		t.Errorf("what the attempts took does not add up: %+v", r)
	}
}

func interrupt(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	for i, effect := range []domain.Effect{domain.EffectRead, domain.EffectDatabase, domain.EffectWrite, domain.EffectExternal} {
		ok(t, l.StartCall(ctx, a, ledger.Call{Step: 1, Index: i, ID: fmt.Sprint(i), Key: fmt.Sprint(i), Tool: "t", Effect: effect, StartedAt: now}))
	}

	ok(t, l.Interrupt(ctx, a, "the process was killed", nil))
	var states []string
	for _, c := range must[[]ledger.Call](t)(l.Calls(ctx, run)) {
		states = append(states, string(c.State))
	}
	if got := strings.Join(states, " "); got != "interrupted interrupted uncertain uncertain" {
		t.Errorf("calls became: %s", got)
	}
	if r := get(t, l, run); r.State != domain.StateWaiting || r.WaitingFor != domain.WaitResume {
		t.Errorf("run: %+v", r)
	}

	final := ledger.Result{Outcome: domain.OutcomeInterrupted, Error: "three times"}
	ok(t, l.Interrupt(ctx, start(t, l, run), "again", &final))
	if r := get(t, l, run); r.State != domain.StateFinished || r.Outcome != domain.OutcomeInterrupted || r.Interruptions != 2 {
		t.Errorf("run: %+v", r)
	}

	attempts := must[[]ledger.Attempt](t)(l.Attempts(ctx, run))
	if len(attempts) != 2 || attempts[0].State != domain.AttemptInterrupted || attempts[1].State != domain.AttemptInterrupted {
		t.Errorf("attempts: %+v", attempts)
	}
}

func cancel(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	ids := enqueue(t, l, manual("queued"), manual("running"))
	if r := must[ledger.Run](t)(l.RequestCancel(ctx, ids[0].Run, "no need")); r.Outcome != domain.OutcomeCancelled || r.Error != "no need" {
		t.Errorf("a queued run: %+v", r)
	}

	start(t, l, ids[1].Run)
	if r := must[ledger.Run](t)(l.RequestCancel(ctx, ids[1].Run, "no need")); r.State != domain.StateRunning || r.CancelReason != "no need" {
		t.Errorf("a running run: %+v", r)
	}
	if _, err := l.RequestCancel(ctx, 999, "x"); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("an unknown run: %v", err)
	}
}

func retryFinished(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	if _, err := l.Retry(ctx, run); !errors.Is(err, ledger.ErrNotClaimable) {
		t.Errorf("an unfinished run was queued again: %v", err)
	}

	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, Error: "x"}))
	if r := must[ledger.Run](t)(l.Retry(ctx, run)); r.State != domain.StateQueued || r.Outcome != "" || r.Error != "" {
		t.Errorf("run: %+v", r)
	}
	if a := start(t, l, run); a.Number != 2 {
		t.Errorf("attempt %d", a.Number)
	}
}

// record: steps and calls come back as they were written, large values included.
func record(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.UnixMilli(1_700_000_000_123).UTC()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	large, err := json.Marshal(strings.Repeat("ü'\"\n", 30_000))
	ok(t, err)
	step := ledger.Step{Run: run, Attempt: 1, Number: 1, Message: large, Text: "hello", Notices: []string{"[System Notice] x"},
		Usage: ledger.Usage{TokensIn: 1, TokensOut: 2, TokensCached: 3}, StartedAt: now, FinishedAt: now.Add(time.Second)}
	ok(t, l.StartStep(ctx, a, step))
	ok(t, l.FinishStep(ctx, a, step))
	call := ledger.Call{Run: run, Attempt: 1, Step: 1, ID: "c", Key: "1/c", Tool: "t", Args: json.RawMessage(`{"a":1}`), Effect: domain.EffectRead,
		State: domain.CallDone, Envelope: large, StartedAt: now, FinishedAt: now.Add(time.Second)}
	ok(t, l.StartCall(ctx, a, call))
	ok(t, l.FinishCall(ctx, a, call))
	steps := must[[]ledger.Step](t)(l.Steps(ctx, run))
	if fmt.Sprintf("%+v", steps) != fmt.Sprintf("%+v", []ledger.Step{step}) {
		t.Error("the step is not what was written")
	}

	calls := must[[]ledger.Call](t)(l.Calls(ctx, run))
	if fmt.Sprintf("%+v", calls) != fmt.Sprintf("%+v", []ledger.Call{call}) {
		t.Error("the call is not what was written")
	}

	events := must[[]ledger.Event](t)(l.Events(ctx, ledger.EventFilter{Run: run}))
	var kinds []string
	for i, e := range events {
		kinds = append(kinds, e.Kind)
		if e.Seq != i+1 {
			t.Errorf("event %d has number %d", i+1, e.Seq)
		}
	}
	if got := strings.Join(kinds, " "); got != "run.queued run.started step.started step.finished call.started call.finished" {
		t.Errorf("events: %s", got)
	}
}

func outbox(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	n := ledger.Notice{Job: "j", Key: "once", Channel: "desktop", Title: "t", Body: "b"}
	ok(t, l.AppendNotices(ctx, n, n, ledger.Notice{Channel: "desktop", Title: "no key"}, ledger.Notice{Channel: "desktop", Title: "no key"}))
	pending := must[[]ledger.Notice](t)(l.PendingNotices(ctx, time.Now(), 10))
	if len(pending) != 3 || pending[0].Title != "t" {
		t.Fatalf("outbox: %+v", pending)
	}

	later := time.Now().Add(time.Hour)
	pending[0].Tries, pending[0].NextAt, pending[0].Error = 1, later, "no desktop"
	pending[1].State = ledger.NoticeDelivered
	pending[2].State = ledger.NoticeFailed
	for _, n := range pending {
		ok(t, l.MarkNotice(ctx, n))
	}

	if now := must[[]ledger.Notice](t)(l.PendingNotices(ctx, time.Now(), 10)); len(now) != 0 {
		t.Errorf("due before its time: %+v", now)
	}
	if at := must[time.Time](t)(l.NextNotice(ctx, time.Now())); at.UnixMilli() != later.UnixMilli() {
		t.Errorf("next notice at %v, want %v", at, later)
	}
	if left := must[[]ledger.Notice](t)(l.Undelivered(ctx, 10)); len(left) != 2 {
		t.Errorf("undelivered: %+v", left)
	}
}

func prune(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	drop := ledger.Request{Job: "old", Agent: "a", Trigger: domain.TriggerWatch, Claim: &ledger.Claim{Job: "old", Path: "/a", Hash: "h"}}
	old, young, open1 := enqueue(t, l, drop)[0].Run, enqueue(t, l, manual("young"))[0].Run, enqueue(t, l, manual("old"))[0].Run
	for _, run := range []int64{old, young} {
		a := start(t, l, run)
		ok(t, l.StartStep(ctx, a, ledger.Step{Number: 1, StartedAt: now}))
		large, err := json.Marshal(strings.Repeat("x", 100_000))
		ok(t, err)
		ok(t, l.FinishStep(ctx, a, ledger.Step{Number: 1, Message: large}))
		ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess}))
	}

	n := must[int](t)(l.Prune(ctx, now.Add(48*time.Hour), func(job string) time.Duration {
		if job == "old" {
			return 24 * time.Hour
		}
		return 72 * time.Hour
	}))
	if n != 1 {
		t.Errorf("%d runs removed, want 1", n)
	}
	if _, err := l.Run(ctx, old); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("the old run: %v", err)
	}

	get(t, l, open1)
	if steps := must[[]ledger.Step](t)(l.Steps(ctx, young)); len(steps[0].Message) < 100_000 {
		t.Error("a value that a kept run shares was removed")
	}
	if again := enqueue(t, l, drop)[0]; !again.Blocked {
		t.Errorf("retention made an old file new: %+v", again)
	}
}

func filters(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	ids := enqueue(t, l, manual("a"), manual("b"), manual("a"), manual("b"))
	ok(t, l.Finish(ctx, start(t, l, ids[0].Run), ledger.Result{Outcome: domain.OutcomeSuccess}))

	for _, c := range []struct {
		f    ledger.Filter
		want int
	}{
		{ledger.Filter{}, 4}, {ledger.Filter{Job: "a"}, 2}, {ledger.Filter{Outcome: domain.OutcomeSuccess}, 1}, {ledger.Filter{State: domain.StateQueued}, 3},
		{ledger.Filter{Limit: 2}, 2}, {ledger.Filter{Before: ids[1].Run}, 1}, {ledger.Filter{Agent: "nobody"}, 0}, {ledger.Filter{Since: time.Now().Add(time.Hour)}, 0},
	} {
		got := must[[]ledger.Run](t)(l.Runs(ctx, c.f))
		if len(got) != c.want {
			t.Errorf("%+v gave %d runs, want %d", c.f, len(got), c.want)
		}

		for i := 1; i < len(got); i++ {
			if got[i].ID >= got[i-1].ID {
				t.Errorf("%+v: not newest first", c.f)
			}
		}
	}

	if last := must[map[string]ledger.Run](t)(l.LastRuns(ctx)); last["a"].ID != ids[2].Run || last["b"].ID != ids[3].Run {
		t.Errorf("last runs: %+v", last)
	}
	if c := must[ledger.Counts](t)(l.Counts(ctx)); c != (ledger.Counts{Queued: 3}) {
		t.Errorf("counts: %+v", c)
	}
	if r, found, err := l.LastSuccess(ctx, "a"); err != nil || !found || r.ID != ids[0].Run {
		t.Errorf("last success: %+v %v %v", r, found, err)
	}
}

// survives: what was acknowledged is there when the ledger is opened again beside it.
func survives(t *testing.T, open Open) {
	run := enqueue(t, open(t), manual("j"))[0].Run
	if r := get(t, open(t), run); r.State != domain.StateQueued {
		t.Errorf("run: %+v", r)
	}
}

func changed(t *testing.T, open Open) {
	l := open(t)
	before := l.Changed()
	enqueue(t, l, manual("j"))
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()

	select {
	case <-before:
	case <-ctx.Done():
		t.Error("a commit was not announced")
	}

	select {
	case <-l.Changed():
		t.Error("a change was announced that nobody made")
	default:
	}
}
