package agentdb_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
)

// TestMain limits the property test unless -rapid.checks is given.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		if err := f.Value.Set("15"); err != nil {
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// contents returns everything in an agent's tables, byte for byte.
func contents(t testing.TB, db *agentdb.DB) string {
	t.Helper()
	schema, err := db.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	for _, table := range schema.Tables {
		columns := strings.Split(system(t, db, fmt.Sprintf("select group_concat(name, '|') from pragma_table_xinfo('%s')", table.Name)), "|")
		var cells []string
		for _, c := range columns {
			cells = append(cells, fmt.Sprintf(`typeof("%s") || ':' || case when typeof("%[1]s") in ('text', 'blob') then hex("%[1]s") else quote("%[1]s") end`, c))
		}
		out = append(out, table.Name+"("+strings.Join(columns, ",")+") "+system(t, db, fmt.Sprintf(`select coalesce(group_concat(r, x'0a'), '') from (select %s r from "%s" order by 1)`, strings.Join(cells, " || ' ' || "), table.Name)))
	}

	sort.Strings(out)
	return strings.Join(out, "\n")
}

// replay builds a database only from the changelog of another database.
func replay(t testing.TB, db *agentdb.DB) *agentdb.DB {
	t.Helper()
	again := fresh(t)
	for _, c := range changes(t, db) { // one write each, because all together may exceed the write timeout
		steps, err := c.Steps()
		if err == nil {
			_, err = again.Apply(t.Context(), changelog.By{Actor: "user"}, steps)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	return again
}

// reverseAll undoes all changes in the changelog.
func reverseAll(t testing.TB, db *agentdb.DB) {
	t.Helper()
	all := changes(t, db)
	slices.Reverse(all)
	var steps []changelog.Step
	for _, c := range all {
		s, err := c.Reverse()
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s...)
	}
	if _, err := db.Apply(t.Context(), changelog.By{Actor: "user"}, steps); err != nil {
		t.Fatal(err)
	}
}

func changes(t testing.TB, db *agentdb.DB) []changelog.Change {
	t.Helper()
	all, err := db.Changes(t.Context(), changelog.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// OSA-61: replaying the changelog on an empty database gives the same contents for every kind of
// write. Reversing it gives an empty database.
func TestChangelogReplays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		db, err := agentdb.Open(context.Background(), agentdb.Options{Path: filepath.Join(t.TempDir(), "db.sqlite")})
		if err != nil {
			r.Fatal(err)
		}
		defer db.Close()

		g := &generator{r: r, db: db}
		g.tables()
		for range rapid.IntRange(1, 25).Draw(r, "operations") {
			g.operation()
		}

		want := contents(t, db)
		if got := contents(t, replay(t, db)); got != want {
			r.Fatalf("replayed:\n%s\n\nwant:\n%s\n\n%s", got, want, dump(t, db))
		}

		log := dump(t, db)
		reverseAll(t, db)
		if got := contents(t, db); got != "" {
			r.Fatalf("undone:\n%s\n\n%s", got, log)
		}
	})
}

func dump(t testing.TB, db *agentdb.DB) string {
	var b strings.Builder
	for _, c := range changes(t, db) {
		fmt.Fprintf(&b, "%d %s %s %s\n  before %s\n  after %s\n  %s\n", c.ID, c.Op, c.Table, c.PK, c.Before, c.After, c.SQL)
	}
	return b.String()
}

type generator struct {
	r  *rapid.T
	db *agentdb.DB
	by int64 // run of all changes; 0 means one of three, drawn each time
}

const makingRun = 9 // created the tables

func (g *generator) run() int64 {
	if g.by != 0 {
		return g.by
	}
	return int64(rapid.IntRange(1, 3).Draw(g.r, "run"))
}

