package ledgertest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
)

// history tests the queries for the time around an instant: occurrences, other runs, and events
// without a run.
func history(t *testing.T, open Open) {
	l, ctx, begin := open(t), t.Context(), time.Now()
	if _, known, err := l.JobState(ctx, "j"); known || err != nil {
		t.Fatalf("a job that nobody named is known (%v)", err)
	}

	sixHours(t, l)
	st, known, err := l.JobState(ctx, "j")
	if err != nil || !known || !st.Anchor.Equal(begin) || !st.Watermark.Equal(begin.Add(11*halfHour)) || st.ScheduleHash != "1" {
		t.Errorf("%+v %t (%v)", st, known, err)
	}

	if none := must[[]runs.Occurrence](t)(l.Occurrences.NotRun(ctx, begin, time.Now(), 10)); len(none) != 0 {
		t.Errorf("these did run: %+v", none)
	}
	occurrencesAround(t, l, begin)
	otherRunsAround(t, l, begin)
	eventsBetween(t, l, begin)

	// The occurrences and events of a removed job are not returned.
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, time.Now(), nil))
	if _, known, err := l.JobState(ctx, "j"); known || err != nil {
		t.Errorf("a job that is gone is known (%v)", err)
	}
}

// halfHour is the unit of time in the tests of the history.
const halfHour = 30 * time.Minute

// halves returns the number of half hours from begin to each time.
func halves(begin time.Time, times ...time.Time) (out []int) {
	for _, tm := range times {
		out = append(out, int(tm.Sub(begin)/halfHour))
	}
	return out
}

// sixHours records six hours of history. Odd half hours have a scheduled run with some events, even
// ones a manual run.
func sixHours(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	ctx := t.Context()
	spec := []ledger.JobSpec{{Name: "j", Agent: "a", ScheduleHash: "1"}}
	must[map[string]ledger.JobState](t)(l.SyncJobs(ctx, time.Now(), spec))

	for i := range 6 {
		time.Sleep(halfHour)
		now := time.Now()
		must[[]runs.Occurrence](t)(l.RecordDue(ctx, now, []ledger.Due{due("j", now, "allow"), due("other", now, "allow")}, map[string]time.Time{"j": now}))
		ok(t, l.Events.Append(ctx, ledger.Event{Kind: "daemon.started"}, ledger.Event{Kind: "daemon.stopped"}, ledger.Event{Kind: "other"}, ledger.Event{Kind: "daemon.started", Job: "j"}))
		time.Sleep(halfHour)
		enqueue(t, l, manual("j"), manual("other"))
		// A scheduled run is not an "other run", even without an occurrence.
		if i == 2 {
			enqueue(t, l, ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerSchedule, Key: "more"})
		}
	}

}

func occurrencesAround(t *testing.T, l *ledger.Ledger, begin time.Time) {
	t.Helper()
	at := func(half int) time.Time { return begin.Add(time.Duration(half) * halfHour) }
	for _, c := range []struct {
		at            time.Time
		before, after int
		want          string
	}{
		{at(5), 2, 2, "[1 3 5 7]"}, {at(5).Add(time.Millisecond), 2, 2, "[3 5 7 9]"}, {at(0), 5, 1, "[1]"}, {at(99), 2, 5, "[9 11]"}, {at(5), 1, 0, "[3]"},
	} {
		var times []time.Time
		for _, o := range must[[]runs.Occurrence](t)(l.Occurrences.Around(t.Context(), "j", c.at, c.before, c.after)) {
			times = append(times, o.Nominal)
		}
		if got := fmt.Sprint(halves(begin, times...)); got != c.want {
			t.Errorf("rows around %v: %s, want %s", halves(begin, c.at), got, c.want)
		}
	}
}

