package agentdb_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/transfer"
)

func load(t testing.TB, db *agentdb.DB, name, content string, change ...func(*transfer.ImportSpec)) transfer.Imported {
	t.Helper()
	in, err := tryLoad(db, name, content, change...)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func tryLoad(db *agentdb.DB, name, content string, change ...func(*transfer.ImportSpec)) (transfer.Imported, error) {
	spec := transfer.ImportSpec{Table: "t", Name: name, Source: strings.NewReader(content)}
	for _, c := range change {
		c(&spec)
	}
	return db.Import(context.Background(), changelog.By{Run: 3, Actor: "user"}, spec)
}

func upsert(keys ...string) func(*transfer.ImportSpec) {
	return func(s *transfer.ImportSpec) { s.Mode, s.KeyColumns = "upsert", keys }
}

// OSA-58: every format, detected by name or content, imports into a new table.
func TestImportFormats(t *testing.T) {
	t.Parallel()
	const want = `[[1,"x",2.5,null],[2,"y,z",3,"n"]]`
	csvText := "a,b,c,d\n1,x,2.5,\n2,\"y,z\",3,n\n"
	for name, c := range map[string]struct{ file, content, want string }{
		"csv":           {"f.csv", csvText, strings.ReplaceAll(want, "null", `""`)},
		"csv, mark":     {"f.csv", "\ufeff" + strings.ReplaceAll(csvText, "\n", "\r\n"), strings.ReplaceAll(want, "null", `""`)},
		"csv by look":   {"f.txt", csvText, strings.ReplaceAll(want, "null", `""`)},
		"semicolons":    {"f.csv", "a;b;c;d\n1;x;2.5;\n2;y,z;3;n\n", strings.ReplaceAll(want, "null", `""`)},
		"tsv":           {"f.TSV", "a\tb\tc\td\n1\tx\t2.5\t\n2\ty,z\t3\tn\n", strings.ReplaceAll(want, "null", `""`)},
		"tsv by look":   {"f", "a\tb\tc\td\n1\tx\t2.5\t\n2\ty,z\t3\tn\n", strings.ReplaceAll(want, "null", `""`)},
		"json":          {"f.json", `[{"a":1,"b":"x","c":2.5,"d":null},{"a":2,"b":"y,z","c":3,"d":"n"}]`, want},
		"json by look":  {"f", ` [ {"a":1,"b":"x","c":2.5},{"a":2,"b":"y,z","c":3,"d":"n"} ] `, want},
		"jsonl":         {"f.jsonl", "{\"a\":1,\"b\":\"x\",\"c\":2.5}\n\n{\"d\":\"n\",\"a\":2,\"b\":\"y,z\",\"c\":3}\n", want},
		"ndjson":        {"f.ndjson", "{\"a\":1,\"b\":\"x\",\"c\":2.5}\n{\"d\":\"n\",\"a\":2,\"b\":\"y,z\",\"c\":3}", want},
		"jsonl by look": {"f", "{\"a\":1,\"b\":\"x\",\"c\":2.5}\n{\"d\":\"n\",\"a\":2,\"b\":\"y,z\",\"c\":3}", want},
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			in := load(t, db, c.file, c.content)
			if in.Table != "t" || in.RowsImported != 2 || !in.CreatedTable || in.Truncated || strings.Join(in.Columns, "") != "abcd" || in.DroppedColumns != nil {
				t.Errorf("%+v", in)
			}
			if got := ask(t, db, "select a, b, c, d from t order by id"); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if got := ask(t, db, "select typeof(a), typeof(b), typeof(c) from t limit 1"); got != `[["integer","text","real"]]` {
				t.Error(got)
			}
		})
	}

	db := fresh(t)
	load(t, db, "f.json", csvText, func(s *transfer.ImportSpec) { s.Format = "CSV" }) // an explicit format overrides the name
	schema, err := db.Schema(t.Context())
	if err != nil || schema.Tables[0].Purpose != "Imported from f.json" {
		t.Errorf("%+v, %v", schema, err)
	}

	in := load(t, db, "/in/Konto 2026.csv", csvText, func(s *transfer.ImportSpec) { s.Table = "" })
	if in.Table != "Konto_2026" {
		t.Error(in.Table)
	}
}

