package copies

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/replicate/target/s3test"
)

// Runs of these jobs resume without help after a kill.
const replicateJobs = `jobs:
  - name: inbox
    agent: bookkeeper
    watch: {path: ./inbox, include: "*.csv", responsiveness: fast, on_success: {move: ./done}, on_failure: {move: ./failed}}
    playbook:
      - {call: db_import, with: {table: lines, path: "{{ .File.Path }}"}}
    notify: {on: [error]}
`

// replicated creates a home with import jobs that is replicated to a folder or a bucket.
func replicated(t testing.TB, to string) (dir, config string) {
	t.Helper()
	dir = cmdtest.Write(t, map[string]string{"jobs.yaml": replicateJobs, "inbox/0.csv": endtoend.CSV(0, 10)})
	if err := os.Mkdir(filepath.Join(dir, "copies"), 0o700); err != nil {
		t.Fatal(err)
	}
	if to == "" {
		to = "file://" + filepath.Join(dir, "copies")
	}
	config = filepath.Join(dir, "rouse.yaml")
	t.Cleanup(func() {
		if t.Failed() {
			for _, what := range []string{"runs", "inbox"} {
				p := endtoend.Rouse(t, what, "--config", config)
				_ = p.Run() // only its output matters
				t.Logf("rouse %s: %s%s", what, p.Out.String(), p.Err.String())
			}
		}
	})
	if err := os.WriteFile(config, []byte(backupConfig+"replicate: {to: \""+to+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, config
}

func replicaOf(t testing.TB, config string) api.Replica {
	t.Helper()
	var st struct{ Replica *api.Replica }
	endtoend.RunJSON(t, &st, "status", "--json", "--config", config)
	if st.Replica == nil {
		t.Fatal("the status says nothing of copies")
	}
	return *st.Replica
}

func untilCopied(t testing.TB, config string) {
	t.Helper()
	cmdtest.Until(t, "everything to be copied", func() bool {
		r := replicaOf(t, config)
		return r.Databases == 0 && r.Problem == "" && !r.LastSuccess.IsZero()
	})
}

// rowsOf returns the number of files and rows in the bookkeeper's database, and of its successful
// runs and all its runs.
func rowsOf(t testing.TB, at ...string) (files, rows, ended, runs int) {
	t.Helper()
	for _, r := range restoredRuns(t, at...) {
		if runs++; r.Outcome == "success" {
			ended++
		}
	}
	if runs == 0 {
		return 0, 0, 0, 0
	}
	var out struct {
		Rows []struct{ Files, Rows int } `json:"rows"`
	}
	p := endtoend.Rouse(t, append([]string{"db", "bookkeeper", "query", "select count(distinct file) files, count(*) rows from lines", "--json"}, at...)...)
	if err := p.Run(); err == nil {
		if err := json.Unmarshal(p.Out.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		return out.Rows[0].Files, out.Rows[0].Rows, ended, runs
	} else if ended > 0 {
		t.Errorf("%d runs have ended well, and there is no table: %s", ended, p.Err.String())
	}
	return 0, 0, ended, runs
}

// TestReplicateToBucket does the same with a bucket whose server is stopped and restarted.
func TestReplicateToBucket(t *testing.T) {
	server := s3test.Start(t, "copies")
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.Secret)
	to := "s3://copies/home?region=us-east-1&endpoint=" + server.URL
	dir, config := replicated(t, to)
	p := endtoend.Serve(t, config)
	const rows = 3_000
	for i := range 4 {
		dropRows(t, dir, i+1, rows)
	}
	cmdtest.Until(t, "the end of every run", func() bool {
		done, err := filepath.Glob(filepath.Join(dir, "done", "*.csv"))
		return err == nil && len(done) == 5
	})
	untilCopied(t, config)
	p.Stop(t)

	checkReplicated(t, to, dir, config, "newest", "", rows)
	if got, n, ended, runs := rowsOf(t, "--home", filepath.Join(dir, "newest"), "--config", config); got != 5 || ended != 5 || n != 10+4*rows {
		t.Errorf("it has %d rows of %d files, and %d of %d runs have ended well", n, got, ended, runs)
	}
	if text := p.Err.String(); strings.Contains(text, s3test.Secret) {
		t.Errorf("the log has the secret:\n%s", text)
	}
}

// TestReplicaPlaceFails checks that runs continue if the target of the replica fails. The log
// reports the problem once, and so does the status. When the target is back, the replica catches
// up.
func TestReplicaPlaceFails(t *testing.T) {
	t.Parallel()
	dir, config := replicated(t, "")
	copies := filepath.Join(dir, "copies")
	if err := os.Remove(copies); err != nil {
		t.Fatal(err)
	}
	p := endtoend.Serve(t, config)
	fails := func(want string) {
		t.Helper()
		cmdtest.Until(t, "the problem "+want, func() bool { return strings.Contains(replicaOf(t, config).Problem, want) })
	}
	fails("no such file")
	const rows = 100
	dropRows(t, dir, 1, rows)
	cmdtest.Until(t, "the end of every run", func() bool {
		done, err := filepath.Glob(filepath.Join(dir, "done", "*.csv"))
		return err == nil && len(done) == 2
	})
	if r := replicaOf(t, config); r.Databases == 0 || r.BehindSeconds == 0 || !r.LastSuccess.IsZero() {
		t.Errorf("nothing is behind: %+v", r)
	}

	// First a folder that other users can write to, then one that contains other files.
	if err := os.Mkdir(copies, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(copies, 0o777); err != nil {
		t.Fatal(err)
	}
	fails("a restore would believe what is there")
	if err := os.WriteFile(filepath.Join(copies, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(copies, 0o700); err != nil {
		t.Fatal(err)
	}
	fails("something in it that is no copy of a home (letter.txt)")
	if err := os.Remove(filepath.Join(copies, "letter.txt")); err != nil {
		t.Fatal(err)
	}
	untilCopied(t, config)
	p.Stop(t)
	if n := strings.Count(p.Err.String(), "cannot be copied continuously"); n != 1 {
		t.Errorf("the log says %d times that nothing can be copied:\n%s", n, p.Err.String())
	}
	checkReplicated(t, "file://"+copies, dir, config, "newest", "", rows)

	for want, args := range map[string][]string{
		"name a later time":       {"--at", "2020-01-01T00:00:00Z"},
		"is not a time":           {"--at", "someday"},
		"something in":            {"--home", filepath.Join(dir, "home")},
		"no copy of a home in it": {"--from", "file://" + filepath.Join(dir, "inbox")},
		"has the scheme \"ftp\"":  {"--from", "ftp://x/y"},
	} {
		said := endtoend.Refused(t, append([]string{"restore", "--from", "file://" + copies, "--home", filepath.Join(dir, "other"), "--config", config}, args...)...)
		if !strings.Contains(said, want) {
			t.Errorf("%v says %s", args, said)
		}
	}
}

// TestReplicate replicates a home while files are imported and rouse is killed. The home must be
// restorable to each instant. All successful runs must have their data, no database may know a run
// that the ledger does not know, and the audit must be clean.
func TestReplicate(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 2
	}
	dir, config := replicated(t, "")
	to := "file://" + filepath.Join(dir, "copies")
	p := endtoend.Serve(t, config)
	untilCopied(t, config)

	const rows = 3_000
	files := 1
	instants := []string{""}
	for range kills {
		for range 3 {
			dropRows(t, dir, files, rows)
			files++
		}
		time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Second))))         // kill at a random time
		instants = append(instants, time.Now().UTC().Format(time.RFC3339Nano)) // whole seconds could precede the first copy
		p.Kill(t)

		// Restore from the current replica, as after the loss of the machine.
		checkReplicated(t, to, dir, config, fmt.Sprint("gone", files), "", rows)
		p = endtoend.Serve(t, config)
	}
	cmdtest.Until(t, "the end of every run", func() bool {
		done, err := filepath.Glob(filepath.Join(dir, "done", "*.csv"))
		return err == nil && len(done) == files
	})
	doctor := endtoend.Rouse(t, "doctor", "--offline", "--config", config)
	if _ = doctor.Run(); !strings.Contains(doctor.Out.String(), "copied to "+filepath.Join(dir, "copies")) { // without a desktop, doctor reports a problem
		t.Errorf("doctor says nothing of it:\n%s", doctor.Out.String())
	}
	p.Stop(t)

	for i, at := range instants {
		checkReplicated(t, to, dir, config, fmt.Sprint("at", i), at, rows)
	}
	at := []string{"--home", filepath.Join(dir, "at0"), "--config", config}
	if got, n, ended, runs := rowsOf(t, at...); got != files || ended != files || n != 10+(files-1)*rows {
		t.Errorf("the newest has %d rows of %d files, and %d of %d runs have ended well; there were %d files", n, got, ended, runs, files)
	}

	// The restored home counts as another home.
	p = endtoend.Rouse(t, append([]string{"serve"}, at...)...)
	p.UntilReady(t)
	cmdtest.Until(t, "the refusal", func() bool {
		var st struct{ Replica *api.Replica }
		endtoend.RunJSON(t, &st, append([]string{"status", "--json"}, at...)...)
		return st.Replica != nil && strings.Contains(st.Replica.Problem, "two homes never share a place")
	})
	p.Stop(t)
}

func checkReplicated(t testing.TB, to, dir, config, name, instant string, rows int) {
	t.Helper()
	home := filepath.Join(dir, name)
	at := []string{"--home", home, "--config", config}
	args := append([]string{"restore", "--from", to}, at...)
	if instant != "" {
		args = append(args, "--at", instant)
	}
	if said := endtoend.MustRun(t, args...); !strings.Contains(said, "everything is paused") {
		t.Errorf("a restore says:\n%s", said)
	}
	endtoend.AuditClean(t, config, "--home", home)
	got, n, ended, runs := rowsOf(t, at...)
	if got < ended || got > runs || n > 0 && (n-10)%rows != 0 {
		t.Errorf("%s: %d of %d runs have ended well, and there are %d rows of %d files", name, ended, runs, n, got)
	}
	if text := endtoend.MustRun(t, append([]string{"inbox"}, at...)...); strings.Contains(text, "does not know") {
		t.Errorf("%s: the database is held: %s", name, text)
	}
}
