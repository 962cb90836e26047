package daemon

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/config/load"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/logging"
	"rouse/internal/ledger"
	"rouse/internal/ledger/wake"
)

// openFlawed opens a home without a daemon. The secrets of its configuration are not set.
func openFlawed(t *testing.T, text string) *Daemon {
	t.Helper()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": text})
	cfg, err := load.Config(yaml.Options{Path: filepath.Join(dir, "rouse.yaml"), HoldSecrets: true,
		Secret: func(string) (string, bool, error) { return "", false, nil }}, agent.Specs())
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Options{Home: string(cfg.Home), Config: cfg, Logger: logging.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// TestJobFlaws checks that a missing view, a past at: and a webhook without its secret are
// reported with their remedy.
func TestJobFlaws(t *testing.T) {
	t.Parallel()
	d := openFlawed(t, `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work, self_scheduling: {enabled: true}}]
jobs:
  - {name: bank, agent: clerk, webhook: {path: /hooks/bank, secret: "secret:bank"}, playbook: [{call: file_read, with: {path: .}}]}
  - {name: rows, agent: clerk, context_views: [nope], every: 1h, playbook: [{call: file_read, with: {path: .}}]}
  - {name: once, agent: clerk, at: "2020-01-01T08:00:00+01:00", playbook: [{call: file_read, with: {path: .}}]}
`)
	problem := func(name string) string {
		t.Helper()
		jobs, err := d.Jobs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			if j.Name == name {
				return j.Problem
			}
		}
		t.Fatalf("no job is named %s", name)
		return ""
	}
	has := func(what, text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q lacks %q", what, text, part)
			}
		}
	}

	if p := problem("rows"); p != "" { // the first run creates the database and may save the view
		t.Errorf("without a database: %s", p)
	}
	_, release, err := d.databases.Get(t.Context(), "clerk")
	if err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := d.ledger.Wakes.Set(t.Context(), wake.Wake{Agent: "clerk", At: time.Now().Add(time.Hour), AskedAt: time.Now().Add(time.Hour), Instructions: "go on", Priority: "normal", OnMiss: "run_once", ScheduledBy: "agent",
		ContextViews: []string{"gone"}}, wake.Usage{}); err != nil {
		t.Fatal(err)
	}

	has("rows", problem("rows"), `no saved view "nope"`, "rouse.yaml:6")
	has("once", problem("once"), "2020-01-01T08:00:00+01:00 is in the past", "rouse.yaml:7")
	has("bank", problem("bank"), "rouse secrets set bank")

	hooks, err := d.Webhooks(t.Context())
	if err != nil || len(hooks) != 1 {
		t.Fatalf("%+v (%v)", hooks, err)
	}
	has("the webhook", hooks[0].Refuses, "the secret bank is not set", "rouse secrets set bank")

	checks, err := d.Doctor(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	work := checkNamed(t, checks, "work")
	has("doctor", work.Detail, "job rows:", "job once:", `planned wake of clerk: context_views: there is no saved view "gone"`)
	if work.OK {
		t.Error("doctor is content")
	}

	// A past at: is not a flaw if the job has run.
	if _, err := d.ledger.Enqueue(t.Context(), ledger.Request{Key: "k", Job: "once", Agent: "clerk", Trigger: "schedule"}); err != nil {
		t.Fatal(err)
	}
	if p := problem("once"); p != "" {
		t.Errorf("after its run: %s", p)
	}
}

// TestNextListsStarts checks that next lists runs that wait for their time, but not retries of
// started runs. why lists planned wakes.
func TestNextListsStarts(t *testing.T) {
	t.Parallel()
	d := openFlawed(t, `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work, self_scheduling: {enabled: true}}]
jobs: [{name: look, agent: clerk, playbook: [{call: file_read, with: {path: .}}]}]
`)
	ctx, at := t.Context(), time.Now().Add(time.Hour)
	for _, r := range []ledger.Request{{Key: "again", Job: "look", Agent: "clerk", Trigger: "manual"}, {Key: "late", Job: "look", Agent: "clerk", Trigger: "schedule", NotBefore: at}} {
		if _, err := d.ledger.Enqueue(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	_, a, err := d.ledger.StartAttempt(ctx, 1)
	if err == nil {
		err = d.ledger.Finish(ctx, a, ledger.Result{Outcome: "error", RetryAt: at.Add(-time.Minute)})
	}
	if err == nil {
		_, err = d.ledger.Wakes.Set(ctx, wake.Wake{Agent: "clerk", At: at, AskedAt: at, Instructions: "look once more", Priority: "normal", OnMiss: "run_once", ScheduledBy: "agent", Run: 1, Job: "look"}, wake.Usage{})
	}
	if err != nil {
		t.Fatal(err)
	}

	coming, err := d.Next(ctx, "look", 5)
	if err != nil || len(coming) != 1 || coming[0].Run != "2" {
		t.Errorf("%+v (%v)", coming, err)
	}
	why, err := d.Why(ctx, "look", "", 5)
	if said := strings.Join(why.Notes, "\n"); err != nil || !strings.Contains(said, "a wake of the agent clerk is planned for") || !strings.Contains(said, "by run 1: look once more") {
		t.Errorf("%s (%v)", said, err)
	}
}
