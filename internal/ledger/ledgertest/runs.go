package ledgertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/steps"
)

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

// deliveries tests that the payload of a request is stored with its run, whatever its size. A
// repeated delivery has no effect.
func deliveries(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	large := strings.Repeat("ü'\"\n", 30_000) // stored in a file, not in the database
	for i, body := range []string{"", "paid", large} {
		r := ledger.Request{Key: fmt.Sprint("hook/", i), Job: "j", Agent: "a", Trigger: domain.TriggerWebhook, Detail: ledger.TriggerDetail{Webhook: &ledger.Delivery{ID: "1"}}, Body: body}
		first := enqueue(t, l, r)[0]
		r.Body = "other"
		if again := enqueue(t, l, r)[0]; again.New || again.Run != first.Run {
			t.Errorf("sent again: %+v, first %+v", again, first)
		}
		if got := must[string](t)(open(t).Runs.DeliveryBody(ctx, first.Run)); got != body {
			t.Errorf("%d bytes became %d", len(body), len(got))
		}
	}

	other := manual("j")
	other.Body = "of no webhook"
	if got := must[string](t)(l.Runs.DeliveryBody(ctx, enqueue(t, l, other)[0].Run)); got != "" {
		t.Errorf("with a run that no webhook started came %q", got)
	}
}

// fencing tests that an attempt that is not the running one cannot change anything.
func fencing(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	run := enqueue(t, l, manual("j"))[0].Run
	old := start(t, l, run)
	if _, _, err := l.StartAttempt(ctx, run); !errors.Is(err, ledger.ErrNotClaimable) {
		t.Errorf("a running run was started again: %v", err)
	}

	ok(t, l.Interrupt(ctx, old, "gone", nil))
	// From here on, two attempts both act as the running one.
	current := start(t, l, run)
	now := time.Now()
	writes := map[string]error{
		"Finish":     l.Finish(ctx, old, ledger.Result{Outcome: domain.OutcomeSuccess}),
		"StartStep":  l.Steps.StartStep(ctx, old, steps.Step{Number: 1, StartedAt: now}),
		"FinishStep": l.Steps.FinishStep(ctx, old, steps.Step{Number: 1}),
		"StartCall":  l.Steps.StartCall(ctx, old, ledger.Call{Step: 1, Tool: "t", StartedAt: now}),
		"FinishCall": l.Steps.FinishCall(ctx, old, ledger.Call{Step: 1}),
		"Interrupt":  l.Interrupt(ctx, old, "again", nil),
	}
	for name, err := range writes {
		if !errors.Is(err, ledger.ErrFenced) {
			t.Errorf("%s by an old attempt: %v, want ErrFenced", name, err)
		}
	}
	if err := l.Steps.StartStep(ctx, ledger.Attempt{Run: 999, Number: 1}, steps.Step{Number: 1, StartedAt: now}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a step of no run: %v", err)
	}

	// The right attempt is fenced off, too, once it has finished.
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
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, Error: "flaky", RetryAt: at, Steps: 2, Usage: ledger.Usage{TokensIn: 5}, Notices: []ledger.Notice{{Channel: "desktop", Title: "later"}}}))
	recorded(t, l, run, "run.retry", "flaky")
	if n := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10)); len(n) != 1 || n[0].Title != "later" {
		t.Errorf("notices: %+v", n)
	}
	if r := get(t, l, run); r.State != domain.StateWaiting || r.WaitingFor != domain.WaitRetry || r.Outcome != "" {
		t.Errorf("run: %+v", r)
	}
	if c := must[[]ledger.Run](t)(l.Runs.Claimable(ctx, time.Now(), 0, 10)); len(c) != 0 {
		t.Errorf("claimable before its time: %+v", c)
	}
	if next := must[time.Time](t)(l.Runs.NextDue(ctx, time.Now())); next.UnixMilli() != at.UnixMilli() {
		t.Errorf("next due %v, want %v", next, at)
	}

	if c := must[[]ledger.Run](t)(l.Runs.Claimable(ctx, at, 0, 10)); len(c) != 1 {
		t.Errorf("not claimable at its time: %+v", c)
	}

	// The owner can skip the wait.
	if r := must[ledger.Run](t)(l.Retry(ctx, run)); !r.WaitsForRetry() || r.Attempt != 1 {
		t.Errorf("run: %+v", r)
	}
	recorded(t, l, run, "run.queued", `"retry":true`)
	if c := must[[]ledger.Run](t)(l.Runs.Claimable(ctx, time.Now(), 0, 10)); len(c) != 1 {
		t.Errorf("not claimable at once: %+v", c)
	}

	// A partial usage counts, too.
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, RetryAt: time.Now(), Calls: 4}))
	if get(t, l, run).Verified {
		t.Error("a run that waits was verified")
	}
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSuccess, Verified: true, Steps: 3, Usage: ledger.Usage{TokensIn: 7}}))
	if r := get(t, l, run); r.Steps != 5 || r.Calls != 4 || r.Usage.TokensIn != 12 || r.Error != "" || !r.Verified {
		t.Errorf("what the attempts took does not add up: %+v", r)
	}
}

