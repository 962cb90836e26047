package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/runs"
)

// ending returns the end of a run with one notice, which is repeated for each failure.
func ending(outcome domain.Outcome, kind string) ledger.Result {
	told := ledger.Notice{Channel: "desktop", Title: "told"}
	tell := &incident.EndNotices{Recovery: []ledger.Notice{told}}
	if outcome.OpensIncident() {
		tell.Notices = []incident.EndNotice{{Notice: told, Every: 1}}
	}
	return ledger.Result{Outcome: outcome, Kind: kind, Error: "why " + kind, Tell: tell}
}

// ends runs a job once and returns the effect of the run's end on incidents.
func ends(t *testing.T, l *ledger.Ledger, job string, res ledger.Result) (meant incident.Change) {
	t.Helper()
	a := start(t, l, enqueue(t, l, manual(job))[0].Run)
	ok(t, l.Finish(t.Context(), a, res))
	for _, i := range must[[]incident.Incident](t)(l.Incidents.List(t.Context(), incident.Filter{Job: job, Closed: true})) {
		if i.LastRun == a.Run {
			meant.Failed = &i
		}
		if i.ClosedBy == a.Run {
			meant.Recovered = append(meant.Recovered, i)
		}
	}
	return meant
}

func openIncidents(t *testing.T, l *ledger.Ledger) string {
	t.Helper()
	var out []string
	for _, i := range must[[]incident.Incident](t)(l.Incidents.List(t.Context(), incident.Filter{})) {
		acked := ""
		if !i.AckedAt.IsZero() {
			acked = " known"
		}
		out = append(out, fmt.Sprintf("%s %s %d%s", i.Of(), i.Kind, i.Failures, acked))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// incidents tests that failures of the same job and kind are counted together, and that a success
// closes them.
func incidents(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()

	// Each step lists the open incidents after a run's end.
	for n, step := range []struct {
		job     string
		outcome domain.Outcome
		kind    string
		open    string
	}{
		{"j", domain.OutcomeError, "shell", "j shell 1"},
		{"j", domain.OutcomeError, "shell", "j shell 2"},
		{"j", domain.OutcomeTimeout, "", "j shell 2; j timeout 1"},
		{"other", domain.OutcomeError, "shell", "j shell 2; j timeout 1; other shell 1"},
		{"j", domain.OutcomePartial, "", "j shell 2; j timeout 1; other shell 1"},
		{"j", domain.OutcomeCancelled, "", "j shell 2; j timeout 1; other shell 1"},
		{"j", domain.OutcomeSkipped, "", "j shell 2; j timeout 1; other shell 1"},
		{"j", domain.OutcomeInterrupted, "", "j interrupted 1; j shell 2; j timeout 1; other shell 1"},
		{"other", domain.OutcomeNothing, "", "j interrupted 1; j shell 2; j timeout 1"},
		{"j", domain.OutcomeSuccess, "", ""},
		{"j", domain.OutcomeError, "shell", "j shell 1"},
	} {
		meant := ends(t, l, step.job, ending(step.outcome, step.kind))
		if got := openIncidents(t, l); got != step.open {
			t.Errorf("after end %d: %q, want %q", n, got, step.open)
		}
		if failed := step.outcome.Failed() || step.outcome == domain.OutcomeInterrupted; failed != (meant.Failed != nil) {
			t.Errorf("end %d meant %+v", n, meant)
		}
		if step.outcome == domain.OutcomeSuccess && len(meant.Recovered) != 3 {
			t.Errorf("the success closed %+v", meant.Recovered)
		}
	}

	all := must[[]incident.Incident](t)(l.Incidents.List(ctx, incident.Filter{Job: "j", Closed: true}))
	if len(all) != 4 || all[0].Failures != 1 || all[0].Told != 1 || all[0].Error != "why shell" || all[0].FirstRun == 0 || all[0].FirstRun != all[0].LastRun {
		t.Errorf("of j: %+v", all)
	}
	over := must[[]incident.Incident](t)(l.Incidents.List(ctx, incident.Filter{Job: "other", Closed: true}))
	if len(over) != 1 || over[0].ClosedAt.IsZero() || over[0].ClosedBy == 0 || over[0].Told != 2 {
		t.Errorf("of other: %+v", over)
	}
	for _, c := range []struct {
		filter incident.Filter
		want   int
	}{
		{incident.Filter{}, 1}, {incident.Filter{Job: "j"}, 1}, {incident.Filter{Job: "other"}, 0},
		{incident.Filter{Closed: true}, 5}, {incident.Filter{Closed: true, Limit: 2}, 2}, {incident.Filter{Job: "nobody", Closed: true}, 0},
	} {
		if found := must[[]incident.Incident](t)(l.Incidents.List(ctx, c.filter)); len(found) != c.want {
			t.Errorf("%+v: %+v, want %d", c.filter, found, c.want)
		}
	}
	events := must[[]ledger.Event](t)(l.Events.List(ctx, event.Filter{Job: "other"}))
	if !slices.ContainsFunc(events, func(e ledger.Event) bool { return e.Kind == "incident.opened" }) || !slices.ContainsFunc(events, func(e ledger.Event) bool { return e.Kind == "incident.closed" }) {
		t.Errorf("events: %+v", events)
	}

	// A notice refers to its incident.
	last, _, err := l.Outbox.Last(ctx, "desktop")
	ok(t, err)
	if last.Incident != all[0].ID {
		t.Errorf("the last notice is about %d, not %d", last.Incident, all[0].ID)
	}
}

// incidentKinds tests that failures are grouped by outcome and exit if the executor reports no
// kind.
func incidentKinds(t *testing.T, open Open) {
	l := open(t)
	for _, c := range []struct {
		outcome domain.Outcome
		exit    domain.Exit
		kind    string
	}{
		{domain.OutcomeError, domain.ExitEnded, "error"},
		{domain.OutcomeError, domain.ExitToolRejected, "tool_rejected"},
		{domain.OutcomeBudget, domain.ExitEnded, "daily budget"},
		{domain.OutcomeBudget, domain.ExitIterationCap, "budget_exceeded"},
		{domain.OutcomeTimeout, domain.ExitCancelled, "timeout"},
	} {
		res := ending(c.outcome, "")
		res.Exit = c.exit
		if meant := ends(t, l, "j", res); meant.Failed == nil || meant.Failed.Kind != c.kind {
			t.Errorf("%+v: %+v", c, meant.Failed)
		}
	}
}

// acknowledge tests that an acknowledgement is stored once, survives a restart, and fails if the
// incident is closed.
func acknowledge(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	id := ends(t, l, "j", ending(domain.OutcomeError, "shell")).Failed.ID
	i := must[incident.Incident](t)(l.Incidents.Acknowledge(ctx, id, "I know"))
	again := must[incident.Incident](t)(l.Incidents.Acknowledge(ctx, id, "others do"))
	if i.AckedAt.IsZero() || again.Note != "I know" || !again.AckedAt.Equal(i.AckedAt) {
		t.Errorf("%+v, and again %+v", i, again)
	}
	if _, err := l.Incidents.Acknowledge(ctx, id+1, ""); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}

	if meant := ends(t, l, "j", ending(domain.OutcomeError, "shell")); meant.Failed.AckedAt.IsZero() || meant.Failed.Failures != 2 {
		t.Errorf("the next failure: %+v", meant.Failed)
	}
	if meant := ends(t, l, "j", ending(domain.OutcomeError, "disk")); !meant.Failed.AckedAt.IsZero() {
		t.Errorf("a failure of another kind: %+v", meant.Failed)
	}
	ends(t, l, "j", ending(domain.OutcomeSuccess, ""))
	var over *incident.OverError
	if _, err := l.Incidents.Acknowledge(ctx, id, ""); !errors.As(err, &over) || over.Incident.ClosedBy == 0 {
		t.Errorf("one that is over: %v", err)
	}
}

// incidentFenced tests that a rejected end changes no incident. A retried run counts only by its
// last end. A run with a waiting caller opens no incident.
func incidentFenced(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	retried := ending(domain.OutcomeError, "x")
	retried.RetryAt, retried.Tell = time.Now(), nil
	ok(t, l.Finish(ctx, a, retried))
	if got := openIncidents(t, l); got != "" {
		t.Errorf("an attempt that is tried again opened %s", got)
	}

	second := start(t, l, a.Run)
	if err := l.Finish(ctx, a, ending(domain.OutcomeError, "x")); !errors.Is(err, ledger.ErrFenced) || openIncidents(t, l) != "" {
		t.Errorf("the end of an attempt that is over: %v, %s", err, openIncidents(t, l))
	}
	ok(t, l.Interrupt(ctx, second, "gone", &ledger.Result{Outcome: domain.OutcomeInterrupted, Tell: ending(domain.OutcomeInterrupted, "").Tell}))
	if got := openIncidents(t, l); got != "j interrupted 1" {
		t.Errorf("a run that was cut off for good: %q", got)
	}

	a = start(t, l, enqueue(t, l, manual("alone"))[0].Run)
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeError}))
	if got := openIncidents(t, l); got != "j interrupted 1" {
		t.Errorf("a run that somebody waits for: %q", got)
	}
}

