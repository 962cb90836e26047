package why

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/progress"
	"rouse/scheduler/schedule"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// TestRequestText checks the reasons of runs that were not scheduled.
func TestRequestText(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		`{"file":{"path":"/in/a.csv"}}`: "file /in/a.csv",
		`{"folder":"/in","changes":{"added":["a"],"removed":[],"modified":[]},"round":1}`:     `round 1: added "a"`,
		`{"folder":"/in","changes":{"added":[],"removed":[],"modified":["b"]},"round":3}`:     `round 3, because the folder was different again after the run before: modified "b"`,
		`{"folder":"/in","changes":{"added":[],"removed":[],"modified":[]}}`:                  "round 1: nothing is in it",
		`{"after":{"run":7,"job":"first","outcome":"success"}}`:                               "after run 7 of first, which ended success",
		`{"wake":{"instructions":"look\nagain","scheduled_by":"agent","asked_by":9}}`:         "a wake of the agent ann, planned by run 9: look again",
		`{"wake":{"instructions":"` + strings.Repeat("x", 200) + `","scheduled_by":"owner"}}`: "a wake of the agent ann, planned by the owner: " + strings.Repeat("x", 10),
		`{}`:        "started manually",
		`no detail`: "",
	} {
		got := requestText(ledger.Run{Agent: "ann", Trigger: domain.TriggerManual, Detail: json.RawMessage(detail)})
		if got != want && (len(want) < 40 || !strings.HasPrefix(got, want) || len(got) > len(want)+maxWakeNote) {
			t.Errorf("%s: %q, want %q", detail, got, want)
		}
	}
	if got := requestText(ledger.Run{Trigger: domain.TriggerAPI, Detail: json.RawMessage(`{}`)}); got != "" {
		t.Errorf("a request of the API: %q", got)
	}
}

// TestPending checks the reasons of waiting runs.
func TestPending(t *testing.T) {
	t.Parallel()
	later := noon.Add(time.Hour)
	for want, r := range map[string]ledger.Run{
		"attempt 2 failed; the next is due Mon 2026-03-02 13:00 UTC: no route": {State: domain.StateWaiting, WaitingFor: domain.WaitRetry, NotBefore: later, Attempt: 2, Error: "no\nroute"},
		"attempt 1 failed; the next is due now":                                {State: domain.StateWaiting, WaitingFor: domain.WaitRetry, NotBefore: noon, Attempt: 1},
		"its skill has paused it, until you have it go on: rouse inbox":        {State: domain.StateWaiting, WaitingFor: domain.WaitPause},
		"waits for your answer until Mon 2026-03-02 13:00 UTC: rouse inbox":    {State: domain.StateWaiting, WaitingFor: domain.WaitInput, NotBefore: later},
		"waits for your approval until Mon 2026-03-02 13:00 UTC: rouse inbox":  {State: domain.StateWaiting, WaitingFor: domain.WaitApproval, NotBefore: later},
		"": {State: domain.StateFinished},
	} {
		if got := (&Explainer{}).pending(t.Context(), r, nil, noon, time.UTC); got.Reason != want || got.Blocked {
			t.Errorf("%+v, want %q", got, want)
		}
	}

	current := pause.Pause{Scope: pause.All, Since: noon.Add(-time.Hour), By: "owner"}
	got := (&Explainer{}).pending(t.Context(), ledger.Run{State: domain.StateQueued, Trigger: domain.TriggerSchedule, Job: "j"}, []pause.Pause{current}, noon, time.UTC)
	if !strings.HasPrefix(got.Reason, "waits for the end of the pause: ") {
		t.Errorf("%+v", got)
	}
}

// TestWaitsForNoModel checks that a run that does not wait for a model does not mention one.
func TestWaitsForNoModel(t *testing.T) {
	t.Parallel()
	board := &progress.Tracker{}
	board.Begin(1, "j", nil)
	if got := (&Explainer{Live: board}).waitsForModel(1, noon); got != "" {
		t.Error(got)
	}
}