func interrupt(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	for i, effect := range []domain.Effect{domain.EffectRead, domain.EffectDatabase, domain.EffectWrite, domain.EffectExternal} {
		ok(t, l.Steps.StartCall(ctx, a, ledger.Call{Step: 1, Index: i, ID: fmt.Sprint(i), Key: fmt.Sprint(i), Tool: "t", Effect: effect, StartedAt: now}))
	}

	ok(t, l.Interrupt(ctx, a, "the process was killed", nil))
	var states []string
	for _, c := range must[[]ledger.Call](t)(l.Steps.Calls(ctx, run)) {
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

	attempts := must[[]ledger.Attempt](t)(l.Runs.Attempts(ctx, run))
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
	recorded(t, l, ids[1].Run, "run.cancel", "no need")
	if r := must[ledger.Run](t)(l.RequestCancel(ctx, ids[0].Run, "once more")); r.Error != "no need" {
		t.Errorf("a run that is over: %+v", r)
	}
	if asked := must[map[int64]string](t)(l.Runs.Cancelling(ctx)); len(asked) != 1 || asked[ids[1].Run] != "no need" {
		t.Errorf("those that are to be cancelled: %v", asked)
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
	r := must[ledger.Run](t)(l.Retry(ctx, run))
	var d ledger.TriggerDetail
	ok(t, json.Unmarshal(r.Detail, &d))
	if r.State != domain.StateQueued || r.Outcome != "" || r.Error != "" || !d.Retried {
		t.Errorf("run: %+v, %+v", r, d)
	}
	recorded(t, l, run, "run.queued", `"retry":true`)
	if a := start(t, l, run); a.Number != 2 {
		t.Errorf("attempt %d", a.Number)
	}
}

func filters(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	ids := enqueue(t, l, manual("a"), manual("b"), manual("a"), manual("b"))
	a := start(t, l, ids[0].Run)
	said := steps.Step{Run: ids[0].Run, Attempt: a.Number, Number: 1, Text: "The Total is 100%_sure"}
	ok(t, l.Steps.StartStep(ctx, a, said))
	ok(t, l.Steps.FinishStep(ctx, a, said))
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "All! done", Error: "but late"}))

	for _, c := range []struct {
		f    runs.Filter
		want int
	}{
		{runs.Filter{}, 4}, {runs.Filter{Job: "a"}, 2}, {runs.Filter{Outcome: domain.OutcomeSuccess}, 1}, {runs.Filter{State: domain.StateQueued}, 3},
		{runs.Filter{Limit: 2}, 2}, {runs.Filter{Before: ids[1].Run}, 1}, {runs.Filter{Agent: "nobody"}, 0}, {runs.Filter{Since: time.Now().Add(time.Hour)}, 0},
		{runs.Filter{Until: time.Now().Add(time.Hour)}, 4}, {runs.Filter{Until: time.Now().Add(-time.Hour)}, 0}, {runs.Filter{After: ids[1].Run}, 2},
		{runs.Filter{Until: time.Now().Add(time.Hour), Before: ids[1].Run}, 1}, {runs.Filter{Since: time.Now().Add(-time.Hour), After: ids[1].Run}, 2},
		{runs.Filter{Text: "total"}, 1}, {runs.Filter{Text: "100%_"}, 1}, {runs.Filter{Text: "100_"}, 0}, {runs.Filter{Text: "l! d"}, 1}, {runs.Filter{Text: "LATE"}, 1}, {runs.Filter{Text: "late", Job: "b"}, 0},
	} {
		got := must[[]ledger.Run](t)(l.Runs.List(ctx, c.f))
		if len(got) != c.want {
			t.Errorf("%+v gave %d runs, want %d", c.f, len(got), c.want)
		}

		for i := 1; i < len(got); i++ {
			if got[i].ID >= got[i-1].ID {
				t.Errorf("%+v: not newest first", c.f)
			}
		}
	}

	enqueue(t, l, ledger.Request{Agent: "a", Trigger: domain.TriggerSelf}) // without a job
	if last := must[map[string]ledger.Run](t)(l.Runs.Last(ctx)); len(last) != 2 || last["a"].ID != ids[2].Run || last["b"].ID != ids[3].Run {
		t.Errorf("last runs: %+v", last)
	}
	if c := must[runs.Counts](t)(l.Runs.Counts(ctx)); c != (runs.Counts{Queued: 4}) {
		t.Errorf("counts: %+v", c)
	}

	// Runs are found by trigger, for frequent and rare triggers.
	for _, trigger := range []domain.Trigger{domain.TriggerSchedule, domain.TriggerWatch, domain.TriggerManual, domain.TriggerWebhook} {
		run := enqueue(t, l, ledger.Request{Job: "c", Agent: "c", Trigger: trigger})[0].Run
		for _, f := range []runs.Filter{{}, {Job: "c"}, {Agent: "c"}, {State: domain.StateQueued}} {
			f.Trigger = trigger
			got := must[[]ledger.Run](t)(l.Runs.List(ctx, f))
			if len(got) == 0 || got[0].ID != run || slices.ContainsFunc(got, func(r ledger.Run) bool { return r.Trigger != trigger }) {
				t.Errorf("%+v gave %+v", f, got)
			}
		}
	}
}

