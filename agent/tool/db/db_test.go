package db_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/db"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/internal/domain"
	"rouse/internal/storage/sqlite"
)

type bench struct {
	pool *pool.Pool
	t    *testing.T
	home string // of the agents' databases
	work string
	r    *tool.Registry
	list []tool.Tool

	calls int // made by try
}

func setup(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, home: t.TempDir(), work: t.TempDir()}
	b.open()
	return b
}

// open reopens the same files, like a process after a crash.
func (b *bench) open() {
	b.t.Helper()
	pool, err := pool.New(pool.Options{Dir: b.home})
	if err != nil {
		b.t.Fatal(err)
	}

	b.pool = pool
	b.t.Cleanup(func() { pool.Close() })
	roots, err := tool.NewRoots(b.work, nil)
	if err != nil {
		b.t.Fatal(err)
	}

	tools, err := db.Tools(db.Options{Pool: pool, Roots: roots})
	if err != nil {
		b.t.Fatal(err)
	}

	b.list = tools
	if b.r, err = tool.NewRegistry(tools...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.work, name), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) call(key, name, args string) tool.Envelope {
	b.t.Helper()
	e, err := b.r.Call(b.t.Context(), tool.Invocation{Run: 1, Agent: "ann", Key: key}, name, json.RawMessage(args))
	if err != nil {
		b.t.Fatalf("%s %s: %v", name, args, err)
	}
	return e
}

// want calls a tool and compares its result.
func (b *bench) want(key, name, args, result string) {
	b.t.Helper()
	if e := b.call(key, name, args); !e.OK || string(e.Result) != result {
		b.t.Errorf("%s %s:\ngot  %s %s\nwant %s", name, args, e.Result, e.Message, result)
	}
}

const table = `{"name":"expenses","purpose":"What was spent","columns":[{"name":"shop","type":"TEXT","nullable":false},{"name":"amount","type":"REAL","default":0}],"indexes":[{"name":"by_shop","columns":["shop"]}]}`

// TestDefaultsAsText checks that a default sent as text becomes a number in a numeric column.
func TestDefaultsAsText(t *testing.T) {
	b := setup(t)
	e := b.call("1", "db_create_table", `{"name":"t","purpose":"p","columns":[{"name":"a","type":"INTEGER","default":"5"},{"name":"b","type":"BOOLEAN","default":"true"},{"name":"c","type":"TEXT","default":"5"},{"name":"d","type":"REAL","default":"many"},{"name":"e","type":"TEXT"}]}`)
	if !e.OK {
		t.Fatalf("%+v", e)
	}
	b.want("2", "db_insert", `{"table":"t","row":{"e":"x"}}`, `{"id":1}`)
	b.want("", "db_query", `{"sql":"select a, typeof(a) at, b, c, typeof(c) ct, d from t"}`, `{"columns":["a","at","b","c","ct","d"],"rows":[{"a":5,"at":"integer","b":1,"c":"5","ct":"text","d":"many"}],"truncated":false}`)
}

