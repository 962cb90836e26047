package agentdb_test

import (
	"encoding/json"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
)

// OSA-52: with if_not_exists, the second call succeeds without an effect and lists the
// differences between the table and the specification.
func TestCreateTableIfNotExists(t *testing.T) {
	db := fresh(t)
	no := false
	spec := schema.TableSpec{Name: "beats", Purpose: "when", IfNotExists: true, Columns: []schema.Column{
		{Name: "at", Type: "DATETIME", Nullable: &no}, {Name: "n", Type: "int", Default: json.RawMessage(`7`)}},
		Indexes: []schema.Index{{Name: "beats_at", Columns: []string{"at"}, Unique: true}}}
	first, err := db.CreateTable(t.Context(), changelog.By{Run: 1}, spec)
	if err != nil || !first.Success || first.Existed || first.MigrationID != 1 {
		t.Fatalf("%+v, %v", first, err)
	}

	again, err := db.CreateTable(t.Context(), changelog.By{Run: 2}, spec)
	if err != nil || !again.Success || !again.Existed || len(again.Warnings) > 0 || again.MigrationID != 0 || again.AppliedSQL != "" {
		t.Fatalf("%+v, %v", again, err)
	}
	if got := system(t, db, `select group_concat(op || ':' || run_id) from _changelog`); got != "schema:1" {
		t.Errorf("it was done again: %s", got)
	}

	other := schema.TableSpec{Name: "Beats", Purpose: "else", IfNotExists: true, Columns: []schema.Column{
		{Name: "at", Type: "INTEGER"}, {Name: "lane", Type: "TEXT"}}, Indexes: []schema.Index{{Name: "by_lane", Columns: []string{"lane"}}}}
	differs, err := db.CreateTable(t.Context(), changelog.By{Run: 3}, other)
	want := "the table beats exists and stays as it is, but differs from what was asked for: at is TEXT NOT NULL, not INTEGER; it has no column lane; it also has n; it has no index by_lane as asked for"
	if err != nil || !differs.Existed || len(differs.Warnings) != 1 || differs.Warnings[0] != want {
		t.Errorf("%+v, %v", differs, err)
	}

	// A table created with SQL may use other names for the same types.
	if _, err := db.Execute(t.Context(), changelog.By{Run: 4}, agentdb.ExecuteSpec{SQL: "create table logs(id integer primary key, line varchar(80) default 'x')"}); err != nil {
		t.Fatal(err)
	}
	same, err := db.CreateTable(t.Context(), changelog.By{Run: 5}, schema.TableSpec{Name: "logs", Purpose: "lines", IfNotExists: true,
		Columns: []schema.Column{{Name: "line", Type: "TEXT", Default: json.RawMessage(`"x"`)}}})
	if err != nil || !same.Existed || len(same.Warnings) > 0 {
		t.Errorf("%+v, %v", same, err)
	}

	// An index that is not unique or has other columns is a difference. A default of NULL equals
	// no default.
	raw(t, db, "create table marks(id integer primary key, a text default null, b integer)", "create index marks_a on marks(a)", "create unique index marks_b on marks(b)")
	for _, c := range []struct {
		unique  bool
		columns []string
		want    int // number of warnings
	}{{false, []string{"a"}, 0}, {true, []string{"a"}, 1}, {true, []string{"b"}, 0}, {false, []string{"b"}, 1}, {true, []string{"a", "b"}, 1}} {
		got, err := db.CreateTable(t.Context(), changelog.By{Run: 5}, schema.TableSpec{Name: "marks", Purpose: "p", IfNotExists: true,
			Columns: []schema.Column{{Name: "a", Type: "TEXT", Default: json.RawMessage("null")}, {Name: "b", Type: "INTEGER"}}, Indexes: []schema.Index{{Name: "x", Columns: c.columns, Unique: c.unique}}})
		if err != nil || len(got.Warnings) != c.want {
			t.Errorf("unique %t on %v: %q (%v)", c.unique, c.columns, got.Warnings, err)
		}
	}

	// A name that is not a table and an invalid specification are rejected as before.
	_, err = db.CreateTable(t.Context(), changelog.By{Run: 6}, schema.TableSpec{Name: "beats_at", Purpose: "p", IfNotExists: true, Columns: spec.Columns})
	wantError(t, err, "invalid_args", "name", "a index named beats_at already exists")
	_, err = db.CreateTable(t.Context(), changelog.By{Run: 6}, schema.TableSpec{Name: "beats", IfNotExists: true, Columns: spec.Columns})
	wantError(t, err, "invalid_args", "purpose", "what the table beats is for")
}
