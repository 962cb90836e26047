package agentdb_test

import (
	"strings"
	"testing"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/internal/contract"
)

// OSA-61: the changelog records the actor: an agent, a migration, a user or the host.
func TestActors(t *testing.T) {
	db := fresh(t)
	expenses(t, db)
	if _, err := db.AlterTable(t.Context(), changelog.By{Run: 1}, "expenses", []schema.Column{{Name: "more", Type: "TEXT"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Migrate(t.Context(), changelog.By{Run: 1}, agentdb.MigrateSpec{Up: "create table rates(a); insert into rates values (1)", Down: "drop table rates", Description: "Rates"}); err != nil {
		t.Fatal(err)
	}

	insert(t, db, "expenses", map[string]any{"category": "x"})
	spec := transfer.ImportSpec{Table: "rates", Name: "f.csv", Source: strings.NewReader("a\n3\n")}
	if _, err := db.Import(t.Context(), changelog.By{Actor: "user"}, spec); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Insert(t.Context(), changelog.By{Run: 5}, "expenses", []map[string]any{{"category": "y"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Undo(t.Context(), changelog.By{Actor: "system"}, changelog.UndoSpec{Run: 5}); err != nil {
		t.Fatal(err)
	}

	row := contract.Of(t, "OSA-61")
	var got []string
	for _, c := range changes(t, db) {
		got = append(got, c.Actor+" "+c.Op+" "+c.Table)
	}

	want := []string{
		"agent schema expenses", "agent schema expenses", "migration raw ", "migration schema rates", "migration raw rates",
		"agent insert expenses", "user import rates", "agent insert expenses", "system raw expenses",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	by, id := changelog.By{Run: 6}, map[string]any{"category": "x"}
	for _, change := range []func() (agentdb.Affected, error){
		func() (agentdb.Affected, error) {
			return db.Update(t.Context(), by, "expenses", map[string]any{"amount": 1}, id, false)
		},
		func() (agentdb.Affected, error) { return db.Delete(t.Context(), by, "expenses", id) },
		func() (agentdb.Affected, error) { return db.Restore(t.Context(), by, "expenses", id) },
	} {
		if done, err := change(); err != nil || done.Rows != 1 {
			t.Fatal(done, err)
		}
	}
	seen := map[string]bool{}
	for _, c := range changes(t, db) {
		seen[c.Actor], seen[c.Op] = true, true
		if c.Run == 6 && (c.PK == "" || c.Before == "" || c.After == "") {
			t.Errorf("%+v", c)
		}
	}
	words := append(row.Between("the actor (", ")"), row.Between("the op (", ")")...)
	for _, word := range words {
		if !seen[word] {
			t.Errorf("no entry of the changelog has %s", word)
		}
	}
	if len(seen) != len(words) {
		t.Errorf("the changelog has %v", seen)
	}
}
