//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestForegroundRunAnswersOthers checks a command that executes its run without a daemon. Other
// commands can show, follow and cancel the run. They must not report a running daemon.
func TestForegroundRunAnswersOthers(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: ann, grants: {commands: [{argv: [uptime]}]}}]\njobs:\n  - {name: ask, agent: ann, playbook: [{call: shell_run, with: {command: ls}}]}\n  - {name: j, agent: ann, when: [{command: [sleep, \"600\"], timeout: 10m}], playbook: [{call: db_schema}]}\n"}), "rouse.yaml")
	if err := endtoend.Rouse(t, "run", "ask", "--config", config).Run(); err == nil {
		t.Error("a run that waits for an answer is over")
	}

	run := endtoend.Rouse(t, "run", "j", "--config", config)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}

	socket := filepath.Join(filepath.Dir(config), "home", "rouse.sock")
	// The socket is created under the umask of the process. Later its mode loses the execute bits.
	cmdtest.Until(t, "the socket, for its owner alone", func() bool {
		info, err := os.Stat(socket)
		return err == nil && info.Mode().Perm() == 0o600
	})

	var runs []api.Run
	cmdtest.Until(t, "a run that is on", func() bool {
		endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
		return len(runs) == 2 && runs[0].State == "running"
	})

	follower, followed := endtoend.Rouse(t, "logs", "2", "-f", "--config", config), &cmdtest.Log{}
	follower.Stdout = followed
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the follower hears of the start", func() bool { return strings.Contains(followed.String(), "run.started") })

	for _, c := range []struct {
		args []string
		fine bool
		said string
	}{
		{[]string{"show", "2"}, true, "running"},
		{[]string{"inbox"}, true, "rouse approve 1"},
		{[]string{"answer", "1", "approve"}, true, "run 1 goes on when a daemon starts"},
		{[]string{"jobs"}, true, "no daemon serves"},
		{[]string{"status"}, false, "executes a run there"},
		{[]string{"config", "reload"}, false, "no daemon serves"},
		{[]string{"cancel", "2"}, true, "run 2 will stop\n"},
	} {
		p := endtoend.Rouse(t, append(c.args, "--config", config)...)
		err := p.Run()
		if said := p.Out.String() + p.Err.String(); (err == nil) != c.fine || !strings.Contains(said, c.said) || strings.Contains(said, "armed") && !strings.Contains(said, "not armed") {
			t.Errorf("%v: %v, %s", c.args, err, said)
		}
	}

	if err := follower.Wait(); err != nil || !strings.Contains(followed.String(), "run.finished") {
		t.Errorf("the follower: %v, %s", err, followed)
	}
	if err := run.Wait(); err == nil || !strings.Contains(run.Out.String(), "cancelled by its owner") {
		t.Errorf("the run: %v, %s, %s", err, &run.Out, &run.Err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// TestRunWaitsForAForegroundRun checks a second run during a foreground run. It waits, reports the
// process it waits for, and is executed afterwards.
func TestRunWaitsForAForegroundRun(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": "version: 1\nhome: ./home\nagents: [{name: ann}]\njobs:\n  - {name: slow, agent: ann, when: [{command: [sleep, \"600\"], timeout: 10m}], playbook: [{call: db_schema}]}\n  - {name: quick, agent: ann, playbook: [{call: db_schema}]}\n"}), "rouse.yaml")
	first := endtoend.Rouse(t, "run", "slow", "--config", config)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}

	var runs []api.Run
	cmdtest.Until(t, "a run that is on", func() bool {
		endtoend.RunJSON(t, &runs, "runs", "--json", "--config", config)
		return len(runs) == 1 && runs[0].State == "running"
	})

	second, said := endtoend.Rouse(t, "run", "quick", "--config", config), &cmdtest.Log{}
	second.Stderr = said
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the second says for whom it waits", func() bool { return strings.Contains(said.String(), "waiting for up to 10s, because rouse process") })

	if err := endtoend.Rouse(t, "cancel", "1", "--config", config).Run(); err != nil {
		t.Error(err)
	}
	if err := second.Wait(); err != nil || !strings.Contains(second.Out.String(), "success") {
		t.Errorf("the second: %v, %s, %s", err, &second.Out, said)
	}
	_ = first.Wait() // the run was cancelled
}

// TestWaitSaysForWhat checks that a command that waits for a run prints the reason. It must stop
// waiting if the run cannot start.
func TestWaitSaysForWhat(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: ann}]
jobs:
  - {name: slow, agent: ann, when: [{command: [sleep, "600"], timeout: 10m}], playbook: [{call: db_schema}]}
  - {name: quick, agent: ann, playbook: [{call: db_create_table, with: {name: t, purpose: p, if_not_exists: true, columns: [{name: a, type: TEXT}]}}]}
  - {name: words, agent: ann, prompt: Say something}
`}), "rouse.yaml")
	daemon := endtoend.Serve(t, config)

	blocked := endtoend.Rouse(t, "run", "words", "--wait", "--config", config)
	if err := blocked.Run(); err == nil || !strings.Contains(blocked.Err.String(), "run 1 stays queued: no_model: agent ann has no model; add one under models:") {
		t.Errorf("without a model: %v, %s", err, &blocked.Err)
	}
	said := endtoend.Rouse(t, "run", "words", "--config", config)
	if err := said.Run(); err != nil || !strings.Contains(said.Out.String(), "run 2 stays queued: no_model") {
		t.Errorf("without a model and --wait: %v, %s", err, &said.Out)
	}

	if err := endtoend.Rouse(t, "run", "slow", "--config", config).Run(); err != nil {
		t.Error(err)
	}
	waiting, told := endtoend.Rouse(t, "run", "quick", "--wait", "--config", config), &cmdtest.Log{}
	waiting.Stderr = told
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "it says for what it waits", func() bool {
		return strings.Contains(told.String(), "run 4 waits for its turn, because other runs are on: run 3 (job slow, agent ann)")
	})
	if err := endtoend.Rouse(t, "cancel", "3", "--config", config).Run(); err != nil {
		t.Error(err)
	}
	if err := waiting.Wait(); err != nil {
		t.Errorf("%v: %s", err, told)
	}

	// Remove the agent's database while the daemon runs.
	database := filepath.Join(filepath.Dir(config), "home", "agents", "ann", "db.sqlite")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(database + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	cmdtest.Until(t, "the daemon notices", func() bool {
		doctor := endtoend.Rouse(t, "doctor", "--config", config)
		_ = doctor.Run() // it exits 1, because it finds a problem
		return strings.Contains(doctor.Out.String(), "that of ann cannot be used")
	})
	lost := endtoend.Rouse(t, "run", "quick", "--wait", "--config", config)
	if err := lost.Run(); err == nil || !strings.Contains(lost.Err.String(), "stays queued: database:") || !strings.Contains(lost.Err.String(), "rouse db ann") {
		t.Errorf("without its database: %v, %s", err, &lost.Err)
	}

	daemon.Stop(t)
}
