package simulate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/wake"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/schedule"
	"rouse/scheduler/simulate"
)

func at(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", text+":00"[:19-len(text)])
	if err != nil {
		panic(err)
	}
	return t
}

func job(t testing.TB, name string, o schedule.Options) scheduler.Job {
	t.Helper()
	o.Job = name
	s, err := schedule.Parse(o)
	if err != nil {
		t.Fatal(err)
	}
	return scheduler.Job{Name: name, Agent: "a", Schedules: []*schedule.Schedule{s}, Overlap: "skip"}
}

func outage(from, to time.Time) []simulate.Event {
	return []simulate.Event{{At: from, Kind: simulate.Down}, {At: to, Kind: simulate.Up}}
}

func play(t testing.TB, o simulate.Options) []simulate.Occurrence {
	t.Helper()
	out, err := simulate.Run(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// told returns one word per occurrence: the minute of the day and the result.
func told(out []simulate.Occurrence) string {
	var words []string
	for _, o := range out {
		words = append(words, o.Nominal.Format("15:04")+" "+string(o.Decision))
	}
	return strings.Join(words, ", ")
}

// A daily job in New York has one run per day around clock changes.
func TestNewYork(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}

	for cron, from := range map[string]time.Time{
		"30 2 * * *": time.Date(2026, 3, 7, 0, 0, 0, 0, zone),
		"30 1 * * *": time.Date(2026, 10, 31, 0, 0, 0, 0, zone),
	} {
		out := play(t, simulate.Options{Jobs: []scheduler.Job{job(t, "j", schedule.Options{Cron: cron, Timezone: "America/New_York"})},
			From: from.Add(-time.Second), To: from.AddDate(0, 0, 3)})
		days := map[string]bool{}
		for _, o := range out {
			if o.Decision == domain.DecisionRun {
				days[o.Nominal.In(zone).Format(time.DateOnly)] = true
			}
		}
		if len(out) != 3 || len(days) != 3 {
			t.Errorf("%s: %s", cron, told(out))
		}
	}
}

// A daily job has one run per day for a year, across all clock changes.
func TestAYearOfADailyJob(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}

	from := time.Date(2026, 1, 1, 0, 0, 0, 0, zone)
	days := map[string]int{}
	for _, o := range play(t, simulate.Options{Jobs: []scheduler.Job{job(t, "j", schedule.Options{Cron: "30 2 * * *", Timezone: "America/New_York"})}, From: from, To: from.AddDate(1, 0, 0)}) {
		if o.Decision == domain.DecisionRun && o.Outcome == domain.OutcomeSuccess {
			days[o.Nominal.In(zone).Format(time.DateOnly)]++
		}
	}

	for day, n := range days {
		if n != 1 {
			t.Errorf("%s ran %d times", day, n)
		}
	}

	if len(days) != 365 {
		t.Errorf("%d days ran", len(days))
	}
}

// An outage of one hour, under each policy of a job that is due every five minutes.
func TestOutagePerPolicy(t *testing.T) {
	down, up := at("2026-11-21 10:02"), at("2026-11-21 11:02")
	for name, c := range map[string]struct {
		policy schedule.Policy
		runs   int
		reason string
	}{
		string(domain.MissSkip):    {schedule.Policy{OnMiss: domain.MissSkip}, 0, "on_miss is skip"},
		string(domain.MissRunOnce): {schedule.Policy{OnMiss: domain.MissRunOnce}, 1, "a later one was due"},
		string(domain.MissCatchup): {schedule.Policy{OnMiss: domain.MissCatchup}, 12, "caught up"},
		"catch up three":           {schedule.Policy{OnMiss: domain.MissCatchup, MaxCatchup: 3}, 3, "which is max_catchup"},
		"half an hour":             {schedule.Policy{OnMiss: domain.MissCatchup, CatchupWindow: 30 * time.Minute}, 6, "catch-up window"},
	} {
		j := job(t, "j", schedule.Options{Cron: "*/5 * * * *"})
		j.Policy = c.policy
		out := play(t, simulate.Options{Jobs: []scheduler.Job{j}, From: at("2026-11-21 09:59"), To: at("2026-11-21 11:03"), Events: outage(down, up)})
		runs, said := 0, false
		for _, o := range out {
			if o.Nominal.Before(down) || o.Nominal.After(up) {
				continue
			}

			if o.Decision == domain.DecisionRun {
				runs++
			}

			if o.Reason == "" || !strings.Contains(o.Reason, "no daemon ran") {
				t.Errorf("%s: %s has the reason %q", name, o.Nominal, o.Reason)
			}

			said = said || strings.Contains(o.Reason, c.reason)
		}
		if len(out) != 13 || runs != c.runs || !said {
			t.Errorf("%s: %d occurrences, %d of them in the outage ran, want %d: %s", name, len(out), runs, c.runs, told(out))
		}
	}
}

