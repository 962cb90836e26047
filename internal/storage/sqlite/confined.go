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

// Confinement is what surrounds a write in which SQL of a model runs.
type Confinement struct {
	// Allow decides each action of a statement while it is compiled, both of the model's
	// own text and of code inside the schema: then inside names the trigger or the view.
	Allow func(action Action, arg1, arg2, database, inside string) bool
	// Ignore, when set, names tables whose rows nobody wants recorded.
	Ignore func(table string) bool
	// MaxLength bounds a string or row, in bytes; 0 means 16 MiB.
	MaxLength int
	// Timeout bounds the work, not the waiting for its turn; 0 means no bound.
	Timeout time.Duration
	// MaxPages bounds the file, in pages; 0 leaves it as it is.
	MaxPages int64
}

// ErrTimeout ends an operation that took longer than its Confinement allows.
var ErrTimeout = errors.New("the write took too long")

// ErrTooManyChanges ends an operation whose record of changed rows outgrew memory.
var ErrTooManyChanges = errors.New("more rows are changed at once than can be recorded")

const maxRecorded = 64 << 20 // bytes of row images that an operation may hold

// confined is the second connection that writes to a file, on a driver instance of its own. It
// works while the writer's own connection has no transaction.
type confined struct {
	path  string
	db    *sql.DB
	conn  *connection // nil when the last one broke
	state *confinement
}

// confinement is the state that the callbacks of the connection read. They run inside SQLite's
// calls, on the writer's goroutine, so that no lock is needed.
type confinement struct {
	Confinement
	enforced bool
	record   *changeRecord // nil: nobody wants to know
}

type changeRecord struct {
	changes []RowChange
	bytes   int
	err     error
	stop    context.CancelCauseFunc
}

// DoConfined runs op in its turn, in a transaction of its own, with an authorizer, limits and a
// record of every changed row. The end of ctx interrupts op, and an error rolls back this operation
// alone.
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

	// Statements end with ctx. The transaction must not: database/sql would roll it back from
	// another goroutine while op is still running.
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
	// What follows are statements of the host.
	c.state.enforced, c.state.record = false, nil
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(cause, err)
		}

		// An interrupted statement has rolled the transaction back already. What cannot be rolled
		// back leaves a connection in an unknown state.
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

// discard closes the connection; the next operation opens a new one.
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
		// The most that SQLite can have.
		pages = 1<<32 - 2
	}

	// The pragma returns the limit that is in force.
	var now int64
	return c.conn.conn.QueryRowContext(ctx, fmt.Sprintf("pragma max_page_count=%d", pages)).Scan(&now)
}

// Confined says whether SQL of a model may run here.
func (t *Tx) Confined() bool { return t.confined != nil }

// WithAuthorizer runs fn with the authorizer in force: the statements that it compiles are a
// model's.
func (t *Tx) WithAuthorizer(fn func() error) error {
	if t.confined == nil {
		return errors.New("sqlite: only a confined transaction can be armed")
	}
	t.confined.enforced = true
	defer func() { t.confined.enforced = false }()
	return fn()
}

// ChangeCount is the number of row changes recorded so far.
func (t *Tx) ChangeCount() int {
	if t.confined == nil || t.confined.record == nil {
		return 0
	}
	return len(t.confined.record.changes)
}

// DiscardChanges drops what was recorded after the first mark changes: a statement that failed
// changed nothing in the end, though the hook was called for its first rows.
func (t *Tx) DiscardChanges(mark int) {
	if t.confined != nil && t.confined.record != nil && mark < len(t.confined.record.changes) {
		t.confined.record.changes = t.confined.record.changes[:mark]
	}
}

// RecordChanges runs fn and returns every row that it changed, in order. It cancels fn's context
// with ErrTooManyChanges when they are too many to hold in memory.
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

// size returns about how many bytes of memory a change needs.
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

// install puts authorizer and hook on a new connection. Statements of the host pass the authorizer,
// but not what a trigger or a view does on their behalf.
func (s *confinement) install(_ context.Context, conn driver.Conn) error {
	hooks, ok := conn.(msqlite.HookRegisterer)
	if !ok {
		return errors.New("sqlite: the driver has no hooks")
	}
	hooks.RegisterPreUpdateHook(s.recordChange)
	return authorize(conn, func(action Action, a1, a2, database, inside string) bool {
		// inside names the trigger or view whose code asks: that is never the host's own statement.
		return !s.enforced && inside == "" || s.Allow(action, a1, a2, database, inside)
	})
}

// MaxLength is how long a string or a row can be for SQL of a model, in bytes, unless it is said
// otherwise: a longer one cannot be read.
const MaxLength = 16 << 20

// setLimits bounds what one statement can be and make. They belong to the connection;
// setting them again costs less than remembering.
func setLimits(conn *sql.Conn, length int) error {
	for id, value := range map[int]int{
		sqlite3.SQLITE_LIMIT_ATTACHED: 0,
		// A pattern of one LIKE is compared at every place, and nothing interrupts that.
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