// lastTimes tests that LastTimes ignores skipped runs and the given run, and counts failures only
// as ends.
func lastTimes(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for _, outcome := range []domain.Outcome{domain.OutcomeSuccess, domain.OutcomeError, domain.OutcomeSkipped, domain.OutcomeSuccess} {
		run := start(t, l, enqueue(t, l, manual("j"))[0].Run)
		time.Sleep(time.Second)
		ok(t, l.Finish(ctx, run, ledger.Result{Outcome: outcome}))
		time.Sleep(time.Second)
	}

	found := must[[]ledger.Run](t)(l.Runs.List(ctx, runs.Filter{Job: "j"})) // newest first
	for _, c := range []struct {
		job    string
		before int64
		want   runs.LastTimes
	}{
		{"j", found[0].ID + 1, runs.LastTimes{SuccessStart: found[0].StartedAt, SuccessEnd: found[0].FinishedAt, End: found[0].FinishedAt}},
		{"j", found[0].ID, runs.LastTimes{SuccessStart: found[0].StartedAt, SuccessEnd: found[0].FinishedAt, End: found[2].FinishedAt}},
		{"j", found[2].ID, runs.LastTimes{SuccessStart: found[0].StartedAt, SuccessEnd: found[0].FinishedAt, End: found[3].FinishedAt}},
		{"j", found[3].ID, runs.LastTimes{SuccessStart: found[0].StartedAt, SuccessEnd: found[0].FinishedAt}},
		{"nobody", found[0].ID, runs.LastTimes{}},
	} {
		if got, err := l.Runs.LastTimes(ctx, c.job, c.before); err != nil || got != c.want {
			t.Errorf("%s before %d: %+v, want %+v: %v", c.job, c.before, got, c.want, err)
		}
	}
}

