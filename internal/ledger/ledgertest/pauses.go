package ledgertest

import (
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
	"rouse/internal/ledger/wake"
)

// setPause starts a pause by the owner for a duration; 0 means no end.
func setPause(t *testing.T, l *ledger.Ledger, scope, name string, long time.Duration) pause.Pause {
	t.Helper()
	p := pause.Pause{Scope: scope, Name: name, Reason: "holidays", By: ledger.ByUser}
	if long > 0 {
		p.Until = time.Now().Add(long)
	}
	return must[pause.Pause](t)(l.Pauses.Set(t.Context(), p))
}

func pausesFrom(t *testing.T, l *ledger.Ledger, from time.Time) []pause.Pause {
	t.Helper()
	return must[[]pause.Pause](t)(l.Pauses.List(t.Context(), from))
}

func kinds(t *testing.T, l *ledger.Ledger, f event.Filter) string {
	t.Helper()
	var out []string
	for _, e := range must[[]ledger.Event](t)(l.Events.List(t.Context(), f)) {
		out = append(out, e.Kind)
	}
	return strings.Join(out, " ")
}

// pauseKept tests that pauses are stored and survive a restart. A pause replaces only the current
// pause of the same target. Ended pauses stay on record.
func pauseKept(t *testing.T, open Open) {
	l, ctx, begin := open(t), t.Context(), time.Now()
	set := setPause(t, l, pause.Job, "j", time.Hour)
	if read := pausesFrom(t, open(t), begin); len(read) != 1 || fmt.Sprintf("%+v", read[0]) != fmt.Sprintf("%+v", set) || !set.Since.Equal(begin) || set.ID == 0 {
		t.Errorf("set %+v, read %+v", set, read)
	}

	agent, all := setPause(t, l, pause.Agent, "j", 0), setPause(t, l, pause.All, "", 3*time.Hour)
	time.Sleep(time.Minute)
	second := setPause(t, l, pause.Job, "j", 2*time.Hour)
	on := pausesFrom(t, l, time.Now())
	if len(on) != 3 || on[0].ID != agent.ID || on[1].ID != all.ID || on[2].ID != second.ID || second.ID == set.ID {
		t.Errorf("on: %+v", on)
	}

	past := pausesFrom(t, l, begin)
	if len(past) != 4 || past[0].ID != set.ID || !past[0].EndedAt.Equal(second.Since) {
		t.Errorf("a pause that was replaced is not in the record: %+v", past)
	}
	if ended := must[bool](t)(l.Pauses.End(ctx, pause.Job, "other")); ended {
		t.Error("a pause was ended that nobody had set")
	}

	for _, want := range []bool{true, false} {
		if ended := must[bool](t)(l.Pauses.End(ctx, pause.Job, "j")); ended != want {
			t.Errorf("ended: %v, want %v", ended, want)
		}
	}

	time.Sleep(3 * time.Hour)
	if on := pausesFrom(t, l, time.Now()); len(on) != 1 || on[0].ID != agent.ID {
		t.Errorf("three hours later: %+v", on)
	}
	if ended := must[bool](t)(l.Pauses.End(ctx, pause.All, "")); ended {
		t.Error("a pause that was over was ended")
	}
	if all := pausesFrom(t, l, time.Time{}); len(all) != 4 {
		t.Errorf("the record: %+v", all)
	}

	if got := kinds(t, l, event.Filter{Job: "j"}); got != "paused paused resumed" {
		t.Errorf("events of the job: %s", got)
	}
}

// pauseRefused tests that a pause with an invalid target is refused.
func pauseRefused(t *testing.T, open Open) {
	l := open(t)
	for _, p := range []pause.Pause{{}, {Scope: "jobs", Name: "j"}, {Scope: pause.Job}, {Scope: pause.Agent}, {Scope: pause.All, Name: "j"}} {
		if _, err := l.Pauses.Set(t.Context(), p); err == nil {
			t.Errorf("%+v was set", p)
		}
	}

	if all := pausesFrom(t, l, time.Time{}); len(all) != 0 {
		t.Errorf("pauses: %+v", all)
	}
}

