package ledgertest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
)

// noon is the time at which the occurrence tests happen.
var noon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)

// recordDue records one due occurrence and returns the decision.
func recordDue(t *testing.T, l *ledger.Ledger, d ledger.Due) runs.Occurrence {
	t.Helper()
	return must[[]runs.Occurrence](t)(l.RecordDue(t.Context(), noon, []ledger.Due{d}, nil))[0]
}

func decided(d ledger.Due, decision domain.Decision, reason string) ledger.Due {
	d.Decision, d.Reason = decision, reason
	return d
}

func rows(t *testing.T, l *ledger.Ledger, job string, from, to time.Time) []runs.Occurrence {
	t.Helper()
	return must[[]runs.Occurrence](t)(l.Occurrences.List(t.Context(), job, from, to, 100_000))
}

// dueAgain tests occurrences that come due again because the clock was set back. A missed one runs
// now. One that ran, was skipped or was refused does not.
func dueAgain(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for _, c := range []struct{ decision, again domain.Decision }{
		{domain.DecisionMissed, domain.DecisionRun}, {domain.DecisionRun, domain.DecisionRun},
		{domain.DecisionSkipped, domain.DecisionSkipped}, {domain.DecisionRefused, domain.DecisionRefused},
	} {
		d := decided(due(string(c.decision), noon, "skip"), c.decision, "at first")
		first := recordDue(t, l, d)
		if first.Decision != c.decision || first.Reason != "at first" || (first.Run != 0) != (c.decision == domain.DecisionRun) {
			t.Errorf("%s: %+v", c.decision, first)
		}

		if first.Run != 0 {
			ok(t, l.Finish(ctx, start(t, l, first.Run), ledger.Result{Outcome: domain.OutcomeSuccess}))
		}

		// If missed again, it stays missed.
		if o := recordDue(t, l, decided(d, domain.DecisionMissed, "once more")); o.Decision != c.decision || o.Reason != "at first" {
			t.Errorf("%s, and missed a second time: %+v", c.decision, o)
		}

		d = decided(d, domain.DecisionRun, "")
		d.Source, d.Actual = "every", noon.Add(time.Second)
		second := recordDue(t, l, d)
		if second.Decision != c.again || (first.Run != 0 && second.Run != first.Run) || (second.Run != 0) != (c.again == domain.DecisionRun) {
			t.Errorf("%s, again: %+v", c.decision, second)
		}

		read := rows(t, l, string(c.decision), noon, noon)
		if len(read) != 1 || read[0].Decision != c.again || read[0].Run != second.Run {
			t.Errorf("%s, read: %+v", c.decision, read)
		}

		if ran := c.decision == domain.DecisionMissed; ran && (read[0].Source != "every" || !read[0].Actual.Equal(d.Actual) || read[0].Reason != "") {
			t.Errorf("what ran after all is recorded as it was missed: %+v", read[0])
		} else if !ran && (read[0].Source != "cron" || read[0].Reason != "at first") {
			t.Errorf("%s: another row than at first: %+v", c.decision, read[0])
		}

		for range 2 {
			if third := recordDue(t, l, d); third.Run != second.Run || third.Decision != second.Decision {
				t.Errorf("%s, a third time: %+v", c.decision, third)
			}
		}

		if n := len(must[[]ledger.Run](t)(l.Runs.List(ctx, runs.Filter{Job: string(c.decision)}))); n > 1 {
			t.Errorf("%s: %d runs of one instant", c.decision, n)
		}
	}

	// An occurrence that is due again is decided like any other.
	recordDue(t, l, decided(due("busy", noon, "skip"), domain.DecisionMissed, ""))
	// A manual run counts like a scheduled one.
	start(t, l, enqueue(t, l, manual("busy"))[0].Run)

	for range 2 {
		if o := recordDue(t, l, due("busy", noon, "skip")); o.Decision != domain.DecisionSkipped || !strings.HasPrefix(o.Reason, "overlap") {
			t.Errorf("while the job is busy: %+v", o)
		}
	}
}