// A text stays a text if the conversion to a number would change it.
func TestImportLosesNothing(t *testing.T) {
	db := fresh(t)
	load(t, db, "f.csv", "zip,phone,big,deep,mixed,neg\n01234,+49 30,12345678901234567890,0.12345678901234567,1,-0\n99999,030,1,1.5,x,0\n")
	if got := ask(t, db, "select zip, phone, big, deep, mixed, neg from t order by id"); got != `[["01234","+49 30","12345678901234567890","0.12345678901234567","1","-0"],["99999","030","1","1.5","x","0"]]` {
		t.Error(got)
	}

	load(t, db, "f.json", `[{"big":12345678901234567890,"id64":9007199254740993,"s":"007","o":{"a": [1, 2]},"b":true,"e":"\u00e9\n"}]`, func(s *transfer.ImportSpec) { s.Table = "j" })
	if got := ask(t, db, "select big, id64, s, o, b, e from j"); got != `[["12345678901234567890",9007199254740993,"007","{\"a\":[1,2]}",1,"é\n"]]` {
		t.Error(got)
	}
}

// A failed import writes no row and reports the position of the error.
func TestImportRefusesTheWholeFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, content, field, part string }{
		"ragged":        {"f.csv", "a,b,c\n1,2,3\n1,2\n\n1,2,3,4\n1\n1\n", "path", "f.csv: more than half of its 5 rows do not fit, so nothing was imported: line 3: it has 2 cells, and the first line has 3; line 5: it has 4"},
		"open quote":    {"f.csv", "a,b\n1,2\n1,\"2\n", "path", "f.csv, line 3, column 3: a quote is opened"},
		"encoding":      {"f.csv", "ä,b\n1,\xe4\n", "path", "f.csv, line 2, column 3: the text is not UTF-8"},
		"json encoding": {"f.json", "[{\"a\":\"\xe4\"}]", "path", "f.json, line 1, column 8: the text is not UTF-8"},
		"gzip":          {"f.csv", "\x1f\x8b\x08", "path", "is compressed"},
		"old excel":     {"f.csv", "\xd0\xcf\x11\xe0\xa1", "path", "(.xls)"},
		"too wide":      {"f.csv", strings.Repeat("a,", 2000) + "\n", "path", "more than 1990 columns"},
		"empty":         {"f.csv", "\n\n", "path", "f.csv is empty"},
		"no objects":    {"f.json", "[]", "path", "holds no objects"},
		"not an array":  {"f.json", `{"a":1}`, "path", "must hold an array"},
		"not an object": {"f.json", `[{"a":1}, 2]`, "path", "f.json, line 1, column 11: expected an object"},
		"broken json":   {"f.jsonl", "{\"a\":1}\n{\"a\":}\n", "path", "f.jsonl, line 2, column 6: this is not JSON"},
		"cut json":      {"f.json", "[{\"a\":1},\n{\"a\":", "path", "f.json, line 2: the file ends in the middle"},
		"more json":     {"f.json", `[{"a":1}] {"a":2}`, "path", "line 1, column 11: something follows"},
		"ids twice":     {"f.csv", "id,a\n1,x\n1,y\n1,z\n", "path", "line 3: another row already has the same t.id; line 4"},
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			_, err := tryLoad(db, c.file, c.content)
			wantError(t, err, "invalid_args", c.field, c.part)
			schema, err := db.Schema(t.Context())
			if err != nil || len(schema.Tables) != 0 {
				t.Errorf("a refused import left %+v (%v)", schema, err)
			}
		})
	}
}

