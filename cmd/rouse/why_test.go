package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/logging"
	"rouse/cmd/internal/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/pause"
	"rouse/internal/ledger/runs"
	"rouse/internal/ledger/wake"
	"rouse/scheduler"
)

// past is a home with a history.
type past struct {
	t      *testing.T
	config string
	now    time.Time // the full hour
	l      *ledger.Ledger
	jobs   []scheduler.Job
}

const hourly = `version: 1
home: ./home
timezone: UTC
agents: [{name: clerk}, {name: away, enabled: false}]
defaults: {notify: {on: []}, retry: {attempts: 3}}
jobs:
  - {name: hourly, agent: clerk, schedule: "0 * * * *", playbook: [{call: db_schema}]}
  - {name: off, agent: clerk, enabled: false, schedule: "0 * * * *", playbook: [{call: db_schema}]}
  - {name: gone, agent: away, schedule: "0 * * * *", playbook: [{call: db_schema}]}
`

// newPast returns a home whose daemon first read the jobs ten days ago.
func newPast(t *testing.T, text string) *past {
	t.Helper()
	p := &past{t: t, config: filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": text}), "rouse.yaml"), now: time.Now().UTC().Truncate(time.Hour)}
	cfg, err := load.Config(yaml.Options{Path: p.config, Getenv: os.Getenv}, agent.Specs())
	if err != nil {
		t.Fatal(err)
	}

	plan, err := plan.New(cfg, logging.Quiet())
	if err != nil {
		t.Fatal(err)
	}

	p.jobs = plan.Jobs
	home := string(cfg.Home)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if p.l, err = ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(home, "ledger.db"), Blobs: filepath.Join(home, "blobs")}); err != nil {
		t.Fatal(err)
	}

	p.took(p.ago(240))
	return p
}

func (p *past) ago(hours int) time.Time { return p.now.Add(time.Duration(-hours) * time.Hour) }

// took makes a daemon read the configuration at the given time.
func (p *past) took(at time.Time) {
	p.t.Helper()
	var specs []ledger.JobSpec
	for _, j := range p.jobs {
		specs = append(specs, ledger.JobSpec{Name: j.Name, Agent: j.Agent, ScheduleHash: scheduler.Hash(j)})
	}
	if _, err := p.l.SyncJobs(p.t.Context(), at, specs); err != nil {
		p.t.Fatal(err)
	}
}

// record records an instant of the hourly job and its decision.
func (p *past) record(hours int, decision domain.Decision, reason string) runs.Occurrence {
	p.t.Helper()
	at := p.ago(hours)
	out, err := p.l.RecordDue(p.t.Context(), at, []ledger.Due{{Job: "hourly", Agent: "clerk", Source: "cron", Nominal: at, Actual: at, Decision: decision, Reason: reason, Overlap: "allow"}},
		map[string]time.Time{"hourly": at})
	if err != nil {
		p.t.Fatal(err)
	}
	return out[0]
}

func (p *past) event(hours int, kind, data string) {
	p.t.Helper()
	if err := p.l.Events.Append(p.t.Context(), ledger.Event{Kind: kind, At: p.ago(hours).Add(-time.Minute), Data: json.RawMessage(data)}); err != nil {
		p.t.Fatal(err)
	}
}

