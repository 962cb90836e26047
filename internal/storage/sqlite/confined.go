package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Confinement limits a write transaction that runs SQL written by a model.
type Confinement struct {
	// Allow decides each action of a statement while it is compiled. This includes the model's own
	// statements and code in the schema; for the latter, inside names the trigger or view.
	Allow func(action Action, arg1, arg2, database, inside string) bool
	// Ignore reports whether changed rows of a table are not recorded. Optional.
	Ignore func(table string) bool
	// MaxLength is the maximum size of a string or row, in bytes. Zero means 16 MiB.
	MaxLength int
	// Timeout limits the operation, not the time it waits in the queue. Zero means no limit.
	Timeout time.Duration
	// MaxPages is the maximum size of the file, in pages. Zero means no limit.
	MaxPages int64
}

// ErrTimeout is the cause of cancellation if an operation exceeds Confinement.Timeout.
var ErrTimeout = errors.New("the write took too long")

// ErrTooManyChanges is returned if the changed rows of an operation exceed the memory for recording
// them.
var ErrTooManyChanges = errors.New("more rows are changed at once than can be recorded")

const maxRecorded = 64 << 20 // maximum total size of the recorded rows of an operation, in bytes

// confined is a second write connection to a file, with its own driver instance. It is used only
// while the writer's own connection has no transaction.
type confined struct {
	path  string
	db    *sql.DB
	conn  *connection // nil before the first use and after an error
	state *confinement
}

// confinement is the state that the callbacks of the connection read. SQLite calls them on the
// writer's goroutine, so they need no lock.
type confinement struct {
	Confinement
	enforced bool
	record   *changeRecord // nil if changes are not recorded
}

type changeRecord struct {
	changes []RowChange
	bytes   int
	err     error
	stop    context.CancelCauseFunc
}

// DoConfined runs op in its own transaction when its turn comes, with an authorizer, limits and a
// record of changed rows. Canceling ctx interrupts op. An error rolls back only this operation.
func (db *DB) DoConfined(ctx context.Context, c Confinement, op func(context.Context, *Tx) error) error {
	if err := db.beforeWrite(); err != nil {
		return err
	}
	return db.writer.DoExclusive(ctx, func() (err error) {
		if db.confined == nil {
			if db.confined, err = newConfined(db.path); err != nil {
				return err
			}
		}
		return db.confined.do(ctx, c, op)
	})
}

func newConfined(path string) (*confined, error) {
	model, err := modelDriver()
	if err != nil {
		return nil, err
	}

	c := &confined{path: path, state: &confinement{}}
	source := dsn(path, existing, "_txlock=immediate", "_pragma=cell_size_check(1)", "_defensive=1", strictQuotes)
	c.db = openPool(connector{driver: model, dsn: source, prepare: c.state.install}, 1)
	return c, nil
}

func (c *confined) close() error {
	if c == nil {
		return nil
	}
	c.conn.close()
	return c.db.Close()
}

func (c *confined) do(ctx context.Context, how Confinement, op func(context.Context, *Tx) error) error {
	detached := context.WithoutCancel(ctx)
	c.state.Confinement = how
	if c.conn == nil {
		conn, err := open(detached, c.db, WriterOptions{})
		if err != nil {
			return err
		}
		c.conn = conn
	}

	if how.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, how.Timeout, ErrTimeout)
		defer cancel()
	}

	// Statements use ctx, but the transaction must not: if ctx were canceled, database/sql would
	// roll it back from another goroutine while op is still running.
	c.conn.ctx = ctx
	if err := c.applyLimits(detached); err != nil {
		return c.discard(err)
	}

	tx, err := c.conn.conn.BeginTx(detached, nil)
	switch {
	case Code(err) == sqlite3.SQLITE_BUSY:
		return beginError(err)
	case err != nil:
		return c.discard(beginError(err))
	}

	err = recoverTx(func(t *Tx) error { return op(ctx, t) }, &Tx{conn: c.conn, tx: tx, confined: c.state})
	// The statements from here on are rouse's own.
	c.state.enforced, c.state.record = false, nil
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}

		// An interrupted statement has already rolled back the transaction. If the rollback fails,
		// the state of the connection is unknown.
		if e := tx.Rollback(); e != nil {
			return c.discard(err)
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback() // a deferred constraint that fails leaves the transaction open
		return c.discard(err)
	}

	return nil
}

// discard closes the connection and returns err. The next operation opens a new connection.
func (c *confined) discard(err error) error {
	c.conn.close()
	c.conn = nil
	return err
}

