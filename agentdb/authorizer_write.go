package agentdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// writeAuthorizer confines SQL that may write. SQLite calls it while it compiles a statement, for
// the statement itself and for the actions of its triggers and views.
type writeAuthorizer struct {
	names map[string]bool // tables and views of the agent, in lower case
	// verb is the verb of the statement being compiled, for example "ALTER" or "CREATE TABLE". It
	// is empty for the host's own SQL.
	verb string

	// deniedIn is the trigger or view that contained the last denied action. It is empty if the
	// statement itself contained the action.
	deniedIn string
}

// schemaTables are the tables that SQLite writes itself while it changes the schema. SQLite
// rejects every statement that writes to them directly.
var schemaTables = []string{"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema", "sqlite_sequence"}

func (g *writeAuthorizer) ddl() bool {
	first, _, _ := strings.Cut(g.verb, " ")
	return first == "CREATE" || first == "DROP" || first == "ALTER"
}

func (g *writeAuthorizer) allow(action sqlite.Action, arg1, arg2, database, inside string) bool {
	ok := g.allowed(action, arg1, arg2, database, inside)
	if !ok {
		g.deniedIn = inside
	}
	return ok
}

func (g *writeAuthorizer) allowed(action sqlite.Action, arg1, arg2, database, inside string) bool {
	// SQLite writes its own tables during a schema change. The agent's SQL must never do that.
	internal := g.ddl() && inside == ""
	switch action {
	case msqlite.AuthSelect:
		// CREATE TABLE … AS SELECT would create columns without types.
		return g.verb != "CREATE TABLE" || inside != ""
	case msqlite.AuthRecursive:
		return true
	case msqlite.AuthFunction:
		return safeFunction(arg2)
	case msqlite.AuthRead:
		// Generated columns, checks and indexes read a table that is still being created.
		table := strings.ToLower(arg1)
		return internal && (slices.Contains(schemaTables, table) || !sqltext.IsReservedTable(table)) || queryAuthorizer{g.names}.allowRead(table, arg2) || readableSchema(arg1)
	case msqlite.AuthInsert, msqlite.AuthUpdate, msqlite.AuthDelete:
		table := strings.ToLower(arg1)
		return internal && slices.Contains(schemaTables, table) || g.names[table] && !sqltext.IsReservedTable(table)
	case msqlite.AuthAlterTable:
		return strings.EqualFold(arg1, "main") && g.names[strings.ToLower(arg2)] && !sqltext.IsReservedTable(arg2)
	case msqlite.AuthCreateTable, msqlite.AuthCreateView, msqlite.AuthDropView:
		return database == "main" && !sqltext.IsReservedTable(arg1)
	case msqlite.AuthCreateIndex, msqlite.AuthCreateTrigger, msqlite.AuthDropIndex, msqlite.AuthDropTrigger:
		// SQLite chooses the names of the indexes for PRIMARY KEY and UNIQUE.
		auto := strings.HasPrefix(arg1, "sqlite_autoindex_") && action == msqlite.AuthCreateIndex && g.verb == "CREATE TABLE"
		return database == "main" && (auto || !sqltext.IsReservedTable(arg1)) && !sqltext.IsReservedTable(arg2)
	case msqlite.AuthReindex: // for CREATE INDEX
		return g.verb == "CREATE INDEX"
	}

	return false
}

// describeDenied returns the name of the trigger or view that contained the denied action, and
// how to remove it. The statement that caused the action may itself be allowed.
func (g *writeAuthorizer) describeDenied(tx *sqlite.Tx) string {
	var kind, name, table string
	row := tx.QueryRow(`select type, name, tbl_name from sqlite_schema where type in ('trigger', 'view') and name = ? collate nocase`, g.deniedIn)
	if err := row.Scan(&kind, &name, &table); err != nil {
		return "" // the statement itself, or a name inside it
	}

	if kind == "trigger" {
		name += " of " + table
	}
	return fmt.Sprintf(" in the %s %s, which this statement uses (DROP %s takes it away)", kind, name, strings.ToUpper(kind))
}

func readableSchema(table string) bool {
	return slices.Contains([]string{"sqlite_master", "sqlite_schema", "json_each", "json_tree"}, strings.ToLower(table))
}

