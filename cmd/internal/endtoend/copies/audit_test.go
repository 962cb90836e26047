package copies

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"rouse/cmd/internal/audit"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
	"rouse/internal/ledger/integrity"
)

// TestAuditFindsDamagedDatabases checks that each kind of damage to an agent's database fails the
// databases check, and only that check.
func TestAuditFindsDamagedDatabases(t *testing.T) {
	t.Parallel()
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: a}]
jobs: [{name: j, agent: a, playbook: [{call: db_execute, with: {sql: "create table t (n integer primary key, s text); insert into t values (1, 'x'); create index by_s on t(s)"}}]}]
`})
	config, home := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "home")
	endtoend.MustRun(t, "run", "j", "--wait", "--config", config)
	endtoend.AuditClean(t, config)

	overwrite := func(at int64, text string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte(text), at)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	execute := func(statement string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", path)
			if err == nil {
				_, err = db.ExecContext(t.Context(), statement)
				err = errors.Join(err, db.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		damage func(*testing.T, string)
		says   string
	}{
		"no database":         {overwrite(0, strings.Repeat("?", 100)), "not a database"},
		"another program's":   {execute("pragma application_id = 7"), "is not an agent's database"},
		"a row off its index": {execute("pragma writable_schema = on; update sqlite_schema set rootpage = (select rootpage from sqlite_schema where name = 't') where name = 'by_s'"), "is damaged"},
		"an unknown run":      {execute("update _changelog set run_id = 99"), "the changelog holds what run 99 did"},
		"an unknown call":     {execute("update _calls set run = 99"), "the journal of calls holds what run 99 did"},
		"another ledger's":    {execute("update _ledgers set newest = 99"), "99"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			damaged := t.TempDir()
			if err := os.CopyFS(damaged, os.DirFS(home)); err != nil {
				t.Fatal(err)
			}
			c.damage(t, filepath.Join(damaged, "agents", "a", "db.sqlite"))

			var found []integrity.Violation
			if _, err := audit.Home(t.Context(), audit.Options{Home: damaged, Found: func(v integrity.Violation) error {
				found = append(found, v)
				return nil
			}}); err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 || found[0].Check != "database" || !strings.Contains(found[0].Text, "the database of a: ") || !strings.Contains(found[0].Text, c.says) {
				t.Errorf("it finds %+v", found)
			}
		})
	}
}
