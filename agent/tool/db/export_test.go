package db_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
)

// TestExport: OSA-59, arguments and results. The file is either complete or unchanged.
func TestExport(t *testing.T) {
	b := setup(t)
	b.call("1", "db_create_table", table)
	b.call("2", "db_insert", `{"table":"expenses","rows":[{"shop":"a","amount":1.5},{"shop":"b"}]}`)
	const sql = `"sql":"select shop, amount from expenses where id > :n order by id","params":{"n":0}`
	b.want("3", "db_export", `{`+sql+`,"path":"out/list.csv"}`,
		`{"path":"out/list.csv","format":"csv","rows_exported":2,"bytes":24,"truncated":false,"columns":["shop","amount"]}`)
	b.holds("out/list.csv", "shop,amount\na,1.5\nb,0.0\n")
	b.want("4", "db_export", `{`+sql+`,"path":"list","format":"ndjson"}`,
		`{"path":"list","format":"jsonl","rows_exported":2,"bytes":52,"truncated":false,"columns":["shop","amount"]}`)
	b.want("5", "db_export", `{`+sql+`,"path":"out/list.csv","format":"json","overwrite":true}`,
		`{"path":"out/list.csv","format":"json","rows_exported":2,"bytes":57,"truncated":false,"columns":["shop","amount"]}`)
	b.holds("out/list.csv", "[\n{\"shop\":\"a\",\"amount\":1.5},\n{\"shop\":\"b\",\"amount\":0.0}\n]\n")
	b.call("6", "db_export", `{`+sql+`,"path":"list.xlsx"}`)
	b.want("7", "db_import", `{"table":"again","path":"list.xlsx"}`,
		`{"table":"again","rows_imported":2,"rows_skipped":0,"created_table":true,"columns":["shop","amount"],"truncated":false}`)
}

// TestExportRefuses: OSA-59, existing files stay unchanged unless the call allows overwriting.
func TestExportRefuses(t *testing.T) {
	b := setup(t)
	b.call("1", "db_create_table", table)
	b.write("here.csv", "mine")
	b.write("locked.csv", "mine")
	if err := os.Chmod(filepath.Join(b.work, "locked.csv"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.work, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		args, field, part string
		kind              tool.Kind
	}{
		"exists":    {`{"sql":"select 1","path":"here.csv"}`, "path", "overwrite true", tool.KindRejected},
		"read-only": {`{"sql":"select 1","path":"locked.csv","overwrite":true}`, "path", "read-only", tool.KindRejected},
		"folder":    {`{"sql":"select 1","path":"folder","overwrite":true}`, "path", "is a folder", tool.KindInvalidArgs},
		"outside":   {`{"sql":"select 1","path":"../x.csv"}`, "path", "outside", tool.KindInvalidArgs},
		"SQL":       {`{"sql":"select * from expense","path":"here.csv","overwrite":true}`, "sql", "did you mean expenses?", tool.KindInvalidArgs},
		"writing":   {`{"sql":"drop table expenses","path":"x.csv"}`, "sql", "only reads", tool.KindInvalidArgs},
		"params":    {`{"sql":"select 1","path":"x.csv","params":1}`, "params", "must be an array or an object", tool.KindInvalidArgs},
		"format":    {`{"sql":"select 1","path":"x.csv","format":"pdf"}`, "format", "xlsx", tool.KindInvalidArgs},
	} {
		t.Run(name, func(t *testing.T) {
			if e := b.call("x-"+name, "db_export", c.args); e.OK || e.Kind != c.kind || e.Field != c.field || !strings.Contains(e.Message, c.part) {
				t.Errorf("%+v", e)
			}
		})
	}

	b.holds("here.csv", "mine")
	b.holds("locked.csv", "mine")
	if left, err := filepath.Glob(filepath.Join(b.work, ".rouse-*")); err != nil || len(left) > 0 {
		t.Errorf("temporary files were left: %v, %v", left, err)
	}
}

func (b *bench) holds(name, want string) {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.work, name))
	if err != nil || string(got) != want {
		b.t.Errorf("%s holds %q, want %q (%v)", name, got, want, err)
	}
}
