package agentdb_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/transfer"
)

// manyRows is the number of rows in the file of TestManyRows: a few chunks by default, or the
// value of ROUSE_TEST_ROWS.
func manyRows(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("ROUSE_TEST_ROWS"))
	if err != nil {
		return 2_345
	}
	t.Logf("%d rows", n)
	return n
}

// manyFile has an unsorted text key, two numbers, a date and a word.
func manyFile(rows, factor int) *bytes.Reader {
	var b bytes.Buffer
	b.WriteString("code,n,amount,day,kind\n")
	for i := range rows {
		fmt.Fprintf(&b, "K%07d,%d,%d.25,2026-01-%02d,food\n", i*7919%rows, i*factor, i%1000, i%28+1)
	}
	return bytes.NewReader(b.Bytes())
}

// OSA-58, OSA-61: one call imports a very large file with any kind of key. An undo removes all
// rows or resets their values. The changelog of both has one entry per chunk.
func TestManyRows(t *testing.T) {
	t.Parallel()
	rows := manyRows(t)
	chunks := strconv.Itoa((rows + 999) / 1000)
	for name, spec := range map[string]transfer.ImportSpec{
		"numbered": {Table: "t"},
		"by text":  {Table: "t", Mode: "upsert", KeyColumns: []string{"code"}},
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			load := func(run int64, factor int) {
				t.Helper()
				spec := spec
				spec.Name, spec.Source = "t.csv", manyFile(rows, factor)
				out, err := db.Import(t.Context(), changelog.By{Run: run}, spec)
				if err != nil || out.RowsImported != int64(rows) {
					t.Fatalf("%d rows were imported: %v", out.RowsImported, err)
				}
			}

			sum := func() string { return system(t, db, "select count(*) || ' ' || total(n) from t") }
			load(1, 1)
			first := sum()
			load(2, 3)
			var told int
			out := undo(t, db, changelog.UndoSpec{Run: 2, Progress: func(done, of int64) {
				if told++; done > of {
					t.Errorf("%d of %d", done, of)
				}
			}})
			if got := sum(); !out.Done || got != first || out.Tables[0].Removed+out.Tables[0].Changed != int64(rows) || told == 0 {
				t.Fatalf("the second import undone: %s, want %s (told %d times): %+v", got, first, told, out)
			}
			if got := system(t, db, "select count(*) from _changelog where actor = 'user' and op = 'raw'"); got != chunks {
				t.Errorf("%s entries for what was undone, want one for each chunk: %s", got, chunks)
			}
			if out := undo(t, db, changelog.UndoSpec{Run: 1}); !out.Done || contents(t, db) != "" {
				t.Errorf("the first import undone: %+v", out)
			}
		})
	}
}

// OSA-61: if a later change touched one row of a chunk, a forced undo resets all other rows. Rows
// without an entry are unchanged.
func TestUndoOfATouchedChunk(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]string{
		"changed":            "update t set n = -1 where code = 'K0000007'",
		"gone":               "delete from t where code = 'K0000007'",
		"another row":        "insert into t(code, n) values ('other', -1)",
		"a text for a value": "update t set amount = 'x' where code = 'K0000007'",
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			for run := range int64(2) {
				if _, err := db.Import(t.Context(), changelog.By{Run: run + 1}, transfer.ImportSpec{Table: "t", Mode: "upsert", KeyColumns: []string{"code"}, Name: "t.csv", Source: manyFile(50, int(run)+1)}); err != nil {
					t.Fatal(err)
				}
			}

			if _, err := db.Execute(t.Context(), changelog.By{Run: 3}, agentdb.ExecuteSpec{SQL: later}); err != nil {
				t.Fatal(err)
			}

			before := contents(t, db)
			out := undo(t, db, changelog.UndoSpec{Run: 2})
			if out.Done != (name == "another row") || !out.Done && (contents(t, db) != before || out.ConflictCount != 1) {
				t.Fatalf("%+v", out)
			}

			undo(t, db, changelog.UndoSpec{Run: 2, Force: true})
			if got := system(t, db, "select sum(n) from t where code <> 'K0000007' and n >= 0"); got != "1222" { // 0 to 49, without 3
				t.Errorf("the other rows sum up to %s", got)
			}
			if got := contents(t, replay(t, db)); got != contents(t, db) {
				t.Errorf("the changelog gives %s", got)
			}
		})
	}
}