// pauseCovers tests pauses read from the database at their start and end times.
func pauseCovers(t *testing.T, open Open) {
	l, ctx, at := open(t), t.Context(), time.Now()
	const ms = time.Millisecond
	all := setPause(t, l, pause.All, "", time.Hour)
	agent := setPause(t, l, pause.Agent, "a", 2*time.Hour)
	job := setPause(t, l, pause.Job, "j", 0)
	time.Sleep(3 * time.Hour)
	must[bool](t)(l.Pauses.End(ctx, pause.Job, "j"))
	early := setPause(t, l, pause.Job, "early", time.Hour)
	time.Sleep(time.Minute)
	must[bool](t)(l.Pauses.End(ctx, pause.Job, "early"))
	pauses := pausesFrom(t, l, at)
	for _, c := range []struct {
		job, agent string
		after      time.Duration
		want       int64
	}{
		{"x", "x", -ms, 0}, {"x", "x", 0, all.ID}, {"x", "x", time.Hour - ms, all.ID}, {"x", "x", time.Hour, 0},
		{"x", "a", -ms, 0}, {"x", "a", 0, agent.ID}, {"x", "a", 2*time.Hour - ms, agent.ID}, {"x", "a", 2 * time.Hour, 0},
		{"", "a", time.Hour, agent.ID}, {"", "x", time.Hour, 0}, {"", "j", time.Hour, 0}, {"a", "x", time.Hour, 0},
		{"j", "a", 0, job.ID}, {"j", "a", 3*time.Hour - ms, job.ID}, {"j", "a", 3 * time.Hour, 0}, {"j", "x", 2 * time.Hour, job.ID},
		{"early", "x", 3*time.Hour - ms, 0}, {"early", "x", 3 * time.Hour, early.ID},
		{"early", "x", 3*time.Hour + time.Minute - ms, early.ID}, {"early", "x", 3*time.Hour + time.Minute, 0},
	} {
		if p, ok := pause.Paused(pauses, c.job, c.agent, at.Add(c.after)); p.ID != c.want || ok != (c.want != 0) {
			t.Errorf("job %q of %q after %s: pause %d %v, want %d", c.job, c.agent, c.after, p.ID, ok, c.want)
		}
	}

	// The longest of several pauses is returned, regardless of their order.
	for range 2 {
		slices.Reverse(pauses)
		for job, want := range map[string]int64{"x": agent.ID, "j": job.ID} {
			if p, _ := pause.Paused(pauses, job, "a", at); p.ID != want {
				t.Errorf("of several pauses of %s: %+v", job, p)
			}
		}

		pauses = append(pauses, setPause(t, l, pause.Agent, "x", time.Hour), setPause(t, l, pause.Job, "x", 0), setPause(t, l, pause.All, "", 2*time.Hour))
		for range 2 {
			slices.Reverse(pauses)
			if p, _ := pause.Paused(pauses, "x", "x", time.Now()); p.Scope != pause.Job {
				t.Errorf("of several pauses, one of them without an end: %+v", p)
			}
		}
	}
}

