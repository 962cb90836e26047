package agentdb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	msqlite "modernc.org/sqlite"

	"rouse/agentdb/sqlite"
)

// queryAuthorizer is the boundary between an agent's SQL and its file: SQLite asks it about every
// action while a statement is compiled, and it allows nothing but reading these tables.
type queryAuthorizer struct{ readable map[string]bool }

func (g queryAuthorizer) allow(action sqlite.Action, arg1, arg2, _, _ string) bool {
	switch action {
	// The keywords alone are harmless; what they read is asked about separately.
	case msqlite.AuthSelect, msqlite.AuthRecursive:
		return true
	case msqlite.AuthFunction:
		return safeFunction(arg2)
	case msqlite.AuthRead:
		return g.allowRead(strings.ToLower(arg1), arg2)
	}
	return false
}

// allowRead allows the agent's tables and what lists them. SQLite also asks, without naming a
// column, about a common table expression that is only counted; its name can be anything
// that is not a system table's.
func (g queryAuthorizer) allowRead(table, column string) bool {
	if g.readable[table] {
		return true
	}
	return column == "" && table != "dbstat" && !reservedTable(table) && !strings.HasPrefix(table, "pragma_")
}

// reader is a pool of guarded connections that fits one state of the schema.
type reader struct {
	guarded *sqlite.GuardedPool
	version int64
}

func (r *reader) close() error { return r.guarded.Close() }

// readConn lends a guarded connection that fits the schema as it is now. With deleted false it sees live rows only.
func (db *DB) readConn(ctx context.Context, deleted bool) (*sqlite.GuardedConn, error) {
	for {
		r, err := db.readerFor(ctx, deleted)
		if err != nil {
			return nil, err
		}

		// Waiting for a free connection must not keep others from theirs.
		conn, err := r.guarded.Conn(ctx)
		switch {
		// The schema changed while this caller waited, and the pool that it waited for was closed.
		case errors.Is(err, sqlite.ErrClosed) && ctx.Err() == nil && db.readerReplaced(deleted, r):
			continue
		case err != nil:
			return nil, err
		}

		// Asked for each query, since another process may have changed the schema. All that is done on the
		// connection then has this one: names, and what a statement was compiled to.
		version, err := conn.SchemaVersion()
		if err == nil && version == r.version {
			return conn, nil
		}

		if err := errors.Join(err, conn.Close()); err != nil {
			return nil, err
		}
		if err := db.dropReader(deleted, r); err != nil {
			return nil, err
		}
	}
}

// readerReplaced says that a pool was closed meanwhile, because the schema changed.
func (db *DB) readerReplaced(deleted bool, r *reader) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.readers[deleted] != r
}

// dropReader closes a pool of a schema that has changed, unless somebody else has done so.
func (db *DB) dropReader(deleted bool, r *reader) error {
	db.mu.Lock()
	defer db.mu.Unlock()

	if db.readers[deleted] != r {
		return nil
	}
	delete(db.readers, deleted)
	return r.close()
}

// readerFor gives the pool that was made last, or makes one for the schema as it is now.
func (db *DB) readerFor(ctx context.Context, deleted bool) (*reader, error) {
	db.mu.Lock()
	defer db.mu.Unlock()

	if r := db.readers[deleted]; r != nil {
		return r, nil
	}

	// Before what it describes: where that changes in between, the pool is found to be too old.
	var version int64
	if err := db.db.Read().QueryRowContext(ctx, "pragma schema_version").Scan(&version); err != nil {
		return nil, err
	}

	guarded, err := db.openGuarded(ctx, deleted)
	if err != nil {
		return nil, err
	}

	r := &reader{guarded, version}
	db.readers[deleted] = r
	return r, nil
}

// openGuarded opens connections with, unless deleted rows are wanted, a temporary view over the
// live rows of each table: temporary names win (C-4). The agent's views are there as well,
// as temporary ones, because one in the file would find the tables behind the names. SQLite
// resolves a view's columns when it is used, so a broken one does not disturb other queries.
func (db *DB) openGuarded(ctx context.Context, deleted bool) (*sqlite.GuardedPool, error) {
	rows, err := db.db.Read().QueryContext(ctx, `select m.name, m.type, m.sql,
		case m.type when 'table' then exists (select 1 from pragma_table_xinfo(m.name) c where c.name = ?) else 0 end
		from sqlite_schema m where m.type = 'view' or `+userTables, deletedAt)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	g := queryAuthorizer{map[string]bool{"sqlite_master": true, "sqlite_schema": true, "json_each": true, "json_tree": true}}
	var setup []string
	for rows.Next() {
		var name, kind, text string
		var soft bool
		if err := rows.Scan(&name, &kind, &text, &soft); err != nil {
			return nil, err
		}

		g.readable[strings.ToLower(name)] = true
		switch {
		// Without views in front, the tables themselves are seen.
		case deleted:
		case kind == "view":
			setup = append(setup, "CREATE TEMP VIEW"+strings.TrimPrefix(text, "CREATE VIEW"))
		case soft:
			setup = append(setup, fmt.Sprintf("create temp view %s as select * from main.%[1]s where %s is null", quote(name), deletedAt))
		}
	}

	if err := rows.Err(); err != nil {
		return nil, err
	}

	return sqlite.OpenGuarded(db.path, sqlite.Guard{Setup: setup, Allow: g.allow})
}
