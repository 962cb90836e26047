package copies

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

const backupConfig = `version: 1
home: ./home
include: [jobs.yaml]
agents: [{name: bookkeeper}]
`

const backupJobs = `jobs:
  - name: inbox
    agent: bookkeeper
    watch: {path: ./inbox, include: "*.csv", responsiveness: fast, on_success: {move: ./done}, on_failure: {move: ./failed}}
    playbook:
      - {call: db_import, with: {table: lines, path: "{{ .File.Path }}"}}
      - {call: file_write, with: {path: "{{ .File.Name }}.txt", content: "seen"}}
      - {call: share_artifact, with: {path: "{{ .File.Path }}"}}
    notify: {on: [error]}
`

// dropRows drops a file whose rows contain its number. The file is too large to be stored in the
// ledger.
func dropRows(t testing.TB, dir string, file, rows int) {
	t.Helper()
	temp := filepath.Join(dir, fmt.Sprint(file, ".tmp"))
	if err := os.WriteFile(temp, []byte(endtoend.CSV(file, rows)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(dir, "inbox", fmt.Sprint(file, ".csv"))); err != nil {
		t.Fatal(err)
	}
}

// TestHomeBackup makes backups while files arrive. Each backup must be consistent: in the restored
// home every successful run has its rows, its file and its artifact. No database may know a run
// that the ledger does not know, the audit must be clean, and the home must work.
func TestHomeBackup(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": backupConfig, "jobs.yaml": backupJobs, "inbox/0.csv": endtoend.CSV(0, 10)})
	config, copies := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "copies")
	p := endtoend.Serve(t, config)

	// An import of many rows is in progress during each backup.
	const rows = 12_000
	files := 1
	var made []api.HomeBackup
	for i := range 4 {
		for range 3 {
			dropRows(t, dir, files, rows)
			files++
		}
		cmdtest.Until(t, "the first of them", func() bool {
			var runs []api.Run
			endtoend.RunJSON(t, &runs, "runs", "--json", "-n", "1000", "--config", config)
			// An import has created the table that is queried below.
			return len(runs) >= files-2 && slices.ContainsFunc(runs, func(r api.Run) bool { return r.Outcome == "success" })
		})

		dest := copies
		if i == 3 {
			dest = filepath.Join(dir, "home.tar.zst")
		}
		var b api.HomeBackup
		endtoend.RunJSON(t, &b, "backup", dest, "--json", "--config", config)
		made = append(made, b)
	}
	cmdtest.Until(t, "the end of every run", func() bool {
		done, err := filepath.Glob(filepath.Join(dir, "done", "*.csv"))
		return err == nil && len(done) == files
	})
	p.Stop(t)

	for i, b := range made {
		home := filepath.Join(dir, fmt.Sprint("restored", i))
		at := []string{"--home", home, "--config", config}
		said := endtoend.MustRun(t, append([]string{"restore", b.Path}, at...)...)
		if !strings.Contains(said, "everything is paused") || !strings.Contains(said, config) {
			t.Errorf("a restore says:\n%s", said)
		}
		endtoend.AuditClean(t, config, "--home", home)

		var runs []api.Run
		endtoend.RunJSON(t, &runs, append([]string{"runs", "--json", "-n", "1000"}, at...)...)
		ended := 0
		for _, r := range runs {
			if r.Outcome == "success" {
				ended++
			}
		}
		var out struct {
			Rows []struct{ Files, Rows int } `json:"rows"`
		}
		endtoend.RunJSON(t, &out, append([]string{"db", "bookkeeper", "query", "select count(distinct file) files, count(*) rows from lines", "--json"}, at...)...)
		if got := out.Rows[0]; got.Files < ended || got.Files > len(runs) || (got.Rows-10)%rows != 0 {
			t.Errorf("backup %d: %d of %d runs have ended well, and there are %d rows of %d files", i, ended, len(runs), got.Rows, got.Files)
		}
		if text := endtoend.MustRun(t, append([]string{"inbox"}, at...)...); strings.Contains(text, "does not know") {
			t.Errorf("backup %d: the database is held: %s", i, text)
		}
	}

	// The restored home works: queued runs wait, a run can be undone, and then work continues.
	home := filepath.Join(dir, "restored2")
	at := []string{"--home", home, "--config", config}
	p = endtoend.Rouse(t, append([]string{"serve"}, at...)...)
	p.UntilReady(t)
	doctor := endtoend.Rouse(t, append([]string{"doctor", "--offline"}, at...)...)
	if _ = doctor.Run(); !strings.Contains(doctor.Out.String(), "restored at") { // without a desktop, doctor reports a problem
		t.Errorf("doctor says nothing of it:\n%s", doctor.Out.String())
	}
	last := slices.IndexFunc(restoredRuns(t, at...), func(r api.Run) bool { return r.Outcome == "success" })
	undone := restoredRuns(t, at...)[last]
	endtoend.MustRun(t, append([]string{"undo", undone.ID}, at...)...)
	for home, want := range map[string]int{home: 0, filepath.Join(dir, "home"): 1} { // an undo changes only the files of its own home
		kept, err := filepath.Glob(filepath.Join(home, "agents", "bookkeeper", "work", strings.TrimSpace(fileOf(undone))+".txt"))
		if err != nil || len(kept) != want {
			t.Errorf("after the undo of run %s %s holds %v (%v)", undone.ID, home, kept, err)
		}
	}
	if text := endtoend.MustRun(t, append([]string{"show", "1"}, at...)...); !strings.Contains(text, "0.csv") {
		t.Errorf("run 1 shows:\n%s", text)
	}
	dropRows(t, dir, files, rows)
	var runs []api.Run
	cmdtest.Until(t, "a run that waits", func() bool {
		endtoend.RunJSON(t, &runs, append([]string{"runs", "--json", "-n", "1"}, at...)...)
		return len(runs) > 0 && runs[0].State == "queued"
	})
	endtoend.MustRun(t, append([]string{"resume", "--all"}, at...)...)
	cmdtest.Until(t, "its end", func() bool {
		endtoend.RunJSON(t, &runs, append([]string{"runs", "--json", "-n", "1"}, at...)...)
		return runs[0].Outcome == "success"
	})
	endtoend.AuditClean(t, config, "--home", home)
	p.Stop(t)
}

