package sqltext

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"rouse/agentdb/dberr"
)

func TestSplitScript(t *testing.T) {
	for sql, want := range map[string]string{
		"select 1":                  "SELECT: select 1",
		" select 1; -- end\n":       "SELECT: select 1",
		"select ';'; delete from t": "SELECT: select ';' | DELETE: delete from t",
		"with a as (select 1) insert into t select * from a": "INSERT: with a as (select 1) insert into t select * from a",
		"create unique index i on t(a)":                      "CREATE INDEX: create unique index i on t(a)",
		"create trigger r after insert on t begin delete from a where b; update c set d = 1; end; drop table t": "CREATE TRIGGER: create trigger r after insert on t begin delete from a where b; update c set d = 1; end | DROP TABLE: drop table t",
	} {
		statements, err := SplitScript(sql)
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		var got []string
		for _, s := range statements {
			if sql[s.Offset:s.Offset+len(s.Text)] != s.Text {
				t.Errorf("%s: a statement is not at its offset %d", sql, s.Offset)
			}
			got = append(got, s.Verb()+": "+s.Text)
		}
		if strings.Join(got, " | ") != want {
			t.Errorf("%s: got %s", sql, strings.Join(got, " | "))
		}
	}
	for _, sql := range []string{"", " ; ", "-- only", "select 'open", "select \x00"} {
		if _, err := SplitScript(sql); err == nil {
			t.Errorf("%q is taken", sql)
		}
	}
}

func TestForbiddenStatements(t *testing.T) {
	for sql, allowed := range map[string]bool{
		"insert into t values (1)":                true,
		"delete from t where a = 1":               true,
		"delete from t":                           false,
		"delete from t; select 1 where 1":         false,
		"drop table t":                            false,
		"drop view v":                             true,
		"alter table t drop column a":             false,
		"alter table t add column a":              true,
		"create table t as select 1":              false,
		"create temp table t (a)":                 false,
		"insert into _calls values (1)":           false,
		"update or replace main._calls set a = 1": false,
		"select load_extension('x')":              false,
		"pragma journal_mode":                     false,
		"attach 'x' as y":                         false,
		"begin":                                   false,
	} {
		statements, err := SplitScript(sql)
		if err != nil {
			t.Fatal(err)
		}
		if err := statements[0].Check(sql); (err == nil) != allowed {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestExcerptFor(t *testing.T) {
	sql := "select a,\n  amout from t"
	if got, want := ExcerptFor(sql, "no such column: amout"), " (line 2, column 3)\n    amout from t\n    ^"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ExcerptFor(sql, "disk I/O error"); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestParametersOf(t *testing.T) {
	p := ParametersOf("select ?, :a, '?', $b, ?7, x$y -- :c\n, @a")
	if got := fmt.Sprint(p.Count, p.Names); got != "7 [a b]" {
		t.Error(got)
	}
	var bad *dberr.Error
	if err := ParametersOf("select :a").Check(nil, map[string]any{"b": 1}); !errors.As(err, &bad) || bad.Field != "params" {
		t.Error(err)
	}
}
