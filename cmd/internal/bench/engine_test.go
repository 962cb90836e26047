package bench

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The figures of nodes come from processes, beside those of the bare queue, and nothing is left of them in the database.
func TestBenchEngine(t *testing.T) {
	url := os.Getenv("ROUSE_TEST_POSTGRES")
	if url == "" {
		t.Skip("ROUSE_TEST_POSTGRES is not set; .ci/run sets it")
	}
	self, err := exec.LookPath("rouse") // and not this program, whose name would run the tests again
	if err != nil {
		t.Fatal(err)
	}
	b := engineBench{self: self, url: url, runs: 3000, processes: []int{2}, starts: 10, cancels: 1, writes: 50, progress: io.Discard}
	figures, err := b.measure(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	if err := printFigures(&out, figures); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"drained, 2 processes", "enqueue → start, p50", "enqueue → start, p99", "cancel of another process's run", "rescue after kill -9", "a write that replicate copies"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("%q is missing in\n%s", name, &out)
		}
	}
	for _, f := range figures {
		if f.Value <= 0 || strings.HasPrefix(f.Name, "drained") && (f.Baseline <= 0 || f.Ratio <= 0) {
			t.Errorf("%+v", f)
		}
	}

	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left int
	if err := db.QueryRowContext(t.Context(), `select count(*) from pg_namespace where nspname like $1`, fmt.Sprintf("rouse_bench_%d_%%", os.Getpid())).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d schemas are left (%v)", left, err)
	}
}

// What is no database is said, and without its password.
func TestBenchEngineRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{"": "say --postgres URL", "postgres://me:hunter2@127.0.0.1:1/x?connect_timeout=1": "no schema can be made"} {
		_, err := benchEngine(t.Context(), Options{Passes: 1, Queued: 10, Postgres: url, Progress: io.Discard})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