// end ends the next attempt of a run.
func (p *past) end(run int64, res ledger.Result) {
	p.t.Helper()
	_, a, err := p.l.StartAttempt(p.t.Context(), run)
	if err == nil {
		err = p.l.Finish(p.t.Context(), a, res)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// says runs a command without a daemon and returns its output.
func (p *past) says(args ...string) string {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(p.t.Context(), append(args, "--config", p.config), nil, &stdout, &stderr); code != exitDone {
		p.t.Fatalf("rouse %s: exit %d\n%s%s", strings.Join(args, " "), code, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func (p *past) wants(out string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			p.t.Errorf("%q is not in\n%s", text, out)
		}
	}
}

// stamps formats an instant as the output does.
func (p *past) stamps(hours int) string { return p.ago(hours).Format(time.DateTime) }

// TestWhyOfAFailedRun checks that the line of a failed run contains the error.
func TestWhyOfAFailedRun(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	p.end(p.record(2, domain.DecisionRun, "caught up 3m late").Run, ledger.Result{Outcome: domain.OutcomeError, Error: "gate: exit 2"})
	p.end(p.record(1, domain.DecisionRun, "").Run, ledger.Result{Outcome: domain.OutcomeTimeout, Error: "no answer for 5m"})
	p.wants(p.says("why", "hourly"), "1 ▲ error    caught up 3m late; gate: exit 2", "no answer for 5m")
}

// TestWhyKilledBeforeItsWindow checks that the next start reports a killed daemon, even if that
// daemon started before the displayed period. A daemon that was stopped must not be reported as
// killed.
func TestWhyKilledBeforeItsWindow(t *testing.T) {
	t.Parallel()
	const killed = "the one before it did not stop: it was killed, or the power went"
	for _, stopped := range []bool{false, true} {
		p := newPast(t, hourly)
		p.event(90, "daemon.started", "")
		if stopped {
			p.event(80, "daemon.stopped", "")
		}

		p.end(p.record(6, domain.DecisionRun, "").Run, ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "fine"})
		p.event(5, "daemon.started", "")
		p.record(5, domain.DecisionRun, "")
		out := p.says("why", "hourly", "-n", "2", "--at", p.ago(5).Format("2006-01-02 15:04"))
		if p.wants(out, "daemon  started"); strings.Contains(out, killed) == stopped {
			t.Errorf("stopped %v:\n%s", stopped, out)
		}
	}
}

// TestWhy checks that every instant has a line with its decision and its reason.
func TestWhy(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	p.event(7, "daemon.started", "")
	good := p.record(6, domain.DecisionRun, "")
	p.end(good.Run, ledger.Result{Outcome: domain.OutcomeSuccess, Summary: "fine"})
	p.record(5, domain.DecisionSkipped, "overlap: run 1 is still running")
	tried := p.record(4, domain.DecisionRun, "")
	p.end(tried.Run, ledger.Result{Outcome: domain.OutcomeError, Error: "the \x1b[31mbank is down", RetryAt: time.Now().Add(-time.Second)})
	p.end(tried.Run, ledger.Result{Outcome: domain.OutcomeSkipped, Error: "gate 1 of 1 (rouse.yaml:9): the file is not there"})
	p.event(3, "daemon.started", "")
	p.event(3, "clock.stepped", `{"seconds": -90}`)
	p.event(3, "config.reloaded", `{"summary": "1 job changed: hourly"}`)
	p.record(3, domain.DecisionMissed, "missed by 2h (no daemon ran); on_miss is skip")
	out := p.says("why", "hourly")
	p.wants(out,
		"hourly (agent clerk): every hour at minute 0",
		p.stamps(6)+"  cron    run       1 ● success",
		p.stamps(5)+"  cron    skipped   –            overlap: run 1 is still running",
		p.stamps(4)+"  cron    skipped   2 – skipped  gate 1 of 1 (rouse.yaml:9): the file is not there",
		"retry   run       2 – skipped  attempt 2 of run 2; attempt 1 failed: the bank is down",
		"daemon  started                the one before it did not stop: it was killed, or the power went",
		"clock   stepped                it was set back by 1m30s",
		"config  reloaded               1 job changed: hourly",
		p.stamps(3)+"  cron    missed    –            missed by 2h (no daemon ran); on_miss is skip",
		p.stamps(2)+"  cron    –         –            not decided yet: a daemon started now would count it as missed: missed by",
		p.stamps(0)+"  cron    –         –            not decided yet: a daemon started now would run it",
		p.stamps(-1)+"  cron    –         –            not due yet")
	if strings.Contains(out, "\x1b") {
		t.Errorf("a control character reaches the terminal: %q", out)
	}

	var lines []api.Explanation
	if err := json.Unmarshal([]byte(p.says("why", "hourly", "--json")), &lines); err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s %s %s", l.Source, l.Decision, l.Run))
	}
	if want := "cron run 1, cron skipped , cron skipped 2, cron missed , cron  , cron  , cron  , retry run 2, cron  "; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}

	// Lines around a time, with the requested instant marked.
	out = p.says("why", "hourly", "-n", "3", "--at", p.ago(5).Format("2006-01-02 15:04"))
	p.wants(out, p.stamps(6), p.stamps(5)+" ←", p.stamps(4))
	if strings.Contains(out, p.stamps(3)) {
		t.Errorf("more than three lines:\n%s", out)
	}

	// A time between two instants is reported as such.
	out = p.says("why", "hourly", "--at", p.ago(5).Add(30*time.Minute).Format(time.RFC3339))
	p.wants(out, "is no instant of every hour at minute 0: the last before it is "+p.ago(5).Format("Mon 2006-01-02 15:04")+" UTC, the next "+p.ago(4).Format("Mon 2006-01-02 15:04"))
	if strings.Contains(out, "←") {
		t.Errorf("something is marked:\n%s", out)
	}

	// Times before the schedule was known, and gaps in the record.
	p.wants(p.says("why", "hourly", "--at", p.ago(300).Format(time.RFC3339)), p.stamps(300)+" ←", "no row: this home knows the schedule as it is now only since "+p.ago(240).Format("Mon 2006-01-02 15:04"))
	p.wants(p.says("why", "hourly", "--at", p.ago(100).Format(time.RFC3339)), p.stamps(100)+" ←", "no row is left of it")
	p.wants(p.says("why", "off"), "it is disabled (enabled: false, see ", "nothing has come due and nothing has run")
	p.wants(p.says("why", "gone"), "its agent away is disabled, so nothing comes due")
}

