package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestFullDiskOfAHome fills the disk of a home while a daemon works. Running runs end and are
// recorded, and new runs are accepted and wait. The home stays readable, also after a kill and a
// restart. Work continues without help once there is space.
func TestFullDiskOfAHome(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"home/.keep": "", "inbox/.keep": "", "rouse.yaml": `version: 1
home: ./home
agents: [{name: a, workdir: ./work}]
jobs:
  - {name: slow, agent: a, when: [{command: [sh, -c, 'until [ -e go ]; do sleep 0.1; done'], timeout: 10m}], playbook: [{call: db_schema}]}
  - name: drops
    agent: a
    watch: {path: ./inbox, include: "*.csv", responsiveness: fast, on_success: {move: ./done}}
    playbook: [{call: file_read, with: {path: "{{ .File.Path }}"}}]
`})
	config, home := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "home")
	if err := syscall.Mount("tmpfs", home, "tmpfs", 0, "size=48m,mode=700"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	reserve := func() bool {
		_, err := os.Stat(filepath.Join(home, "ledger.db-reserve"))
		return err == nil
	}
	job := func(name string) (job api.Job) {
		var jobs []api.Job
		endtoend.RunJSON(t, &jobs, "jobs", "--json", "--config", config)
		for _, j := range jobs {
			if j.Name == name {
				job = j
			}
		}
		return job
	}

	p := endtoend.Serve(t, config)
	cmdtest.Until(t, "room that is kept", reserve)
	endtoend.MustRun(t, "run", "slow", "--config", config)
	cmdtest.Until(t, "a run that is on", func() bool { return job("slow").LastState == "running" })

	empty := fillDisk(t, home)
	drops := 0
	cmdtest.Until(t, "that nothing more starts", func() bool {
		if drops < 200 { // far more than the WAL has space for
			if err := os.WriteFile(filepath.Join(dir, "inbox", fmt.Sprint(drops, ".csv")), []byte(endtoend.CSV(drops, 3)), 0o644); err != nil {
				t.Fatal(err)
			}
			drops++
		}
		return job("drops").Blocked
	})
	if said := endtoend.MustRun(t, "jobs", "--config", config); !strings.Contains(said, "the disk is full: nothing starts until ") {
		t.Error(said)
	}

	if err := os.WriteFile(filepath.Join(dir, "work", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the end of the run that was on", func() bool { return job("slow").LastState == "finished" })

	p.Kill(t)
	p = endtoend.Serve(t, config)
	if !job("drops").Blocked || reserve() {
		t.Error("after a kill and a start runs begin on a full disk")
	}

	empty()
	var runs []api.Run
	cmdtest.Until(t, "the end of every run", func() bool {
		endtoend.RunJSON(t, &runs, "runs", "--all", "--json", "--config", config)
		done := 0
		for _, r := range runs {
			if r.State == "finished" {
				done++
			}
		}
		return done == drops+1 && reserve()
	})
	for _, r := range runs {
		if r.Outcome != "success" {
			t.Errorf("run %s of %s ended %s: %s", r.ID, r.Job, r.Outcome, r.Error)
		}
	}
	p.Stop(t)
	endtoend.AuditClean(t, config)

	// The disk fills up while no daemon runs.
	empty = fillDisk(t, home)
	p = endtoend.Serve(t, config)
	cmdtest.Until(t, "that nothing starts", func() bool { return job("slow").Blocked })
	endtoend.MustRun(t, "run", "slow", "--config", config)
	empty()
	cmdtest.Until(t, "the end of the run", func() bool { return job("slow").LastState == "finished" })
	p.Stop(t)
}

// fillDisk fills the disk of a folder.
func fillDisk(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if err := errors.Join(f.Close(), err); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}

	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