// TestTools: OSA-52, OSA-54, OSA-56, OSA-58, arguments and results of each tool.
func TestTools(t *testing.T) {
	b := setup(t)
	b.want("", "db_schema", `{}`, `{"tables":[]}`)
	e := b.call("1", "db_create_table", table)
	var created schema.Created
	if err := json.Unmarshal(e.Result, &created); err != nil || !created.Success || created.MigrationID != 1 || !strings.Contains(created.AppliedSQL, "CREATE INDEX") {
		t.Errorf("%s, %v", e.Result, err)
	}

	b.want("2", "db_insert", `{"table":"expenses","row":{"shop":"a","amount":1.5}}`, `{"id":1}`)
	b.want("3", "db_insert", `{"table":"expenses","rows":[{"shop":"b"},{"shop":""}]}`, `{"count":2,"ids":[2,3]}`)
	b.write("more.csv", "Shop,Amount,Extra\nc,7,x\n")
	b.want("4", "db_import", `{"table":"expenses","path":"more.csv"}`,
		`{"table":"expenses","rows_imported":1,"rows_skipped":0,"created_table":false,"columns":["shop","amount"],"truncated":false,"dropped_columns":["Extra"]}`)
	b.write("list.ndjson", `{"n":9007199254740993}`)
	b.want("5", "db_import", `{"table":"numbers","path":"list.ndjson","format":"ndjson","mode":"upsert","key_columns":["n"]}`,
		`{"table":"numbers","rows_imported":1,"rows_skipped":0,"created_table":true,"columns":["n"],"truncated":false}`)
	b.want("", "db_query", `{"sql":"select shop, amount from expenses where amount > ? order by id","params":[1]}`,
		`{"columns":["shop","amount"],"rows":[{"amount":1.5,"shop":"a"},{"amount":7,"shop":"c"}],"truncated":false}`)
	b.want("", "db_query", `{"sql":"select count(*) n from expenses where shop = :s","params":{"s":""}}`, `{"columns":["n"],"rows":[{"n":1}],"truncated":false}`)
	// Models may send values as text or as an object, as the schema declares.
	b.want("", "db_query", `{"sql":"select :n + 1 n","params":"{\"n\":1}"}`, `{"columns":["n"],"rows":[{"n":2}],"truncated":false}`)
	b.want("", "db_query", `{"sql":"select ? n","params":"[true]"}`, `{"columns":["n"],"rows":[{"n":1}],"truncated":false}`)
	b.want("", "db_query", `{"sql":"select n from numbers where n = ?","params":[9007199254740993]}`, `{"columns":["n"],"rows":[{"n":9007199254740993}],"truncated":false}`)
	e = b.call("", "db_query", `{"sql":"select id from expenses order by id","limit":2,"offset":1}`)
	if string(e.Result) != `{"columns":["id"],"rows":[{"id":2},{"id":3}],"truncated":true}` || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "offset 3") {
		t.Errorf("%s %q", e.Result, e.Warnings)
	}

	e = b.call("", "db_schema", `{}`)
	if !strings.Contains(string(e.Result), `"name":"expenses","purpose":"What was spent","row_count":4,"columns":[{"name":"id","type":"INTEGER","nullable":false,"primary_key":true}`) {
		t.Errorf("%s", e.Result)
	}
}

func TestToolsRefuse(t *testing.T) {
	b := setup(t)
	b.call("1", "db_create_table", table)
	b.write("ragged.csv", "a,b\n1\n")
	if err := os.Mkdir(filepath.Join(b.work, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		tool, args, field, part string
		kind                    tool.Kind
		retryable               bool
	}{
		"table exists":   {"db_create_table", table, "name", "already exists", tool.KindInvalidArgs, false},
		"row and rows":   {"db_insert", `{"table":"expenses","row":{"shop":"a"},"rows":[{"shop":"a"}]}`, "row", "exactly one", tool.KindInvalidArgs, true},
		"an empty row":   {"db_insert", `{"table":"expenses","row":{}}`, "row", "row has no column", tool.KindInvalidArgs, true},
		"no rows":        {"db_upsert", `{"table":"expenses","key_columns":["shop"],"rows":[]}`, "rows", "rows is an empty list", tool.KindInvalidArgs, true},
		"neither":        {"db_insert", `{"table":"expenses"}`, "row", "exactly one", tool.KindInvalidArgs, true},
		"no table":       {"db_insert", `{"table":"expense","row":{"shop":"a"}}`, "table", "did you mean expenses?", tool.KindNotFound, true},
		"NULL":           {"db_insert", `{"table":"expenses","row":{"shop":null}}`, "", "missing in expenses.shop", tool.KindInvalidArgs, true},
		"ragged":         {"db_import", `{"table":"t","path":"ragged.csv"}`, "path", "line 2: it has 1", tool.KindInvalidArgs, true},
		"no file":        {"db_import", `{"table":"t","path":"none.csv"}`, "path", "there is no none.csv", tool.KindNotFound, true},
		"outside":        {"db_import", `{"table":"t","path":"../../etc/passwd"}`, "path", "", tool.KindInvalidArgs, true},
		"folder":         {"db_import", `{"table":"t","path":"folder"}`, "", "is a folder", tool.KindInvalidArgs, true},
		"format":         {"db_import", `{"table":"t","path":"ragged.csv","format":"ods"}`, "format", "xlsx", tool.KindInvalidArgs, true},
		"no creating":    {"db_import", `{"table":"t","path":"ragged.csv","create_table":false,"columns":["a"],"has_header":false}`, "columns", "2 columns", tool.KindInvalidArgs, true},
		"writing":        {"db_query", `{"sql":"delete from expenses"}`, "sql", "only reads", tool.KindInvalidArgs, true},
		"journal":        {"db_query", `{"sql":"select * from _calls"}`, "sql", "only reads the agent's own tables", tool.KindInvalidArgs, true},
		"params":         {"db_query", `{"sql":"select 1","params":"x"}`, "params", "must be an array or an object", tool.KindInvalidArgs, true},
		"negative limit": {"db_query", `{"sql":"select 1","limit":-1}`, "limit", "negative", tool.KindInvalidArgs, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := b.call("x-"+name, c.tool, c.args)
			if e.OK || e.Kind != c.kind || e.Retryable != c.retryable || !strings.Contains(e.Message, c.part) || c.field != "" && e.Field != c.field {
				t.Errorf("%+v", e)
			}
		})
	}

	b.want("", "db_query", `{"sql":"select count(*) n from expenses"}`, `{"columns":["n"],"rows":[{"n":0}],"truncated":false}`)
}