// rewind tests that future watermarks and pauses move back with a corrected clock, while the past
// stays unchanged.
func rewind(t *testing.T, open Open) {
	l, ctx, now := open(t), t.Context(), time.Now()
	specs := []ledger.JobSpec{{Name: "ahead", Agent: "a", ScheduleHash: "1"}, {Name: "behind", Agent: "a", ScheduleHash: "1"}}
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, now, specs))
	setPause(t, l, pause.Job, "before", 0)
	setPause(t, l, pause.Job, "until", 12*time.Hour)
	time.Sleep(10 * time.Hour) // seen by the wrong clock
	must[bool](t)(l.Pauses.End(ctx, pause.Job, "before"))
	setPause(t, l, pause.All, "", 0)
	setPause(t, l, pause.Agent, "hour", time.Hour)
	setPause(t, l, pause.Agent, "over", 0)
	time.Sleep(time.Minute)
	must[bool](t)(l.Pauses.End(ctx, pause.Agent, "over"))
	must[[]runs.Occurrence](t)(l.RecordDue(ctx, time.Now(), []ledger.Due{due("ahead", now.Add(9*time.Hour), "allow")},
		map[string]time.Time{"ahead": time.Now(), "behind": now.Add(time.Minute)}))
	right := now.Add(time.Hour)
	// Only the first call has an effect.
	closes(t, l, "a clock that is set right", true, func() { ok(t, l.RewindWatermarks(ctx, right)) })
	closes(t, l, "a clock that was right", false, func() { ok(t, l.RewindWatermarks(ctx, right)) })
	states := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, right, specs))
	if a, b := states["ahead"], states["behind"]; !a.Watermark.Equal(right) || !b.Watermark.Equal(now.Add(time.Minute)) || !a.Anchor.Equal(now) {
		t.Errorf("jobs: %+v", states)
	}
	if o := recordDue(t, l, due("ahead", now.Add(9*time.Hour), "allow")); o.Run == 0 || len(must[[]ledger.Run](t)(l.Runs.List(ctx, runs.Filter{Job: "ahead"}))) != 1 {
		t.Errorf("an instant that ran ahead of time ran twice: %+v", o)
	}

	pauses := pausesFrom(t, l, time.Time{})
	for _, c := range []struct {
		job, agent string
		from, to   time.Duration // of the pause; a zero to means no end
	}{
		{"before", "", 0, time.Hour}, {"until", "", 0, 12 * time.Hour}, {"x", "hour", time.Hour, 2 * time.Hour}, {"x", "over", 0, 0}, {"x", "all", time.Hour, 0},
	} {
		var mine []pause.Pause
		for _, p := range pauses {
			if (p.Scope == pause.All) == (c.agent == "all") && (c.agent == "all" || p.Name == c.job || p.Name == c.agent) {
				mine = append(mine, p)
			}
		}

		for at := time.Duration(0); at < 24*time.Hour; at += 30 * time.Minute {
			want := at >= c.from && (at < c.to || c.agent == "all") && c.agent != "over"
			if _, got := pause.Paused(mine, c.job, c.agent, now.Add(at)); got != want {
				t.Errorf("%s %s after %s: paused is %v, want %v: %+v", c.job, c.agent, at, got, want, mine)
			}
		}
	}
}