// pausedInstants tests that an occurrence is skipped if its time lies in a pause. The pause may
// have ended when the occurrence is decided.
func pausedInstants(t *testing.T, open Open) {
	l, ctx, at := open(t), t.Context(), time.Now()
	setPause(t, l, pause.Job, "job", time.Hour)
	setPause(t, l, pause.Agent, "paused", 0)
	time.Sleep(time.Hour)
	must[bool](t)(l.Pauses.End(ctx, pause.Agent, "paused"))
	time.Sleep(time.Hour)
	second := setPause(t, l, pause.All, "", 0)
	const ms = time.Millisecond
	for _, c := range []struct {
		job, agent string
		after      time.Duration
		want       string
	}{
		{"job", "x", -ms, ""}, {"job", "x", 0, "paused until 2000-01-01T01:00:00Z: holidays"}, {"job", "x", time.Hour - ms, "paused until 2000-01-01T01:00:00Z: holidays"},
		{"job", "x", time.Hour, ""}, {"other", "x", 0, ""},
		{"its", "paused", -ms, ""}, {"its", "paused", 0, "paused: agent paused: holidays"}, {"its", "paused", time.Hour - ms, "paused: agent paused: holidays"}, {"its", "paused", time.Hour, ""},
		{"now", "x", 2*time.Hour - ms, ""}, {"now", "x", 2 * time.Hour, "paused: everything: holidays"}, {"now", "x", 3 * time.Hour, "paused: everything: holidays"},
	} {
		d := due(c.job, at.Add(c.after), "allow")
		d.Agent = c.agent
		o := must[[]runs.Occurrence](t)(l.RecordDue(ctx, time.Now(), []ledger.Due{d}, nil))[0]
		want := domain.DecisionRun
		if c.want != "" {
			want = domain.DecisionSkipped
		}
		if o.Decision != want || o.Reason != c.want || (o.Run != 0) != (c.want == "") {
			t.Errorf("%s of %s after %s: %+v, want %s %q", c.job, c.agent, c.after, o, want, c.want)
		}

		again := must[[]runs.Occurrence](t)(l.Occurrences.List(ctx, c.job, d.Nominal, d.Nominal, 10))
		if len(again) != 1 || again[0].Decision != want || again[0].Reason != c.want {
			t.Errorf("%s of %s after %s: recorded as %+v", c.job, c.agent, c.after, again)
		}
	}

	// A skipped occurrence stays skipped after the pause. A manual run is not affected by pauses.
	must[bool](t)(l.Pauses.End(ctx, pause.All, second.Name))
	o := must[[]runs.Occurrence](t)(l.RecordDue(ctx, time.Now(), []ledger.Due{due("now", at.Add(2*time.Hour), "allow")}, nil))[0]
	if o.Decision != domain.DecisionSkipped || o.Run != 0 {
		t.Errorf("an instant of a pause that is over: %+v", o)
	}

	setPause(t, l, pause.All, "", 0)
	if a := enqueue(t, l, manual("job"))[0]; !a.New {
		t.Errorf("a manual run in a pause: %+v", a)
	}
}

// closes checks whether a write closes the channel of PlanChanged.
func closes(t *testing.T, l *ledger.Ledger, what string, want bool, do func()) {
	t.Helper()
	replanned := l.PlanChanged()
	do()
	got := false
	select {
	case <-replanned:
		got = true
	default:
	}
	if got != want {
		t.Errorf("%s: replanned is %v, want %v", what, got, want)
	}
}

// planChanges tests that the planner is notified of every write that changes the plan, and of no
// other write.
func planChanges(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	closes(t, l, "a run", false, func() { enqueue(t, l, manual("j")) })
	closes(t, l, "an instant", false, func() {
		must[[]runs.Occurrence](t)(l.RecordDue(ctx, time.Now(), []ledger.Due{due("j", time.Now(), "allow")}, nil))
	})
	closes(t, l, "a pause", true, func() { setPause(t, l, pause.Job, "j", 0) })
	closes(t, l, "a pause in its place", true, func() { setPause(t, l, pause.Job, "j", time.Hour) })
	closes(t, l, "a resume", true, func() { must[bool](t)(l.Pauses.End(ctx, pause.Job, "j")) })
	closes(t, l, "a resume of nothing", false, func() { must[bool](t)(l.Pauses.End(ctx, pause.Job, "j")) })
	closes(t, l, "a wake", true, func() { setWake(t, l, "a", time.Now().Add(time.Hour)) })
	closes(t, l, "a refused wake", false, func() {
		if _, err := l.Wakes.Set(ctx, wake.Wake{Agent: "a"}, wake.Usage{Started: 1000}); !errors.Is(err, wake.ErrUsageChanged) {
			t.Error(err)
		}
	})
	closes(t, l, "wakes that are retained", false, func() { ok(t, l.Wakes.CancelExcept(ctx, []string{"a"})) })
	closes(t, l, "a cancelled wake", true, func() { must[bool](t)(l.Wakes.Cancel(ctx, "a", "user")) })
	closes(t, l, "a wake that is not there", false, func() { must[bool](t)(l.Wakes.Cancel(ctx, "a", "user")) })
	setWake(t, l, "a", time.Now().Add(time.Hour))
	closes(t, l, "wakes that are not retained", true, func() { ok(t, l.Wakes.CancelExcept(ctx, nil)) })
	rule := pause.Rule{After: 2}
	for i, want := range []bool{false, true, false} {
		closes(t, l, fmt.Sprintf("failure %d", i+1), want, func() { failing(t, l, "f", domain.OutcomeError, rule) })
	}
}