// runsByTime tests that listing runs by time returns the same runs as a scan of all runs.
func runsByTime(t *testing.T, open Open) {
	l, ctx, begin := open(t), t.Context(), time.Now()
	var queued []time.Time
	for i := range 60 {
		run := enqueue(t, l, manual([]string{"a", "b"}[i%2]))[0].Run
		queued = append(queued, get(t, l, run).QueuedAt)
		time.Sleep(2 * time.Hour)
	}
	end := time.Now()

	for _, job := range []string{"", "a", "nobody"} {
		for since := begin.Add(-time.Hour); since.Before(end.Add(5 * time.Hour)); since = since.Add(5 * time.Hour) {
			for _, until := range []time.Time{{}, since.Add(7 * time.Hour), since.Add(49 * time.Hour), since} {
				var want []int64
				for i, at := range slices.Backward(queued) {
					if !at.Before(since) && (until.IsZero() || at.Before(until)) && (job == "" || job == []string{"a", "b"}[i%2]) {
						want = append(want, int64(i+1))
					}
				}

				var got []int64
				for _, r := range must[[]ledger.Run](t)(l.Runs.List(ctx, runs.Filter{Job: job, Since: since, Until: until})) {
					got = append(got, r.ID)
				}
				if !slices.Equal(got, want) {
					t.Errorf("runs of %q from %s to %s: %d, want %d", job, since, until, got, want)
				}
			}
		}
	}
}

