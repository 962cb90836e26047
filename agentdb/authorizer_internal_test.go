package agentdb

import (
	"testing"

	msqlite "modernc.org/sqlite"

	"rouse/internal/storage/sqlite"
)

// The write authorizer is sufficient alone, without the checks before it and those of SQLite.
func TestWriteAuthorizer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb       string
		action     sqlite.Action
		arg1, arg2 string
		database   string
		inside     string
		want       bool
	}{
		{"INSERT", msqlite.AuthInsert, "Expenses", "", "main", "", true},
		{"INSERT", msqlite.AuthInsert, "expenses", "", "main", "a_trigger", true},
		{"INSERT", msqlite.AuthInsert, "elsewhere", "", "main", "", false},
		{"INSERT", msqlite.AuthInsert, "_calls", "", "main", "", false},
		{"INSERT", msqlite.AuthInsert, "sqlite_sequence", "", "main", "", false},
		{"INSERT", msqlite.AuthUpdate, "sqlite_sequence", "seq", "main", "a_trigger", false},
		{"CREATE TABLE", msqlite.AuthInsert, "sqlite_master", "", "main", "", true}, // SQLite itself
		{"CREATE TABLE", msqlite.AuthInsert, "sqlite_master", "", "main", "a_trigger", false},
		{"CREATE TABLE", msqlite.AuthDelete, "_calls", "", "main", "", false},
		{"CREATE TABLE", msqlite.AuthDelete, "elsewhere", "", "main", "", false},

		{"SELECT", msqlite.AuthRead, "expenses", "note", "main", "", true},
		{"SELECT", msqlite.AuthRead, "sqlite_schema", "sql", "main", "", true},
		{"SELECT", msqlite.AuthRead, "sqlite_sequence", "seq", "main", "", false},
		{"SELECT", msqlite.AuthRead, "dbstat", "name", "main", "", false},
		{"SELECT", msqlite.AuthRead, "pragma_database_list", "file", "main", "a_view", false},
		{"CREATE TABLE", msqlite.AuthRead, "made_now", "a", "main", "", true},
		{"CREATE TABLE", msqlite.AuthRead, "_calls", "result", "main", "", false},

		{"ALTER", msqlite.AuthAlterTable, "main", "Expenses", "", "", true},
		{"ALTER", msqlite.AuthAlterTable, "temp", "expenses", "", "", false},
		{"ALTER", msqlite.AuthAlterTable, "main", "elsewhere", "", "", false},
		{"ALTER", msqlite.AuthAlterTable, "main", "_calls", "", "", false},

		{"CREATE TABLE", msqlite.AuthCreateTable, "t", "", "main", "", true},
		{"CREATE TABLE", msqlite.AuthCreateTable, "t", "", "temp", "", false},
		{"CREATE TABLE", msqlite.AuthCreateTable, "_t", "", "main", "", false},
		{"CREATE TABLE", msqlite.AuthCreateIndex, "sqlite_autoindex_t_1", "t", "main", "", true},
		{"CREATE TABLE", msqlite.AuthCreateIndex, "_i", "t", "main", "", false},
		{"CREATE TABLE", msqlite.AuthDropIndex, "sqlite_autoindex_t_1", "t", "main", "", false},
		{"CREATE INDEX", msqlite.AuthCreateIndex, "sqlite_autoindex_t_1", "t", "main", "", false},
		{"CREATE INDEX", msqlite.AuthCreateIndex, "i", "_calls", "main", "", false},
		{"CREATE INDEX", msqlite.AuthCreateIndex, "i", "t", "temp", "", false},
		{"CREATE INDEX", msqlite.AuthCreateIndex, "i", "t", "main", "", true},
	} {
		g := &writeAuthorizer{names: map[string]bool{"expenses": true}, verb: c.verb}
		if got := g.allow(c.action, c.arg1, c.arg2, c.database, c.inside); got != c.want {
			t.Errorf("%s: action %d of %q, %q in %s within %q: %t", c.verb, c.action, c.arg1, c.arg2, c.database, c.inside, got)
		}
	}
}