// A run that takes longer than the interval of its job, under each overlap policy.
func TestOverlap(t *testing.T) {
	for overlap, want := range map[domain.Overlap]string{
		"skip":            "10:00 run, 10:05 skipped, 10:10 skipped, 10:15 run, 10:20 skipped",
		"queue_one":       "10:00 run, 10:05 run, 10:10 skipped, 10:15 run, 10:20 skipped",
		"queue_all":       "10:00 run, 10:05 run, 10:10 run, 10:15 run, 10:20 run",
		"cancel_previous": "10:00 run, 10:05 run, 10:10 run, 10:15 run, 10:20 run",
		"allow":           "10:00 run, 10:05 run, 10:10 run, 10:15 run, 10:20 run",
	} {
		j := job(t, "j", schedule.Options{Cron: "*/5 * * * *"})
		j.Overlap = overlap
		out := play(t, simulate.Options{Jobs: []scheduler.Job{j}, From: at("2026-11-21 09:59"), To: at("2026-11-21 10:24"), RunsPerAgent: 9, Runs: 9,
			Runtime: func(string, string) time.Duration { return 12 * time.Minute },
			Policy: func(string) dispatch.Policy {
				p := dispatch.Policy{Resume: true}
				if overlap == "allow" {
					p.Concurrency = -1
				}
				return p
			}})
		if told(out) != want {
			t.Errorf("%s: %s\nwant %s", overlap, told(out), want)
		}

		cancelled := 0
		for _, o := range out {
			if o.Outcome == domain.OutcomeCancelled {
				cancelled++
			}
		}

		if (overlap == "cancel_previous") != (cancelled == 4) {
			t.Errorf("%s: %d runs were cancelled", overlap, cancelled)
		}
	}
}

// Runs of a job accumulate and start in the order of their instants, regardless of jitter. The
// simulation must not iterate over all waiting runs each time, or this test would take minutes.
func TestPileUp(t *testing.T) {
	var jobs []scheduler.Job
	for i, o := range []schedule.Options{{Every: "5s"}, {Every: "5s", Jitter: 4 * time.Second}} {
		j := job(t, fmt.Sprint("j", i), o)
		j.Overlap = "allow"
		jobs = append(jobs, j)
	}

	out := play(t, simulate.Options{Jobs: jobs, From: at("2026-11-21 00:00"), To: at("2026-11-22 00:00"), Runs: 2,
		Runtime: func(string, string) time.Duration { return time.Minute }})
	last := map[string]time.Time{}
	for _, o := range out {
		if o.Decision != domain.DecisionRun {
			t.Fatalf("%+v", o)
		}
		if !o.Started.IsZero() {
			if o.Started.Before(last[o.Job]) {
				t.Fatalf("started before an older one: %+v", o)
			}
			last[o.Job] = o.Started
		}
	}

	if len(out) != 2*17280 {
		t.Errorf("%d occurrences", len(out))
	}
}