// tables has one table of each kind.
func (g *generator) tables() {
	g.by = makingRun
	defer func() { g.by = 0 }()

	for _, spec := range []schema.TableSpec{
		{Name: "plain", Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}, {Name: "n", Type: "INTEGER"}, {Name: "f", Type: "REAL"}}},
		{Name: "worded", Purpose: "p", Columns: []schema.Column{{Name: "k", Type: "TEXT", PrimaryKey: true}, {Name: "a", Type: "BLOB"}}},
		{Name: "double", Purpose: "p", Columns: []schema.Column{{Name: "k", Type: "TEXT", PrimaryKey: true}, {Name: "n", Type: "INTEGER", PrimaryKey: true}, {Name: "a", Type: "NUMERIC"}}},
	} {
		if _, err := g.db.CreateTable(context.Background(), changelog.By{Run: makingRun}, spec); err != nil {
			g.r.Fatal(err)
		}
	}

	g.execute(`create table heap(a, n, d default (hex('x')), s as (a || '!') stored, v as (n + 1), b);
		create table loose(v as (n || 'v'), k text primary key, n int, a) ;
		create table tight(k text, n int, a, g as (a || k), primary key (n, k)) without rowid;
		create table parent(k text primary key not null, a);
		create table child(id integer primary key, k text references parent(k) on update cascade on delete cascade deferrable initially deferred, a);
		create table swap(id integer primary key, k text unique on conflict replace, a);
		create table audit(what text, at integer);
		create view shown as select * from heap;
		create trigger heard after insert on heap begin insert into audit values ('heap ' || coalesce(new.a, 'null'), new.n); end;
		create trigger gone after delete on tight begin insert into audit values (case when old.a is null then 'none' else 'some' end, 1); update plain set n = n + 1 where n < 5; end;
		create trigger shown_in instead of insert on shown begin insert into heap(a, n) values (new.a, 7); end`)
}

// execute runs SQL and ignores constraint violations.
func (g *generator) execute(sql string, params ...any) {
	spec := agentdb.ExecuteSpec{SQL: sql, Params: params}
	_, err := g.db.Execute(context.Background(), changelog.By{Run: g.run()}, spec)
	g.accept(err, sql)
}

func (g *generator) accept(err error, what string) {
	var bad *dberr.Error
	if err != nil && !errors.As(err, &bad) {
		g.r.Fatalf("%s: %v", what, err)
	}
	if err != nil && (strings.Contains(err.Error(), "syntax") || bad.Kind == "rejected" || bad.Kind == "timeout") {
		g.r.Fatalf("%s: %v", what, err)
	}
}

var keys = []any{"a", "b", "c", "ä\x00b", "", "5"}

