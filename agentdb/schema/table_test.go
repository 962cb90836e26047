package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"rouse/agentdb/dberr"
)

func col(name, typ string) Column { return Column{Name: name, Type: typ} }

func manyColumns(n int) []Column {
	out := make([]Column, n)
	for i := range out {
		out[i] = col(fmt.Sprint("c", i), "TEXT")
	}
	return out
}

// OSA-51: reserved and malformed names are rejected, and the message names the argument.
func TestTableSpecIsChecked(t *testing.T) {
	no := false
	good := TableSpec{Name: "t", Purpose: "p", Columns: []Column{col("a", "TEXT")}}
	for name, c := range map[string]struct {
		change func(*TableSpec)
		field  string
	}{
		"no name":        {func(s *TableSpec) { s.Name = "" }, "name"},
		"digit first":    {func(s *TableSpec) { s.Name = "1a" }, "name"},
		"quote":          {func(s *TableSpec) { s.Name = `a"b` }, "name"},
		"not ASCII":      {func(s *TableSpec) { s.Name = "größe" }, "name"},
		"129 characters": {func(s *TableSpec) { s.Name = strings.Repeat("a", 129) }, "name"},
		"system table":   {func(s *TableSpec) { s.Name = "_changelog" }, "name"},
		"system prefix":  {func(s *TableSpec) { s.Name = "SQLite_x" }, "name"},
		"no purpose":     {func(s *TableSpec) { s.Purpose = " " }, "purpose"},
		"no columns":     {func(s *TableSpec) { s.Columns = nil }, "columns"},
		"host column":    {func(s *TableSpec) { s.Columns[0].Name = "_Created_At" }, "columns[0].name"},
		"rowid":          {func(s *TableSpec) { s.Columns[0].Name = "rowid" }, "columns[0].name"},
		"twice":          {func(s *TableSpec) { s.Columns = []Column{col("a", "TEXT"), col("A", "TEXT")} }, "columns[1].name"},
		"type":           {func(s *TableSpec) { s.Columns[0].Type = "TEXT); drop table x" }, "columns[0].type"},
		"default":        {func(s *TableSpec) { s.Columns[0].Default = json.RawMessage(`[1]`) }, "columns[0].default"},
		"index name":     {func(s *TableSpec) { s.Indexes = []Index{{Name: "_i", Columns: []string{"a"}}} }, "indexes[0].name"},
		"index as table": {func(s *TableSpec) { s.Indexes = []Index{{Name: "T", Columns: []string{"a"}}} }, "indexes[0].name"},
		"index twice": {func(s *TableSpec) {
			s.Indexes = []Index{{Name: "i", Columns: []string{"a"}}, {Name: "I", Columns: []string{"a"}}}
		}, "indexes[1].name"},
		"too many columns":  {func(s *TableSpec) { s.Columns = manyColumns(MaxColumns + 1) }, "columns"},
		"fine: many":        {func(s *TableSpec) { s.Columns = manyColumns(MaxColumns) }, ""},
		"index of nothing":  {func(s *TableSpec) { s.Indexes = []Index{{Name: "i"}} }, "indexes[0].columns"},
		"index elsewhere":   {func(s *TableSpec) { s.Indexes = []Index{{Name: "i", Columns: []string{"b"}}} }, "indexes[0].columns"},
		"fine":              {func(s *TableSpec) { s.Name = strings.Repeat("a", 128); s.Columns[0].Nullable = &no }, ""},
		"fine: host index":  {func(s *TableSpec) { s.Indexes = []Index{{Name: "i", Columns: []string{"A", "_created_at"}}} }, ""},
		"fine: all letters": {func(s *TableSpec) { s.Name = "AZaz09_" }, ""},
		"fine: keyword":     {func(s *TableSpec) { s.Columns[0].Name = "order" }, ""},
		"fine: other types": {func(s *TableSpec) { s.Columns[0].Type = "decimal(10, 2)" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := good
			spec.Columns = []Column{col("a", "TEXT")}
			c.change(&spec)
			_, err := spec.Statements()
			var bad *dberr.Error
			if c.field == "" && err != nil {
				t.Fatal(err)
			}
			if c.field != "" && (!errors.As(err, &bad) || bad.Field != c.field || bad.Kind != dberr.KindInvalid) {
				t.Errorf("error %v (%+v), want one on %s", err, bad, c.field)
			}
		})
	}
}

// OSA-51: an id is added unless an id or a primary key is declared. A declared id becomes the
// key.
func TestPrimaryKey(t *testing.T) {
	key := func(name, typ string) Column { return Column{Name: name, Type: typ, PrimaryKey: true} }
	for name, c := range map[string]struct {
		columns []Column
		want    string
	}{
		"added":       {[]Column{col("a", "TEXT")}, `"id" INTEGER PRIMARY KEY AUTOINCREMENT`},
		"promoted":    {[]Column{col("ID", "int")}, `"ID" INTEGER PRIMARY KEY AUTOINCREMENT`},
		"text id":     {[]Column{col("id", "uuid")}, `"id" TEXT NOT NULL`},
		"declared":    {[]Column{key("n", "INTEGER")}, `"n" INTEGER PRIMARY KEY,`},
		"composite":   {[]Column{key("a", "TEXT"), key("b", "INTEGER")}, `PRIMARY KEY ("a", "b")`},
		"id not key":  {[]Column{key("a", "TEXT"), col("id", "INTEGER")}, `PRIMARY KEY ("a")`},
		"text id key": {[]Column{col("id", "TEXT")}, `PRIMARY KEY ("id")`},
	} {
		sql, err := TableSpec{Name: "t", Purpose: "p", Columns: c.columns}.Statements()
		if err != nil || !strings.Contains(sql[0], c.want) {
			t.Errorf("%s: %v\n%s\nwant %s", name, err, sql, c.want)
		}
		if n := strings.Count(sql[0], "PRIMARY KEY"); n != 1 {
			t.Errorf("%s: %d primary keys in\n%s", name, n, sql[0])
		}
	}
}