func restoredRuns(t testing.TB, at ...string) (out []api.Run) {
	t.Helper()
	endtoend.RunJSON(t, &out, append([]string{"runs", "--json", "-n", "1000"}, at...)...)
	return out
}

// fileOf returns the name of the file that started a run.
func fileOf(r api.Run) string {
	var d struct{ File struct{ Name, Path string } }
	text, err := json.Marshal(r.TriggerDetail)
	if err != nil || json.Unmarshal(text, &d) != nil {
		return "unknown"
	}
	return filepath.Base(d.File.Path)
}

// TestBackupKills kills backups and restores at random times. Earlier backups must stay valid, and
// a partial backup must never count as one. After a restore there must be the old home or the new
// one. ROUSE_TEST_KILLS sets the number of kills; .ci/run uses 20.
func TestBackupKills(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 3
	}

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": backupConfig, "jobs.yaml": backupJobs, "inbox/0.csv": endtoend.CSV(0, 10)})
	config, copies := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "copies")
	for i := range 6 {
		dropRows(t, dir, i+1, 12_000)
	}
	p := endtoend.Serve(t, config)
	cmdtest.Until(t, "the end of every run", func() bool {
		done, err := filepath.Glob(filepath.Join(dir, "done", "*.csv"))
		return err == nil && len(done) == 7
	})
	begun := time.Now()
	endtoend.MustRun(t, "backup", copies, "--config", config)
	took := time.Since(begun)

	for i := range kills {
		b := endtoend.Rouse(t, "backup", copies, "--config", config)
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(took)))) // kill at a random time
		if i%2 == 0 {
			b.Kill(t)
			continue
		}
		p.Kill(t) // the daemon writes the backup
		_ = b.Wait()
		p = endtoend.Serve(t, config)
	}
	endtoend.MustRun(t, "backup", copies, "--config", config)
	p.Stop(t)

	left, err := filepath.Glob(filepath.Join(copies, ".*partial"))
	if err != nil || len(left) > 0 {
		t.Errorf("what was cut off is left: %v (%v)", left, err)
	}
	found, err := filepath.Glob(filepath.Join(copies, "rouse-*"))
	if err != nil || len(found) < 2 {
		t.Fatalf("%v %v", found, err)
	}
	for _, path := range found {
		endtoend.MustRun(t, "backup", "--verify", path)
	}

	// The ledgers tell the homes apart, because each restore begins an epoch.
	ledger := func() string {
		var r struct{ Result struct{ Ledger string } }
		endtoend.RunJSON(t, &r, "audit", "--json", "--config", config)
		return r.Result.Ledger
	}
	begun = time.Now()
	endtoend.MustRun(t, "restore", copies, "--replace", "--config", config)
	took = time.Since(begun)
	swapped := 0
	for range kills {
		before := ledger()
		r := endtoend.Rouse(t, "restore", copies, "--replace", "--config", config)
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(took))))
		r.Kill(t)
		if ledger() != before { // the audit also checks the home
			swapped++
		}
	}
	endtoend.MustRun(t, "restore", copies, "--replace", "--config", config)
	endtoend.AuditClean(t, config)
	t.Logf("%d kills each; %d restores were done all the same", kills, swapped)
}

