package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/cmd/internal/homedir"
	"rouse/internal/ledger"
	"rouse/internal/ledger/store"
)

// countJob is a configuration with a job that writes rows.
const countJob = `version: 1
home: ./h
agents:
  - {name: ann, workdir: ./w}
jobs:
  - {name: count, agent: ann, playbook: [{call: db_query, with: {sql: "select 1"}}]}
`

// TestDaemonEndsOnDamage checks a ledger that is too large for a check before the start. The daemon
// checks it while it runs, and must end with the reason if it is damaged. Later writes must not be
// in the damaged file.
func TestDaemonEndsOnDamage(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": countJob})
	config, home := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "h")
	endtoend.RunJSON(t, nil, "run", "count", "--config", config)

	l, err := ledger.Open(t.Context(), ledger.Options{Path: homedir.LedgerOptions(home).Path})
	if err != nil {
		t.Fatal(err)
	}
	long := ledger.Event{Kind: "note", Data: json.RawMessage(`"` + strings.Repeat("x", 11<<20) + `"`)}
	if err := errors.Join(l.Events.Append(t.Context(), long, long, long, long, long, long), l.Close()); err != nil {
		t.Fatal(err)
	}

	path := homedir.LedgerOptions(home).Path
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	p := endtoend.Rouse(t, "serve", "--config", config)
	if err := p.Run(); err == nil || !strings.Contains(p.Err.String(), "it is not as rouse left it") {
		t.Errorf("%v\n%s%s", err, p.Out.String(), p.Err.String())
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, data) {
		t.Errorf("the damaged file was changed: %v", err)
	}

	p = endtoend.Rouse(t, "runs", "--config", config)
	if err := p.Run(); err != nil || !strings.HasPrefix(p.Err.String(), "rouse: read-only:") || !strings.Contains(p.Out.String(), "count") {
		t.Errorf("%v\n%s%s", err, p.Out.String(), p.Err.String())
	}
}

// TestDailyBackup checks that a daemon backs up the ledger if the last backup is one day old.
func TestDailyBackup(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": countJob})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	cmdtest.Until(t, "the backup", func() bool {
		all, err := store.Backups(homedir.LedgerOptions(filepath.Join(dir, "h")).Path)
		return err == nil && len(all) == 1 && all[0].Why == "daily"
	})
	p.Stop(t)
	p = endtoend.Serve(t, config)
	p.Stop(t)

	var all []store.Backup
	endtoend.RunJSON(t, &all, "ledger", "backups", "--json", "--config", config)
	if len(all) != 1 {
		t.Errorf("%+v", all)
	}
}
