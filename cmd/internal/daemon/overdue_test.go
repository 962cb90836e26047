package daemon

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/logging"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/pause"
)

// A job without a success in time causes one notice for each window, also after a restart and
// while it is paused. A success closes the incident and causes a notice. The test sets the time.
func TestExpectSuccessWithin(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
timezone: UTC
agents: [{name: keeper, workdir: ./work}]
notifications: [{name: phone, kind: desktop}]
jobs:
  - {name: backup, agent: keeper, schedule: "0 2 * * *", expect_success_within: 26h, playbook: [{call: db_schema}], notify: {on: [failure]}}
  - {name: free, agent: keeper, schedule: "0 2 * * *", playbook: [{call: db_schema}]}
  - {name: off, agent: keeper, schedule: "0 2 * * *", enabled: false, expect_success_within: 1h, playbook: [{call: db_schema}]}
`})
	open := func() *Daemon {
		cfg, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml")}, agent.Specs())
		if err != nil {
			t.Fatal(err)
		}
		d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	defer func() { d.Close() }()

	start := time.Now().Add(-52 * time.Hour) // the ledger records the pause and the success at the current time
	if _, err := d.ledger.SyncJobs(t.Context(), start, []ledger.JobSpec{{Name: "backup", Agent: "keeper"}}); err != nil {
		t.Fatal(err)
	}
	told := func() (out []ledger.Notice) {
		t.Helper()
		all, err := d.ledger.Outbox.Undelivered(t.Context(), 100) // newest first
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	at := func(after time.Duration, notices int, opened string) {
		t.Helper()
		if _, err := d.upkeep.RecordOverdue(t.Context(), start.Add(after)); err != nil {
			t.Fatal(err)
		}
		found := ""
		incidents, err := d.ledger.Incidents.List(t.Context(), incident.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range incidents {
			found += i.Job + " " + i.Kind
		}
		if got := told(); len(got) != notices || found != opened {
			t.Fatalf("after %s: %d notices, %q; want %d, %q; %+v", after, len(got), found, notices, opened, got)
		}
	}

	const open1 = "backup no success"
	at(25*time.Hour, 0, "")
	at(27*time.Hour, 1, open1)
	if n := told()[0]; n.Channel != "phone" || n.Incident == 0 || !strings.HasPrefix(n.Title, "backup: no success within ") || !strings.Contains(n.Body, "It has never succeeded; it has not run") {
		t.Errorf("%+v", n)
	}
	at(28*time.Hour, 1, open1)
	d.Close()
	d = open() // after a restart there is no second notice for the same window
	at(51*time.Hour, 1, open1)
	if _, err := d.ledger.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Job, Name: "backup", Reason: "disk swap"}); err != nil {
		t.Fatal(err)
	}
	at(53*time.Hour, 2, open1)
	if n := told()[0]; !strings.Contains(n.Body, "it is paused") {
		t.Errorf("%+v", n)
	}
	at(26*10*time.Hour+time.Minute, 3, open1) // the daemon was off: one notice for all of these windows

	checks, err := d.Doctor(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if c := checkNamed(t, checks, "success of backup"); c.OK || !strings.Contains(c.Remedy, "rouse why backup") {
		t.Errorf("%+v", c)
	}

	finish(t, d, "backup", domain.OutcomeSuccess)
	if n := told(); len(n) != 4 || n[0].Title != "backup has recovered" || !strings.Contains(n[0].Body, "), 10 missed windows since ") {
		t.Fatalf("the recovery: %+v", n)
	}
	if incidents, err := d.ledger.Incidents.List(t.Context(), incident.Filter{}); err != nil || len(incidents) > 0 {
		t.Errorf("%+v (%v)", incidents, err)
	}
	if o, next, err := d.Overdue(t.Context(), d.Current(), d.Current().Job("backup"), time.Now()); o != nil || err != nil || time.Until(next) > 26*time.Hour || time.Until(next) < 25*time.Hour {
		t.Errorf("%+v %s (%v)", o, next, err)
	}
}

// TestWatchOverdue checks that the daemon reports each window at its end and sleeps in between.
func TestWatchOverdue(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
timezone: UTC
agents: [{name: keeper, workdir: ./work}]
notifications: [{name: phone, kind: desktop}]
jobs: [{name: backup, agent: keeper, schedule: "0 2 * * *", expect_success_within: 26h, playbook: [{call: db_schema}]}]
`})
	synctest.Test(t, func(t *testing.T) {
		cfg, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml")}, agent.Specs())
		if err != nil {
			t.Fatal(err)
		}
		d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- d.upkeep.WatchOverdue(ctx) }()
		begun := time.Now()
		for _, step := range []struct {
			at      time.Duration // since the start
			ends    string        // outcome of a run at this time
			notices int
		}{
			{26*time.Hour - time.Second, "", 0}, {26*time.Hour + time.Second, "", 1}, {52*time.Hour - time.Second, "", 1}, {52*time.Hour + time.Second, "", 2},
			{60 * time.Hour, "success", 3}, {86*time.Hour - time.Second, "", 3}, {86*time.Hour + time.Second, "", 4},
		} {
			time.Sleep(time.Until(begun.Add(step.at)))
			if step.ends != "" {
				finish(t, d, "backup", domain.Outcome(step.ends))
			}
			synctest.Wait()
			told, err := d.ledger.Outbox.Undelivered(t.Context(), 100)
			if err != nil || len(told) != step.notices {
				t.Errorf("after %s: %d notices, want %d: %+v (%v)", step.at, len(told), step.notices, told, err)
			}
		}
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// finish ends a run of a job and sends its notices.
func finish(t *testing.T, d *Daemon, job string, outcome domain.Outcome) {
	t.Helper()
	ctx := context.Background()
	accepted, err := d.ledger.Enqueue(ctx, ledger.Request{Job: job, Agent: "keeper", Trigger: domain.TriggerManual})
	if err != nil {
		t.Fatal(err)
	}
	run, a, err := d.ledger.StartAttempt(ctx, accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	res := ledger.Result{Outcome: outcome, Error: "it was not done"}
	res.Tell = d.runner.Notices.EndNotices(run, res)
	if err := d.ledger.Finish(ctx, a, res); err != nil {
		t.Fatal(err)
	}
}

// Each failure of a job that runs daily or less often causes a notice. Failures of more frequent
// jobs are grouped.
func TestSeldomJobsTellEachFailure(t *testing.T) {
	t.Parallel()
	for trigger, want := range map[string]int{
		`schedule: "0 2 * * *"`: 5, `every: 24h`: 5, `schedule: "0 2 * * 1"`: 5, `window: {from: "02:00", to: "05:00"}`: 5,
		`schedule: "0 2,14 * * *"`: 1, `schedule: "0 * * * *"`: 1, `every: 23h`: 1, `watch: {path: ./in}`: 1, `schedule: "0 2 * * *", watch: {path: ./in}`: 1,
	} {
		t.Run(trigger, func(t *testing.T) {
			t.Parallel()
			dir := cmdtest.Write(t, map[string]string{"in/x": "", "rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: keeper, workdir: ./work}]\nnotifications: [{name: phone, kind: desktop}]\njobs: [{name: j, agent: keeper, playbook: [{call: db_schema}], " + trigger + "}]\n"})
			cfg, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml")}, agent.Specs())
			if err != nil {
				t.Fatal(err)
			}
			d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			for range 5 {
				finish(t, d, "j", domain.OutcomeTimeout)
			}
			told, err := d.ledger.Outbox.Undelivered(t.Context(), 100)
			if err != nil || len(told) != want {
				t.Errorf("%d notices, want %d (%v): %+v", len(told), want, err, told)
			}
		})
	}
}