func otherRunsAround(t *testing.T, l *ledger.Ledger, begin time.Time) {
	t.Helper()
	at := func(half int) time.Time { return begin.Add(time.Duration(half) * halfHour) }
	for _, c := range []struct {
		at            time.Time
		before, after int
		from, to      time.Time
		want          string
	}{
		{at(6), 2, 2, time.Time{}, time.Time{}, "[2 4 6 8]"}, {at(6), 2, 2, at(4), at(6), "[4 6]"}, {at(6), 9, 9, at(3), at(9), "[4 6 8]"},
		{at(99), 9, 9, time.Time{}, time.Time{}, "[2 4 6 8 10 12]"}, {at(0), 9, 1, time.Time{}, time.Time{}, "[2]"}, {at(7), 1, 0, time.Time{}, time.Time{}, "[6]"},
	} {
		var times []time.Time
		for _, r := range must[[]ledger.Run](t)(l.Runs.OthersAround(t.Context(), "j", c.at, c.before, c.after, c.from, c.to)) {
			times = append(times, r.QueuedAt)
		}
		if got := fmt.Sprint(halves(begin, times...)); got != c.want {
			t.Errorf("runs around %v from %v to %v: %s, want %s", halves(begin, c.at), c.from, c.to, got, c.want)
		}
	}
}

func eventsBetween(t *testing.T, l *ledger.Ledger, begin time.Time) {
	t.Helper()
	at := func(half int) time.Time { return begin.Add(time.Duration(half) * halfHour) }
	events := func(job string, from, to time.Time, limit int, kinds ...string) string {
		var out []string
		for _, e := range must[[]ledger.Event](t)(l.Events.Between(t.Context(), job, from, to, limit, kinds...)) {
			out = append(out, fmt.Sprint(halves(begin, e.At)[0], strings.TrimPrefix(e.Kind, "daemon")))
		}
		return strings.Join(out, " ")
	}
	if got := events("", at(2), at(5), 9, "daemon.started", "daemon.stopped"); got != "3.started 3.stopped 5.started 5.stopped" {
		t.Errorf("%s", got)
	}
	if got := events("", at(0), at(99), 3, "daemon.started", "daemon.stopped"); got != "9.stopped 11.started 11.stopped" {
		t.Errorf("the last three: %s", got)
	}
	if got := events("j", at(2), at(3), 9, "daemon.started"); got != "3.started" {
		t.Errorf("of a job: %s", got)
	}
}

// delayed tests that runs that wait for their time are listed, earliest first.
func delayed(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	now := time.Now()
	late := func(job string, d time.Duration) ledger.Request {
		return ledger.Request{Job: job, Agent: "a", Trigger: domain.TriggerSchedule, Key: fmt.Sprint(job, d), NotBefore: now.Add(d)}
	}
	enqueue(t, l, manual("j"), late("j", 2*time.Minute), late("k", time.Minute), late("j", -time.Minute), late("j", 3*time.Minute))
	again := enqueue(t, l, manual("j"))[0].Run
	ok(t, l.Finish(ctx, start(t, l, again), ledger.Result{Outcome: domain.OutcomeError, RetryAt: now.Add(90 * time.Second)}))
	list := func(job string, limit int) string {
		var out []string
		for _, r := range must[[]ledger.Run](t)(l.Runs.Delayed(ctx, job, now, limit)) {
			out = append(out, fmt.Sprintf("%s %s %s", r.Job, r.State, r.NotBefore.Sub(now).Round(time.Second)))
		}
		return strings.Join(out, ", ")
	}
	if got := list("", 9); got != "k queued 1m0s, j waiting 1m30s, j queued 2m0s, j queued 3m0s" {
		t.Errorf("%s", got)
	}
	if got := list("j", 2); got != "j waiting 1m30s, j queued 2m0s" {
		t.Errorf("%s", got)
	}
	if runs, err := l.Runs.Delayed(ctx, "", now.Add(time.Hour), math.MaxInt32); len(runs) != 0 || err != nil {
		t.Errorf("%v (%v)", runs, err)
	}
}