// stretches tests that one row can stand for many missed occurrences, and is found for each of
// them.
func stretches(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	missed := func(job string, from, to time.Duration, n int) ledger.Due {
		d := decided(due(job, noon.Add(from), "skip"), domain.DecisionMissed, "no daemon ran")
		d.Through, d.Instants = noon.Add(to), n
		return d
	}

	const h = time.Hour
	o := recordDue(t, l, missed("j", 0, 10*h, 36001))
	if o.Decision != domain.DecisionMissed || o.Instants != 36001 || !o.Through.Equal(noon.Add(10*h)) || o.Run != 0 {
		t.Errorf("recorded: %+v", o)
	}

	recordDue(t, l, decided(due("j", noon.Add(11*h), "skip"), domain.DecisionMissed, ""))
	recordDue(t, l, missed("endless", 0, 10*h, 0))

	// RecordDue returns the row that now stands for the stretch.
	for _, d := range []ledger.Due{missed("grows", 0, h, 3601), missed("grows", 0, 2*h, 7201), due("ran", noon, "skip"), missed("ran", 0, 2*h, 7201)} {
		o = recordDue(t, l, d)
		at, n := d.Nominal, d.Instants
		if d.Job == "ran" && n > 0 {
			at, n = at.Add(time.Millisecond), n-1 // the first occurrence has its own row
		}
		if !o.Nominal.Equal(at) || !o.Through.Equal(d.Through) || o.Instants != max(n, 1) {
			t.Errorf("%+v was recorded as %+v", d, o)
		}
	}

	for _, c := range []struct {
		job      string
		from, to time.Duration
		want     string
	}{
		{"j", 0, 0, "36001"}, {"j", 5 * h, 5 * h, "36001"}, {"j", 10 * h, 10 * h, "36001"}, {"j", 10*h + 1e6, 10*h + 1e6, ""}, {"j", -h, -1e6, ""},
		{"j", -h, 0, "36001"}, {"j", 5 * h, 11 * h, "1 36001"}, {"j", 11 * h, 12 * h, "1"}, {"j", -h, 20 * h, "1 36001"},
		{"endless", 5 * h, 6 * h, "0"}, {"", 5 * h, 5 * h, "0 36001"}, {"", 5 * h, 11 * h, "1 0 36001"}, {"", 11 * h, 11 * h, "1"}, {"other", 5 * h, 5 * h, ""},
	} {
		var got []string
		found := rows(t, l, c.job, noon.Add(c.from), noon.Add(c.to))
		for _, o := range found {
			got = append(got, fmt.Sprint(o.Instants))
		}
		if none := must[[]runs.Occurrence](t)(l.Occurrences.NotRun(ctx, noon.Add(c.from), noon.Add(c.to), 100)); c.job == "" && !reflect.DeepEqual(none, found) {
			t.Errorf("what did not run from %s to %s: %+v, want %+v", c.from, c.to, none, found)
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%q from %s to %s: %q, want %q", c.job, c.from, c.to, g, c.want)
		}
	}

	if newest := must[[]runs.Occurrence](t)(l.Occurrences.List(ctx, "j", noon, noon.Add(20*h), 1)); len(newest) != 1 || newest[0].Instants != 1 {
		t.Errorf("the newest: %+v", newest)
	}

	event := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Job: "j"}))[0]
	if event.Kind != "occurrence.missed" || !strings.Contains(string(event.Data), `"instants":36001`) {
		t.Errorf("event: %+v %s", event, event.Data)
	}

	stretchEdges(t, l, missed)
}