func TestStartDeadlineAndLanes(t *testing.T) {
	a, b := job(t, "a", schedule.Options{Cron: "0 10 * * *"}), job(t, "b", schedule.Options{Cron: "0 10 * * *"})
	out := play(t, simulate.Options{Jobs: []scheduler.Job{a, b}, From: at("2026-11-21 09:59"), To: at("2026-11-21 12:00"),
		Runtime: func(string, string) time.Duration { return time.Hour },
		Policy:  func(string) dispatch.Policy { return dispatch.Policy{StartDeadline: 10 * time.Minute} }})
	runs, late := 0, 0
	for _, o := range out {
		switch {
		case o.Decision == domain.DecisionRun && o.Outcome == domain.OutcomeSuccess:
			runs++
		case o.Decision == domain.DecisionSkipped && strings.Contains(o.Reason, "start_deadline") && o.Started.IsZero():
			late++
		}
	}

	if runs != 1 || late != 1 {
		t.Errorf("%d ran and %d waited too long: %+v", runs, late, out)
	}
}

func TestPausesAndWakes(t *testing.T) {
	held := pause.Pause{Scope: pause.Agent, Name: "a", Since: at("2026-11-21 10:30"), Until: at("2026-11-21 12:30"), Reason: "holidays"}
	slot := wake.Wake{ID: 7, Agent: "a", At: at("2026-11-21 11:15"), OnMiss: domain.MissRunOnce, ScheduledBy: ledger.ByAgent}
	stale := wake.Wake{ID: 8, Agent: "b", At: at("2026-11-20 11:15"), OnMiss: domain.MissSkip}
	out := play(t, simulate.Options{Jobs: []scheduler.Job{job(t, "j", schedule.Options{Cron: "0 * * * *"})}, From: at("2026-11-21 09:30"), To: at("2026-11-21 13:30"),
		Pauses: []pause.Pause{held}, Wakes: []wake.Wake{slot, stale}})
	if want := "11:15 skipped, 10:00 run, 11:00 skipped, 11:15 run, 12:00 skipped, 13:00 run"; told(out) != want {
		t.Errorf("%s\nwant %s", told(out), want)
	}

	for _, o := range out {
		if o.Source == scheduler.SourceWake && o.Agent == "a" && (o.Started.Before(held.Until) || o.Started.After(held.Until.Add(time.Minute))) {
			t.Errorf("the slot fired at %s", o.Started)
		}
		if o.Decision == domain.DecisionSkipped && o.Source == "cron" && !strings.Contains(o.Reason, "holidays") {
			t.Errorf("%s: %q", o.Nominal, o.Reason)
		}
	}
}

// A run that is interrupted by an outage continues afterwards for its remaining runtime.
func TestOutageCutsOff(t *testing.T) {
	out := play(t, simulate.Options{Jobs: []scheduler.Job{job(t, "j", schedule.Options{Cron: "0 10 * * *"})}, From: at("2026-11-21 09:59"), To: at("2026-11-21 13:00"),
		Events:  outage(at("2026-11-21 10:20"), at("2026-11-21 11:00")),
		Runtime: func(string, string) time.Duration { return 30 * time.Minute }})
	if len(out) != 1 || !out[0].Finished.Equal(at("2026-11-21 11:10")) {
		t.Errorf("%+v", out)
	}
}

func TestRefused(t *testing.T) {
	from := at("2026-11-21 10:00")
	for name, o := range map[string]simulate.Options{
		"backwards":        {From: from, To: from},
		"outages cross":    {From: from, To: from.Add(time.Hour), Events: append(outage(from, from.Add(time.Minute)), outage(from, from.Add(2*time.Minute))...)},
		"down twice":       {From: from, To: from.Add(time.Hour), Events: []simulate.Event{{At: from}, {At: from.Add(time.Minute)}}},
		"before it starts": {From: from, To: from.Add(time.Hour), Events: outage(from.Add(-time.Minute), from.Add(time.Minute))},
	} {
		if _, err := simulate.Run(t.Context(), o, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkYearOfHundredJobs(b *testing.B) {
	var jobs []scheduler.Job
	for i := range 100 {
		jobs = append(jobs, job(b, fmt.Sprint("j", i), schedule.Options{Cron: fmt.Sprintf("%d * * * *", i%60)}))
	}

	for b.Loop() {
		out := play(b, simulate.Options{Jobs: jobs, From: at("2026-01-01 00:00"), To: at("2027-01-01 00:00"),
			Runtime: func(string, string) time.Duration { return time.Second }})
		b.ReportMetric(float64(len(out)), "occurrences")
	}
}
