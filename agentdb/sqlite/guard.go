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
	// MaxLength bounds a string or row, in bytes; 0 means 16 MiB.
	MaxLength int
}

// GuardedPool is a pool of read-only connections, on a driver instance of its own. Each connection
// asks the guard about every statement.
type GuardedPool struct {
	db    *sql.DB
	guard Guard
}

// OpenGuarded opens an existing database for SQL that is not the host's.
func OpenGuarded(path string, g Guard) (*GuardedPool, error) {
	if g.Allow == nil {
		return nil, errors.New("sqlite: a guard without Allow guards nothing")
	}

	if g.MaxLength == 0 {
		g.MaxLength = MaxLength
	}

	model, err := modelDriver()
	if err != nil {
		return nil, err
	}

	c := connector{model, dsn(path, "mode=ro", "_pragma=cell_size_check(1)", strictQuotes)}
	db := sql.OpenDB(guardedConnector{c, g})
	db.SetMaxOpenConns(2)
	return &GuardedPool{db, g}, nil
}

// Close closes the pool.
func (g *GuardedPool) Close() error { return g.db.Close() }

// Conn lends a connection, which the caller closes.
func (g *GuardedPool) Conn(ctx context.Context) (*sql.Conn, error) {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	// Each time: the pool may have opened a new connection.
	if err := setLimits(conn, g.guard.MaxLength); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

type guardedConnector struct {
	connector
	guard Guard
}

func (c guardedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.installAuthorizer(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c guardedConnector) installAuthorizer(ctx context.Context, conn driver.Conn) error {
	exec, ok := conn.(driver.ExecerContext)
	if !ok {
		return errors.New("sqlite: the driver cannot execute")
	}

	// Before the authorizer, which would refuse some of it; query_only last, so that Setup may write
	// temporary objects.
	for _, statement := range append(c.guard.Setup[:len(c.guard.Setup):len(c.guard.Setup)], "pragma query_only=1") {
		if _, err := exec.ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("preparing a guarded connection: %w", err)
		}
	}

	registerer, ok := conn.(msqlite.AuthorizerRegisterer)
	if !ok {
		return errors.New("sqlite: the driver has no authorizer")
	}

	return registerer.RegisterAuthorizer(func(action Action, a1, a2, database, trigger string) msqlite.AuthorizerReturnCode {
		if c.guard.Allow(action, a1, a2, database, trigger) {
			return msqlite.AuthorizerOK
		}
		return msqlite.AuthorizerDeny
	})
}