// failing makes a run of a job end with an outcome, under a rule.
func failing(t *testing.T, l *ledger.Ledger, job string, o domain.Outcome, rule pause.Rule) int64 {
	t.Helper()
	run := enqueue(t, l, manual(job))[0].Run
	ok(t, l.Finish(t.Context(), start(t, l, run), ledger.Result{Outcome: o, Error: "no such host", Pause: rule}))
	time.Sleep(time.Second)
	return run
}

func pausedJobs(t *testing.T, l *ledger.Ledger, job string) []pause.Pause {
	t.Helper()
	var out []pause.Pause
	for _, p := range pausesFrom(t, l, time.Time{}) {
		if p.Scope == pause.Job && p.Name == job && p.By == ledger.BySystem {
			out = append(out, p)
		}
	}

	return out
}

// pauseAfterFailures plays scripts of events in the life of a job, one letter each. It checks after
// which letters a rule of three failures pauses the job.
func pauseAfterFailures(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for _, c := range []struct{ script, paused string }{
		{"eee", "3"}, {"etb", "3"}, {"ee", ""}, {"eeee", "3"}, {"eeeeeeee", "3"},
		{"eesee", ""}, {"eeseee", "6"}, {"eenee", ""}, {"eepee", ""}, {"seee", "4"},
		{"ecekce", "6"}, {"kkkccc", ""}, {"eec", ""}, {"eek", ""}, // cancelled and skipped runs do not count
		{"erre", ""}, {"errere", "6"}, // a failed attempt that is retried is not a failed run
		{"eeeRee", "3"}, {"eeeReee", "3 7"}, {"eeReee", "4"}, // R resumes; it has no effect without a pause
		{"eUee", ""}, {"eUeeRee", ""}, {"eUeRee", ""}, {"eUReee", "6"}, // U is a pause by the owner: it is not replaced, and resets the count
		{"eAee", "4"}, {"eGee", "4"}, // pauses of everything and of the agent: failures still count afterwards
		{"oeee", "4"}, // o is a success of another job
		{"ieee", "4"}, {"eei", ""}, {"eeI", "3"},
		{"dddd", ""}, {"eded", ""}, {"edede", "5"}, // d is refused by the daily budget
	} {
		var paused []string
		before := 0
		rule := pause.Rule{After: 3, Notices: []ledger.Notice{{Job: c.script, Channel: "desktop", Title: "paused " + c.script}}}
		for i, what := range c.script {
			playLetter(t, l, c.script, what, rule)
			if n := len(pausedJobs(t, l, c.script)); n > before {
				paused, before = append(paused, fmt.Sprint(i+1)), n
			}
		}
		if got := strings.Join(paused, " "); got != c.paused {
			t.Errorf("%s: paused after %q, want %q", c.script, got, c.paused)
		}

		notices := 0
		for _, n := range must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 1000)) {
			if n.Title == "paused "+c.script {
				notices++
			}
		}

		if notices != len(paused) {
			t.Errorf("%s: %d notices of %d pauses", c.script, notices, len(paused))
		}

		// A pause of everything must not affect the next script.
		for _, scope := range []string{pause.All, pause.Agent} {
			must[bool](t)(l.Pauses.End(ctx, scope, map[string]string{pause.Agent: "a"}[scope]))
		}
	}
}