func safeFunction(name string) bool {
	name = strings.ToLower(name)
	for _, family := range []string{"fts", "geopoly", "rtree", "sqlite_log"} { // functions of virtual tables, and of logging
		if strings.HasPrefix(name, family) {
			return false
		}
	}
	return !slices.Contains([]string{"load_extension", "readfile", "writefile", "edit"}, name)
}

// refresh reads the names again after a schema change.
func (g *writeAuthorizer) refresh(ctx context.Context, tx *sqlite.Tx) error {
	names, err := sqlite.Collect(ctx, sqlite.Prepared{Tx: tx}, sqlite.Single[string], `select m.name from sqlite_schema m where m.type = 'view' and substr(m.name, 1, 1) <> '_' or `+schema.UserTables)
	g.names = map[string]bool{}
	for _, name := range names {
		g.names[strings.ToLower(name)] = true
	}
	return err
}

type authorizerKey struct{}

// authorizerOf returns the authorizer of a confined write.
func authorizerOf(ctx context.Context) *writeAuthorizer {
	return ctx.Value(authorizerKey{}).(*writeAuthorizer)
}

// runConfined runs one write under the authorizer, with the database's timeout and quota.
func (db *DB) runConfined(ctx context.Context, op func(context.Context, *sqlite.Tx) error) error {
	return db.Health.confinedError(ctx, db.runConfinedWithin(ctx, sqlite.Confinement{Timeout: db.timeout, MaxPages: db.Quota.maxPages()}, op), db.Quota.limitBytes())
}

// runConfinedWithin runs one write under the authorizer and the limits of how.
func (db *DB) runConfinedWithin(ctx context.Context, how sqlite.Confinement, op func(context.Context, *sqlite.Tx) error) error {
	g := &writeAuthorizer{}
	how.Allow, how.Ignore = g.allow, sqltext.IsReservedTable
	return db.db.DoConfined(ctx, how, func(ctx context.Context, tx *sqlite.Tx) error {
		if err := g.refresh(ctx, tx); err != nil {
			return err
		}
		return op(context.WithValue(ctx, authorizerKey{}, g), tx)
	})
}

// maxPages returns the maximum size of the file during one write, in pages, so that one statement
// cannot fill the disk. The file may grow to twice its quota; after that, further writes are
// rejected. Zero means no limit.
func (q *Quota) maxPages() int64 {
	const page, least = 4096, 16 << 20
	limit := q.limitBytes()
	if limit <= 0 {
		return 0
	}
	// Even a tiny quota leaves room for one write of normal size.
	return max(2*limit, least) / page
}

// confinedError turns the error of a confined write into a message the agent can act on. limit is
// the quota in bytes. Zero means no quota.
func (h *Health) confinedError(ctx context.Context, err error, limit int64) error {
	var bad *dberr.Error
	switch {
	case err == nil, errors.As(err, &bad):
		return err
	case errors.Is(err, sqlite.ErrTooManyChanges):
		return dberr.Invalid("", "the call changes more rows at once than the changelog can take (64 MiB); do it in parts with a WHERE, or import the rows with db_import")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, sqlite.ErrTimeout):
		return &dberr.Error{Kind: dberr.KindTimeout, Retryable: true, Message: fmt.Sprintf("the write took longer than %s and was rolled back; do it in smaller parts, and look for a trigger that repeats", h.timeout)}
	}

	switch sqlite.Code(err) {
	case sqlite3.SQLITE_FULL:
		return h.diskFullError(ctx, err, limit)
	case sqlite3.SQLITE_AUTH:
		return dberr.Invalid("", "%s: a trigger, a view or a default of this table reaches for what is not the agent's; nothing was written", dberr.SQLText(err))
	case sqlite3.SQLITE_NOMEM:
		return dberr.Invalid("", "the write wants more memory than SQLite has here (512 MiB), so nothing was written: make smaller values, or write fewer columns at once")
	case sqlite3.SQLITE_TOOBIG:
		return dberr.Invalid("", "a value is larger than 16 MiB; nothing was written")
	case sqlite3.SQLITE_ERROR: // error in a trigger, view, check or default of the agent
		return dberr.Invalid("", "%s; nothing was written. If the statement itself is right, look at the triggers and defaults of its table with db_query on sqlite_schema", dberr.SQLText(err))
	}

	return err
}