// stretchEdges tests that the edge of a stretch stays complete if it touches an occurrence with its
// own row.
func stretchEdges(t *testing.T, l *ledger.Ledger, missed func(job string, from, to time.Duration, n int) ledger.Due) {
	const h = time.Hour
	tell := func(job string) string {
		var out []string
		for _, o := range rows(t, l, job, noon, noon.Add(24*h)) {
			text := fmt.Sprintf("%s %s", o.Nominal.Sub(noon), o.Decision)
			if !o.Through.IsZero() {
				text += fmt.Sprintf(" to %s: %d", o.Through.Sub(noon), o.Instants)
			}
			out = append(out, text)
		}

		return strings.Join(out, "; ")
	}

	for name, c := range map[string]struct {
		due  []ledger.Due
		want string
	}{
		"the first one runs after all":   {[]ledger.Due{missed("", 0, 10*h, 11), due("", noon, "skip")}, "1ms missed to 10h0m0s: 10; 0s run"},
		"the first one of countless":     {[]ledger.Due{missed("", 0, 10*h, 0), due("", noon, "skip")}, "1ms missed to 10h0m0s: 0; 0s run"},
		"the first one ran":              {[]ledger.Due{due("", noon, "skip"), missed("", 0, 10*h, 11)}, "1ms missed to 10h0m0s: 10; 0s run"},
		"the first one was missed alone": {[]ledger.Due{decided(due("", noon, "skip"), domain.DecisionMissed, ""), missed("", 0, 10*h, 11)}, "1ms missed to 10h0m0s: 10; 0s missed"},
		"the same twice":                 {[]ledger.Due{missed("", 0, 10*h, 11), missed("", 0, 10*h, 11)}, "0s missed to 10h0m0s: 11"},
		"a longer one":                   {[]ledger.Due{missed("", 0, 10*h, 11), missed("", 0, 20*h, 21)}, "0s missed to 20h0m0s: 21"},
		"a shorter one":                  {[]ledger.Due{missed("", 0, 20*h, 21), missed("", 0, 10*h, 11)}, "0s missed to 20h0m0s: 21"},
		"another one within":             {[]ledger.Due{missed("", 0, 10*h, 11), due("", noon.Add(5*h), "skip")}, "5h0m0s run; 0s missed to 10h0m0s: 11"},
		"one is as good as alone":        {[]ledger.Due{due("", noon, "skip"), missed("", 0, 0, 1)}, "0s run"},
		"missed again":                   {[]ledger.Due{missed("", 0, 10*h, 11), decided(due("", noon, "skip"), domain.DecisionMissed, "")}, "0s missed to 10h0m0s: 11"},
	} {
		for range 2 { // repeating it has no effect
			for _, d := range c.due {
				d.Job = name
				recordDue(t, l, d)
			}
			if got := tell(name); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
	}
}

// largeBatch tests that a large batch of occurrences is accepted as a whole or not at all.
func largeBatch(t *testing.T, open Open) {
	n := batchSize(t)
	l, ctx := open(t), t.Context()
	due1, marks := make([]ledger.Due, n), map[string]time.Time{}
	specs := make([]ledger.JobSpec, n)
	for i := range due1 {
		due1[i] = due(fmt.Sprint("job ", i), noon, "skip")
		due1[i].Source = []string{"cron", "every", "at", "start"}[i%4]
		specs[i] = ledger.JobSpec{Name: due1[i].Job, Agent: "a", ScheduleHash: "1"}
		marks[due1[i].Job] = noon
	}

	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, noon.Add(-time.Hour), specs))
	bad := append(due1[:n:n], due("bad", time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC), "skip")) // JSON cannot represent that year
	// One bad occurrence at the very end fails the whole batch.
	if _, err := l.RecordDue(ctx, noon, bad, marks); err == nil {
		t.Error("an instant in the year 20000 was recorded")
	}
	if left := rows(t, l, "", time.Time{}, noon.Add(time.Hour)); len(left) != 0 {
		t.Errorf("%d of a batch were recorded that failed", len(left))
	}
	if st := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, noon, specs)); !st["job 0"].Watermark.Equal(noon.Add(-time.Hour)) {
		t.Errorf("the watermark of a batch that failed: %+v", st["job 0"])
	}

	began := time.Now()
	recorded := must[[]runs.Occurrence](t)(l.RecordDue(ctx, noon, due1, marks))
	t.Logf("%d instants in %s", n, time.Since(began))
	runIDs := map[int64]bool{}
	for i, o := range recorded {
		if o.Job != due1[i].Job || o.Decision != domain.DecisionRun || o.Run == 0 || runIDs[o.Run] {
			t.Fatalf("instant %d: %+v", i, o)
		}
		runIDs[o.Run] = true
	}

	if c := must[runs.Counts](t)(l.Runs.Counts(ctx)); c.Queued != n {
		t.Errorf("%+v", c)
	}

	for _, o := range rows(t, l, "", noon, noon) {
		var i int
		if _, err := fmt.Sscanf(o.Job, "job %d", &i); err != nil || o.Source != due1[i].Source || !o.Nominal.Equal(noon) || o.Instants != 1 || !o.Through.IsZero() || !runIDs[o.Run] {
			t.Fatalf("read: %+v", o)
		}
	}

	last := specs[n-1].Name
	if st := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, noon, specs)); !st[last].Watermark.Equal(noon) {
		t.Errorf("the watermark: %+v", st[last])
	}
}

