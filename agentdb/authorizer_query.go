package agentdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	msqlite "modernc.org/sqlite"

	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// queryAuthorizer confines an agent's queries to its tables. SQLite calls it for every action
// while it compiles a statement. It allows only reads of the readable tables, and safe functions.
type queryAuthorizer struct{ readable map[string]bool }

func (g queryAuthorizer) allow(action sqlite.Action, arg1, arg2, _, _ string) bool {
	switch action {
	// The keywords alone are harmless. SQLite asks about each table and function separately.
	case msqlite.AuthSelect, msqlite.AuthRecursive:
		return true
	case msqlite.AuthFunction:
		return safeFunction(arg2)
	case msqlite.AuthRead:
		return g.allowRead(strings.ToLower(arg1), arg2)
	}
	return false
}

// allowRead reports whether a query may read a table. SQLite also asks, with an empty column,
// about a common table expression if only its rows are counted.
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

// readers holds the guarded connections of a database. It reopens them after the schema changes.
type readers struct {
	path string
	db   *sqlite.DB

	mu    sync.Mutex
	pools map[bool]*reader // key: deleted rows are visible
}

// close closes all connections. The caller must hold mu until the database itself is closed, so
// that no query opens new connections in between.
func (r *readers) close() error {
	var errs []error
	for _, p := range r.pools {
		errs = append(errs, p.Close())
	}
	clear(r.pools)
	return errors.Join(errs...)
}

// conn returns a guarded connection for the current schema. Unless deleted is true, the
// connection sees live rows only. The caller must close it.
func (r *readers) conn(ctx context.Context, deleted bool) (*sql.Conn, error) {
	for {
		p, err := r.current(ctx, deleted)
		if err != nil {
			return nil, err
		}

		// Without the lock: waiting for a free connection must not block other queries.
		conn, err := p.Conn(ctx)
		if err == nil || ctx.Err() != nil || !r.replaced(deleted, p) {
			return conn, err
		}
	}
}

// replaced reports whether a pool was closed because the schema changed.
func (r *readers) replaced(deleted bool, p *reader) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pools[deleted] != p
}

// current returns the pool for the current schema, which another process may have changed.
func (r *readers) current(ctx context.Context, deleted bool) (*reader, error) {
	// Read the version before the schema. If the schema changes in between, the next call reopens
	// the pool.
	var version int64
	if err := r.db.Read().QueryRowContext(ctx, "pragma schema_version").Scan(&version); err != nil {
		return nil, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pools[deleted]; p != nil {
		if p.version == version {
			return p, nil
		}
		delete(r.pools, deleted)
		if err := p.Close(); err != nil {
			return nil, err
		}
	}

	guarded, err := r.open(ctx, deleted)
	if err != nil {
		return nil, err
	}
	r.pools[deleted] = &reader{guarded, version}
	return r.pools[deleted], nil
}

// open opens guarded connections. Unless deleted is true, it creates a temporary view over the
// live rows of each table, because temporary names take precedence. The agent's own views become
// temporary too, otherwise they would read the tables behind these views.
func (r *readers) open(ctx context.Context, deleted bool) (*sqlite.GuardedPool, error) {
	rows, err := r.db.Read().QueryContext(ctx, `select m.name, m.type, m.sql,
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
		// Without temporary views, queries read the tables themselves.
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

	return sqlite.OpenGuarded(r.path, sqlite.Guard{Setup: setup, Allow: g.allow})
}
