package agentdb_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
)

// attempts reads the corpus, which has one attempt per line.
func attempts(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("testdata/escapes.txt")
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	if len(out) < 100 {
		t.Fatalf("the corpus has %d attempts", len(out))
	}

	return out
}

// sandboxedDB is a database with the files beside it.
type sandboxedDB struct {
	db     *agentdb.DB
	dir    string
	before string
}

func newSandboxedDB(t *testing.T) *sandboxedDB {
	t.Helper()
	p := &sandboxedDB{dir: t.TempDir()}
	for _, name := range []string{"canary.txt", "canary.sqlite"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte("do not touch"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: filepath.Join(p.dir, "db.sqlite"), Timeout: 100 * time.Millisecond, Quota: 200 << 20})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { db.Close() })
	p.db = db
	expenses(t, db)
	if _, err := db.Insert(t.Context(), changelog.By{Run: 1, Key: "first"}, "expenses", []map[string]any{{"note": "one"}}); err != nil {
		t.Fatal(err)
	}

	p.before = p.snapshot(t, 2)
	return p
}

// snapshot returns all data that an attempt must not change. From the changelog, it includes the
// rows that were there at the start.
func (p *sandboxedDB) snapshot(t *testing.T, logged int) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		b.WriteString(e.Name() + "\n")
	}

	for _, name := range []string{"canary.txt", "canary.sqlite"} {
		data, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%x\n", sha256.Sum256(data))
	}

	for _, query := range []string{
		"select group_concat(run || key || op || result || at) from _calls",
		"select group_concat(name || purpose || created_at || run_id) from _tables_meta where name = 'expenses'",
		fmt.Sprintf(`select group_concat(id || ts || run_id || actor || op || "table" || coalesce(pk, '') || coalesce(before, '') || coalesce(after, '') || coalesce(sql, '')) from (select * from _changelog where id <= %d order by id)`, logged),
		"select group_concat(sql) from sqlite_schema where substr(tbl_name, 1, 1) = '_' or substr(name, 1, 1) = '_'",
		"select user_version || ' ' || application_id from pragma_user_version, pragma_application_id",
		"select journal_mode from pragma_journal_mode",
		"select count(*) from _migrations where id = 1",
	} {
		b.WriteString(system(t, p.db, query) + "\n")
	}

	return b.String()
}

// check fails if an attempt changed data that is not the agent's, or did not end with a
// rejection.
func (p *sandboxedDB) check(t *testing.T, err error) {
	t.Helper()
	var bad *dberr.Error
	if err != nil && !errors.As(err, &bad) {
		t.Errorf("it broke something: %v", err)
	}
	if got := p.snapshot(t, 2); got != p.before {
		t.Errorf("it got out:\n%s\nwas\n%s", got, p.before)
	}
	if got := system(t, p.db, "select count(*) from expenses where note like '%{\"ids\"%' or note = 'canary'"); got != "0" {
		t.Error("it carried the journal out")
	}
}

// The agent's SQL reaches only its own tables, in bounded time and memory (OSA-50, OSA-56,
// OSA-57; the row of the agent database in the table of threats). Attempts with large values
// alternate between the routes; with ROUSE_TEST_ATTACKS=all each one takes every route.
func TestEscapes(t *testing.T) {
	routes := map[string]func(t *testing.T, db *agentdb.DB, sql string) error{
		"query": func(t *testing.T, db *agentdb.DB, sql string) error {
			_, err := db.Query(t.Context(), agentdb.QuerySpec{SQL: sql})
			return err
		},
		"execute": func(t *testing.T, db *agentdb.DB, sql string) error {
			_, err := db.Execute(t.Context(), changelog.By{Run: 2}, agentdb.ExecuteSpec{SQL: sql})
			return err
		},
		"migrate": func(t *testing.T, db *agentdb.DB, sql string) error {
			_, err := db.Migrate(t.Context(), changelog.By{Run: 2}, agentdb.MigrateSpec{Up: sql, Down: "select 1", Description: "escape"})
			return err
		},
		"view": func(t *testing.T, db *agentdb.DB, sql string) error {
			if _, err := db.Execute(t.Context(), changelog.By{Run: 2}, agentdb.ExecuteSpec{SQL: "create view probe as " + sql}); err != nil {
				return err
			}

			_, first := db.Query(t.Context(), agentdb.QuerySpec{SQL: "select * from probe"})
			_, second := db.Execute(t.Context(), changelog.By{Run: 2}, agentdb.ExecuteSpec{SQL: "insert into expenses(note) select count(*) from probe; drop view probe"})
			if err := agentdb.Exec(t.Context(), db, "drop view if exists probe"); err != nil {
				t.Error(err)
			}
			return errors.Join(first, second)
		},
		"trigger": func(t *testing.T, db *agentdb.DB, sql string) error {
			if _, err := db.Execute(t.Context(), changelog.By{Run: 2}, agentdb.ExecuteSpec{SQL: "create trigger probe after insert on expenses begin " + sql + "; end"}); err != nil {
				return err
			}

			_, err := db.Insert(t.Context(), changelog.By{Run: 2}, "expenses", []map[string]any{{"note": "fires"}})
			if err := agentdb.Exec(t.Context(), db, "drop trigger if exists probe"); err != nil {
				t.Error(err)
			}
			return err
		},
	}

	list, all := attempts(t), os.Getenv("ROUSE_TEST_ATTACKS") == "all"
	for turn, name := range slices.Sorted(maps.Keys(routes)) {
		route := routes[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSandboxedDB(t)
			for i, sql := range list {
				if !all && strings.Contains(sql, "zeroblob") && i%len(routes) != turn {
					continue
				}
				t.Run(sql[:min(len(sql), 60)], func(t *testing.T) { p.check(t, route(t, p.db, sql)) })
			}

			if got := system(t, p.db, "select integrity_check from pragma_integrity_check"); got != "ok" {
				t.Error(got)
			}
		})
	}
}