// TestRestoreRefused checks that a home in use, an existing home, and an invalid backup are refused
// with an error. No data may be lost.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": backupConfig, "jobs.yaml": backupJobs, "inbox/0.csv": endtoend.CSV(0, 10)})
	config, copies := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "copies")
	p := endtoend.Serve(t, config)
	cmdtest.Until(t, "the end of the run", func() bool {
		_, err := os.Stat(filepath.Join(dir, "done", "0.csv"))
		return err == nil
	})
	var b api.HomeBackup
	endtoend.RunJSON(t, &b, "backup", copies, "--json", "--config", config)

	for _, c := range []struct{ said, want string }{
		{endtoend.Refused(t, "restore", copies, "--config", config), fmt.Sprintf("a rouse daemon (process %d", p.Process.Pid)},
		{endtoend.Refused(t, "backup", filepath.Join(dir, "home", "b"), "--config", config), "lies in the home"},
		{endtoend.Refused(t, "backup", filepath.Join(dir, "inbox"), "--config", config), "whoever drops files may write in"},
		{endtoend.Refused(t, "backup", filepath.Join(dir, "rouse.yaml"), "--config", config), "is a file; name a folder"},
		{endtoend.Refused(t, "backup", filepath.Join(dir, "no", "where.tar.gz"), "--config", config), "there is no folder"},
	} {
		if !strings.Contains(c.said, c.want) {
			t.Errorf("%s\nwant: %s", c.said, c.want)
		}
	}
	p.Stop(t)

	if said := endtoend.Refused(t, "restore", copies, "--config", config); !strings.Contains(said, "say --replace") {
		t.Error(said)
	}
	if said := endtoend.Refused(t, "restore", filepath.Join(dir, "inbox"), "--home", filepath.Join(dir, "new")); !strings.Contains(said, "there is no backup in") {
		t.Error(said)
	}

	// A backup of a newer rouse, and one with a changed file.
	manifest := filepath.Join(b.Path, "manifest.json")
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	m["schema"] = 1000
	newer, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		text []byte
		want string
	}{
		{manifest, newer, "it is of a newer rouse"},
		{filepath.Join(b.Path, "home", "agents", "bookkeeper", "work", "0.csv.txt"), []byte("more"), "is damaged"},
		{manifest, nil, "there is no backup in"},
	} {
		old, err := os.ReadFile(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if c.text == nil {
			err = os.Remove(c.path)
		} else {
			err = os.WriteFile(c.path, c.text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if said := endtoend.Refused(t, "restore", b.Path, "--home", filepath.Join(dir, "new")); !strings.Contains(said, c.want) {
			t.Errorf("%s\nwant: %s", said, c.want)
		}
		if err := os.WriteFile(c.path, old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".new*")); err != nil || len(left) > 0 {
		t.Errorf("a restore that was refused left %v (%v)", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("something was restored")
	}
	endtoend.AuditClean(t, config)
}

// TestBackupOfSecrets checks that a backup contains credentials only on request: secrets, sign-ins,
// the access to the dashboard, and the HOME of an agent program. All other data of the home is
// always included. After a restore, secrets are readable again.
func TestBackupOfSecrets(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{
		"rouse.yaml":                       "version: 1\nhome: ./home\nagents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: db_query, with: {sql: select 1}}]}]\n",
		"home/agents/a/home/.claude/token": "canary of a login",
		"home/agents/a/work/notes.txt":     "notes",
		"home/sign-ins.json":               `{"canary": "of a sign-in"}`,
		"home/dashboard/key":               "canary of the pages",
		"home/mcp/approved.json":           "{}",
	})
	config := filepath.Join(dir, "rouse.yaml")
	endtoend.MustRun(t, "run", "j", "--wait", "--config", config)
	set := endtoend.Rouse(t, "secrets", "set", "api", "--in", "file", "--config", config)
	set.Stdin = strings.NewReader("canary of a secret")
	if err := set.Run(); err != nil {
		t.Fatalf("%v\n%s", err, set.Err.String())
	}

	always := []string{"agents/a/work/notes.txt", "mcp/approved.json", "agents/a/db.sqlite"}
	secret := []string{"agents/a/home/.claude/token", "sign-ins.json", "dashboard/key", "secrets.age"}
	for _, with := range []bool{false, true} {
		args := []string{"backup", filepath.Join(dir, fmt.Sprint("copies-", with)), "--json", "--config", config}
		if with {
			args = append(args, "--with-secrets")
		}
		var b api.HomeBackup
		endtoend.RunJSON(t, &b, args...)
		restored := filepath.Join(dir, fmt.Sprint("restored-", with))
		endtoend.MustRun(t, "restore", b.Path, "--home", restored, "--config", config)

		for _, name := range append(slices.Clone(always), secret...) {
			want, err := os.ReadFile(filepath.Join(dir, "home", filepath.FromSlash(name)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(restored, filepath.FromSlash(name)))
			switch there := with || slices.Contains(always, name); {
			case there && (err != nil || path.Ext(name) != ".sqlite" && string(got) != string(want)):
				t.Errorf("with secrets %t: %s holds %q (%v)", with, name, got, err)
			case !there && err == nil:
				t.Errorf("%s is in a backup without secrets", name)
			}
		}
		if text := endtoend.MustRun(t, "secrets", "list", "--home", restored, "--config", config); strings.Contains(text, "api") != with {
			t.Errorf("with secrets %t there are:\n%s", with, text)
		}
		if !with {
			holdsNo(t, b.Path, "canary")
		}
		endtoend.AuditClean(t, config, "--home", restored)
	}
}

// holdsNo checks that no file below a folder contains a text.
func holdsNo(t *testing.T, dir, text string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), text) {
			t.Errorf("%s holds %q", path, text)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestRestoreDrill executes the drill in docs/operate/backup.md.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../../docs/operate/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(doc), "## A drill")
	if !ok {
		t.Fatal("docs/operate/backup.md has no drill")
	}

	dir := cmdtest.Write(t, map[string]string{"home/rouse.yaml": "version: 1\nhome: .\nagents: [{name: a}]\njobs: [{name: j, agent: a, playbook: [{call: db_query, with: {sql: select 1}}]}]\n"})
	config := filepath.Join(dir, "home", "rouse.yaml")
	endtoend.MustRun(t, "run", "j", "--wait", "--config", config)
	lines := 0
	for line := range strings.Lines(after) {
		words := strings.Fields(strings.ReplaceAll(strings.SplitN(line, "#", 2)[0], "/mnt/usb", dir))
		if len(words) == 0 || !strings.HasPrefix(line, "    rouse ") {
			continue
		}
		lines++
		if !strings.Contains(line, "--home") {
			words = append(words, "--config", config)
		}
		endtoend.MustRun(t, words[1:]...)
	}
	if lines < 5 {
		t.Errorf("the drill has %d commands", lines)
	}
	endtoend.AuditClean(t, config)
}