// playLetter plays one letter of a script of pauseAfterFailures.
func playLetter(t *testing.T, l *ledger.Ledger, job string, what rune, rule pause.Rule) {
	t.Helper()
	ctx := t.Context()
	outcomes := map[rune]domain.Outcome{'e': domain.OutcomeError, 't': domain.OutcomeTimeout, 'b': domain.OutcomeBudget, 's': domain.OutcomeSuccess,
		'n': domain.OutcomeNothing, 'p': domain.OutcomePartial, 'c': domain.OutcomeCancelled, 'k': domain.OutcomeSkipped}

	switch what {
	case 'R':
		must[bool](t)(l.Pauses.End(ctx, pause.Job, job))
		time.Sleep(time.Second)
	case 'U':
		setPause(t, l, pause.Job, job, 0)
	case 'A':
		setPause(t, l, pause.All, "", 0)
	case 'G':
		setPause(t, l, pause.Agent, "a", 0)
	case 'o':
		failing(t, l, "other", domain.OutcomeSuccess, rule)
	case 'r':
		run := enqueue(t, l, manual(job))[0].Run
		ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, Pause: rule, RetryAt: time.Now().Add(time.Hour)}))
	case 'd':
		run := enqueue(t, l, manual(job))[0].Run
		ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeBudget, Exit: "ended_by_surface", Pause: rule}))
	case 'i': // the last of several interruptions is not a failure of the job
		run := enqueue(t, l, manual(job))[0].Run
		ok(t, l.Interrupt(ctx, start(t, l, run), "killed", &ledger.Result{Outcome: domain.OutcomeInterrupted, Pause: rule}))
	case 'I':
		run := enqueue(t, l, manual(job))[0].Run
		ok(t, l.Interrupt(ctx, start(t, l, run), "too long", &ledger.Result{Outcome: domain.OutcomeTimeout, Pause: rule}))
	default:
		failing(t, l, job, outcomes[what], rule)
	}
}

// pauseReason tests that the pause of a rule records its author, reason and last run, and has no
// end. It is written in the transaction that ends the run.
func pauseReason(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	rule := pause.Rule{After: 1, Notices: []ledger.Notice{{Job: "j", Channel: "desktop", Title: "paused"}}}
	lost := enqueue(t, l, manual("j"))[0].Run
	old := start(t, l, lost)
	ok(t, l.Interrupt(ctx, old, "killed", nil))
	if err := l.Finish(ctx, old, ledger.Result{Outcome: domain.OutcomeError, Pause: rule}); err == nil {
		t.Error("an attempt that is not on ended its run")
	}
	if n, p := len(must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10))), pausedJobs(t, l, "j"); n != 0 || len(p) != 0 {
		t.Errorf("an end that was refused paused the job: %+v, %d notices", p, n)
	}

	run := failing(t, l, "j", domain.OutcomeError, rule)
	p := pausedJobs(t, l, "j")
	want := fmt.Sprintf("1 runs in a row failed (pause_after_failures), the last was run %d: no such host", run)
	if len(p) != 1 || p[0].Reason != want || !p[0].Until.IsZero() || p[0].Over(time.Now().Add(1000*time.Hour)) {
		t.Errorf("pause: %+v, want %s", p, want)
	}
	if at := get(t, l, run).FinishedAt; !at.Equal(p[0].Since) {
		t.Errorf("paused since %s, the run ended at %s", p[0].Since, at)
	}
	if failing(t, l, "free", domain.OutcomeError, pause.Rule{}); len(pausedJobs(t, l, "free")) != 0 {
		t.Error("a job without the rule was paused")
	}

	if failing(t, l, "", domain.OutcomeError, rule); len(pausesFrom(t, l, time.Time{})) != 1 {
		t.Error("a run of no job paused something")
	}
}

