package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"rouse/agentdb/ledger"
	"rouse/agentdb/sqlite"
)

// What older versions said of an agent holds for its database at once, and for its files as soon as it is known where they
// are; of an agent that is not configured it stays.
func TestOldLabels(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), t.Context()
	before := fstest.MapFS{}
	files, err := filepath.Glob("migrations/sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if base := filepath.Base(name); base <= "0011_approvals.sql" {
			before[base] = &fstest.MapFile{Data: text}
		}
	}

	old, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "ledger.db"), ApplicationID: 0x726f7573, Migrations: before})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.SQL().Exec(`insert into untrusted (agent, run, at) values ('ann', 7, 1), ('gone', 8, 2), ('bob', 9, 3)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}

	l := openIn(t, dir)
	work := ledger.Place{Kind: ledger.PlaceFile, Name: filepath.Join(dir, "work")}
	of := func(p ledger.Place) string {
		t.Helper()
		letters, err := l.LabelsOf(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return letters
	}
	if got := of(ledger.TablePlace("ann", "t")) + of(ledger.TablePlace("gone", "")) + of(ledger.TablePlace("bob", "")); got != "AAA" {
		t.Errorf("the databases have the labels %q", got)
	}

	for range 2 {
		if err := l.SettleLabels(ctx, func(agent string) []ledger.Place {
			if agent == "ann" {
				return []ledger.Place{ledger.TablePlace("ann", ""), work}
			}
			if agent == "bob" {
				return []ledger.Place{ledger.TablePlace("bob", "")}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}

		var told []string
		all, err := l.Labels(ctx)
		for _, one := range all {
			told = append(told, string(one.Kind)+" "+filepath.Base(one.Name))
		}
		if got := strings.Join(told, ", "); err != nil || got != "agent gone, database ann, database bob, file work" || all[1].Run != 7 || of(work) != "A" {
			t.Errorf("%s: %+v %v", got, all, err)
		}
	}
}