// OSA-58: rows that do not fit are skipped. The result has their number and the reasons.
func TestImportLeavesOutWhatDoesNotFit(t *testing.T) {
	db := fresh(t)
	var b strings.Builder
	b.WriteString("id,a\n")
	for i := range 4000 {
		fmt.Fprintf(&b, "%d,x\n", max(i, 1)) // the first two are equal
	}

	load(t, db, "f.csv", "id,a\n3500,old\n")
	in := load(t, db, "f.csv", b.String()+"4000\n4001,y,,\n4002,y,z\n")
	if in.RowsImported != 3999 || in.RowsSkipped != 4 || in.RowsRejected != 4 || len(in.Warnings) != 1 {
		t.Errorf("%+v", in)
	}

	want := []string{"line 3: another row already has the same t.id", "line 3502: another row already has the same t.id",
		"line 4002: it has 1 cells, and the first line has 2", "line 4004: it has 3 cells, and the first line has 2"}
	if !reflect.DeepEqual(in.SampleErrors, want) {
		t.Errorf("%q", in.SampleErrors)
	}
	if got := ask(t, db, "select count(*), max(id), (select a from t where id = 3500) from t"); got != `[[4000,4001,"old"]]` {
		t.Error(got)
	}
	if got := system(t, db, "select sum(json_extract(pk, '$.count')) || ' ' || sum(json_array_length(after, '$.rows')) from _changelog where op = 'import'"); got != "4000 4000" {
		t.Errorf("the changelog tells of %s rows", got)
	}

	expenses(t, db)
	in = load(t, db, "f.csv", "category;amount\na;1.50\nb;12,3O\nc; 1e2 \nd;\n", func(s *transfer.ImportSpec) { s.Table = "expenses" })
	if in.RowsImported != 3 || len(in.SampleErrors) != 1 || in.SampleErrors[0] != `line 3: column amount: "12,3O" is not a number` {
		t.Errorf("%+v", in)
	}

	// Half of the rows may be rejected, and the samples are the first ones in the file.
	in = load(t, db, "f.csv", "category;amount\n"+strings.Repeat("a;1\nb;x\n", 7), func(s *transfer.ImportSpec) { s.Table = "expenses" })
	if in.RowsImported != 7 || in.RowsSkipped != 7 || len(in.SampleErrors) != 5 || !strings.HasPrefix(in.SampleErrors[0], "line 3: ") || !strings.HasPrefix(in.SampleErrors[4], "line 11: ") {
		t.Errorf("%+v", in)
	}

	_, err := tryLoad(db, "f.csv", "category;amount\na;1,50\n", func(s *transfer.ImportSpec) { s.Table = "expenses" })
	wantError(t, err, "invalid_args", "path", "numbers have a decimal point")
}