// manyQueued tests that an overlap decision does not take longer if many runs of the job are
// queued.
func manyQueued(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	for i := range 300 {
		must[[]runs.Occurrence](t)(l.RecordDue(ctx, noon, []ledger.Due{due("j", noon.Add(time.Duration(i)*time.Minute), "queue_all")}, nil))
	}

	decisions := map[domain.Decision]int{}
	for _, o := range rows(t, l, "j", noon, noon.Add(24*time.Hour)) {
		decisions[o.Decision]++
	}

	if decisions[domain.DecisionRun] != 100 || decisions[domain.DecisionSkipped] != 200 {
		t.Errorf("queue_all: %v", decisions)
	}

	// The last decision must not read all queued runs. TestQueryPlans checks the index it uses.
	var many []ledger.Due
	for i := range 500 {
		many = append(many, due("crowded", noon.Add(time.Duration(i)*time.Minute), "allow"))
	}

	must[[]runs.Occurrence](t)(l.RecordDue(ctx, noon, many, nil))
	for i, overlap := range []domain.Overlap{domain.OverlapSkip, domain.OverlapQueueOne, domain.OverlapQueueAll, domain.OverlapCancel} {
		want := domain.DecisionSkipped
		if overlap == domain.OverlapCancel {
			want = domain.DecisionRun
		}
		if o := recordDue(t, l, due("crowded", noon.Add(-time.Duration(i+1)*time.Hour), overlap)); o.Decision != want {
			t.Errorf("%s beside 500 queued runs: %+v", overlap, o)
		}
	}
}

// skippedRun tests that a run skipped by its job's condition or deadline marks its occurrence as
// skipped. A manual retry changes it back.
func skippedRun(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	read := func(job string) runs.Occurrence {
		t.Helper()
		found := rows(t, l, job, noon, noon)
		if len(found) != 1 {
			t.Fatalf("%s: %+v", job, found)
		}
		return found[0]
	}

	late := due("j", noon, "skip")
	late.Reason = "caught up 3m late"
	run := recordDue(t, l, late).Run
	other := recordDue(t, l, due("other", noon, "skip"))
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeSkipped, Error: "condition: no new file"}))
	if o := read("j"); o.Decision != domain.DecisionSkipped || o.Reason != "condition: no new file" || o.Run != run || o.Outcome != domain.OutcomeSkipped {
		t.Errorf("skipped by its condition: %+v", o)
	}

	must[ledger.Run](t)(l.Retry(ctx, run))
	if o := read("j"); o.Decision != domain.DecisionRun || o.Reason != "retried manually" || o.Run != run || o.Outcome != "" {
		t.Errorf("tried again: %+v", o)
	}
	if o := recordDue(t, l, late); o.Run != run {
		t.Errorf("the instant runs twice: %+v", o)
	}

	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError, Error: "no such host"}))
	if o := read("j"); o.Decision != domain.DecisionRun || o.Outcome != domain.OutcomeError {
		t.Errorf("failed: %+v", o)
	}
	if o := read("other"); o.Decision != other.Decision || o.Reason != other.Reason {
		t.Errorf("another job's instant: %+v", o)
	}

	// A retry does not change an occurrence that ran from the start.
	caught := due("caught", noon, "skip")
	caught.Reason = "caught up 3m late"
	run = recordDue(t, l, caught).Run
	ok(t, l.Finish(ctx, start(t, l, run), ledger.Result{Outcome: domain.OutcomeError}))
	must[ledger.Run](t)(l.Retry(ctx, run))
	if o := read("caught"); o.Decision != domain.DecisionRun || o.Reason != "caught up 3m late" {
		t.Errorf("tried again: %+v", o)
	}

	// A run without a schedule has no occurrence.
	ok(t, l.Finish(ctx, start(t, l, enqueue(t, l, manual("caught"))[0].Run), ledger.Result{Outcome: domain.OutcomeSkipped, Error: "condition"}))
	if o := read("caught"); o.Decision != domain.DecisionRun {
		t.Errorf("after a manual run: %+v", o)
	}
}

