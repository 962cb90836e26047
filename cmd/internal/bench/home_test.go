package bench

import (
	"database/sql"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// The measurement itself, on a small home: all parts answer, each kind of job is asked for, and the home is kept.
func TestBenchHome(t *testing.T) {
	self, err := exec.LookPath("rouse") // and not this program, whose name would run the tests again
	if err != nil {
		t.Fatal(err)
	}

	b := &homeBench{filledHome: filledHome{self: self, dir: t.TempDir(), runs: 2000, progress: io.Discard}, passes: 1, asks: 2}
	figures, err := b.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	values := map[string]Figure{}
	for _, f := range figures {
		values[strings.TrimPrefix(f.Name, "2,000 runs: ")] = f
	}
	for _, name := range []string{"open, warm", "ready, warm", "ready after a kill, warm", "a daemon that has just begun is stopped", "GET /v1/jobs, p99", "GET /v1/budget, p99",
		"GET /v1/why?n=50&job=" + busyJob + ", p99", "GET /v1/why?n=20&job=" + longAgoJob + ", p99", "GET /v1/runs?n=50&job=" + neverJob + ", p99",
		"the last run of every job, p99", "a prune that finds nothing, p99"} {
		if values[name].Value <= 0 {
			t.Errorf("%s: %v, of\n%s", name, values[name], fmt.Sprint(figures))
		}
	}
	half, none := values["the ledger without half of them"], values["the ledger without all of them"]
	if !half.Met || none.Value <= 0 || none.Value >= half.Value {
		t.Errorf("after runs were removed: %v, %v", half.Row(), none.Row())
	}

	// Nothing is removed from the home itself.
	db, err := sql.Open("sqlite", b.ledger()+"?_pragma=query_only(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all, busy, longAgo, never int
	if err := db.QueryRow(`select count(*), count(*) filter (where job = $1), count(*) filter (where job = $2), count(*) filter (where job = $3) from runs`, busyJob, longAgoJob, neverJob).
		Scan(&all, &busy, &longAgo, &never); err != nil {
		t.Fatal(err)
	}
	if all != 2000 || busy < 1200 || longAgo == 0 || longAgo > 20 || never != 0 {
		t.Errorf("runs: %d, of the busy job %d, of one long ago %d, of one without any %d", all, busy, longAgo, never)
	}
}