// incidentRace tests that runs of a job that fail at the same time are counted in one incident.
func incidentRace(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	const runs = 8
	var attempts []ledger.Attempt
	for range runs {
		attempts = append(attempts, start(t, l, enqueue(t, l, manual("j"))[0].Run))
	}

	var all sync.WaitGroup
	for _, a := range attempts {
		all.Go(func() {
			if err := l.Finish(ctx, a, ending(domain.OutcomeError, "x")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := openIncidents(t, l); got != fmt.Sprintf("j x %d", runs) {
		t.Errorf("%q", got)
	}
	if got := kinds(t, l, event.Filter{Job: "j"}); strings.Count(got, "incident.opened") != 1 {
		t.Errorf("events: %s", got)
	}
}

// incidentsKept tests that an incident is deleted with its last failed run, and that notices
// without a run are eventually deleted.
func incidentsKept(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	keep := func(string) time.Duration { return 24 * time.Hour }
	ends(t, l, "old", ending(domain.OutcomeError, "x"))
	ok(t, l.Outbox.Append(ctx, ledger.Notice{Channel: "c", Title: "of no run"}))
	for _, n := range must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10)) {
		n.State = ledger.NoticeDelivered
		ok(t, l.Outbox.Update(ctx, n))
	}

	time.Sleep(23 * time.Hour)
	ends(t, l, "new", ending(domain.OutcomeError, "x"))
	time.Sleep(2 * time.Hour)
	must[int](t)(l.Maint.Prune(ctx, time.Now(), keep))
	if got := openIncidents(t, l); got != "new x 1" {
		t.Errorf("left: %q", got)
	}
	if _, there, err := l.Outbox.Last(ctx, "c"); there || err != nil {
		t.Errorf("an old notice of no run is left: %v", err)
	}
}

// digests tests that each period has one digest in the outbox.
func digests(t *testing.T, open Open) {
	l, ctx := open(t), t.Context()
	began := must[time.Time](t)(l.Outbox.DigestThrough(ctx, "mail", time.Now()))
	to := began.Add(time.Hour)
	if !must[bool](t)(l.Outbox.AppendDigest(ctx, began, to, ledger.Notice{Channel: "mail", Title: "day"})) {
		t.Error("it was not added")
	}
	if must[bool](t)(l.Outbox.AppendDigest(ctx, began, to.Add(time.Second), ledger.Notice{Channel: "mail", Title: "again"})) {
		t.Error("a second one of the same span was added")
	}
	if through := must[time.Time](t)(l.Outbox.DigestThrough(ctx, "mail", time.Now())); !through.Equal(to) {
		t.Errorf("the next one begins at %v, not %v", through, to)
	}
	if pending := must[[]ledger.Notice](t)(l.Outbox.Pending(ctx, time.Now(), 10)); len(pending) != 1 || pending[0].Title != "day" {
		t.Errorf("%+v", pending)
	}

	ok(t, l.Outbox.KeepDigests(ctx, map[string]bool{"mail": true}))
	if through := must[time.Time](t)(l.Outbox.DigestThrough(ctx, "mail", time.Now())); !through.Equal(to) {
		t.Errorf("a channel that keeps its digest begins at %v", through)
	}
	ok(t, l.Outbox.KeepDigests(ctx, map[string]bool{"mail": false}))
	if through := must[time.Time](t)(l.Outbox.DigestThrough(ctx, "mail", time.Now())); through.Equal(to) {
		t.Error("a channel that gets its digest again goes on where it was")
	}

	a := start(t, l, enqueue(t, l, manual("j"))[0].Run)
	ok(t, l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeError, Usage: ledger.Usage{TokensIn: 3, TokensOut: 4, CostMicroUSD: 5}}))
	ended := must[[]runs.Ended](t)(l.Runs.EndedBetween(ctx, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)))
	if len(ended) != 1 || ended[0] != (runs.Ended{Job: "j", Agent: "a", Outcome: domain.OutcomeError, Runs: 1, Tokens: 7, Cost: 5}) {
		t.Errorf("%+v", ended)
	}
	if none := must[[]runs.Ended](t)(l.Runs.EndedBetween(ctx, time.Now().Add(time.Minute), time.Now().Add(time.Hour))); len(none) != 0 {
		t.Errorf("of a time to come: %+v", none)
	}
}
