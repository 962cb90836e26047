package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

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

	turns  chan struct{} // as many as may be lent at once
	closed chan struct{}

	mu   sync.Mutex
	free []*GuardedConn
}

const (
	guardedConns = 2
	// What a guarded connection keeps compiled. A statement needs some ten times its text.
	guardedStatements     = 8
	guardedStatementBytes = 16 << 10
)

// GuardedConn is a connection that a GuardedPool has lent to one caller, who closes it. Until then it is in one read
// transaction, so that all that is asked has the same state of the file. It keeps what Prepare compiled for whoever has it next:
// SQLite itself compiles a statement again, and asks the guard again, when the schema has changed.
type GuardedConn struct {
	*sql.Conn
	pool *GuardedPool
	own  *connection // the same one, with its statements

	hosts map[string]*Prepared // statements of the host
	host  bool                 // one of them is compiled or runs, about which nobody is asked
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
	p := &GuardedPool{db: sql.OpenDB(c), guard: g, turns: make(chan struct{}, guardedConns), closed: make(chan struct{})}
	p.db.SetMaxOpenConns(guardedConns)
	return p, nil
}

// Close closes the pool; a connection that is lent is closed when it is given back.
func (p *GuardedPool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	close(p.closed)
	for _, c := range p.free {
		c.end()
	}

	p.free = nil
	return p.db.Close()
}

// Conn lends a connection; with a pool that was closed meanwhile the error is ErrClosed.
func (p *GuardedPool) Conn(ctx context.Context) (*GuardedConn, error) {
	select {
	case <-p.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case p.turns <- struct{}{}:
	}

	c, err := p.take(ctx)
	if err != nil {
		<-p.turns
		return nil, err
	}
	if err := c.run("begin", nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// take gives a connection that nobody uses, or makes one.
func (p *GuardedPool) take(ctx context.Context) (*GuardedConn, error) {
	p.mu.Lock()
	n := len(p.free) - 1
	if n < 0 {
		p.mu.Unlock()
		return p.open(ctx)
	}
	defer p.mu.Unlock()

	c := p.free[n]
	p.free = p.free[:n]
	return c, nil
}

// Close gives the connection back.
func (c *GuardedConn) Close() error {
	defer func() { <-c.pool.turns }()

	// SQLite has ended the transaction by itself, or something is wrong with the connection. What it read is as it was.
	if err := c.run("commit", nil); err != nil {
		c.end()
		return nil
	}

	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()

	select {
	case <-c.pool.closed:
		c.end()
	default:
		c.pool.free = append(c.pool.free, c)
	}
	return nil
}

func (c *GuardedConn) end() {
	for _, p := range c.hosts {
		_ = p.finalize() // the connection is given up; there is nothing to save
	}
	c.own.close()
}

// open makes a connection that nobody uses before its limits and its guard are in force.
func (p *GuardedPool) open(ctx context.Context) (*GuardedConn, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}

	c := &GuardedConn{Conn: conn, pool: p, own: newConnection(context.WithoutCancel(ctx), conn, nil), hosts: map[string]*Prepared{}}
	c.own.cache = statementCache{most: guardedStatements, longest: guardedStatementBytes}
	if err := errors.Join(setLimits(conn, p.guard.MaxLength), c.installAuthorizer(ctx)); err != nil {
		c.own.close()
		return nil, err
	}
	return c, nil
}

func (c *GuardedConn) installAuthorizer(ctx context.Context) error {
	// Before the authorizer, which would refuse some of it; query_only last, so that Setup may write
	// temporary objects.
	setup := c.pool.guard.Setup
	for _, statement := range append(setup[:len(setup):len(setup)], "pragma query_only=1") {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("preparing a guarded connection: %w", err)
		}
	}

	return c.Raw(func(conn any) error {
		registerer, ok := conn.(msqlite.AuthorizerRegisterer)
		if !ok {
			return errors.New("sqlite: the driver has no authorizer")
		}

		return registerer.RegisterAuthorizer(func(action Action, a1, a2, database, trigger string) msqlite.AuthorizerReturnCode {
			if c.host || c.pool.guard.Allow(action, a1, a2, database, trigger) {
				return msqlite.AuthorizerOK
			}
			return msqlite.AuthorizerDeny
		})
	})
}

// run runs a statement of the host, which is compiled once.
func (c *GuardedConn) run(query string, take func(row []driver.Value) (more bool, err error)) (err error) {
	c.host = true
	defer func() { c.host = false }()

	p := c.hosts[query]
	if p == nil {
		if p, err = c.own.prepare(query); err != nil {
			return err
		}
		c.hosts[query] = p
	}

	return p.Query(c.own.ctx, nil, take)
}

// SchemaVersion is the number that every change of the schema raises, whoever makes it.
func (c *GuardedConn) SchemaVersion() (version int64, err error) {
	err = c.run("pragma schema_version", func(row []driver.Value) (bool, error) {
		var ok bool
		if version, ok = row[0].(int64); !ok {
			return false, fmt.Errorf("sqlite: the version of the schema is a %T", row[0])
		}
		return false, nil
	})
	return version, err
}

// Cached is a statement that Prepare compiled for somebody before, nil when there is none; the caller closes it.
func (c *GuardedConn) Cached(query string) *Prepared { return c.own.cache.take(query) }

// Prepare compiles a statement, which the guard decides on; the caller closes it before the connection.
func (c *GuardedConn) Prepare(query string) (*Prepared, error) { return c.own.prepareCached(query) }
