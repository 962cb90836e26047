package agentdb_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/agentdb/transfer"
	"rouse/internal/storage/sqlite"
)

const crashRows = 1500

// crash is an operation that is killed while it runs. It works on the folder of a pool with the
// agent ann. Her table expenses holds crashRows rows of run 1 and the same number of run 2.
type crash struct {
	name string
	do   func(t *testing.T, dir string) // runs in the child process
	// state describes the result. It must equal the state before the operation or after a
	// complete one.
	state func(t *testing.T, dir string) string
}

var crashes = []crash{
	{"migration of an agent's", func(t *testing.T, dir string) {
		_, err := lent(t, crashPool(t, dir), "ann").Migrate(t.Context(), changelog.By{Run: 3}, agentdb.MigrateSpec{
			Up: "alter table expenses add column twice real; update expenses set twice = 2 * amount where category = 'c1'; create index twice on expenses(twice)", Down: "select 1", Description: "d"})
		if err != nil {
			t.Fatal(err)
		}
	}, annState},
	{"backup", func(t *testing.T, dir string) {
		backup(t, lent(t, crashPool(t, dir), "ann"), agentdb.BackupSpec{File: filepath.Join(dir, "copy.sqlite"), Overwrite: true})
	}, func(t *testing.T, dir string) string {
		if err := sqlite.Verify(t.Context(), filepath.Join(dir, "copy.sqlite"), agentdb.ApplicationID, true); err != nil {
			t.Error(err)
		}
		return annState(t, dir) + fmt.Sprint(agentdb.FileSize(filepath.Join(dir, "copy.sqlite")))
	}},
	{"restore", func(t *testing.T, dir string) {
		if _, err := crashPool(t, dir).Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: filepath.Join(dir, "copy.sqlite")}); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, dir string) string {
		now := annState(t, dir)
		p := crashPool(t, dir)
		all, err := p.Recovery.Backups("ann")
		if err != nil {
			t.Fatal(err)
		}

		if kept := len(all); kept > 0 { // the previous database is complete and can be restored
			if _, err := p.Recovery.Restore(t.Context(), "ann", pool.RestoreSpec{From: all[0].Name}); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			now += " before: " + annState(t, dir)
		}

		return now
	}},
	{"undo", func(t *testing.T, dir string) {
		undo(t, lent(t, crashPool(t, dir), "ann"), changelog.UndoSpec{Run: 2})
	}, annState},
}

func crashPool(t *testing.T, dir string) *pool.Pool {
	return newPool(t, pool.Options{Dir: filepath.Join(dir, "agents"), Backups: agentdb.KeepBackups})
}

// annState returns a short description of ann's database, which must be intact.
func annState(t *testing.T, dir string) (state string) {
	t.Helper()
	p := crashPool(t, dir)
	with(t, p, "ann", func(db *agentdb.DB) {
		state = ask(t, db, "select count(*), sum(amount) from expenses")
		if columns := system(t, db, "select group_concat(name) from pragma_table_info('expenses')"); strings.Contains(columns, "twice") {
			state += ask(t, db, "select sum(twice), count(twice) from expenses") + system(t, db, "select count(*) from sqlite_schema where name = 'twice'")
		}
		state += " " + system(t, db, "select count(*) || ' ' || (select count(*) from _migrations) || ' ' || (select count(*) from _undone) from _calls")
	})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Verify(t.Context(), filepath.Join(dir, "agents", "ann", "db.sqlite"), agentdb.ApplicationID, true); err != nil {
		t.Error(err)
	}

	whole, err := filepath.Glob(filepath.Join(dir, "agents", "*", "backups", "*.sqlite"))
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range whole {
		if err := sqlite.Verify(t.Context(), path, agentdb.ApplicationID, true); err != nil {
			t.Error(err)
		}
	}

	return state
}

// crashFixture creates the initial state of every crash.
func crashFixture(t *testing.T) string {
	dir := t.TempDir()
	p := crashPool(t, dir)
	with(t, p, "ann", func(db *agentdb.DB) {
		expenses(t, db)
		backup(t, db, agentdb.BackupSpec{File: filepath.Join(dir, "copy.sqlite")}) // of an empty table

		for run := int64(1); run <= 2; run++ {
			var csv strings.Builder
			csv.WriteString("category,amount,note\n")
			for i := range crashRows {
				fmt.Fprintf(&csv, "c%d,%d.5,%s\n", i%9, i, strings.Repeat("n", 100))
			}

			if _, err := db.Import(t.Context(), changelog.By{Run: run, Key: "k"}, transfer.ImportSpec{Table: "expenses", Name: "f.csv", Source: strings.NewReader(csv.String())}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	return dir
}

// A migration, backup, restore or undo that is killed leaves either the old state or the new
// state. ROUSE_TEST_KILLS is the number of kills of each, spread over its duration; .ci/run sets
// 200.
func TestKilledHalfWay(t *testing.T) {
	if name, dir := os.Getenv("ROUSE_TEST_CRASH"), os.Getenv("ROUSE_TEST_CRASH_DIR"); name != "" {
		crashChild(t, name, dir)
		return
	}

	kills, err := strconv.Atoi(os.Getenv("ROUSE_TEST_KILLS"))
	if err != nil {
		kills = 2
	}

	fixture := crashFixture(t)
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			folder := func() string {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(fixture)); err != nil {
					t.Fatal(err)
				}
				return dir
			}

			before := c.state(t, folder())
			whole := folder()
			took := killed(t, c.name, whole, time.Hour)
			after := c.state(t, whole)
			if c.name != "migration of rouse's" && before == after {
				t.Fatalf("it does nothing: %s", after)
			}

			var old int
			for i := range kills {
				dir := folder()
				killed(t, c.name, dir, took*time.Duration(i+1)/time.Duration(kills+1))

				switch got := c.state(t, dir); got {
				case before:
					old++
				case after:
				default:
					t.Errorf("kill %d: %s, want %s or %s", i, got, before, after)
				}

				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}

			t.Logf("%d kills within %s: %d times the old, %d times the new", kills, took.Round(time.Millisecond), old, kills-old)
		})
	}
}

// killed starts a child and kills it after a delay. If the child finished earlier, it returns the
// child's duration.
func killed(t *testing.T, name, dir string, after time.Duration) (took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestKilledHalfWay$")
	child.Env = append(os.Environ(), "ROUSE_TEST_CRASH="+name, "ROUSE_TEST_CRASH_DIR="+dir)
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "begins\n" {
		rest, _ := io.ReadAll(lines)
		t.Fatalf("the child says %q %q: %v", line, rest, err)
	}

	began := time.Now()
	timer := time.AfterFunc(after, cancel) // kills the child
	defer timer.Stop()

	line, _ := lines.ReadString('\n') // empty if the child was killed
	took = time.Since(began)
	rest, _ := io.ReadAll(lines)
	if err := child.Wait(); err != nil && ctx.Err() == nil {
		t.Fatalf("the child: %v: %s%s", err, line, rest)
	}

	return took
}

func crashChild(t *testing.T, name, dir string) {
	for _, c := range crashes {
		if c.name == name {
			fmt.Println("begins")
			c.do(t, dir)
			fmt.Println("is over")
		}
	}
}