// TestToolsReplay checks that database effects happen once: after a crash, repeated calls return
// their first results, even if the imported file was moved away, and no row is written twice.
func TestToolsReplay(t *testing.T) {
	b := setup(t)
	b.write("in.csv", "shop\nx\ny\n")
	calls := [][3]string{
		{"p0", "db_create_table", table},
		{"p1.0", "db_insert", `{"table":"expenses","row":{"shop":"a"}}`},
		{"p1.1", "db_insert", `{"table":"expenses","rows":[{"shop":"a"}]}`},
		{"p2", "db_import", `{"table":"expenses","path":"in.csv"}`},
	}

	var first []string
	for _, c := range calls {
		first = append(first, string(b.call(c[0], c[1], c[2]).Result))
	}

	if err := os.Rename(filepath.Join(b.work, "in.csv"), filepath.Join(b.work, "done.csv")); err != nil {
		t.Fatal(err)
	}

	b.open()
	for i, c := range calls {
		b.want(c[0], c[1], c[2], first[i])
	}

	b.want("", "db_query", `{"sql":"select count(*) n from expenses"}`, `{"columns":["n"],"rows":[{"n":4}],"truncated":false}`)
}

// TestEffects checks the effects, which decide whether a call may be repeated after a crash.
func TestEffects(t *testing.T) {
	b := setup(t)
	for _, d := range b.list {
		want := domain.EffectDatabase
		switch d.Name() {
		case "db_schema", "db_query", "db_run_view", "db_list_views":
			want = domain.EffectRead
		}

		if d.Name() == "db_export" {
			want = domain.EffectWrite // it writes into the workspace, which has no journal for files
		}
		if d.Effect() != want || strings.TrimSpace(d.Description()) == "" {
			t.Errorf("%s has the effect %s and the description %q", d.Name(), d.Effect(), d.Description())
		}
	}
}

// TestDamagedDatabase checks that a damaged file ends the run, because the agent cannot repair it.
func TestDamagedDatabase(t *testing.T) {
	b := setup(t)
	dir := filepath.Join(b.home, "ann")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "db.sqlite"), []byte(strings.Repeat("x", 9000)), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := b.r.Call(t.Context(), tool.Invocation{Agent: "ann"}, "db_schema", json.RawMessage(`{}`))
	var corrupt *sqlite.CorruptError
	if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "ann") {
		t.Errorf("error %v", err)
	}
}

// TestAskedInVain checks that no approval is requested for a call whose database cannot be used or
// whose file is out of reach.
func TestAskedInVain(t *testing.T) {
	b := setup(t)
	bind := func(name, args string) *tool.Envelope {
		one, _ := b.r.Lookup(name)
		n, err := one.Access(t.Context(), tool.Invocation{Run: 1, Agent: "ann", Key: "1"}, json.RawMessage(args))
		if err == nil {
			n, err = tool.RefusedAccess(n.Bind(n))
		}
		if err != nil {
			t.Fatal(err)
		}
		return n.Refused
	}

	if e := bind("db_query", `{"sql":"select 1"}`); e != nil {
		t.Errorf("%+v", e)
	}
	if e := bind("db_import", `{"table":"t","path":".env"}`); e == nil || !strings.Contains(e.Message, "holds secrets") {
		t.Errorf("%+v", e)
	}

	b.pool.Close()
	for name, args := range map[string]string{"db_query": `{"sql":"select 1"}`, "db_import": `{"table":"t","path":"a.csv"}`, "db_export": `{"sql":"select 1","path":"a.csv"}`} {
		if e := bind(name, args); e == nil || e.Kind != tool.KindUnavailable {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