// TestWatchOf checks that the state of a watch comes from the daemon, or else from the
// configuration.
func TestWatchOf(t *testing.T) {
	t.Parallel()
	j := &config.Job{Name: "j", Watch: &config.Watch{Path: "/in", Mode: "once"}}
	if w := WatchOf(&config.Job{Name: "j"}, nil); w != nil {
		t.Errorf("a job without a watch: %+v", w)
	}
	if w := WatchOf(j, nil); w == nil || w.Path != "/in" || w.Mode != "once" || w.State != "" {
		t.Errorf("without a daemon: %+v", w)
	}
	if w := WatchOf(j, map[string]api.Watch{"j": {Path: "/in", State: "watching"}}); w == nil || w.State != "watching" {
		t.Errorf("with a daemon: %+v", w)
	}

	for want, w := range map[string]api.Watch{"": {}, "gone": {Problem: "gone"}, "slow": {Degraded: "slow"}, "gone; slow": {Problem: "gone", Degraded: "slow"}} {
		if got := WatchProblem(w); got != want {
			t.Errorf("%+v: %q", w, got)
		}
	}
}

// TestJoinNotes checks that empty notes add no separators.
func TestJoinNotes(t *testing.T) {
	t.Parallel()
	if got := joinNotes([]string{"", "a", "", "b"}); got != "a; b" {
		t.Error(got)
	}
	if got := joinNotes(nil); got != "" {
		t.Error(got)
	}
}

// explained returns an explanation of a daily job at eight, recorded since the first of March.
func explained(t *testing.T) *explanation {
	t.Helper()
	daily, err := schedule.Parse(schedule.Options{Cron: "0 8 * * *", Location: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	e := &explanation{Explainer: &Explainer{}, name: "j", now: noon, zone: time.UTC, anchor: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	e.standing.Job.Schedules, e.standing.Watermark = []*schedule.Schedule{daily}, noon
	return e
}

// TestNearby checks that a time without an occurrence is explained by the scheduled times around
// it.
func TestNearby(t *testing.T) {
	t.Parallel()
	e := explained(t)
	if err := e.parseAsked("2026-03-02 09:30", 6); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(e.askedNotes(), "\n")
	for _, want := range []string{"2026-03-02 09:30", "is no instant of ", "the last before it is Mon 2026-03-02 08:00", "the next Tue 2026-03-03 08:00"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// TestWithoutRow checks that a scheduled time without a row is explained unless it is still
// undecided.
func TestWithoutRow(t *testing.T) {
	t.Parallel()
	e := explained(t)
	excluded := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	ex, ok := e.withoutRow(excluded, "exclude: 2026-03-02")
	if !ok || ex.Decision != domain.DecisionSkipped || ex.Reason != "exclude: 2026-03-02" {
		t.Errorf("excluded: %+v %v", ex, ok)
	}

	before := time.Date(2026, 2, 20, 8, 0, 0, 0, time.UTC)
	if ex, ok := e.withoutRow(before, ""); ok {
		t.Errorf("it was not asked for: %+v", ex)
	}
	if err := e.parseAsked("2026-02-20 08:00", 6); err != nil {
		t.Fatal(err)
	}
	if ex, ok := e.withoutRow(before, ""); !ok || !strings.Contains(ex.Reason, "knows the schedule as it is now only since Sun 2026-03-01") {
		t.Errorf("before the anchor: %+v %v", ex, ok)
	}
	e.notTakenUp = "no daemon has taken this job up yet"
	if ex, ok := e.withoutRow(before, ""); !ok || ex.Reason != "no row: no daemon has taken this job up yet" {
		t.Errorf("not taken up: %+v %v", ex, ok)
	}

	e.standing.Watermark = excluded.Add(-time.Minute)
	if ex, ok := e.withoutRow(excluded, ""); ok {
		t.Errorf("not decided yet: %+v", ex)
	}

	e.add(rankOccurrence, api.Explanation{Nominal: api.At(excluded)})
	if _, ok := e.withoutRow(excluded, "exclude: x"); ok {
		t.Error("it has a row")
	}
}

// TestSort checks the order of lines: by time, then occurrences before runs before retries.
func TestSort(t *testing.T) {
	t.Parallel()
	e := explained(t)
	if err := e.parseAsked("", 3); err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct {
		rank int
		at   time.Time
		text string
	}{{rankRetry, noon, "retry"}, {rankOccurrence, noon.Add(time.Hour), "coming"}, {rankRun, noon, "run"}, {rankOccurrence, noon, "occurrence"}, {rankRun, noon.Add(-time.Hour), "before"}} {
		e.add(l.rank, api.Explanation{Nominal: api.At(l.at), Reason: l.text})
	}
	middle := e.sort()
	var got []string
	for _, l := range e.lines {
		got = append(got, l.Reason)
	}
	if all := strings.Join(got, " "); all != "before occurrence run retry coming" || middle != 4 {
		t.Errorf("%s, %d before the pivot", all, middle)
	}
}
