package sqlite

import (
	"database/sql/driver"
	"errors"
)

// Prepared is a statement of one transaction that is run many times with many values. It
// passes them to the driver as they are, without the checks and copies of database/sql,
// which cost as much as the driver's own work.
type Prepared struct {
	owner  *connection
	query  string
	stmt   driver.Stmt
	failed bool
}

// Prepare compiles a statement for this transaction; the caller closes it before the transaction
// ends. Compiling an insert of a thousand rows takes as long as running it, so the last statement
// is cached for the next caller who wants the same.
func (t *Tx) Prepare(query string) (*Prepared, error) {
	if p := t.conn.cached; p != nil && p.query == query {
		t.conn.cached = nil
		return p, nil
	}

	p := &Prepared{owner: t.conn, query: query}
	err := p.owner.conn.Raw(func(c any) (err error) {
		conn, ok := c.(driver.Conn)
		if !ok {
			return errors.New("sqlite: the driver's connection cannot prepare a statement")
		}
		p.stmt, err = conn.Prepare(query)
		return err
	})

	return p, err
}

// Exec runs the statement. Values are int64, float64, string, []byte or nil, and their
// ordinals count from 1.
func (p *Prepared) Exec(args []driver.NamedValue) (result driver.Result, err error) {
	err = p.owner.conn.Raw(func(any) error {
		stmt, ok := p.stmt.(driver.StmtExecContext)
		if !ok {
			return errors.New("sqlite: the driver's statement cannot be run with a context")
		}
		result, err = stmt.ExecContext(p.owner.ctx, args)
		return err
	})

	p.failed = p.failed || err != nil
	return result, err
}

// Close returns the statement to the cache, in the place of the one before.
func (p *Prepared) Close() error {
	// A statement that failed is not used again.
	if p.failed || p.owner.cached == p {
		return p.finalize()
	}
	before := p.owner.cached
	p.owner.cached = p
	return before.finalize()
}

func (p *Prepared) finalize() error {
	if p == nil {
		return nil
	}
	return p.owner.conn.Raw(func(any) error { return p.stmt.Close() })
}
