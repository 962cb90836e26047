package agentdb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	msqlite "modernc.org/sqlite"

	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
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

// allowRead allows the agent's tables and the lists of them. SQLite also asks, without a column,
// about a common table expression that is only counted.
func (g queryAuthorizer) allowRead(table, column string) bool {
	if g.readable[table] {
		return true
	}
	return column == "" && table != "dbstat" && !sqltext.IsReservedTable(table) && !strings.HasPrefix(table, "pragma_")
}

// reader is a pool of guarded connections for one version of the schema.
type reader struct {
	*sqlite.GuardedPool
	version int64
}

// readConn lends a guarded connection for the present schema. Unless deleted is true, it sees live
// rows only.
func (db *DB) readConn(ctx context.Context, deleted bool) (*sql.Conn, error) {
	for {
		r, err := db.readerFor(ctx, deleted)
		if err != nil {
			return nil, err
		}

		// Without the lock: waiting for a free connection must not block other queries.
		conn, err := r.Conn(ctx)
		if err == nil || ctx.Err() != nil || !db.readerReplaced(deleted, r) {
			return conn, err
		}
	}
}

// readerReplaced reports whether a pool was closed because the schema changed.
func (db *DB) readerReplaced(deleted bool, r *reader) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.readers[deleted] != r
}

// readerFor returns the pool for the present schema, which another process may have changed.
func (db *DB) readerFor(ctx context.Context, deleted bool) (*reader, error) {
	// Read before the schema itself: if that changes in between, the pool is found to be too old.
	var version int64
	if err := db.db.Read().QueryRowContext(ctx, "pragma schema_version").Scan(&version); err != nil {
		return nil, err
	}

	db.mu.Lock()
	defer db.mu.Unlock()
	if r := db.readers[deleted]; r != nil {
		if r.version == version {
			return r, nil
		}
		delete(db.readers, deleted)
		if err := r.Close(); err != nil {
			return nil, err
		}
	}

	guarded, err := db.openGuarded(ctx, deleted)
	if err != nil {
		return nil, err
	}
	db.readers[deleted] = &reader{guarded, version}
	return db.readers[deleted], nil
}

// openGuarded opens connections with, unless deleted is true, a temporary view over the live rows
// of each table: temporary names win (C-4). The agent's views become temporary too, or they would
// find the tables behind.
func (db *DB) openGuarded(ctx context.Context, deleted bool) (*sqlite.GuardedPool, error) {
	rows, err := db.db.Read().QueryContext(ctx, `select m.name, m.type, m.sql,
		case m.type when 'table' then exists (select 1 from pragma_table_xinfo(m.name) c where c.name = ?) else 0 end
		from sqlite_schema m where m.type = 'view' or `+schema.UserTables, sqltext.ColumnDeleted)
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
			setup = append(setup, fmt.Sprintf("create temp view %s as select * from main.%[1]s where %s is null", sqltext.Quote(name), sqltext.ColumnDeleted))
		}
	}

	if err := rows.Err(); err != nil {
		return nil, err
	}

	return sqlite.OpenGuarded(db.path, sqlite.Guard{Setup: setup, Allow: g.allow})
}
