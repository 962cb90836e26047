package agentdb_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agentdb"
	"rouse/agentdb/transfer"
)

func export(t testing.TB, db *agentdb.DB, format, sql string, params ...any) (agentdb.Exported, string) {
	t.Helper()
	var b bytes.Buffer
	out, err := db.Export(context.Background(), agentdb.ExportSpec{SQL: sql, Params: params, Format: format}, &b)
	if err != nil {
		t.Fatal(err)
	}
	if out.Bytes != int64(b.Len()) {
		t.Errorf("%d bytes are reported of %d", out.Bytes, b.Len())
	}

	return out, b.String()
}

// OSA-59: every format, without deleted rows.
func TestExport(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": "a;\"b\"\n", "amount": 3}, map[string]any{"category": "gone"},
		map[string]any{"category": "ü", "amount": 2.5, "note": nil})
	raw(t, db, "update expenses set _deleted_at = '2026-01-01T00:00:00.000Z' where category = 'gone'")
	const sql = "select id, category, amount, note from expenses where id < ? order by id"
	for format, want := range map[string]string{
		"csv":    "id,category,amount,note\n1,\"a;\"\"b\"\"\n\",3.0,none\n3,ü,2.5,\n",
		"tsv":    "id\tcategory\tamount\tnote\n1\t\"a;\"\"b\"\"\n\"\t3.0\tnone\n3\tü\t2.5\t\n",
		"json":   "[\n{\"id\":1,\"category\":\"a;\\\"b\\\"\\n\",\"amount\":3.0,\"note\":\"none\"},\n{\"id\":3,\"category\":\"ü\",\"amount\":2.5,\"note\":null}\n]\n",
		"ndjson": "{\"id\":1,\"category\":\"a;\\\"b\\\"\\n\",\"amount\":3.0,\"note\":\"none\"}\n{\"id\":3,\"category\":\"ü\",\"amount\":2.5,\"note\":null}\n",
	} {
		out, got := export(t, db, format, sql, 100)
		if got != want || out.RowsExported != 2 || out.Truncated || fmt.Sprint(out.Columns) != "[id category amount note]" || out.Warnings != nil {
			t.Errorf("%s: %+v\n%s", format, out, got)
		}
	}

	for format, want := range map[string]string{"csv": "a\n", "json": "[]\n", "jsonl": ""} {
		if _, got := export(t, db, format, "select 1 a where 0"); got != want {
			t.Errorf("nothing as %s: %q", format, got)
		}
	}
}

func TestExportRefuses(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	insert(t, db, "expenses", map[string]any{"category": strings.Repeat("x", 40_000)})

	for name, c := range map[string]struct {
		spec              agentdb.ExportSpec
		kind, field, part string
	}{
		"writing":     {agentdb.ExportSpec{SQL: "delete from expenses"}, "invalid_args", "sql", "only reads"},
		"the journal": {agentdb.ExportSpec{SQL: "select * from _calls"}, "invalid_args", "sql", "only reads the agent's own tables"},
		"no table":    {agentdb.ExportSpec{SQL: "select * from expense"}, "invalid_args", "sql", "did you mean expenses?"},
		"format":      {agentdb.ExportSpec{SQL: "select 1", Format: "pdf"}, "invalid_args", "format", `"pdf" is unknown`},
		"name":        {agentdb.ExportSpec{SQL: "select 1", Name: "a/b.pdf"}, "invalid_args", "format", "b.pdf does not say"},
		"long cell":   {agentdb.ExportSpec{SQL: "select category from expenses", Name: "x.XLSX"}, "invalid_args", "format", "row 1 has a text"},
		"parameter":   {agentdb.ExportSpec{SQL: "select ?"}, "invalid_args", "params", "more parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := db.Export(t.Context(), c.spec, &bytes.Buffer{})
			wantError(t, err, c.kind, c.field, c.part)
		})
	}
}

// Texts that a spreadsheet would evaluate are unchanged and cause a warning.
func TestExportWarnsOfFormulas(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	for _, text := range []string{"=1+1", "@sum(a)", "-cmd|x", "+49 (30) 123-4", "-5", "+1.5", "plain", "-"} {
		insert(t, db, "expenses", map[string]any{"category": text})
	}

	out, got := export(t, db, "csv", "select category from expenses order by id")
	if len(out.Warnings) != 1 || !strings.HasPrefix(out.Warnings[0], "3 texts") || !strings.HasPrefix(got, "category\n=1+1\n@sum(a)\n") {
		t.Errorf("%q %q", out.Warnings, got)
	}
	if out, _ := export(t, db, "xlsx", "select category from expenses"); out.Warnings != nil {
		t.Errorf("%q", out.Warnings)
	}
}

// OSA-58, OSA-59: an export imports as the same rows, in every format (property).
func TestExportImportsAgain(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	number := rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) && (f != 0 || !math.Signbit(f)) })
	word := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9 ,;'"\t\r\nüß.+=@-]{0,8}`), rapid.StringMatching(`_x00[0-9a-f]{2}_`), rapid.String().Filter(func(s string) bool { return !strings.ContainsAny(s, "\x00\ufffd\ufeff") }))
	type row struct {
		text string
		n    *int64
		f    *float64
	}

	rows := rapid.Custom(func(t *rapid.T) row {
		return row{"t" + word.Draw(t, "text"), rapid.Ptr(rapid.Int64(), true).Draw(t, "integer"), rapid.Ptr(number, true).Draw(t, "real")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(rows, 0, 8).Draw(rt, "rows")
		for _, table := range []string{"a", "b"} {
			raw(t, db, "drop table if exists "+table)
			raw(t, db, "create table "+table+" (id integer primary key, s text, n integer, f real)")
		}

		for i, r := range list {
			in := map[string]any{"id": i + 1, "s": r.text}
			if r.n != nil {
				in["n"] = *r.n
			}

			if r.f != nil {
				in["f"] = *r.f
			}

			insert(t, db, "a", in)
		}

		const sql = "select id, s, n, f, typeof(s) ts, typeof(n) tn, typeof(f) tf from %s order by id"
		want := ask(t, db, fmt.Sprintf(sql, "a"))
		for _, format := range []string{"csv", "tsv", "json", "jsonl", "xlsx"} {
			_, file := export(t, db, format, "select id, s, n, f from a order by id")
			raw(t, db, "delete from b")
			in, err := tryLoad(db, "f", file, func(s *transfer.ImportSpec) { s.Table, s.Format = "b", format })
			if len(list) == 0 {
				continue // a JSON file without rows has no column names
			}
			if err != nil || in.RowsImported != int64(len(list)) {
				rt.Fatalf("%s: %+v, %v in %q", format, in, err, file)
			}
			if got := ask(t, db, fmt.Sprintf(sql, "b")); got != want {
				rt.Fatalf("%s:\ngot  %s\nwant %s\nfile %q", format, got, want, file)
			}
		}
	})
}