// pauseOrder tests that runs count in the order in which they ended, not in the order of their
// requests.
func pauseOrder(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	end := func(a ledger.Attempt, o domain.Outcome) {
		t.Helper()
		ok(t, l.Finish(ctx, a, ledger.Result{Outcome: o, Pause: pause.Rule{After: 2}}))
		time.Sleep(time.Second)
	}

	// An old run that is retried succeeds between two failures.
	first := failing(t, l, "again", domain.OutcomeError, pause.Rule{After: 2})
	a, b := start(t, l, enqueue(t, l, manual("again"))[0].Run), start(t, l, enqueue(t, l, manual("again"))[0].Run)
	must[ledger.Run](t)(l.Retry(ctx, first))
	end(start(t, l, first), domain.OutcomeSuccess)
	end(a, domain.OutcomeError)
	if p := pausedJobs(t, l, "again"); len(p) != 0 {
		t.Errorf("a success in between was overlooked: %+v", p)
	}

	end(b, domain.OutcomeError)
	if p := pausedJobs(t, l, "again"); len(p) != 1 {
		t.Errorf("two failures since: %+v", p)
	}

	// A long run fails after a short run that was requested later has succeeded.
	slow, slower, short := start(t, l, enqueue(t, l, manual("slow"))[0].Run), start(t, l, enqueue(t, l, manual("slow"))[0].Run), start(t, l, enqueue(t, l, manual("slow"))[0].Run)
	end(short, domain.OutcomeSuccess)
	end(slow, domain.OutcomeError)
	end(slower, domain.OutcomeError)
	if p := pausedJobs(t, l, "slow"); len(p) != 1 {
		t.Errorf("the last two runs that ended failed: %+v", p)
	}
}

// pauseRace tests that if two processes pause the same target, manually or by the rule, one pause
// is in force.
func pauseRace(t *testing.T, open Open) {
	two := [2]*ledger.Ledger{open(t), open(t)}
	for i := range 20 {
		by, failed := fmt.Sprint("manual ", i), fmt.Sprint("failed ", i)
		for _, err := range atOnce(two, func(_ int, l *ledger.Ledger) error {
			_, err := l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Job, Name: by, By: ledger.ByUser})
			return err
		}) {
			ok(t, err)
		}

		// The second failure triggers the rule, whichever process records it.
		attempts := [2]ledger.Attempt{start(t, two[0], enqueue(t, two[0], manual(failed))[0].Run), start(t, two[1], enqueue(t, two[1], manual(failed))[0].Run)}
		for _, err := range atOnce(two, func(n int, l *ledger.Ledger) error {
			return l.Finish(t.Context(), attempts[n], ledger.Result{Outcome: domain.OutcomeError, Pause: pause.Rule{After: 2}})
		}) {
			ok(t, err)
		}

		on := map[string]int{}
		for _, p := range pausesFrom(t, two[0], time.Now().Add(time.Hour)) {
			on[p.Name]++
		}

		if on[by] != 1 || on[failed] != 1 {
			t.Errorf("round %d: %d manual pauses and %d after failures are in force", i, on[by], on[failed])
		}
	}
}

