package files

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/ledger"
)

const putBackConfig = `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work, channels: [desktop]}]
jobs:
  - name: inbox
    agent: clerk
    watch: {path: ./inbox, include: ["*.pdf"], responsiveness: fast, on_success: {move: ./inbox/done}, on_failure: {move: ./inbox/failed}}
    playbook: [{call: WORK}]
`

// TestPutBack checks a sync that restores a failed file repeatedly. The file must be run once. It
// then waits, all listings show that, and its owner is told once. Another job can process it.
// Finished files that are restored leave no copies.
func TestPutBack(t *testing.T) {
	t.Parallel()
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": strings.Replace(putBackConfig, "WORK", `file_read, with: {path: "{{ .File.Path }}"}`, 1), "inbox/.keep": ""}), "rouse.yaml")
	inbox := filepath.Join(filepath.Dir(config), "inbox")
	p, stopped := endtoend.Serve(t, config), false
	defer func() {
		if !stopped {
			p.Stop(t)
		}
	}()

	verdict := func(name string) api.WhyFile {
		t.Helper()
		var files []api.WhyFile
		endtoend.RunJSON(t, &files, "why", filepath.Join(inbox, name), "--json", "--config", config)
		if len(files) != 1 || files[0].Job != "inbox" {
			t.Fatalf("%+v", files)
		}
		return files[0]
	}
	in := func(folder string) int {
		entries, _ := os.ReadDir(filepath.Join(inbox, folder))
		return len(entries)
	}

	endtoend.Drop(t, inbox, map[string]string{"a.pdf": "no PDF", "b.pdf": "none either"})
	cmdtest.Until(t, "both files failed", func() bool { return in("failed") == 2 })
	for range 3 {
		endtoend.Drop(t, inbox, map[string]string{"a.pdf": "no PDF", "b.pdf": "none either"})
		cmdtest.Until(t, "both wait", func() bool { return verdict("a.pdf").Verdict == "waits" && verdict("b.pdf").Verdict == "waits" })
	}

	runs := endtoend.RunsOf(t, config, "inbox")
	if v := verdict("a.pdf"); len(runs) != 2 || in("failed") != 2 || v.Run == "" || v.Since.IsZero() || !strings.Contains(v.Reason, "the same bytes failed in run "+v.Run) {
		t.Errorf("%+v, %+v", v, runs)
	}
	if w := endtoend.JobOf(t, config, "inbox").Watch; len(w.Waits) != 2 || w.Waits[0].Run == "" || !strings.Contains(w.Text(), "2 back after they failed") {
		t.Errorf("%+v", w)
	}
	why := endtoend.Rouse(t, "why", "inbox", "--config", config)
	if err := why.Run(); err != nil || strings.Count(why.Out.String(), "a.pdf waits since") != 1 || !strings.Contains(why.Out.String(), "file    back") {
		t.Errorf("%v\n%s", err, why.Out.String())
	}

	// Another job takes the files from where they are.
	if err := os.WriteFile(config, []byte(strings.Replace(putBackConfig, "WORK", `todo, with: {markdown: "- [x] {{ .File.Name }}"}`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "both are done", func() bool { return in("done") == 2 })
	for range 2 {
		endtoend.Drop(t, inbox, map[string]string{"a.pdf": "no PDF"})
		cmdtest.Until(t, "it is gone", func() bool { _, err := os.Stat(filepath.Join(inbox, "a.pdf")); return os.IsNotExist(err) })
	}
	cmdtest.Until(t, "it is known where it went", func() bool {
		return strings.Contains(verdict("a.pdf").Reason, "it went to "+filepath.Join(inbox, "done", "a.pdf"))
	})
	if n := len(endtoend.RunsOf(t, config, "inbox")); n != 4 || in("done") != 2 || in("failed") != 2 {
		t.Errorf("%d runs, %d done, %d failed", n, in("done"), in("failed"))
	}

	stopped = true
	p.Stop(t)
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(filepath.Dir(config), "home", "ledger.db"), Blobs: filepath.Join(filepath.Dir(config), "home", "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	notices, err := l.Outbox.Undelivered(t.Context(), 100) // they stay pending without a desktop
	told := 0
	for _, n := range notices {
		if strings.Contains(n.Title, "is back as it was when it failed") {
			told++
		}
	}
	if err != nil || told > 1 || told == 0 && len(notices) > 0 {
		t.Errorf("told %d times (%v)", told, err)
	}
}

// TestHeldFiles checks files that are open for writing or have a second hard link. They must wait,
// and all listings must show their names, reasons and times. No run may start for them.
func TestHeldFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("this system does not tell who writes to a file")
	}
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work}]
defaults: {notify: {on: []}}
jobs:
  - {name: inbox, agent: clerk, watch: {path: ./inbox, responsiveness: fast}, playbook: [{call: file_read, with: {path: "{{ .File.Path }}"}}]}
  - {name: own, agent: clerk, watch: {path: ./work/in, responsiveness: fast}, playbook: [{call: file_read, with: {path: "{{ .File.Path }}"}}]}
`, "inbox/.keep": "", "work/in/.keep": "", "secret": "the owner's"}), "rouse.yaml")
	dir := filepath.Dir(config)
	p := endtoend.Serve(t, config)
	defer p.Stop(t)

	open, err := os.Create(filepath.Join(dir, "inbox", "slow.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, name := range []string{"inbox/hard.txt", "work/in/hard.txt"} {
		if err := os.Link(filepath.Join(dir, "secret"), filepath.Join(dir, name)); err != nil {
			t.Skip("hard links cannot be made here")
		}
	}
	endtoend.Drop(t, filepath.Join(dir, "inbox"), map[string]string{"fine.txt": "fine"})

	waits := map[string]string{}
	cmdtest.Until(t, "both wait, and the others ran", func() bool {
		for _, w := range endtoend.JobOf(t, config, "inbox").Watch.Waits {
			waits[filepath.Base(w.Path)] = w.Why
		}
		return len(waits) == 2 && len(endtoend.RunsOf(t, config, "inbox")) == 1 && len(endtoend.RunsOf(t, config, "own")) == 1
	})
	if !strings.Contains(waits["slow.txt"], "a program has it open for writing: ") || !strings.Contains(waits["hard.txt"], "it is a hard link") {
		t.Errorf("%v", waits)
	}
	if run := endtoend.RunsOf(t, config, "own")[0]; run.Outcome != "success" { // a run may read it in the agent's own folder
		t.Errorf("%+v", run)
	}

	// A run with --file does not take it either.
	for name, want := range map[string]string{"hard.txt": "is a hard link", "slow.txt": "open for writing"} {
		byName := endtoend.Rouse(t, "run", "inbox", "--file", filepath.Join(dir, "inbox", name), "--config", config)
		if err := byName.Run(); err == nil || !strings.Contains(byName.Err.String(), want) {
			t.Errorf("%s: %v %s", name, err, byName.Err.String())
		}
	}

	began := time.Now()
	if err := open.Close(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "it is taken once it is closed", func() bool { return len(endtoend.RunsOf(t, config, "inbox")) == 2 })
	if took := time.Since(began); took > time.Minute {
		t.Errorf("after %s", took)
	}
}