// idlePrune tests that pruning without old data writes nothing and wakes no waiter.
func idlePrune(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, time.Now(), []ledger.JobSpec{{Name: "a", Agent: "a", ScheduleHash: "1"}, {Name: "b", Agent: "a", ScheduleHash: "1"}}))
	for _, run := range enqueue(t, l, manual("a"), manual("b"), manual("")) {
		ok(t, l.Finish(ctx, start(t, l, run.Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	}
	ok(t, l.Events.Append(ctx, ledger.Event{Kind: "daemon.started"}))
	must[pause.Pause](t)(l.Pauses.Set(ctx, pause.Pause{Scope: pause.Job, Name: "a", Reason: "x", By: "user"}))

	woken := l.Changed()
	if n := must[int](t)(l.Maint.Prune(ctx, time.Now(), func(string) time.Duration { return time.Hour })); n != 0 {
		t.Errorf("%d runs were removed that are not old", n)
	}
	select {
	case <-woken:
		t.Error("an idle prune has written something")
	default:
	}

	// Runs without a job are pruned like others.
	if n := must[int](t)(l.Maint.Prune(ctx, time.Now().Add(2*time.Hour), func(string) time.Duration { return time.Hour })); n != 3 {
		t.Errorf("%d runs were removed of 3 that are old", n)
	}
	select {
	case <-woken:
	default:
		t.Error("a prune that removed runs woke nobody")
	}
}

// survivesReopen tests that acknowledged writes exist after the ledger is opened again.
func survivesReopen(t *testing.T, open Open) {
	run := enqueue(t, open(t), manual("j"))[0].Run
	if r := get(t, open(t), run); r.State != domain.StateQueued {
		t.Errorf("run: %+v", r)
	}
}

func changed(t *testing.T, open Open) {
	l := open(t)
	// As in all waiters, get the channel before the write.
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

// recordSteps tests that steps and calls are read back as written, including large values.
func recordSteps(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.UnixMilli(1_700_000_000_123).UTC()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	// Values over 64 KiB go to a file.
	large, err := json.Marshal(strings.Repeat("ü'\"\n", 30_000))
	ok(t, err)
	step := steps.Step{Run: run, Attempt: 1, Number: 1, Message: large, Text: "hello", Notices: []string{"[System Notice] x"},
		Usage: ledger.Usage{TokensIn: 1, TokensOut: 2, TokensCached: 3}, StartedAt: now, FinishedAt: now.Add(time.Second)}
	ok(t, l.Steps.StartStep(ctx, a, step))
	ok(t, l.Steps.FinishStep(ctx, a, step))
	call := ledger.Call{Run: run, Attempt: 1, Step: 1, ID: "c", Key: "1/c", Tool: "t", Args: json.RawMessage(`{"a":1}`), Effect: domain.EffectRead,
		State: domain.CallDone, Envelope: large, StartedAt: now, FinishedAt: now.Add(time.Second)}
	ok(t, l.Steps.StartCall(ctx, a, call))
	ok(t, l.Steps.FinishCall(ctx, a, call))
	listed := must[[]steps.Step](t)(l.Steps.List(ctx, run))
	if fmt.Sprintf("%+v", listed) != fmt.Sprintf("%+v", []steps.Step{step}) {
		t.Error("the step is not what was written")
	}

	calls := must[[]ledger.Call](t)(l.Steps.Calls(ctx, run))
	if fmt.Sprintf("%+v", calls) != fmt.Sprintf("%+v", []ledger.Call{call}) {
		t.Error("the call is not what was written")
	}

	events := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Run: run}))
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

// stepEvents tests that the event of a step contains the usage and the model, if they are known.
func stepEvents(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	for i, c := range []struct {
		step      steps.Step
		kind, say string
	}{
		{steps.Step{}, "step.finished", `{"step":0,"text":"","tokens_in":0,"tokens_out":0}`},
		{steps.Step{Text: "hello", Usage: ledger.Usage{TokensIn: 1, TokensOut: 2}}, "step.finished", `{"step":1,"text":"hello","tokens_in":1,"tokens_out":2}`},
		{steps.Step{Model: "big", Usage: ledger.Usage{CostMicroUSD: 250_000, EstimatedTokens: 1}}, "step.finished", `{"cost_usd":0.25,"estimated":true,"model":"big","step":2,"text":"","tokens_in":0,"tokens_out":0}`},
		{steps.Step{Model: "big", Retries: 2, RetryError: "overloaded"}, "step.retried", `{"error":"overloaded","model":"big","step":3,"times":2}`},
	} {
		c.step.Number = i
		ok(t, l.Steps.StartStep(ctx, a, c.step))
		ok(t, l.Steps.FinishStep(ctx, a, c.step))
		if e, found, err := l.Events.Last(ctx, a.Run, c.kind); err != nil || !found || string(e.Data) != c.say {
			t.Errorf("%s %s, want %s: %v", c.kind, e.Data, c.say, err)
		}
	}
	if got := kinds(t, l, event.Filter{Run: a.Run}); strings.Count(got, "step.retried") != 1 || !strings.HasSuffix(got, "step.retried step.finished") {
		t.Errorf("events: %s", got)
	}

	more := make([]ledger.Event, 1200)
	for i := range more {
		more[i] = ledger.Event{Kind: "module.log", Job: "j", Run: a.Run}
	}
	ok(t, l.Events.Append(ctx, more...))
	if n := len(strings.Fields(kinds(t, l, event.Filter{Run: a.Run, Limit: -1}))); n <= len(more) {
		t.Errorf("without a limit there are %d events", n)
	}
}

// recordWithEnd tests that remaining entries are committed together with the end of the attempt,
// before it, or not at all.
func recordWithEnd(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.UnixMilli(1_700_000_000_123).UTC()
	run := enqueue(t, l, manual("j"))[0].Run
	a := start(t, l, run)
	large, err := json.Marshal(strings.Repeat("x", 100_000)) // stored in a file, not in the database
	ok(t, err)
	call := ledger.Call{Run: run, Attempt: 1, Step: 1, ID: "c", Key: "1/c", Tool: "t", Args: json.RawMessage(`{}`), Effect: domain.EffectRead,
		State: domain.CallDone, Envelope: large, StartedAt: now, FinishedAt: now}
	step := steps.Step{Run: run, Attempt: 1, Number: 1, Message: json.RawMessage(`{}`), StartedAt: now, FinishedAt: now}
	res := ledger.Result{Outcome: domain.OutcomeSuccess, Steps: 1, Calls: 1, Record: []ledger.Entry{steps.CallFinished(call)}}
	if err := l.Finish(ctx, a, res); err == nil {
		t.Fatal("a run ended whose record could not be written: a call that never began")
	}
	if r := get(t, l, run); r.State != domain.StateRunning {
		t.Errorf("the run is %s without its record", r.State)
	}

	res.Record = []ledger.Entry{steps.StepStarted(step), steps.StepFinished(step), steps.CallStarted(call), steps.CallFinished(call)}
	ok(t, l.Finish(ctx, a, res))
	if calls := must[[]ledger.Call](t)(l.Steps.Calls(ctx, run)); fmt.Sprintf("%+v", calls) != fmt.Sprintf("%+v", []ledger.Call{call}) {
		t.Error("the call is not what was written")
	}
	var kinds []string
	for _, e := range must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Run: run})) {
		kinds = append(kinds, e.Kind)
	}
	if got := strings.Join(kinds, " "); got != "run.queued run.started step.started step.finished call.started call.finished run.finished" {
		t.Errorf("events: %s", got)
	}
	if err := l.Finish(ctx, a, res); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("a second end with a record: %v", err)
	}
}