func (c *confined) applyLimits(ctx context.Context) error {
	length := c.state.MaxLength
	if length == 0 {
		length = MaxLength
	}
	if err := setLimits(c.conn.conn, length); err != nil {
		return err
	}

	pages := c.state.MaxPages
	if pages <= 0 {
		// The maximum that SQLite supports.
		pages = 1<<32 - 2
	}

	// The pragma returns the resulting limit.
	var now int64
	return c.conn.conn.QueryRowContext(ctx, fmt.Sprintf("pragma max_page_count=%d", pages)).Scan(&now)
}

// Confined reports whether the transaction may run SQL written by a model.
func (t *Tx) Confined() bool { return t.confined != nil }

// WithAuthorizer runs fn while the authorizer is in force, so that it checks the statements that fn
// compiles.
func (t *Tx) WithAuthorizer(fn func() error) error {
	if t.confined == nil {
		return errors.New("sqlite: only a confined transaction can be armed")
	}
	t.confined.enforced = true
	defer func() { t.confined.enforced = false }()
	return fn()
}

// ChangeCount returns the number of row changes recorded so far.
func (t *Tx) ChangeCount() int {
	if t.confined == nil || t.confined.record == nil {
		return 0
	}
	return len(t.confined.record.changes)
}

// DiscardChanges keeps the first mark recorded changes and drops the rest. It is needed after a
// failed statement, because its changes were recorded before they were undone.
func (t *Tx) DiscardChanges(mark int) {
	if t.confined != nil && t.confined.record != nil && mark < len(t.confined.record.changes) {
		t.confined.record.changes = t.confined.record.changes[:mark]
	}
}

// RecordChanges runs fn and returns every row that it changed, in order. It cancels fn's context
// with ErrTooManyChanges if the changes do not fit into memory.
func (t *Tx) RecordChanges(ctx context.Context, fn func(context.Context) error) ([]RowChange, error) {
	if t.confined == nil {
		return nil, errors.New("sqlite: only a confined transaction records rows")
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	r := &changeRecord{stop: stop}
	t.confined.record = r
	defer func() { t.confined.record = nil }()

	err := fn(ctx)
	if r.err != nil {
		return nil, r.err
	}

	return r.changes, err
}

func (s *confinement) recordChange(d msqlite.SQLitePreUpdateData) {
	r := s.record
	if r == nil || r.err != nil || s.Ignore != nil && s.Ignore(d.TableName) {
		return
	}

	change, err := rowChange(&d)
	if err == nil {
		r.changes = append(r.changes, change)
		if r.bytes += change.size(); r.bytes > maxRecorded {
			err = ErrTooManyChanges
		}
	}

	if err != nil {
		r.err, r.changes = err, nil
		r.stop(err)
	}
}

// size returns the approximate memory size of a change, in bytes.
func (c RowChange) size() int {
	n := 200
	for _, v := range slices.Concat(c.Old, c.New) {
		n += 16
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
	}
	return n
}

// install adds the authorizer and the hook to a new connection. The authorizer allows rouse's own
// statements, but checks the triggers and views that they run.
func (s *confinement) install(_ context.Context, conn driver.Conn) error {
	hooks, ok := conn.(msqlite.HookRegisterer)
	if !ok {
		return errors.New("sqlite: the driver has no hooks")
	}
	hooks.RegisterPreUpdateHook(s.recordChange)
	return authorize(conn, func(action Action, a1, a2, database, inside string) bool {
		// If inside is set, the code of a trigger or view is being compiled, not rouse's own
		// statement.
		return !s.enforced && inside == "" || s.Allow(action, a1, a2, database, inside)
	})
}

// MaxLength is the default limit for strings and rows in SQL written by a model, in bytes. Longer
// values cannot be read.
const MaxLength = 16 << 20

// setLimits sets the limits of a connection. Setting them again is cheaper than tracking which
// connections have them.
func setLimits(conn *sql.Conn, length int) error {
	for id, value := range map[int]int{
		sqlite3.SQLITE_LIMIT_ATTACHED: 0,
		// LIKE compares the pattern at every position and cannot be interrupted.
		sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
		sqlite3.SQLITE_LIMIT_LENGTH:              length,
		sqlite3.SQLITE_LIMIT_SQL_LENGTH:          1 << 18,
		sqlite3.SQLITE_LIMIT_EXPR_DEPTH:          200,
		sqlite3.SQLITE_LIMIT_COMPOUND_SELECT:     50,
		sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH:       50,
		sqlite3.SQLITE_LIMIT_WORKER_THREADS:      0,
	} {
		if _, err := msqlite.Limit(conn, id, value); err != nil {
			return fmt.Errorf("setting an SQLite limit: %w", err)
		}
	}
	return nil
}
