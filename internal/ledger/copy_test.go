package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
	"rouse/internal/ledger/ledgertest"
	"rouse/internal/ledger/maint"
	"rouse/internal/ledger/node"
	"rouse/internal/ledger/store"
)

// TestCopy checks that a ledger copied to another database and back has the same rows. An
// interrupted copy cannot be used, and continues at the same point.
func TestCopy(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	from := everyTable(t, first)
	large := `"` + strings.Repeat("large ", 20_000) + `"`
	run, attempt, call := withLargeCall(t, from, large)

	between := func() *ledger.Ledger { // opened anew each time, as by another process
		return openCopy(t, ledger.Options{Path: filepath.Join(second, "ledger.db"), Blobs: filepath.Join(second, "blobs")})
	}
	copied := copyInParts(t, from, between)
	if i := slices.IndexFunc(copied, func(c maint.CopiedTable) bool { return c.Name == "calls" }); len(copied) < 30 || copied[i].Rows < 100 {
		t.Errorf("%d tables were copied: %+v", len(copied), copied)
	}
	sameTables(t, filepath.Join(first, "ledger.db"), filepath.Join(second, "ledger.db"))

	to := openIn(t, second)
	if to.ID() != from.ID() {
		t.Error("the copy is another ledger")
	}
	calls, err := to.Steps.Calls(t.Context(), run.ID)
	if err != nil || len(calls) != 1 || string(calls[0].Args) != large || calls[0].Key != call {
		t.Errorf("the large value: %d calls (%v)", len(calls), err)
	}
	if err := integrity.Audit(t.Context(), to.DB, to.Blobs, integrity.Options{Begin: func(integrity.Check) {}, Found: func(v integrity.Violation) error {
		if strings.HasPrefix(v.Check, "value-") {
			t.Errorf("%s: %s", v.Check, v.Text)
		}
		return nil
	}}); err != nil {
		t.Error(err)
	}
	if err := to.Finish(t.Context(), attempt, ledger.Result{Outcome: domain.OutcomeSuccess}); err != nil {
		t.Errorf("the run that is on cannot end there: %v", err)
	}
	goesOn(t, from, to)
}