// jobsSync tests how a job's state follows changes of its configuration.
func jobsSync(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	spec, bystander := ledger.JobSpec{Name: "j", Agent: "a", ScheduleHash: "1"}, ledger.JobSpec{Name: "b", Agent: "a", ScheduleHash: "1"}
	renamed, changed := spec, spec
	renamed.Agent, changed.ScheduleHash = "z", "2"
	for i, c := range []struct {
		specs             []ledger.JobSpec
		anchor, watermark int // in hours; the watermark is recorded half an hour after each step
	}{
		{[]ledger.JobSpec{spec, bystander}, 0, 0},
		{[]ledger.JobSpec{bystander, spec}, 0, 0},
		{[]ledger.JobSpec{renamed, bystander}, 0, 0},
		{[]ledger.JobSpec{changed, bystander}, 3, 3},
		{[]ledger.JobSpec{changed, bystander}, 3, 3},
		{[]ledger.JobSpec{bystander}, -1, -1},
		{[]ledger.JobSpec{bystander}, -1, -1},
		{[]ledger.JobSpec{changed, bystander}, 7, 7}, // removed and restored unchanged: the time in between is not missed
		{[]ledger.JobSpec{changed, bystander}, 7, 7},
		{nil, -1, -1},
		{[]ledger.JobSpec{spec, bystander}, 10, 10},
	} {
		got := must[map[string]ledger.JobState](t)(open(t).SyncJobs(ctx, at(i), c.specs))
		if len(got) != len(c.specs) {
			t.Errorf("step %d: %+v", i, got)
		}

		st, found := got["j"]
		if found != (c.anchor >= 0) {
			t.Errorf("step %d: %+v", i, got)
		}
		if !found {
			continue
		}

		watermark := at(c.watermark)
		if c.watermark < i { // it existed in the last step and continues
			watermark = at(i - 1).Add(30 * time.Minute)
		}
		if !st.Anchor.Equal(at(c.anchor)) || !st.Watermark.Equal(watermark) || st.ScheduleHash == "" {
			t.Errorf("step %d: %+v, want anchor %s, watermark %s", i, st, at(c.anchor), watermark)
		}

		must[[]runs.Occurrence](t)(l.RecordDue(ctx, at(i), nil, map[string]time.Time{"j": at(i).Add(30 * time.Minute)}))
	}
}

// dueRace tests that if two schedulers see a missed occurrence again, one decision wins.
func dueRace(t *testing.T, open Open) {
	two := [2]*ledger.Ledger{open(t), open(t)}
	for i := range 30 {
		d := decided(due("s", noon.Add(time.Duration(i)*time.Minute), "skip"), domain.DecisionMissed, "no daemon ran")
		recordDue(t, two[0], d)
		raceDue(t, two, decided(d, domain.DecisionRun, ""))
		run := rows(t, two[0], "s", d.Nominal, d.Nominal)[0].Run
		if run == 0 {
			t.Fatalf("instant %d did not run", i)
		}
		ok(t, two[0].Finish(t.Context(), start(t, two[0], run), ledger.Result{Outcome: domain.OutcomeSuccess}))
	}
}

func due(job string, at time.Time, overlap domain.Overlap) ledger.Due {
	return ledger.Due{Job: job, Agent: "a", Source: "cron", Nominal: at, Actual: at, Decision: domain.DecisionRun, Overlap: overlap}
}

