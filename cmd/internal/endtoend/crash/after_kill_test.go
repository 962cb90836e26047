package crash

import (
	"encoding/json"
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
	"rouse/internal/ledger"
)

const afterKillConfig = `version: 1
home: ./home
limits: {runs: 4}
agents: [{name: clerk, workdir: ./work}, {name: writer, workdir: ./written}]
jobs:
  - name: import
    agent: clerk
    watch: {path: ./inbox, responsiveness: fast, on_success: {move: ./done}}
    playbook:
      - {call: db_query, with: {sql: "select 1"}}
      - {call: complete, with: {summary: "the rows of {{ .File.Name }} have come in"}}
    notify: {on: [error]}
  - name: report
    agent: writer
    after: [import]
    playbook:
      - {call: db_query, with: {sql: "select 1"}}
      - {call: complete, with: {summary: "after {{ .After.Run }}: {{ .After.Summary }}"}}
    notify: {on: [error]}
  - name: archive
    agent: clerk
    after: [report]
    playbook: [{call: db_query, with: {sql: "select 1"}}]
    notify: {on: [error]}
`

// TestAfterKills kills the daemon at random times while runs end and others follow them. Each ended
// run must be followed by exactly one run of each following job. ROUSE_TEST_KILLS sets the number
// of kills.
func TestAfterKills(t *testing.T) {
	t.Parallel()
	endtoend.Unraced(t)
	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 8
	}

	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": afterKillConfig, "inbox/0.csv": "0"})
	config, files := filepath.Join(dir, "rouse.yaml"), 1
	for range kills {
		for range 1 + rand.IntN(4) {
			if err := os.WriteFile(filepath.Join(dir, "inbox", fmt.Sprint(files, ".csv")), fmt.Append(nil, files), 0o644); err != nil {
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
		endtoend.RunJSON(t, &runs, "runs", "--outcome", "interrupted", "--json", "--config", config)
		for _, r := range runs { // retry a run that was cut off four times in a row
			endtoend.RunJSON(t, nil, "retry", r.ID, "--config", config)
		}

		endtoend.RunJSON(t, &runs, "runs", "--json", "-n", "1000", "--config", config)
		ended := 0
		for _, r := range runs {
			if r.State == "finished" && r.Outcome == "success" {
				ended++
			}
		}
		return ended >= 3*files && ended == len(runs)
	})
	endtoend.AuditClean(t, config)
	p.Stop(t)

	jobs, followed := map[string]int{}, map[string]int{}
	for _, r := range runs {
		jobs[r.Job]++
		var d ledger.TriggerDetail
		if err := json.Unmarshal(r.TriggerDetail, &d); err != nil {
			t.Fatal(err)
		}
		if d.After != nil {
			followed[fmt.Sprint(r.Job, " after ", d.After.Run)]++
		}
	}
	if len(runs) != 3*files || jobs["import"] != files || jobs["report"] != files || jobs["archive"] != files || len(followed) != 2*files {
		t.Errorf("%d files: %v, %d ends that were followed", files, jobs, len(followed))
	}
	t.Logf("%d kills, %d files, %d runs", kills, files, len(runs))
}