func TestImportArguments(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	load(t, db, "f.csv", "a,b\n1,2\n")

	for name, c := range map[string]struct {
		change      func(*transfer.ImportSpec)
		kind, field string
		part        string
	}{
		"format":       {func(s *transfer.ImportSpec) { s.Format = "ods" }, "invalid_args", "format", "use csv, tsv, json, jsonl or xlsx"},
		"mode":         {func(s *transfer.ImportSpec) { s.Mode = "replace" }, "invalid_args", "mode", "use insert or upsert"},
		"no keys":      {func(s *transfer.ImportSpec) { s.Mode = "upsert" }, "invalid_args", "key_columns", "needs key_columns"},
		"keys":         {func(s *transfer.ImportSpec) { s.KeyColumns = []string{"a"} }, "invalid_args", "key_columns", "belong to mode upsert"},
		"unknown key":  {upsert("x"), "invalid_args", "key_columns[0]", `"x" is not among`},
		"table":        {func(s *transfer.ImportSpec) { s.Table = "_calls" }, "invalid_args", "table", "reserved"},
		"no create":    {func(s *transfer.ImportSpec) { s.Table, s.NoCreate = "tt", true }, "not_found", "table", `there is no table "tt"`},
		"names":        {func(s *transfer.ImportSpec) { s.Columns = []string{"a"} }, "invalid_args", "columns", "has 2 columns and 1 names"},
		"name twice":   {func(s *transfer.ImportSpec) { s.Columns = []string{"a", "A"} }, "invalid_args", "columns[1]", "named twice"},
		"name":         {func(s *transfer.ImportSpec) { s.Columns = []string{"a", "b c"} }, "invalid_args", "columns[1]", "is not a name"},
		"nothing fits": {func(s *transfer.ImportSpec) { s.Columns = []string{"x", "y"} }, "invalid_args", "table", "none of them matches"},
		"max_rows":     {func(s *transfer.ImportSpec) { s.MaxRows = -1 }, "invalid_args", "max_rows", "negative"},
		"too large":    {func(s *transfer.ImportSpec) { s.Source = &endless{} }, "invalid_args", "path", "larger than 64 MiB"},
		"json key": {func(s *transfer.ImportSpec) {
			s.Format, s.Source, s.Columns = "json", strings.NewReader(`[{"a":1}]`), []string{"aa"}
		}, "invalid_args", "columns", `no object of f.csv has the key "aa"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryLoad(db, "f.csv", "a,b\n1,2\n", c.change)
			wantError(t, err, c.kind, c.field, c.part)
		})
	}
}

type endless struct{}

func (*endless) Read(p []byte) (int, error) { return len(p), nil }

func TestImportIntoATable(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	expenses(t, db)
	into := func(s *transfer.ImportSpec) { s.Table = "Expenses" }
	in := load(t, db, "f.csv", "Category,AMOUNT,Shop\nfood,007.5,x\n,,y\n", into)
	if in.CreatedTable || in.Table != "expenses" || fmt.Sprint(in.DroppedColumns, in.Columns) != "[Shop] [category amount]" || len(in.Warnings) != 2 || !strings.Contains(in.Warnings[1], `column amount: 1 values are shorter as numbers than they were written, such as "007.5"`) {
		t.Errorf("%+v", in)
	}

	load(t, db, "f.json", `[{"category":"a"},{"category":"b","note":null},{"category":"c","note":"n","_created_at":"2020"}]`, into)
	if got := ask(t, db, "select category, amount, note from expenses order by id"); got != `[["food",7.5,"none"],["",null,"none"],["a",null,"none"],["b",null,null],["c",null,"n"]]` {
		t.Error(got)
	}

	load(t, db, "f.csv", "1,x\n", into, func(s *transfer.ImportSpec) { s.NoHeader, s.Columns = true, []string{"amount", "note"} })
	if got := ask(t, db, "select amount, note from expenses where id = 6"); got != `[[1,"x"]]` {
		t.Error(got)
	}

	in = load(t, db, "f.json", `[{"Category ":"z","amount":9}]`, into, func(s *transfer.ImportSpec) { s.Columns = []string{"Category "} })
	if got := ask(t, db, "select category, amount from expenses where id = 7"); got != `[["z",null]]` || in.DroppedColumns != nil {
		t.Error(got, in)
	}

	in = load(t, db, "f.csv", "a,a,A,\n1,2,3,4\n5,6,7,8\n", func(s *transfer.ImportSpec) { s.MaxRows = 1 })
	if !in.Truncated || in.RowsImported != 1 || strings.Join(in.Columns, " ") != "a a_2 A_3 column_4" {
		t.Errorf("%+v", in)
	}
	if got := ask(t, db, "select a, a_2, A_3, column_4 from t"); got != `[[1,2,3,4]]` {
		t.Error(got)
	}

	in = load(t, db, "f.csv", "a,a,A,\n1,2,3,4\n", func(s *transfer.ImportSpec) { s.MaxRows = 1 })
	if in.Truncated || ask(t, db, "select count(*), sum(a_2) from t") != "[[2,4]]" {
		t.Errorf("%+v", in)
	}

	in = load(t, db, "f.csv", "x,y\n1,2\n3,4\n", func(s *transfer.ImportSpec) { s.Table, s.NoHeader = "u", true })
	if in.RowsImported != 3 || strings.Join(in.Columns, " ") != "column_1 column_2" {
		t.Errorf("%+v", in)
	}
}

// OSA-58, C-14: an upsert creates its unique index, updates by key, restores deleted rows and
// logs the replaced values.
func TestImportUpsert(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	in := load(t, db, "f.csv", "sku,price\na,1\nb,2\na,3\n", upsert("SKU"))
	if in.RowsImported != 3 || ask(t, db, "select sku, price from t order by sku") != `[["a",3],["b",2]]` {
		t.Errorf("%+v %s", in, ask(t, db, "select * from t"))
	}

	raw(t, db, "update t set _deleted_at = '2026-01-01T00:00:00.000Z' where sku = 'b'")
	load(t, db, "f.jsonl", `{"sku":"b","price":5}`+"\n"+`{"sku":"c","price":6}`, upsert("sku"))
	if got := ask(t, db, "select sku, price from t order by sku"); got != `[["a",3],["b",5],["c",6]]` {
		t.Error(got)
	}
	if got := system(t, db, `select op || pk || (before ->> '$.rows[0][1]') || (before ->> '$.rows[0][2]') || (after ->> '$.rows[1][1]') || (after ->> '$.rows[1][2]') || actor || run_id from _changelog order by id desc limit 1`); got != `import{"keys":["sku"],"from":"b","to":"c","count":2}b2c6user3` {
		t.Error(got)
	}

	in = load(t, db, "f.csv", "sku\na\nz\n", upsert("sku"))
	if in.RowsImported != 1 || in.RowsSkipped != 1 {
		t.Errorf("rows of nothing but keys: %+v", in)
	}

	in = load(t, db, "f.json", `[{"sku":"q","price":1},{"price":2}]`, upsert("sku"))
	if in.RowsImported != 1 || fmt.Sprint(in.SampleErrors) != "[line 1: the key sku has no value]" {
		t.Errorf("%+v", in)
	}

	_, err := tryLoad(db, "f.csv", "price,sku\n3,x\n", upsert("price"))
	if err != nil {
		t.Fatal(err)
	}

	load(t, db, "f.csv", "price,sku\n3,y\n", func(s *transfer.ImportSpec) { s.Table = "other" })
	load(t, db, "f.csv", "price,sku\n3,z\n", func(s *transfer.ImportSpec) { s.Table = "other" })
	_, err = tryLoad(db, "f.csv", "price,sku\n3,z\n", func(s *transfer.ImportSpec) { s.Table = "other" }, upsert("price"))
	wantError(t, err, "invalid_args", "key_columns", "already has rows with the same price")
	if got := system(t, db, `select count(*) from _changelog where op = 'schema' and sql like 'CREATE UNIQUE INDEX%'`); got != "2" {
		t.Errorf("%s unique indexes were made, want one on sku and one on price", got)
	}
}

// Files in the formats of banks, spreadsheets and old programs.
func TestImportOddFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, sql, want string }{
		"Windows-1252, decimal commas": {"Datum;Empf\xe4nger;Betrag\r\n01.02.2026;M\xfcller \x80;-12,50\r\n02.02.2026;\"Gro\xdf; Sohn\";1.000,00\r\n",
			"select Datum, Empfanger, Betrag from t", `[["01.02.2026","Müller €","-12,50"],["02.02.2026","Groß; Sohn","1.000,00"]]`},
		"UTF-16":                   {"\xff\xfea\x00\t\x00b\x00\n\x001\x00\t\x00\xfc\x00\n\x00", "select a, b from t", `[[1,"ü"]]`},
		"carriage returns alone":   {"a,b\r1,x\r2,y\r", "select a, b from t", `[[1,"x"],[2,"y"]]`},
		"CR and a declared one":    {"sep=;\ra;b\r1,5;2\r", "select a, b from t", `[["1,5",2]]`},
		"a last line feed":         {"a,b\r1,x\r2,y\r\n", "select a, b from t", `[[1,"x"],[2,"y"]]`},
		"a declared separator":     {"sep=;\r\na;b\r\n1,5;2\r\n", "select a, b from t", `[["1,5",2]]`},
		"pipes":                    {"a|b\n1,5|2\n", "select a, b from t", `[["1,5",2]]`},
		"separators at the end":    {"a,b\n1,2,,\n3,4,\n", "select a, b from t", `[[1,2],[3,4]]`},
		"no heading at the end":    {"a,b,\n1,2\n3,4,5\n", "select a, b, column_3 from t", `[[1,2,null],[3,4,5]]`},
		"the same heading":         {"a,A,,a\n1,2,3,4\n", "select a, A_2, column_3, a_3 from t", `[[1,2,3,4]]`},
		"lines in a cell":          {"a,b\n\"1\n2\r\n3\",x\n", "select a, b from t", `[["1\n2\r\n3","x"]]`},
		"a huge cell":              {"a,b\n" + strings.Repeat("x", 1<<20) + ",1\n", "select length(a), b from t", `[[1048576,1]]`},
		"a heading that is a name": {"rowid,_created_at,select,1st\n1,2,3,4\n", "select c_rowid, \"select\", _1st from t", `[[1,3,4]]`},
	} {
		t.Run(name, func(t *testing.T) {
			db := fresh(t)
			load(t, db, "f.csv", c.content)
			if got := ask(t, db, c.sql); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A small file with very many rows does not take a database far beyond its quota.
func TestImportKeepsToTheQuota(t *testing.T) {
	db, err := agentdb.Open(t.Context(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite"), Quota: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	_, err = tryLoad(db, "f.csv", "a\n"+strings.Repeat("1\n", 60_000))
	wantError(t, err, "rejected", "", "more than twice its quota of 1.0 MiB")
	if schema, err := db.Schema(t.Context()); err != nil || len(schema.Tables) != 0 {
		t.Errorf("%+v, %v", schema, err)
	}

	load(t, db, "f.csv", "a\n1\n") // and the previous rows do not count

	// A write below twice the quota succeeds with a warning.
	if in := load(t, db, "g.csv", "a\n"+strings.Repeat("1\n", 20_000)); in.RowsImported != 20_000 || !strings.Contains(strings.Join(in.Warnings, "\n"), "quota") {
		t.Errorf("%+v", in)
	}
}

// A file may be exactly as large as its limit.
func TestImportLimit(t *testing.T) {
	db := fresh(t)
	limit := func(s *transfer.ImportSpec) { s.Limit = 8 }
	if in := load(t, db, "f.csv", "a\n1\n2\n3\n", limit); in.RowsImported != 3 {
		t.Errorf("%+v", in)
	}
	_, err := tryLoad(db, "g.csv", "a\n1\n2\n34\n", limit)
	wantError(t, err, "invalid_args", "path", "g.csv is larger than")
}

// A key may use the heading of the file, even if the column has another name.
func TestImportKeyByItsHeading(t *testing.T) {
	db := fresh(t)
	load(t, db, "f.csv", "Invoice No,sum\n1,2\n2,3\n")
	in := load(t, db, "f.csv", "Invoice No,sum\n2,4\n3,5\n", upsert("Invoice No"))
	if got := ask(t, db, "select invoice_no, sum from "+in.Table+" order by 1"); got != "[[1,2],[2,4],[3,5]]" {
		t.Errorf("%s after %+v", got, in)
	}
}

// Digits that a number does not keep cause a warning, for every numeric column type.
func TestImportTellsOfLostDigits(t *testing.T) {
	for _, c := range []struct {
		typ, cell string
		lost      bool
	}{
		{"INTEGER", "09", true}, {"BIGINT", "00", true}, {"DECIMAL", "09", true}, {"NUMERIC", "+49", true}, {"DOUBLE", "09.5", true},
		{"INTEGER", "-007", true}, {"REAL", "1234567890.123456", true}, {"REAL", "0.1234567890123456", true}, {"INTEGER", "10000000000000000000", true},
		{"INTEGER", "0", false}, {"INTEGER", "-5", false}, {"INTEGER", "9223372036854775807", false}, {"REAL", "123456789.012345", false}, {"REAL", "1e3", false},
		{"INTEGER", "90", false}, {"DECIMAL", "0.5", false}, {"NUMERIC", "-1", false}, {"DATE", "09", false}, {"TEXT", "09", false},
	} {
		db := fresh(t)
		raw(t, db, "create table t (a "+c.typ+")")
		in := load(t, db, "f.csv", "a\n"+c.cell+"\n", func(s *transfer.ImportSpec) { s.Table = "t" })
		if lost := strings.Contains(strings.Join(in.Warnings, "\n"), "are shorter as numbers"); lost != c.lost {
			t.Errorf("%s into %s: %q", c.cell, c.typ, in.Warnings)
		}
	}
}

// An import is rolled back if its caller is cancelled. The journal of another call is unchanged.
func TestImportIsCancelled(t *testing.T) {
	db := fresh(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	source := &cancelling{Reader: strings.NewReader("a,b\n" + strings.Repeat("1,2\n", 5000)), cancel: func() { cancel(stop) }}
	_, err := db.Import(ctx, changelog.By{}, transfer.ImportSpec{Table: "t", Name: "f.csv", Source: source})
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	if schema, err := db.Schema(t.Context()); err != nil || len(schema.Tables) != 0 {
		t.Errorf("%+v, %v", schema, err)
	}
}

type cancelling struct {
	*strings.Reader
	cancel func()
}

func (c *cancelling) Read(p []byte) (int, error) {
	c.cancel()
	return c.Reader.Read(p)
}

// Any CSV text imports as exactly its rows (property).
func TestImportIsExact(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	cell := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9 ,;'"\t\r\nüß.+-]{0,8}`), rapid.StringMatching(`-?[0-9]{1,20}`), rapid.StringMatching(`-?[0-9]{1,9}\.[0-9]{1,9}`), rapid.Just(""), rapid.String().Filter(func(s string) bool { return !strings.ContainsAny(s, "\x00\ufffd") }))
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(2, 4).Draw(rt, "width")
		records := rapid.SliceOfN(rapid.SliceOfN(cell, width, width), 0, 12).Draw(rt, "records")
		raw(t, db, "drop table if exists t")
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		header := []string{"a", "b", "c", "d"}[:width]
		if err := w.WriteAll(append([][]string{header}, records...)); err != nil {
			rt.Fatal(err)
		}

		in, err := tryLoad(db, "f.csv", b.String())
		if err != nil || in.RowsImported != int64(len(records)) {
			rt.Fatalf("%+v, %v", in, err)
		}

		rows, err := db.Query(context.Background(), agentdb.QuerySpec{SQL: "select " + strings.Join(header, ", ") + " from t order by id"})
		if err != nil || len(rows.Rows) != len(records) {
			rt.Fatalf("%d rows, %v; want %d", len(rows.Rows), err, len(records))
		}

		for i, record := range records {
			for j, want := range record {
				if got := rows.Rows[i][header[j]]; !sameCell(got, want) {
					rt.Fatalf("row %d, %s: %#v, want %q", i, header[j], got, want)
				}
			}
		}
	})
}

