package main

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
)

// replicated is a home whose jobs import files, and that is copied to a folder or a bucket.
func replicated(t testing.TB, to string) (dir, config string) {
	t.Helper()
	dir = cmdtest.Write(t, map[string]string{"jobs.yaml": backupJobs, "inbox/0.csv": csv(0, 10)})
	if err := os.Mkdir(filepath.Join(dir, "copies"), 0o700); err != nil {
		t.Fatal(err)
	}
	if to == "" {
		to = "file://" + filepath.Join(dir, "copies")
	}
	config = filepath.Join(dir, "rouse.yaml")
	if err := os.WriteFile(config, []byte(backupConfig+"replicate: {to: \""+to+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, config
}

func replicaOf(t testing.TB, config string) api.Replica {
	t.Helper()
	var st struct{ Replica *api.Replica }
	runJSON(t, &st, "status", "--json", "--config", config)
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

// rowsOf counts what the database of the bookkeeper holds in a home, and its runs that have ended well.
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
	p := rouse(t, append([]string{"db", "bookkeeper", "query", "select count(distinct file) files, count(*) rows from lines", "--json"}, at...)...)
	if err := p.Run(); err == nil {
		if err := json.Unmarshal([]byte(p.stdout.String()), &out); err != nil {
			t.Fatal(err)
		}
		return out.Rows[0].Files, out.Rows[0].Rows, ended, runs
	} else if ended > 0 {
		t.Errorf("%d runs have ended well, and there is no table: %s", ended, p.stderr.String())
	}
	return 0, 0, ended, runs
}

// A home that is copied while files are imported, and while rouse is killed, comes back as it was at each instant: what the ledger calls
// done is there, no database knows a run that the ledger does not know, and the audit is clean.
func TestReplicate(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 2
	}
	dir, config := replicated(t, "")
	to := "file://" + filepath.Join(dir, "copies")
	p := serveUntilReady(t, config)
	untilCopied(t, config)

	const rows = 3_000
	files := 1
	instants := []string{""}
	for range kills {
		for range 3 {
			dropRows(t, dir, files, rows)
			files++
		}
		time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Second)))) // the instant of the kill is what is random
		instants = append(instants, time.Now().UTC().Format(time.RFC3339))
		p.kill(t)

		// What is there now is what a person would restore from whose machine is gone.
		checkReplicated(t, to, dir, config, fmt.Sprint("gone", files), "", rows)
		p = serveUntilReady(t, config)
	}
	cmdtest.Until(t, "the end of every run", func() bool {
		done, err := filepath.Glob(filepath.Join(dir, "done", "*.csv"))
		return err == nil && len(done) == files
	})
	doctor := rouse(t, "doctor", "--offline", "--config", config)
	if _ = doctor.Run(); !strings.Contains(doctor.stdout.String(), "copied to "+filepath.Join(dir, "copies")) { // this machine has no desktop, which is a problem
		t.Errorf("doctor says nothing of it:\n%s", doctor.stdout.String())
	}
	p.stop(t)

	for i, at := range instants {
		checkReplicated(t, to, dir, config, fmt.Sprint("at", i), at, rows)
	}
	at := []string{"--home", filepath.Join(dir, "at0"), "--config", config}
	if got, n, ended, runs := rowsOf(t, at...); got != files || ended != files || n != 10+(files-1)*rows {
		t.Errorf("the newest has %d rows of %d files, and %d of %d runs have ended well; there were %d files", n, got, ended, runs, files)
	}

	// The restored home is another one.
	p = rouse(t, append([]string{"serve"}, at...)...)
	p.untilReady(t)
	cmdtest.Until(t, "the refusal", func() bool {
		var st struct{ Replica *api.Replica }
		runJSON(t, &st, append([]string{"status", "--json"}, at...)...)
		return st.Replica != nil && strings.Contains(st.Replica.Problem, "two homes never share a place")
	})
	p.stop(t)
}

func checkReplicated(t testing.TB, to, dir, config, name, instant string, rows int) {
	t.Helper()
	home := filepath.Join(dir, name)
	at := []string{"--home", home, "--config", config}
	args := append([]string{"restore", "--from", to}, at...)
	if instant != "" {
		args = append(args, "--at", instant)
	}
	if said := mustRun(t, args...); !strings.Contains(said, "everything is paused") {
		t.Errorf("a restore says:\n%s", said)
	}
	auditClean(t, config, "--home", home)
	got, n, ended, runs := rowsOf(t, at...)
	if got < ended || got > runs || n > 0 && (n-10)%rows != 0 {
		t.Errorf("%s: %d of %d runs have ended well, and there are %d rows of %d files", name, ended, runs, n, got)
	}
	if text := mustRun(t, append([]string{"inbox"}, at...)...); strings.Contains(text, "does not know") {
		t.Errorf("%s: the database is held: %s", name, text)
	}
}