// TestWhyNotDecidedYet checks that an overlapping instant is listed with its expected decision.
func TestWhyNotDecidedYet(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	on := p.record(1, domain.DecisionRun, "")
	if _, _, err := p.l.StartAttempt(t.Context(), on.Run); err != nil {
		t.Fatal(err)
	}

	p.wants(p.says("why", "hourly"), "1 ◌ running", "not decided yet: a daemon started now would skip it: overlap: run 1 is still running")
	if _, err := p.l.Pauses.Set(t.Context(), pause.Pause{Scope: pause.Agent, Name: "clerk", Reason: "holidays", By: ledger.ByUser}); err != nil {
		t.Fatal(err)
	}

	p.wants(p.says("why", "hourly"), "agent clerk is paused until somebody resumes it: holidays", "not due yet, and will be skipped: paused: agent clerk: holidays",
		"by its schedule it does not start again", "pause   begins")
	p.wants(p.says("pause", "hourly", "--for", "1h"), "run 1 is running and continues (stop it: rouse stop 1)", "besides: agent clerk is paused")
}

// TestWhyLongOutage checks that one row represents a long outage, for each instant in it.
func TestWhyLongOutage(t *testing.T) {
	t.Parallel()
	p := newPast(t, strings.Replace(hourly, "0 * * * *\", playbook", "* * * * * *\", playbook", 1))
	p.took(p.ago(240))
	due := ledger.Due{Job: "hourly", Agent: "clerk", Source: "cron", Nominal: p.ago(200), Actual: p.ago(200), Decision: domain.DecisionMissed,
		Reason: "missed by 8 days", Through: p.ago(10).Add(-time.Second), Instants: 683999}
	if _, err := p.l.RecordDue(t.Context(), p.ago(10), []ledger.Due{due}, map[string]time.Time{"hourly": p.ago(10)}); err != nil {
		t.Fatal(err)
	}

	out := p.says("why", "hourly", "-n", "4", "--at", p.ago(100).Add(7*time.Second).Format(time.RFC3339))
	p.wants(out, "lies in the stretch from "+p.ago(200).Format("Mon 2006-01-02 15:04"), "for which one row stands", p.stamps(200), "one row for 683999 instants, up to ", "missed by 8 days")
	if strings.Contains(out, "no row") {
		t.Errorf("instants of the stretch are listed one by one:\n%s", out)
	}

	var lines []api.Explanation
	if err := json.Unmarshal([]byte(p.says("why", "hourly", "--json", "-n", "1", "--at", p.ago(100).Format(time.RFC3339))), &lines); err != nil {
		t.Fatal(err)
	}

	for _, l := range lines {
		if l.Nominal.Equal(p.ago(200)) && (l.Instants != 683999 || l.Through.IsZero()) {
			t.Errorf("%+v", l)
		}
	}
}