func (g *generator) value() any {
	return rapid.OneOf(
		rapid.SampledFrom([]any{nil, "", "text", "nul\x00here", "\xff\xfe", "12", "1.50", []byte{}, []byte{0, 1, 255}, int64(1 << 62), int64(-1), 1.0, 0.1, 1e300, "9e999"}),
		rapid.Map(rapid.IntRange(0, 9), func(n int) any { return int64(n) }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
	).Draw(g.r, "value")
}

func (g *generator) key() any { return rapid.SampledFrom(keys).Draw(g.r, "key") }

func (g *generator) small() any { return int64(rapid.IntRange(0, 6).Draw(g.r, "small")) }

func (g *generator) row(table string) map[string]any {
	switch table {
	case "plain":
		row := map[string]any{"a": g.value(), "n": g.small()}
		if rapid.Bool().Draw(g.r, "f") {
			row["f"] = g.value()
		}
		return row
	case "double":
		return map[string]any{"k": g.key(), "n": g.small(), "a": g.value()}
	case "heap":
		return map[string]any{"a": g.value(), "b": g.value(), "n": g.small()}
	}
	return map[string]any{"k": g.key(), "a": g.value()}
}

func (g *generator) operation() {
	ctx, by := context.Background(), changelog.By{Run: g.run()}
	table := rapid.SampledFrom([]string{"plain", "worded", "double", "heap", "loose", "parent", "swap", "child"}).Draw(g.r, "table")
	var err error
	kind := rapid.SampledFrom([]string{"insert", "insert", "many", "upsert", "update", "delete", "restore", "import", "sql", "sql", "sql", "sql", "schema"}).Draw(g.r, "kind")
	switch kind {
	case "insert":
		_, err = g.db.Insert(ctx, by, table, []map[string]any{g.row(table)})
	case "many":
		_, err = g.db.Insert(ctx, by, table, []map[string]any{g.row(table), g.row(table), g.row(table)})
	case "upsert":
		which := map[string][]string{"worded": {"k"}, "double": {"k", "n"}, "loose": {"k"}, "parent": {"k"}, "swap": {"k"}}[table]
		if which == nil {
			return
		}
		_, err = g.db.Upsert(ctx, by, table, which, []map[string]any{g.row(table), g.row(table)})
	case "update":
		_, err = g.db.Update(ctx, by, table, map[string]any{"a": g.value()}, g.where(table), rapid.Bool().Draw(g.r, "deleted"))
	case "delete":
		_, err = g.db.Delete(ctx, by, table, g.where(table))
	case "restore":
		_, err = g.db.Restore(ctx, by, table, g.where(table))
	case "import":
		_, err = g.db.Import(ctx, by, transfer.ImportSpec{Table: "plain", Source: strings.NewReader("a,n\nx,1\ny,\n"), Name: "x.csv"})
	case "sql":
		g.sql()
	case "schema":
		g.schema()
	}

	g.accept(err, kind)
}

func (g *generator) where(table string) map[string]any {
	if table == "plain" || table == "heap" {
		return map[string]any{"n": g.small()}
	}
	return map[string]any{"k": g.key()}
}

func (g *generator) sql() {
	for text, params := range map[string]func() []any{rapid.SampledFrom(statements).Draw(g.r, "sql"): func() []any { return []any{g.key(), g.small(), g.value()} }} {
		n := 0
		for i := range 3 {
			if strings.Contains(text, fmt.Sprintf("?%d", i+1)) {
				n = i + 1
			}
		}
		g.execute(text, params()[:n]...)
	}
}

// statements take a key, a small number and any value for ?1, ?2 and ?3.
var statements = []string{
	"insert into plain(a, n, f) values (?3, ?2, 9e999), (?1, null, ?3)",
	"insert or replace into worded(k, a) values (?1, ?3)",
	"replace into swap(id, k, a) values (?2, ?1, ?3)",
	"insert into swap(k, a) values (?1, ?3) on conflict(id) do nothing",
	"update swap set id = id + 10, k = k || ?1 where id < ?2",
	"insert or ignore into tight(k, n, a) values (?1, ?2, ?3), ('z', 1, null)",
	"insert into tight(k, n, a) values (?1, ?2, ?3) on conflict do update set a = excluded.a || 'u'",
	"update tight set n = n + 1, k = ?1 where n = ?2",
	"update or replace tight set n = ?2 where k = ?1",
	"delete from tight where n >= ?2",
	"insert into heap(rowid, a, n) values (null, ?3, ?2)",
	"insert into heap(a, n) select a, n from heap limit 3",
	"update heap set rowid = rowid + 100, b = ?3 where n = ?2",
	"delete from heap where n = ?2",
	"insert into shown(a) values (?3)",
	"insert into loose(k, n, a) values (null, ?2, ?3), (?1, 1, 1)",
	"update loose set k = ?1 where k is null",
	"update or ignore double set n = ?2, a = ?3",
	"delete from double where k = ?1 returning *",
	"insert or ignore into parent values (?1, ?3)",
	"insert into child(k, a) select k, ?3 from parent where k = ?1",
	"update parent set k = k || 'x' where k = ?1",
	"delete from parent where k = ?1",
	"update plain set _deleted_at = null, a = ?3 where n = ?2",
	"update plain set a = a where n = ?2",
	"update plain set id = id + 1000 where n = ?2",
	"delete from plain where n = ?2",
	"with x(v) as (values (?3)) insert into audit select v, ?2 from x",
	"select count(*) from plain",
}

func (g *generator) schema() {
	n := rapid.IntRange(0, 1).Draw(g.r, "number")
	switch rapid.IntRange(0, 7).Draw(g.r, "schema") {
	case 0:
		no := false
		_, err := g.db.AlterTable(context.Background(), changelog.By{Run: g.run()}, "plain", []schema.Column{{Name: fmt.Sprint("extra", n), Type: "TEXT", Nullable: &no}})
		g.accept(err, "alter")
	case 1:
		g.try(fmt.Sprintf("alter table audit rename column what to what%d", n), fmt.Sprintf("alter table audit rename column what%d to what", n))
	case 2:
		g.try("alter table worded rename to renamed", "alter table renamed rename to worded")
	case 3:
		g.try(fmt.Sprintf("create index by_n%d on plain(n, a)", n), fmt.Sprintf("drop index by_n%d", n))
	case 4:
		g.try("drop trigger heard", "create trigger heard before delete on heap begin insert into audit select 'bye', 2; end")
	case 5:
		g.try("drop view shown", "create view shown as select a from heap; create trigger shown_in instead of insert on shown begin insert into heap(a, n) values (new.a, 7); end")
	case 6:
		_, err := g.db.Migrate(context.Background(), changelog.By{Run: g.run()}, agentdb.MigrateSpec{
			Up:   fmt.Sprintf("create table more%d(id integer primary key, t text default 'x', d text default current_timestamp); insert into more%d(t) values ('one'), (null)", n, n),
			Down: fmt.Sprintf("drop table more%d", n), Description: "More",
		})
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			g.r.Fatal(err)
		}
	case 7:
		_, err := g.db.Insert(context.Background(), changelog.By{Run: g.run()}, "more0", []map[string]any{{"t": g.value()}})
		g.accept(err, "insert")
	}
}

// try runs the first statement that the schema allows.
func (g *generator) try(texts ...string) {
	for _, text := range texts {
		if _, err := g.db.Execute(context.Background(), changelog.By{Run: g.run()}, agentdb.ExecuteSpec{SQL: text}); err == nil {
			return
		}
	}
}
