package agentdb_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/internal/storage/sqlite"
)

const benchRows = 200_000

func benchFile() []byte {
	var b bytes.Buffer
	b.WriteString("a,b,c,d,e\n")
	for i := range benchRows {
		fmt.Fprintf(&b, "some name %d,%d,%d.5,2026-01-%02d,food\n", i, i, i%1000, i%28+1)
	}
	return b.Bytes()
}

// BenchmarkImport imports 200,000 × 5 values from CSV with their changelog. Compare it with
// BenchmarkBareInsert, which only writes the same values, and with the import command of the
// sqlite3 program.
func BenchmarkImport(b *testing.B) {
	file := benchFile()
	for b.Loop() {
		db := open(b, filepath.Join(b.TempDir(), "db.sqlite"))
		if _, err := db.Import(b.Context(), changelog.By{Run: 1}, transfer.ImportSpec{Table: "t", Name: "t.csv", Source: bytes.NewReader(file)}); err != nil {
			b.Fatal(err)
		}
		db.Close()
	}

	b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkBareInsert(b *testing.B) {
	for b.Loop() {
		db, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "db.sqlite"), ApplicationID: 1})
		if err != nil {
			b.Fatal(err)
		}
		if err := db.Do(b.Context(), bareInsert); err != nil {
			b.Fatal(err)
		}
		db.Close()
	}
	b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
}

func bareInsert(tx *sqlite.Tx) error {
	ctx := context.Background()
	if _, err := tx.SQL().ExecContext(ctx, "create table t(a text, b integer, c real, d text, e text)"); err != nil {
		return err
	}

	const rows = 1000
	statement, err := tx.SQL().PrepareContext(ctx, "insert into t values (?,?,?,?,?)"+string(bytes.Repeat([]byte(",(?,?,?,?,?)"), rows-1)))
	if err != nil {
		return err
	}
	defer statement.Close()

	args := make([]any, 0, rows*5)
	for i := 0; i < benchRows; i += rows {
		args = args[:0]
		for j := i; j < i+rows; j++ {
			args = append(args, fmt.Sprintf("some name %d", j), int64(j), float64(j%1000)+.5, fmt.Sprintf("2026-01-%02d", j%28+1), "food")
		}
		if _, err := statement.ExecContext(ctx, args...); err != nil {
			return err
		}
	}

	return nil
}

func BenchmarkQuery(b *testing.B) {
	db := fresh(b)
	expenses(b, db)
	insert(b, db, "expenses", map[string]any{"amount": 1})

	for b.Loop() {
		if _, err := db.Query(b.Context(), agentdb.QuerySpec{SQL: "select id, amount from expenses where id = ?", Params: []any{1}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInsert(b *testing.B) {
	db := fresh(b)
	expenses(b, db)
	row := []map[string]any{{"category": "food", "amount": 1.5}}
	n := 0
	for b.Loop() {
		n++
		if _, err := db.Insert(b.Context(), changelog.By{Run: 1, Key: fmt.Sprint(n)}, "expenses", row); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInsertMany inserts a thousand rows in one call. Compare it with
// BenchmarkBareInsertMany.
func BenchmarkInsertMany(b *testing.B) {
	db := fresh(b)
	_, err := db.CreateTable(b.Context(), changelog.By{Run: 1}, schema.TableSpec{Name: "t", Purpose: "rows", Columns: []schema.Column{{Name: "name", Type: "TEXT"}, {Name: "n", Type: "INTEGER"}}})
	if err != nil {
		b.Fatal(err)
	}
	rows := make([]map[string]any, 1000)
	for i := range rows {
		rows[i] = map[string]any{"name": fmt.Sprint("some name ", i), "n": i}
	}

	n := 0
	for b.Loop() {
		n++
		if _, err := db.Insert(b.Context(), changelog.By{Run: 1, Key: fmt.Sprint(n)}, "t", rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(rows))/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkBareInsertMany inserts the same rows with a prepared statement of SQLite. They are
// equally durable, but have no changelog.
func BenchmarkBareInsertMany(b *testing.B) {
	db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "db.sqlite")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(b.Context(), "create table t(id integer primary key, name text, n integer)"); err != nil {
		b.Fatal(err)
	}
	const rows = 1000
	statement, err := db.PrepareContext(b.Context(), "insert into t(name, n) values (?,?)"+strings.Repeat(",(?,?)", rows-1))
	if err != nil {
		b.Fatal(err)
	}
	defer statement.Close()
	var args []any
	for i := range rows {
		args = append(args, fmt.Sprint("some name ", i), i)
	}

	for b.Loop() {
		if _, err := statement.ExecContext(b.Context(), args...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
}