// sameCell compares values according to the column's type. An empty numeric cell is NULL, and
// decimals are compared as numbers.
func sameCell(got any, want string) bool {
	switch v := got.(type) {
	case nil:
		return want == ""
	case int64:
		return strconv.FormatInt(v, 10) == want
	case float64:
		f, err := strconv.ParseFloat(want, 64)
		return err == nil && f == v
	}
	return reflect.DeepEqual(got, want)
}

func FuzzImport(f *testing.F) {
	var db *agentdb.DB
	for _, seed := range []string{"a,b\n1,2\n", "[{\"a\":1}]", "{\"a\":[1,{\"b\":2}]}\n{\"c\":null}", "a\tb\n\"x\"\ty", "\xff\xfea\x00", "id\n1\n1\n", "a,a,_created_at\n1,2,3\n"} {
		for _, format := range []string{"", "csv", "json"} {
			f.Add(seed, format)
		}
	}

	n, dir := 0, f.TempDir()
	f.Fuzz(func(t *testing.T, content, format string) {
		if n++; n%50 == 1 { // many tables make each import slow
			if db != nil {
				db.Close()
			}
			var err error
			if db, err = agentdb.Open(context.Background(), agentdb.Options{Path: filepath.Join(dir, fmt.Sprint(n))}); err != nil {
				t.Fatal(err)
			}
		}

		table := fmt.Sprint("t", n)
		in, err := tryLoad(db, "f", content, func(s *transfer.ImportSpec) { s.Table, s.Format = table, format })
		var bad *dberr.Error
		if err != nil {
			if !errors.As(err, &bad) {
				t.Fatalf("%q broke the host: %v", content, err)
			}
			return
		}

		if got := ask(t, db, "select count(*) from "+table); got != fmt.Sprintf("[[%d]]", in.RowsImported) {
			t.Fatalf("%q: %s rows, reported %d", content, got, in.RowsImported)
		}

		raw := ask(t, db, "select count(*) from sqlite_master where name = '"+table+"'")
		if raw != "[[1]]" {
			t.Fatalf("%q: no table", content)
		}
	})
}
