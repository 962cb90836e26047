package watcher_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"rouse/internal/ledger"
	"rouse/internal/ledger/runs"
)

// TestManyFiles creates files faster than their runs are recorded. Each file has exactly one run.
// With ROUSE_TEST_FILES, the number of files, the test also checks that the process stays below 200
// MB.
func TestManyFiles(t *testing.T) {
	files, err := strconv.Atoi(os.Getenv("ROUSE_TEST_FILES"))
	if err != nil {
		files = 2000
	}

	b := newBench(t)
	b.start(b.inbox())
	b.must(os.Mkdir(b.path("staging"), 0o755))
	began := time.Now()
	for i := range files {
		// Rename the file into place: a file that is empty when it settles would get its own run.
		name := fmt.Sprintf("f%d.csv", i)
		b.write("staging/"+name, name)
		b.must(os.Rename(b.path("staging/"+name), b.path("inbox/"+name)))
	}

	created := time.Since(began)
	b.acceptedRuns(files)
	t.Logf("%d files: created in %s, all runs accepted after %s", files, created, time.Since(began))

	seen := map[string]int{}
	for before := int64(0); ; {
		page, err := b.ledger.Runs.List(t.Context(), runs.Filter{Before: before, Limit: 5000})
		b.must(err)
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			var d ledger.TriggerDetail
			b.must(json.Unmarshal(r.Detail, &d))
			seen[d.File.Path]++
			before = r.ID
		}
	}
	for path, n := range seen {
		if n != 1 {
			t.Errorf("%d runs of %s", n, path)
		}
	}
	if len(seen) != files {
		t.Errorf("%d of %d files have a run", len(seen), files)
	}

	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if t.Logf("%d MB", m.Sys>>20); os.Getenv("ROUSE_TEST_FILES") != "" && m.Sys > 200<<20 {
		t.Errorf("the process has %d MB", m.Sys>>20)
	}
}

// acceptedRuns waits until n runs are accepted. It gives up if no run is accepted for as long as
// patience.
func (b *bench) acceptedRuns(n int) {
	b.t.Helper()
	accepted := int64(0)
	for late := time.After(patience); ; {
		changed := b.ledger.Changed()
		runs, err := b.ledger.Runs.List(b.t.Context(), runs.Filter{Limit: 1, Brief: true})
		b.must(err)
		if len(runs) > 0 && runs[0].ID > accepted {
			accepted, late = runs[0].ID, time.After(patience)
		}
		if accepted >= int64(n) {
			return
		}

		select {
		case <-changed:
		case <-late:
			b.t.Fatalf("%d of %d runs were accepted", accepted, n)
		}
	}
}
