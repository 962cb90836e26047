package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/ledger/ledgertest"
)

const migrateConfig = `version: 1
home: ./home
agents: [{name: clerk}]
jobs:
  - name: note
    agent: clerk
    playbook:
      - {call: db_execute, with: {sql: "create table if not exists t (a)"}}
      - {call: db_insert, with: {table: t, rows: [{a: 1}]}}
    notify: {on: [error]}
`

// TestEngineMigrate migrates the history of a home to PostgreSQL and back, with kills during the
// migration. It must not replace existing data, and the home must be empty afterwards.
func TestEngineMigrate(t *testing.T) {
	t.Parallel()
	url, _ := ledgertest.Postgres(t)
	config := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": migrateConfig}), "rouse.yaml")
	for range 5 {
		endtoend.RunJSON(t, nil, "run", "note", "--wait", "--json", "--config", config)
	}
	var before, after []api.Run
	endtoend.RunJSON(t, &before, "runs", "--json", "--config", config)

	for i := range 4 {
		p := endtoend.Rouse(t, "engine", "migrate", "--to", url, "--node", "north", "--config", config)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(20+20*i)*time.Millisecond, func() { _ = p.Process.Kill() })
		if p.Wait() == nil {
			t.Fatal("it was not killed")
		}
	}
	var done struct {
		Agents     []string
		Node, Kept string
		Left       map[string]string
	}
	endtoend.RunJSON(t, &done, "engine", "migrate", "--to", url, "--node", "north", "--json", "--config", config)
	if len(done.Agents) != 1 || done.Agents[0] != "clerk" || done.Node != "north" || done.Kept == "" {
		t.Errorf("%+v", done)
	}
	if endtoend.RunJSON(t, &after, "runs", "--json", "--config", config); len(after) != 0 {
		t.Errorf("the home holds %d runs still", len(after))
	}
	ledgertest.Audited(t, ledgertest.OpenOn(t, url))

	// Existing data is not replaced, but another home can take it.
	refused := endtoend.Rouse(t, "engine", "migrate", "--to", url, "--config", config)
	if err := refused.Run(); err == nil || !strings.Contains(refused.Err.String(), "replaces nothing") {
		t.Errorf("%v: %s", err, refused.Err.String())
	}
	other := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": migrateConfig}), "rouse.yaml")
	endtoend.RunJSON(t, &done, "engine", "migrate", "--from", url, "--json", "--config", other)
	if done.Left["clerk"] != "north" {
		t.Errorf("it is not said where the database of the agent is: %+v", done.Left)
	}
	if endtoend.RunJSON(t, &after, "runs", "--json", "--config", other); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v\nbefore it was\n%+v", after, before)
	}
	endtoend.AuditClean(t, other)

	// Migrate back to the original home, after a node has worked on the ledger.
	shared := filepath.Join(filepath.Dir(config), "shared.yaml")
	if err := os.WriteFile(shared, []byte(strings.Replace(migrateConfig, "home:", "engine: {postgres: '"+url+"'}\nnode: north\nhome:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	endtoend.RunJSON(t, nil, "run", "note", "--wait", "--json", "--config", shared)
	endtoend.RunJSON(t, nil, "engine", "migrate", "--from", url, "--json", "--config", config)
	if endtoend.RunJSON(t, &after, "runs", "--json", "--config", config); len(after) != len(before)+1 {
		t.Errorf("%d runs came back", len(after))
	}

	// A home without the agent gets its database.
	third := filepath.Join(cmdtest.Write(t, map[string]string{"rouse.yaml": migrateConfig}), "rouse.yaml")
	endtoend.RunJSON(t, nil, "engine", "migrate", "--from", url, "--json", "--config", third)
	for _, config := range []string{config, third} {
		var out struct {
			Rows []map[string]any `json:"rows"`
		}
		if endtoend.RunJSON(t, &out, "db", "clerk", "query", "select count(*) n from t", "--json", "--config", config); len(out.Rows) != 1 || fmt.Sprint(out.Rows[0]["n"]) != fmt.Sprint(len(after)) {
			t.Errorf("%s: the database holds %v rows of %d runs", config, out.Rows, len(after))
		}
	}

	// The password in an address is never printed.
	wrong := endtoend.Rouse(t, "engine", "migrate", "--to", "postgres://nobody:hunter2@"+cmdtest.Nobody+"/none?connect_timeout=2", "--config", other)
	if err := wrong.Run(); err == nil || strings.Contains(wrong.Err.String(), "hunter2") {
		t.Errorf("%v: %s", err, wrong.Err.String())
	}
}
