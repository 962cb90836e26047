package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	msqlite "modernc.org/sqlite"
)

// Action is what a statement wants to do, as SQLite's authorizer names it.
type Action = msqlite.AuthorizerActionCode

// Guard restricts what SQL written by a model can do to a file.
type Guard struct {
	// Setup runs on each new connection before the authorizer is installed: temp views, say.
	Setup []string
	// Allow decides each action while a statement is compiled; what it refuses fails
	// with "not authorized". Arguments as of sqlite3_set_authorizer.
	Allow func(action Action, arg1, arg2, database, trigger string) bool
}

// guardedConns is how many connections of a GuardedPool can be lent at once.
const guardedConns = 2

// GuardedPool is a pool of read-only connections, on a driver instance of its own. Each connection
// asks the guard about every statement.
type GuardedPool struct{ db *sql.DB }

// OpenGuarded opens an existing database for SQL that is not the host's.
func OpenGuarded(path string, g Guard) (*GuardedPool, error) {
	if g.Allow == nil {
		return nil, errors.New("sqlite: a guard without Allow guards nothing")
	}

	model, err := modelDriver()
	if err != nil {
		return nil, err
	}

	c := connector{driver: model, dsn: dsn(path, "mode=ro", "_pragma=cell_size_check(1)", strictQuotes), prepare: g.install}
	return &GuardedPool{openPool(c, guardedConns)}, nil
}

// Close closes the pool. A connection that is lent is closed when it is given back.
func (p *GuardedPool) Close() error { return p.db.Close() }

// Conn lends a connection, which the caller closes.
func (p *GuardedPool) Conn(ctx context.Context) (*sql.Conn, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := setLimits(conn, MaxLength); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// install prepares a new connection and puts it under the guard.
func (g Guard) install(ctx context.Context, conn driver.Conn) error {
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return errors.New("sqlite: the driver's connection runs no statements")
	}

	// Before the authorizer, which would refuse some of it; query_only last, so that Setup may
	// write temporary objects.
	for _, statement := range append(g.Setup[:len(g.Setup):len(g.Setup)], "pragma query_only=1") {
		if _, err := execer.ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("preparing a guarded connection: %w", err)
		}
	}
	return authorize(conn, g.Allow)
}

// authorize installs an authorizer.
func authorize(conn driver.Conn, allow func(action Action, arg1, arg2, database, inside string) bool) error {
	registerer, ok := conn.(msqlite.AuthorizerRegisterer)
	if !ok {
		return errors.New("sqlite: the driver has no authorizer")
	}
	return registerer.RegisterAuthorizer(func(action Action, a1, a2, database, inside string) msqlite.AuthorizerReturnCode {
		if allow(action, a1, a2, database, inside) {
			return msqlite.AuthorizerOK
		}
		return msqlite.AuthorizerDeny
	})
}
