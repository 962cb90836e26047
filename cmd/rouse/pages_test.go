package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// TestPages checks listings that need more than one request. Each run is listed once, newest first,
// for any number of runs and any starting point.
func TestPages(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work}]
jobs:
  - name: notes
    agent: clerk
    playbook:
      - {call: db_create_table, with: {name: notes, purpose: x, columns: [{name: n, type: INTEGER}]}}
      - {call: db_insert, each: "= 1..5", with: {table: notes, row: {n: "= item"}}}
    notify: {on: []}
`})
	config := filepath.Join(dir, "rouse.yaml")
	endtoend.RunJSON(t, nil, "run", "notes", "--config", config)

	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(dir, "home", "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	var asks []ledger.Request
	for i := range 2_300 {
		asks = append(asks, ledger.Request{Key: fmt.Sprint("k", i), Job: []string{"old", "older"}[i%2], Agent: "clerk", Trigger: domain.TriggerManual})
	}
	if _, err := l.Enqueue(t.Context(), asks...); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	list := func(args ...string) (first, last, n int) {
		t.Helper()
		var runs []api.Run
		endtoend.RunJSON(t, &runs, append([]string{"runs", "--json", "--config", config}, args...)...)
		for i, r := range runs {
			id, err := strconv.Atoi(r.ID)
			if err != nil || i > 0 && id >= last {
				t.Fatalf("%v: run %s stands behind %d", args, r.ID, last)
			}
			if i == 0 {
				first = id
			}
			last = id
		}
		return first, last, len(runs)
	}
	for args, want := range map[string][3]int{
		"":                                {2301, 2282, 20},
		"-n 1000":                         {2301, 1302, 1000},
		"-n 2001":                         {2301, 301, 2001},
		"-n 9000":                         {2301, 1, 2301},
		"--all":                           {2301, 1, 2301},
		"--all --job older":               {2301, 3, 1150},
		"--before 1302":                   {1301, 1282, 20},
		"--before 1302 --all":             {1301, 1, 1301},
		"--before 2003 --all --job older": {2001, 3, 1000},
		"--before 3 --all --job older":    {0, 0, 0},
	} {
		if first, last, n := list(strings.Fields(args)...); [3]int{first, last, n} != want {
			t.Errorf("%s: %d to %d, %d runs; want %v", args, first, last, n, want)
		}
	}

	var changes, older []api.Change
	endtoend.RunJSON(t, &changes, "db", "clerk", "log", "--all", "--json", "--config", config)
	endtoend.RunJSON(t, &older, "db", "clerk", "log", "-n", "2", "--before", strconv.FormatInt(changes[1].ID, 10), "--json", "--config", config)
	if len(changes) < 5 || len(older) != 2 || older[0].ID != changes[2].ID || older[1].ID != changes[3].ID {
		t.Errorf("%+v before %d: %+v", changes, changes[1].ID, older)
	}

	p := endtoend.Rouse(t, "runs", "-n", "0", "--config", config)
	if err := p.Run(); err == nil || !strings.Contains(p.Err.String(), "-n 0: say how many") {
		t.Errorf("%v %s", err, p.Err.String())
	}
}