// TestWhyOfWhatIsGone checks that a removed job keeps its history, also with a broken
// configuration. A changed schedule applies from the next start on.
func TestWhyOfWhatIsGone(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	p.record(2, domain.DecisionSkipped, "overlap: run 9 is still running")
	rewrite := func(old, new string) {
		t.Helper()
		if err := os.WriteFile(p.config, []byte(strings.Replace(hourly, old, new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	rewrite(`name: hourly, agent: clerk, schedule: "0 * * * *"`, `name: hourly, agent: clerk, schedule: "5 * * * *"`)
	out := p.says("why", "hourly")
	p.wants(out, "its schedule was changed since a daemon last ran; the new one counts from the next start on", p.stamps(2))
	if strings.Contains(out, "not decided yet") {
		t.Errorf("instants of a schedule that nobody knew:\n%s", out)
	}

	rewrite("name: hourly", "name: hourlier")
	p.wants(p.says("why", "hourly"), "hourly is not configured any more", p.stamps(2), "overlap: run 9 is still running")
	rewrite("version: 1", "version: 1\nnonsense: true")
	p.wants(p.says("why", "hourly"), "the configuration cannot be used", p.stamps(2))
	p.wants(p.says("pause", "--all"), "everything is paused until somebody resumes it")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"why", "nobody", "--config", p.config}, nil, &stdout, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "nonsense") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}

// TestWhyExcluded checks that excluded instants are listed, although they have no row.
func TestWhyExcluded(t *testing.T) {
	t.Parallel()
	day := time.Now().UTC().AddDate(0, 0, -3).Format(time.DateOnly)
	p := newPast(t, strings.Replace(hourly, `schedule: "0 * * * *", playbook`, fmt.Sprintf(`schedule: "0 8 * * *", exclude: [%s], playbook`, day), 1))
	p.took(p.ago(240))
	p.record(0, domain.DecisionMissed, "late")
	p.wants(p.says("why", "hourly"), day+" 08:00:00  cron    skipped   –    exclude: "+day)
	p.wants(p.says("why", "hourly", "--at", day+" 08:00"), day+" 08:00:00 ←  cron    skipped")
	p.wants(p.says("why", "hourly", "--at", day+" 09:00"), "08:00 UTC would be one, and is excluded ("+day+")")
}

// TestShowWake checks that a planned wake is shown with its author, its time and its instructions.
func TestShowWake(t *testing.T) {
	t.Parallel()
	p := newPast(t, hourly)
	at := time.Now().Add(-time.Minute)
	if _, err := p.l.Wakes.Set(t.Context(), wake.Wake{Agent: "clerk", At: at, AskedAt: at, Instructions: "Look\nagain.\x1b[2J", ScheduledBy: ledger.ByAgent, Run: 3, Job: "hourly", Depth: 2, Priority: "normal", OnMiss: "run_once"}, wake.Usage{}); err != nil {
		t.Fatal(err)
	}

	slot, _, err := p.l.Wakes.Next(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}

	p.wants(p.says("next", "-n", "1"), "agent clerk", "slot", "planned by the agent")
	if _, err := p.l.FireWakes(t.Context(), time.Now(), 0, slot.ID); err != nil {
		t.Fatal(err)
	}

	out := p.says("show", "1")
	p.wants(out, "self: a wake that was planned by the agent in run 3, in a chain that the job hourly began", "planned   for ", "wake 2 in a row that the agent planned", "told      Look again.")
}
