package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

const identityConfig = `version: 1
home: ./home
agents: [{name: clerk, workdir: ./work}]
jobs:
  - {name: fill, agent: clerk, playbook: [{call: db_insert, with: {table: t, row: {a: x}}}]}
`

// TestLedgerLostUnderDaemon deletes, empties or replaces the ledger of a running daemon. Within
// seconds the daemon must end with an error that names the reason. Neither the daemon nor another
// command may create a new ledger.
func TestLedgerLostUnderDaemon(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(path string) error{
		"deleted": os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := cmdtest.Write(t, map[string]string{"rouse.yaml": identityConfig})
			config, ledger := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "home", "ledger.db")
			p := endtoend.Serve(t, config)
			if err := take(ledger); err != nil {
				t.Fatal(err)
			}

			// The next process that opens an emptied file makes SQLite remove its WAL, so either of
			// the two may be reported.
			err := p.Wait()
			if said := p.Err.String(); err == nil || !strings.Contains(said, "the ledger is lost") || !regexp.MustCompile(`ledger\.db(-wal)? was`).MatchString(said) {
				t.Fatalf("the daemon ended with %v: %s", err, said)
			}

			run := endtoend.Rouse(t, "run", "fill", "--config", config)
			if err := run.Run(); err == nil || !strings.Contains(run.Err.String(), "and this home had one") {
				t.Errorf("a run without a ledger: %v\n%s", err, run.Err.String())
			}
			if info, err := os.Stat(ledger); err == nil && info.Size() > 0 {
				t.Errorf("there is a new ledger of %d bytes", info.Size())
			}
		})
	}
}

// TestDatabaseLostUnderDaemon deletes an agent's database under a running daemon. The daemon must
// refuse further writes, because they would go into the deleted file.
func TestDatabaseLostUnderDaemon(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": identityConfig, "rows.csv": "a\nx\n"})
	config := filepath.Join(dir, "rouse.yaml")
	p := endtoend.Serve(t, config)
	do := func(args ...string) (string, error) {
		c := endtoend.Rouse(t, append(args, "--config", config)...)
		err := c.Run()
		return c.Out.String() + c.Err.String(), err
	}

	if out, err := do("db", "clerk", "import", filepath.Join(dir, "rows.csv"), "--table", "t"); err != nil {
		t.Fatal(err, out)
	}
	if err := os.Remove(filepath.Join(dir, "home", "agents", "clerk", "db.sqlite")); err != nil {
		t.Fatal(err)
	}

	cmdtest.Until(t, "the loss is seen", func() bool {
		out, _ := do("doctor")
		return strings.Contains(out, "that of clerk cannot be used") && strings.Contains(out, "was removed while it was in use")
	})
	if out, err := do("db", "clerk", "import", filepath.Join(dir, "rows.csv"), "--table", "t"); err == nil {
		t.Errorf("a row is written into a file that is gone: %s", out)
	}
	p.Stop(t)
}
