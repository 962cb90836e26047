package bench

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The measurement itself, on a small home: every page and listing answers, and each goal has its figure.
func TestBenchWeb(t *testing.T) {
	self, err := exec.LookPath("rouse") // and not this program, whose name would run the tests again
	if err != nil {
		t.Fatal(err)
	}

	b := &webBench{filledHome: filledHome{self: self, dir: t.TempDir(), runs: 2000, progress: io.Discard}, asks: 2, streams: 5, idle: 100 * time.Millisecond}
	// What is filled in is what a daemon would have recorded, as far as it can tell.
	if err := b.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", b.ledger()+"?_pragma=query_only(1)")
	if err != nil {
		t.Fatal(err)
	}
	var runs, events, instants int
	if err := errors.Join(db.QueryRow(`select (select count(*) from runs), (select count(*) from events where run <> 0), (select count(*) from occurrences where run <> 0)`).Scan(&runs, &events, &instants), db.Close()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(runs, events, instants); got != "2000 40000 2000" {
		t.Errorf("runs, events, instants: %s", got)
	}

	figures, err := b.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	var rows []string
	for _, f := range figures {
		rows = append(rows, strings.Join(f.Row(), "  "))
	}
	out := strings.Join(rows, "\n")
	want := []string{"first page with its assets", "5 streams: an event", "5 streams: more memory", "idle CPU with a page open"}
	for _, p := range webPages(b.runs) {
		want = append(want, "page "+p.name+", p99", "page "+p.name+", median")
	}
	for _, path := range webListings(b.runs) {
		want = append(want, "GET "+path)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("%q is missing in\n%s", text, out)
		}
	}
}