// The same with PostgreSQL.
func copyOnPostgres(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	from := everyTable(t, first)
	large := `"` + strings.Repeat("large ", 20_000) + `"`
	run, _, _ := withLargeCall(t, from, large)

	url, _ := ledgertest.Postgres(t)
	open := func() *ledger.Ledger { return openCopy(t, ledger.Options{DB: ledgertest.OpenPostgres(t, url)}) }
	copyInParts(t, from, open)
	there := ledgertest.OpenOn(t, url)
	calls, err := there.Steps.Calls(t.Context(), run.ID)
	if err != nil || len(calls) != 1 || string(calls[0].Args) != large {
		t.Errorf("the large value: %d calls (%v)", len(calls), err)
	}

	back := openCopy(t, ledger.Options{Path: filepath.Join(second, "ledger.db"), Blobs: filepath.Join(second, "blobs")})
	if _, err := maint.Copy(t.Context(), there.Maint, back.Maint, maint.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	sameTables(t, filepath.Join(first, "ledger.db"), filepath.Join(second, "ledger.db"))
	goesOn(t, from, back)
	goesOn(t, from, there)

	// A live node prevents the copy.
	if _, err := there.Nodes.Join(t.Context(), node.Node{Name: "north", Host: "here"}); err != nil {
		t.Fatal(err)
	}
	_, err = maint.Copy(t.Context(), there.Maint, openCopy(t, ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")}).Maint, maint.CopyOptions{})
	if err == nil || !strings.Contains(err.Error(), "the node north") {
		t.Errorf("a ledger in use is copied: %v", err)
	}
	if err := there.Nodes.Membership().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func openCopy(t *testing.T, o ledger.Options) *ledger.Ledger {
	t.Helper()
	o.Copying = true
	l, err := ledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// copyInParts interrupts a copy a few times and continues it.
func copyInParts(t *testing.T, from *ledger.Ledger, open func() *ledger.Ledger) []maint.CopiedTable {
	t.Helper()
	for part := range 4 {
		to := open()
		ctx, cut := context.WithCancel(t.Context())
		chunks := 0
		_, err := maint.Copy(ctx, from.Maint, to.Maint, maint.CopyOptions{Progress: func(string, int64, int64) {
			if chunks++; chunks > 3+part {
				cut()
			}
		}})
		if err == nil {
			t.Fatal("it was not cut off")
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
	}

	to := open()
	left := map[string]int64{}
	copied, err := maint.Copy(t.Context(), from.Maint, to.Maint, maint.CopyOptions{Progress: func(table string, rows, of int64) { left[table] = of - rows }})
	if err != nil {
		t.Fatal(err)
	}
	for table, n := range left {
		if n != 0 {
			t.Errorf("the table %s is copied, and %d rows are said to be left", table, n)
		}
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestCopyAgain checks that a complete copy is repeated if its end was not reported, but not over
// later changes.
func TestCopyAgain(t *testing.T) {
	t.Parallel()
	from := openIn(t, t.TempDir())
	request := ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}
	if _, err := from.Enqueue(t.Context(), request, request); err != nil {
		t.Fatal(err)
	}
	if err := from.Exec(t.Context(), "delete from runs where id = 2", "delete from events where run = 2"); err != nil { // the id is not assigned again
		t.Fatal(err)
	}
	to := openCopy(t, ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	for range 2 {
		if _, err := maint.Copy(t.Context(), from.Maint, to.Maint, maint.CopyOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	goesOn(t, from, to)
	if _, err := maint.Copy(t.Context(), from.Maint, to.Maint, maint.CopyOptions{}); err == nil || !strings.Contains(err.Error(), "replaces nothing") {
		t.Errorf("a ledger is replaced: %v", err)
	}
}

// TestCopyOfAnotherVersion checks that ledgers of different versions are rejected before any row is
// copied.
func TestCopyOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for what, statement := range map[string]string{"is not the same in both": "alter table pauses add column more text not null default ''", "different tables": "create table more (id integer primary key)"} {
		to := openCopy(t, ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
		if err := to.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		if _, err := maint.Copy(t.Context(), openIn(t, t.TempDir()).Maint, to.Maint, maint.CopyOptions{}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("after %s: %v", statement, err)
		}
	}
}

// TestUnfinishedCopy checks that an incomplete copy cannot be opened.
func TestUnfinishedCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from := openIn(t, t.TempDir())
	if _, err := from.Enqueue(t.Context(), ledger.Request{Job: "j", Agent: "a", Trigger: domain.TriggerAPI}); err != nil {
		t.Fatal(err)
	}
	o := ledger.Options{Path: filepath.Join(dir, "ledger.db")}
	to := openCopy(t, o)
	ctx, cut := context.WithCancel(t.Context())
	if _, err := maint.Copy(ctx, from.Maint, to.Maint, maint.CopyOptions{Progress: func(string, int64, int64) { cut() }}); err == nil {
		t.Fatal("it was not cut off")
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}

	if _, err := ledger.Open(t.Context(), o); !errors.Is(err, store.ErrUnfinishedCopy) {
		t.Errorf("it is opened: %v", err)
	}
	other := openCopy(t, ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")}) // a ledger with its own id
	if _, err := maint.Copy(t.Context(), other.Maint, openCopy(t, o).Maint, maint.CopyOptions{}); err == nil || !strings.Contains(err.Error(), "another ledger was begun") {
		t.Errorf("another ledger is mixed into it: %v", err)
	}
}

// goesOn checks that new ids in the copy are above all ids that the ledger has assigned.
func goesOn(t *testing.T, from, to *ledger.Ledger) {
	t.Helper()
	newest, err := from.NewestRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := to.Enqueue(t.Context(), ledger.Request{Job: "next", Agent: "a", Trigger: domain.TriggerAPI})
	if err != nil || a[0].Run <= newest {
		t.Errorf("the next run is %v, after %d (%v)", a, newest, err)
	}
}

func withLargeCall(t *testing.T, l *ledger.Ledger, args string) (ledger.Run, ledger.Attempt, string) {
	t.Helper()
	accepted, err := l.Enqueue(t.Context(), ledger.Request{Job: "large", Agent: "a", Trigger: domain.TriggerAPI})
	if err != nil {
		t.Fatal(err)
	}
	run, attempt, err := l.StartAttempt(t.Context(), accepted[0].Run)
	if err != nil {
		t.Fatal(err)
	}
	call := ledger.Call{Run: run.ID, Attempt: 1, Step: 1, Key: "k1", Tool: "file_read", Args: []byte(args)}
	if err := l.Steps.StartCall(t.Context(), attempt, call); err != nil {
		t.Fatal(err)
	}
	call.State, call.Envelope = domain.CallDone, []byte(args[:len(args)-1]+` as read"`)
	if err := l.Steps.FinishCall(t.Context(), attempt, call); err != nil {
		t.Fatal(err)
	}
	return run, attempt, call.Key
}

// everyTable creates a ledger with rows in every table, more than one chunk of a copy.
func everyTable(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	if err := openIn(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "ledger.db"), 120, map[string]int{"events": 2050, "labels": 2050, "runs": 4100})
	return openIn(t, dir)
}

// fill writes rows into every table, with values of the types of its columns.
func fill(t *testing.T, path string, some int, many map[string]int) {
	t.Helper()
	db := openSQLite(t, path)
	for _, table := range tablesOf(t, db) {
		columns := columnsOf(t, db, table)
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ")
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := some
		if many[table] > 0 {
			rows = many[table]
		}
		for i := range rows {
			var values []any
			for j, c := range columns {
				switch {
				case !strings.EqualFold(c.kind, "text"):
					values = append(values, 1000+i)
				case c.name == "id" && table == "epochs":
					values = append(values, fmt.Sprintf("%032x", i))
				default:
					values = append(values, fmt.Sprintf("%d ü%c %s", j, 'A'+i%50, strings.Repeat("x", i%7)+fmt.Sprint(i)))
				}
			}
			if _, err := tx.ExecContext(t.Context(), fmt.Sprintf("insert or ignore into %s values (%s)", table, marks), values...); err != nil {
				t.Fatalf("%s: %v", table, err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

type column struct{ name, kind string }

func openSQLite(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func tablesOf(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' and name not in ('schema_version', 'copies', 'blobs', 'agent_copies') order by name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func columnsOf(t *testing.T, db *sql.DB, table string) (columns []column) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `select name, type from pragma_table_info(?)`, table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.name, &c.kind); err != nil {
			t.Fatal(err)
		}
		columns = append(columns, c)
	}
	return columns
}

// sameTables compares two files, table by table and row by row.
func sameTables(t *testing.T, one, two string) {
	t.Helper()
	a, b := openSQLite(t, one), openSQLite(t, two)
	for _, table := range tablesOf(t, a) {
		var names []string
		for _, c := range columnsOf(t, a, table) {
			names = append(names, c.name)
		}
		want, got := rowsOf(t, a, table, names), rowsOf(t, b, table, names)
		if len(want) == 0 {
			t.Errorf("nothing was tried of %s", table)
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s differs: %d and %d rows", table, len(want), len(got))
		}
	}
}

func rowsOf(t *testing.T, db *sql.DB, table string, columns []string) (out []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), fmt.Sprintf(`select %s from %s`, strings.Join(columns, ", "), table))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%q", values))
	}
	slices.Sort(out)
	return out
}