// modelPauses tests that a model stays paused until it answers, even after a restart. The owner
// gets a notice of the first pause.
func modelPauses(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	since := time.UnixMilli(time.Now().UnixMilli()).UTC()
	p := pause.ModelPause{Model: "big", Since: since, Until: since.Add(time.Hour), Tries: 1, Reason: "no credit"}
	ok(t, l.Pauses.PauseModel(ctx, p, ledger.Notice{Channel: "desktop", Title: "paused", Key: "k"}))
	if due := must[time.Time](t)(l.Runs.NextDue(ctx, since)); !due.Equal(p.Until) {
		t.Errorf("next due %s, want %s", due, p.Until)
	}

	// A run is due when the pause ends or at its own time, whichever comes first.
	for _, c := range []struct{ run, due time.Duration }{{2 * time.Hour, time.Hour}, {time.Hour - time.Millisecond, time.Hour - time.Millisecond}} {
		r := manual("later")
		r.NotBefore = since.Add(c.run)
		enqueue(t, l, r)
		if due := must[time.Time](t)(l.Runs.NextDue(ctx, since)); !due.Equal(since.Add(c.due)) {
			t.Errorf("next due %s, want %s", due, since.Add(c.due))
		}
	}

	p.Until, p.Tries = since.Add(3*time.Hour), 2
	ok(t, l.Pauses.PauseModel(ctx, p))
	ok(t, l.Close())
	l = open(t)
	if got := must[[]pause.ModelPause](t)(l.Pauses.Models(ctx)); len(got) != 1 || got[0] != p {
		t.Errorf("paused: %+v, want %+v", got, p)
	}
	if due := must[time.Time](t)(l.Runs.NextDue(ctx, p.Until)); !due.IsZero() {
		t.Errorf("a pause that is over is due %s", due)
	}
	if told := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 9)); len(told) != 1 {
		t.Errorf("told: %+v", told)
	}

	// Runs that wait for a model become due when a pause ends early. Other runs do not.
	waits, fails := enqueue(t, l, manual("waits"))[0].Run, enqueue(t, l, manual("fails"))[0].Run
	ok(t, l.Finish(ctx, start(t, l, waits), ledger.Result{Outcome: domain.OutcomeError, RetryAt: p.Until, Postpone: &ledger.Postponement{}}))
	ok(t, l.Finish(ctx, start(t, l, fails), ledger.Result{Outcome: domain.OutcomeError, RetryAt: p.Until}))

	ok(t, l.Pauses.ResumeModel(ctx, "big"))
	if c := must[[]ledger.Run](t)(l.Runs.Claimable(ctx, since, 0, 9)); len(c) != 1 || c[0].ID != waits {
		t.Errorf("due after the resumption: %+v", c)
	}
	ok(t, l.Pauses.ResumeModel(ctx, "big")) // the model was not paused
	var kinds []string
	for _, e := range must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{})) {
		if e.Run == 0 {
			kinds = append(kinds, e.Kind)
		}
	}
	if got := must[[]pause.ModelPause](t)(l.Pauses.Models(ctx)); len(got) != 0 || strings.Join(kinds, " ") != "model.paused model.paused model.resumed" {
		t.Errorf("after the resumption: %+v, %v", got, kinds)
	}
}

// postponedOverlaps tests that a run that waits for its model counts as queued. An outage must not
// pile up scheduled runs.
func postponedOverlaps(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	at := time.UnixMilli(time.Now().UnixMilli()).UTC()
	due := func(job string, n int, policy domain.Overlap) runs.Occurrence {
		nominal := at.Add(time.Duration(n) * time.Hour)
		return must[[]runs.Occurrence](t)(l.RecordDue(ctx, nominal, []ledger.Due{{Job: job, Agent: "a", Source: "cron", Nominal: nominal, Actual: nominal, Decision: domain.DecisionRun, Overlap: policy}}, nil))[0]
	}

	for policy, want := range map[domain.Overlap]domain.Decision{
		domain.OverlapSkip: domain.DecisionSkipped, domain.OverlapQueueOne: domain.DecisionSkipped, domain.OverlapQueueAll: domain.DecisionRun,
		domain.OverlapAllow: domain.DecisionRun, domain.OverlapCancel: domain.DecisionRun,
	} {
		job := "j-" + string(policy)
		first := due(job, 0, policy).Run
		a := start(t, l, first)
		ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeError, Error: "down", RetryAt: at.Add(9 * time.Hour), Postpone: &ledger.Postponement{}}))
		if r := get(t, l, first); !r.Postponed() || r.Postponements != 1 {
			t.Fatalf("%s: %+v", policy, r)
		}

		second := due(job, 1, policy)
		if second.Decision != want {
			t.Errorf("%s: %+v, want %s", policy, second, want)
		}
		if r := get(t, l, first); (r.Outcome == domain.OutcomeCancelled) != (policy == domain.OverlapCancel) {
			t.Errorf("%s: the first is %+v", policy, r)
		}
	}
}
