package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	msqlite "modernc.org/sqlite"
)

// Action is an action code of SQLite's authorizer.
type Action = msqlite.AuthorizerActionCode

// Guard restricts the SQL that a model can run on a file.
type Guard struct {
	// Setup is a list of statements that run on each new connection before the authorizer is
	// installed, for example to create temporary views.
	Setup []string
	// Allow decides each action while a statement is compiled. If it returns false, the statement
	// fails with "not authorized". The arguments are those of sqlite3_set_authorizer.
	Allow func(action Action, arg1, arg2, database, trigger string) bool
}

// guardedConns is the maximum number of open connections of a GuardedPool.
const guardedConns = 2

// GuardedPool is a pool of read-only connections with its own driver instance. The guard checks
// every statement of each connection.
type GuardedPool struct{ db *sql.DB }

// OpenGuarded opens an existing database for SQL written by a model.
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

// Close closes the pool. A connection that is in use is closed when it is returned.
func (p *GuardedPool) Close() error { return p.db.Close() }

// Conn returns a connection of the pool. The caller must close it.
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

// install runs the setup of a new connection and installs the authorizer.
func (g Guard) install(ctx context.Context, conn driver.Conn) error {
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return errors.New("sqlite: the driver's connection runs no statements")
	}

	// Run these before the authorizer is installed, which would refuse some of them. query_only
	// comes last, so that Setup can create temporary objects.
	for _, statement := range append(g.Setup[:len(g.Setup):len(g.Setup)], "pragma query_only=1") {
		if _, err := execer.ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("preparing a guarded connection: %w", err)
		}
	}
	return authorize(conn, g.Allow)
}

// authorize installs an authorizer on a connection.
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