func overlap(t *testing.T, open Open) {
	l, ctx, at := open(t), t.Context(), time.Unix(1_700_000_000, 0).UTC()
	// Each policy has two occurrences: one while the first run is queued, and one while it runs.
	cases := []struct {
		policy        domain.Overlap
		queued, while domain.Decision
	}{
		{"skip", "skipped", "skipped"}, {"queue_one", "skipped", "run"}, {"queue_all", "run", "run"}, {"allow", "run", "run"}, {"cancel_previous", "run", "run"},
	}
	for _, c := range cases {
		first := must[[]runs.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due(string(c.policy), at, c.policy)}, nil))[0]
		second := must[[]runs.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due(string(c.policy), at.Add(time.Minute), c.policy)}, nil))[0]
		if first.Decision != "run" || second.Decision != c.queued {
			t.Errorf("%s: %s while queued, want %s (%s)", c.policy, second.Decision, c.queued, second.Reason)
		}

		// The queued run was cancelled, so there is no run to start.
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

		third := must[[]runs.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due(string(c.policy), at.Add(2*time.Minute), c.policy)}, nil))[0]
		if third.Decision != c.while {
			t.Errorf("%s: %s while running, want %s (%s)", c.policy, third.Decision, c.while, third.Reason)
		}
	}
}

// dueOnce tests that an occurrence has one row and one run, however often it is reported.
func dueOnce(t *testing.T, open Open) {
	ctx, at := t.Context(), time.Unix(1_700_000_000, 0).UTC()
	l := open(t)
	first := must[[]runs.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{due("j", at, "allow")}, nil))
	for range 3 {
		again := must[[]runs.Occurrence](t)(l.RecordDue(ctx, at.Add(time.Hour), []ledger.Due{due("j", at, "allow")}, nil))
		if again[0].Run != first[0].Run {
			t.Errorf("an instant got a second run: %+v", again)
		}
	}

	missed := due("j", at.Add(time.Second), "skip")
	missed.Decision, missed.Reason = domain.DecisionMissed, "the machine slept"
	must[[]runs.Occurrence](t)(l.RecordDue(ctx, at, []ledger.Due{missed}, nil))
	rows := must[[]runs.Occurrence](t)(l.Occurrences.List(ctx, "j", at.Add(-time.Hour), at.Add(time.Hour), 10))
	if len(rows) != 2 || rows[0].Decision != domain.DecisionMissed || rows[0].Reason != "the machine slept" || rows[1].Run != first[0].Run {
		t.Errorf("occurrences: %+v", rows)
	}
}

func watermarks(t *testing.T, open Open) {
	l, ctx, at := open(t), t.Context(), time.Unix(1_700_000_000, 0).UTC()
	spec := ledger.JobSpec{Name: "j", Agent: "a", ScheduleHash: "1"}
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, at, []ledger.JobSpec{spec}))
	later := at.Add(time.Hour)
	must[[]runs.Occurrence](t)(l.RecordDue(ctx, later, nil, map[string]time.Time{"j": later}))
	// A late writer must not make occurrences due again.
	must[[]runs.Occurrence](t)(l.RecordDue(ctx, later, nil, map[string]time.Time{"j": at})) // watermarks never move back
	written := l.Changed()
	same := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, later.Add(time.Hour), []ledger.JobSpec{spec}))["j"]
	if same.JobSpec != spec || !same.Watermark.Equal(later) || !same.Anchor.Equal(at) {
		t.Errorf("an unchanged job lost its place: %+v", same)
	}
	select {
	case <-written:
		t.Error("jobs that are as they were are written again")
	default:
	}

	// Each of these changes is made separately.
	spec.Agent = "b"
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, later.Add(time.Hour), []ledger.JobSpec{spec}))
	if known, _, err := l.JobState(ctx, "j"); err != nil || known.Agent != "b" || !known.Watermark.Equal(later) {
		t.Errorf("with another agent: %+v, %v", known, err)
	}
	other := ledger.JobSpec{Name: "other", Agent: "b", ScheduleHash: "1"}
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, later, []ledger.JobSpec{spec, other}))
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, later, []ledger.JobSpec{spec}))
	if known := must[[]ledger.JobState](t)(l.Jobs(ctx)); len(known) != 1 || known[0].JobSpec != spec {
		t.Errorf("after a job came and went: %+v", known)
	}

	spec.ScheduleHash = "2"
	changed := must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, later.Add(2*time.Hour), []ledger.JobSpec{spec}))["j"]
	if !changed.Watermark.Equal(later.Add(2 * time.Hour)) {
		t.Errorf("a changed schedule does not start from now: %+v", changed)
	}
}
