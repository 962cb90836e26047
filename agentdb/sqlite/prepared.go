package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// Prepared is a statement of one transaction that is run many times with many values. It
// passes them to the driver as they are, without the checks and copies of database/sql,
// which cost as much as the driver's own work.
type Prepared struct {
	ctx  context.Context // the writer's own
	conn *sql.Conn
	stmt driver.Stmt
}

// Prepare compiles a statement for this transaction; the caller closes it before the
// transaction ends.
func (t *Tx) Prepare(query string) (*Prepared, error) {
	p := &Prepared{ctx: t.conn.ctx, conn: t.conn.conn}
	err := p.conn.Raw(func(c any) (err error) {
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
	err = p.conn.Raw(func(any) error {
		stmt, ok := p.stmt.(driver.StmtExecContext)
		if !ok {
			return errors.New("sqlite: the driver's statement cannot be run with a context")
		}
		result, err = stmt.ExecContext(p.ctx, args)
		return err
	})
	return result, err
}

// Close gives the statement back.
func (p *Prepared) Close() error {
	return p.conn.Raw(func(any) error { return p.stmt.Close() })
}
