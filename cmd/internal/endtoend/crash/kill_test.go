package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

const killConfig = `version: 1
home: ./home
agents: [{name: bookkeeper, workdir: ./books}]
jobs:
  - name: inbox
    agent: bookkeeper
    watch: {path: ./inbox, include: "*.csv", responsiveness: fast, on_success: {move: ./done}, on_failure: {move: ./failed}}
    playbook:
      - {call: db_query, with: {sql: "select 1"}}
      - {call: db_import, with: {table: lines, path: "{{ .File.Path }}"}}
      - {call: db_query, with: {sql: "select count(*) n from lines"}, save: n}
      - {call: notify, with: {title: "{{ .File.Name }}"}}
    notify: {on: [error]}
`

// TestKills kills the daemon at random times while files arrive. At the end every file must have
// exactly one successful run, and interrupted attempts must be visible. The table must contain each
// row of the files exactly once. ROUSE_TEST_KILLS sets the number of kills; .ci/run uses 60.
func TestKills(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 8
	}

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": killConfig, "inbox/0.csv": endtoend.CSV(0, 20)})
	config := filepath.Join(dir, "rouse.yaml")
	files := 1
	for range kills {
		for range 1 + rand.IntN(3) {
			if err := os.WriteFile(filepath.Join(dir, "inbox", fmt.Sprint(files, ".csv")), []byte(endtoend.CSV(files, 20)), 0o644); err != nil {
				t.Fatal(err)
			}
			files++
		}

		p := endtoend.Serve(t, config)
		time.Sleep(time.Duration(rand.IntN(350)) * time.Millisecond) // kill at a random time
		p.Kill(t)
	}

	p := endtoend.Serve(t, config)
	var runs []api.Run
	cmdtest.Until(t, "the end of every run", func() bool {
		// Retry runs that were cut off four times in a row, as the owner would.
		endtoend.RunJSON(t, &runs, "runs", "--outcome", "interrupted", "--json", "--config", config)
		for _, r := range runs {
			endtoend.RunJSON(t, nil, "retry", r.ID, "--config", config)
		}

		endtoend.RunJSON(t, &runs, "runs", "--json", "-n", "1000", "--config", config)
		left, err := filepath.Glob(filepath.Join(dir, "inbox", "*.csv"))
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range runs {
			if r.State != "finished" {
				return false
			}
		}

		return len(left) == 0
	})

	interrupted := 0
	for _, r := range runs {
		if r.Outcome != "success" {
			t.Errorf("run %s ended %s: %s", r.ID, r.Outcome, r.Error)
		}
		if r.Attempt > 1 {
			interrupted++
		}
	}

	if len(runs) != files {
		t.Errorf("%d runs for %d files", len(runs), files)
	}
	if n := endtoend.CountRows(t, config, "select count(*) n from lines"); n != 20*files {
		t.Errorf("%d rows, want %d", n, 20*files)
	}
	if n := endtoend.CountRows(t, config, "select count(*) n from (select distinct file, line from lines)"); n != 20*files {
		t.Errorf("%d different rows, want %d", n, 20*files)
	}

	endtoend.AuditClean(t, config)
	p.Stop(t)
	endtoend.AuditClean(t, config)
	t.Logf("%d kills, %d files, %d runs went on after an interruption", kills, files, interrupted)
}
