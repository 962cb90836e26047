package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
)

// Prepared is a statement that is run many times with many values. It passes them to the driver as they
// are, without the checks and copies of database/sql, which cost as much as the driver's own work.
type Prepared struct {
	// Columns are the names of its columns, where its caller has found them out.
	Columns []string

	owner  *connection
	query  string
	stmt   driver.Stmt
	args   []driver.NamedValue // of Exec, used again and again
	failed bool
}

// statementCache holds what a connection has compiled and nobody uses, the newest last.
type statementCache struct {
	most    int // statements
	longest int // bytes of a statement's text; 0 means any
	list    []*Prepared
}

// take gives a statement to one user, nil when there is none of this text.
func (c *statementCache) take(query string) *Prepared {
	i := slices.IndexFunc(c.list, func(p *Prepared) bool { return p.query == query })
	if i < 0 {
		return nil
	}

	p := c.list[i]
	c.list = slices.Delete(c.list, i, i+1)
	return p
}

// add keeps a statement, and returns the one that has to go for it, which may be the same; nil: none.
func (c *statementCache) add(p *Prepared) *Prepared {
	if c.longest > 0 && len(p.query) > c.longest {
		return p
	}

	c.list = append(c.list, p)
	if len(c.list) <= c.most {
		return nil
	}

	oldest := c.list[0]
	c.list = slices.Delete(c.list, 0, 1)
	return oldest
}

// Prepare compiles a statement for this transaction; the caller closes it before the transaction
// ends. Compiling an insert of a thousand rows takes as long as running it, so the last statement
// is cached for the next caller who wants the same.
func (t *Tx) Prepare(query string) (*Prepared, error) { return t.conn.prepareCached(query) }

func (c *connection) prepareCached(query string) (*Prepared, error) {
	if p := c.cache.take(query); p != nil {
		return p, nil
	}
	return c.prepare(query)
}

func (c *connection) prepare(query string) (*Prepared, error) {
	p := &Prepared{owner: c, query: query}
	err := c.conn.Raw(func(conn any) (err error) {
		preparer, ok := conn.(driver.Conn)
		if !ok {
			return errors.New("sqlite: the driver's connection cannot prepare a statement")
		}
		p.stmt, err = preparer.Prepare(query)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Exec runs the statement. Values are int64, float64, string, []byte or nil.
func (p *Prepared) Exec(values []any) (result driver.Result, err error) {
	if len(p.args) != len(values) {
		p.args = make([]driver.NamedValue, len(values))
		for i := range p.args {
			p.args[i].Ordinal = i + 1
		}
	}
	for i, v := range values {
		p.args[i].Value = v
	}

	err = p.owner.conn.Raw(func(any) error {
		stmt, ok := p.stmt.(driver.StmtExecContext)
		if !ok {
			return errors.New("sqlite: the driver's statement cannot be run with a context")
		}
		result, err = stmt.ExecContext(p.owner.ctx, p.args)
		return err
	})

	p.failed = p.failed || err != nil
	return result, err
}

// Query runs the statement with values as of Exec, whose ordinals count from 1, and hands each row over until take wants no more. A row
// is used again for the next.
func (p *Prepared) Query(ctx context.Context, args []driver.NamedValue, take func(row []driver.Value) (more bool, err error)) error {
	err := p.owner.conn.Raw(func(any) error {
		stmt, ok := p.stmt.(driver.StmtQueryContext)
		if !ok {
			return errors.New("sqlite: the driver's statement cannot be asked with a context")
		}

		rows, err := stmt.QueryContext(ctx, args)
		if err != nil {
			return err
		}

		err = eachRow(rows, take)
		if e := rows.Close(); err == nil {
			err = e
		}
		return err
	})

	p.failed = p.failed || err != nil
	return err
}

func eachRow(rows driver.Rows, take func([]driver.Value) (bool, error)) error {
	row := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}

		if more, err := take(row); err != nil || !more {
			return err
		}
	}
}

// Close gives the statement to the connection's cache, in the place of the oldest one there.
func (p *Prepared) Close() error {
	// A statement that failed is not used again.
	if p.failed {
		return p.finalize()
	}

	// The values of a large write are not kept with what is cached.
	for i := range p.args {
		p.args[i].Value = nil
	}

	return p.owner.cache.add(p).finalize()
}

func (p *Prepared) finalize() error {
	if p == nil {
		return nil
	}
	return p.owner.conn.Raw(func(any) error { return p.stmt.Close() })
}