// briefRuns tests that runs are listed with only the fields that lists show. LastUsages ignores
// runs that never began, because they cost nothing.
func briefRuns(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	finish := func(outcome domain.Outcome, cost int64) int64 {
		t.Helper()
		a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
		ok(t, l.Finish(t.Context(), a, ledger.Result{Outcome: outcome, Summary: "s", Usage: ledger.Usage{TokensIn: 2 * cost, TokensOut: cost, CostMicroUSD: cost}}))
		return a.Run
	}
	finish(domain.OutcomeSuccess, 10)
	last := finish(domain.OutcomeError, 20)
	finish(domain.OutcomeSkipped, 0)
	never := enqueue(t, l, manual("j"))[0].Run
	must[ledger.Run](t)(l.RequestCancel(ctx, never, "no"))
	on := start(t, l, enqueue(t, l, manual("j"))[0].Run).Run

	used := must[[]ledger.Usage](t)(l.Runs.LastUsages(ctx, "j", 20))
	if len(used) != 2 || used[0].CostMicroUSD != 20 || used[0].TokensIn != 40 || used[0].TokensOut != 20 || used[1].CostMicroUSD != 10 {
		t.Errorf("used: %+v", used)
	}
	if used = must[[]ledger.Usage](t)(l.Runs.LastUsages(ctx, "j", 3)); len(used) != 1 { // of the last three finished runs
		t.Errorf("of three: %+v", used)
	}

	brief := must[[]ledger.Run](t)(l.Runs.List(ctx, runs.Filter{Job: "j", Brief: true}))
	if len(brief) != 5 || brief[0].ID != on || brief[0].State != domain.StateRunning {
		t.Fatalf("brief: %+v", brief)
	}
	full := get(t, l, last)
	if b := brief[3]; b.ID != last || b.Job != "j" || b.Outcome != domain.OutcomeError || !b.QueuedAt.Equal(full.QueuedAt) || !b.StartedAt.Equal(full.StartedAt) || !b.FinishedAt.Equal(full.FinishedAt) || b.Usage.CostMicroUSD != 20 || b.Summary != "" {
		t.Errorf("brief: %+v, full %+v", b, full)
	}
}
