package agentdb_test

import (
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
)

// SQLite decides whether a view or trigger works without the objects of a run. A name inside
// another name, a column or a string is not a conflict. Force drops only broken objects.
func TestUndoKnowsWhatIsBroken(t *testing.T) {
	t.Parallel()
	table := func(t *testing.T, db *agentdb.DB, run int64, name string) {
		t.Helper()
		if _, err := db.CreateTable(t.Context(), changelog.By{Run: run}, schema.TableSpec{Name: name, Purpose: "p", Columns: []schema.Column{{Name: "a", Type: "TEXT"}, {Name: "order_no", Type: "TEXT"}}}); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		name     string
		made     string // table that run 2 creates and the undo removes
		later    string // SQL of run 3
		conflict string // part of the conflict; "" means no conflict
		gone     string // triggers and views that Force drops
	}{
		{name: "a part of another table's name, in the host's own trigger", made: "order"},
		{name: "a word of the host's own trigger", made: "new_row"},
		{name: "a column of the host's own trigger", made: "updated"},
		{name: "a part of a name", made: "order", later: "create trigger t after insert on orders begin update orders set a = 'x' where id = new.id; end"},
		{name: "a part of a column", made: "order", later: "create trigger t after update of order_no on orders begin update orders set a = new.order_no where id = new.id; end"},
		{name: "a string", made: "archive", later: "create trigger t after delete on orders begin update orders set a = 'archive' where id = 1; end"},
		{name: "a comment", made: "archive", later: "create trigger t after delete on orders begin update orders set a = 1 /* not into archive */ where id = 1; end"},
		{name: "the name of a column", made: "a", later: "create trigger t after delete on orders begin update orders set a = old.a where id = 1; end"},
		{name: "the table", made: "archive", later: "create trigger t after insert on orders begin insert into archive(a) values (new.a); end", conflict: "the trigger t would not work any more (no such table: main.archive)", gone: "t"},
		{name: "the table in quotes and another case", made: "archive", later: `create trigger t after update on orders begin insert into [ARCHIVE](a) values (new.a); end`, conflict: "the trigger t would not work", gone: "t"},
		{name: "one of two triggers", made: "archive", later: "create trigger good after delete on orders begin update orders set a = 'archive'; end; create trigger bad before delete on orders begin delete from archive where a = old.a; end", conflict: "the trigger bad would not work", gone: "bad"},
		{name: "a trigger that another one fires", made: "archive", later: "create table log(a); create trigger first after insert on orders begin insert into log values (new.a); end; create trigger second after insert on log begin insert into archive(a) values (new.a); end", conflict: "the trigger second would not work", gone: "second"},
		{name: "a view and its trigger", made: "archive", later: "create view v as select a from orders; create trigger t instead of insert on v begin insert into archive(a) values (new.a); end", conflict: "the trigger t would not work", gone: "t"},
		{name: "a view", made: "archive", later: "create view v as select archive.a from archive; create view w as select 'archive' as archive from orders", conflict: "the view v would not work", gone: "v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := fresh(t)
			table(t, db, 1, "orders")
			table(t, db, 2, c.made)
			if c.later != "" {
				if _, err := db.Execute(t.Context(), changelog.By{Run: 3}, agentdb.ExecuteSpec{SQL: c.later}); err != nil {
					t.Fatal(err)
				}
			}

			const objects = "select coalesce(group_concat(name, ' '), '') from (select name from sqlite_schema where type in ('trigger', 'view') and tbl_name <> '_x' order by name)"
			before := system(t, db, objects)
			out := undo(t, db, changelog.UndoSpec{Run: 2})
			if c.conflict == "" {
				if !out.Done {
					t.Fatalf("refused: %+v", out.Conflicts)
				}
			} else if out.Done || len(out.Conflicts) != 1 || !strings.Contains(out.Conflicts[0].Why, c.conflict) {
				t.Fatalf("%+v", out)
			} else if out = undo(t, db, changelog.UndoSpec{Run: 2, Force: true}); !out.Done {
				t.Fatalf("with force: %+v", out)
			}

			// The host's trigger was dropped with its table.
			want := strings.Fields(before)
			kept := want[:0]
			for _, name := range want {
				if name != c.gone && name != "_touch_"+c.made {
					kept = append(kept, name)
				}
			}
			if got := system(t, db, objects); got != strings.Join(kept, " ") {
				t.Errorf("left are %s, want %v", got, kept)
			}
			insert(t, db, "orders", map[string]any{"a": "1"})
		})
	}
}

// Objects that were broken before are not conflicts and are unchanged.
func TestUndoLeavesWhatWasBrokenBefore(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	for _, sql := range []string{"create table t(a); create table old(a); create view v as select * from old; create trigger r after insert on t begin insert into old values (1); end", "create table mine(a)"} {
		if _, err := db.Execute(t.Context(), changelog.By{Run: 1}, agentdb.ExecuteSpec{SQL: sql}); err != nil {
			t.Fatal(err)
		}
	}
	raw(t, db, "drop table old")
	if _, err := db.Execute(t.Context(), changelog.By{Run: 2}, agentdb.ExecuteSpec{SQL: "create table late(a)"}); err != nil {
		t.Fatal(err)
	}

	if out := undo(t, db, changelog.UndoSpec{Run: 2}); !out.Done {
		t.Errorf("%+v", out.Conflicts)
	}
	if left := system(t, db, "select count(*) from sqlite_schema where name in ('v', 'r')"); left != "2" {
		t.Errorf("%s of them are left", left)
	}
}
