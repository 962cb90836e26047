package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrClosed is returned by Do after Close.
var ErrClosed = errors.New("the database is closed")

const (
	maxBatch   = 512 // maximum number of operations in one transaction
	maxRetries = 10
)

// WriterOptions configures a Writer.
type WriterOptions struct {
	// SanitizeText is applied to every text argument. It is needed for PostgreSQL, which refuses
	// some texts that SQLite accepts. Optional.
	SanitizeText func(string) string
	// Begin runs first in each transaction. Its error fails all operations of the transaction.
	// Optional.
	Begin func(*Tx) error
	// Together sends the statements of Tx.Run to a server in one round trip. Optional.
	Together func(ctx context.Context, driverConn any, statements []Statement) error
}

// Statement is an SQL statement with its arguments.
type Statement struct {
	Query string
	Args  []any
}

// Writer groups the operations of many callers into shared transactions. One goroutine owns one
// connection. Writer supports SQLite and PostgreSQL.
type Writer struct {
	// ctx is the writer's own context. The callers' contexts are not used: if one ends during a
	// transaction, it rolls back the operations of all callers.
	ctx  context.Context
	db   *sql.DB
	o    WriterOptions
	done chan struct{}

	committed atomic.Pointer[func()] // called after each batch; optional

	mu     sync.Mutex
	wake   chan struct{} // capacity 1
	queue  []*operation
	closed bool
}

type operation struct {
	run func(*Tx) error
	// exclusive replaces run. It uses its own transaction on its own connection.
	exclusive func() error
	reads     bool // exclusive does not write
	err       error
	failed    bool
	retries   int // serialization failures so far
	done      chan struct{}
}

// NewWriter starts a Writer on one connection of db. It uses the values of ctx, but not its
// cancellation. The caller must close the Writer.
func NewWriter(ctx context.Context, db *sql.DB, o WriterOptions) (*Writer, error) {
	if db == nil {
		return nil, errors.New("sqlite: a writer needs a database")
	}

	w := &Writer{ctx: context.WithoutCancel(ctx), db: db, o: o, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go w.run()
	return w, nil
}

// Do runs op in a transaction that it may share with other callers. It returns nil once the
// transaction is durable. If op returns an error, Do returns it, and no change of op is written. If
// the commit fails, the outcome is unknown.
//
// op may run more than once, because a failure of another operation rolls the transaction back. It
// must set its results instead of accumulating them. If ctx ends before op begins, op does not run.
// After that, Do waits for op.
func (w *Writer) Do(ctx context.Context, op func(*Tx) error) error {
	return w.submit(ctx, &operation{run: op, done: make(chan struct{})})
}

// DoExclusive runs op when its turn comes, while the writer has no open transaction.
func (w *Writer) DoExclusive(ctx context.Context, op func() error) error {
	return w.submit(ctx, &operation{exclusive: op, done: make(chan struct{})})
}

// submit queues an operation and waits for it.
func (w *Writer) submit(ctx context.Context, o *operation) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}

	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}

	// The lock also covers closed, so that no operation is queued after the goroutine's last look.
	w.queue = append(w.queue, o)
	w.mu.Unlock()

	w.wakeUp()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}

	// After it has been picked up, stopping the operation would roll back the others in its
	// transaction.
	if w.withdraw(o) {
		return context.Cause(ctx)
	}

	<-o.done
	return o.err
}

// withdraw removes an operation from the queue. It returns false if the operation was already
// picked up.
func (w *Writer) withdraw(o *operation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	n := len(w.queue)
	w.queue = slices.DeleteFunc(w.queue, func(other *operation) bool { return other == o })
	return len(w.queue) < n
}

func (w *Writer) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close waits for accepted operations and stops the goroutine.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()

	w.wakeUp()
	<-w.done
	return nil
}

func (w *Writer) run() {
	defer close(w.done)
	var conn *connection
	defer func() { conn.close() }()

	for {
		batch, closed := w.nextBatch()
		if len(batch) == 0 {
			if closed {
				return
			}
			<-w.wake
			continue
		}

		if o := batch[0]; o.exclusive != nil {
			o.err = recoverPanic(o.exclusive)
		} else {
			conn = w.commit(conn, batch)
		}

		// Notify the observer before the callers continue, because their next writes may depend on
		// this one.
		if told := w.committed.Load(); told != nil && !batch[0].reads {
			(*told)()
		}
		for _, o := range batch {
			close(o.done)
		}
	}
}

func (w *Writer) nextBatch() ([]*operation, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	// An exclusive operation is its own batch. The operations queued before it run first.
	n := min(len(w.queue), maxBatch)
	if i := slices.IndexFunc(w.queue[:n], func(o *operation) bool { return o.exclusive != nil }); i >= 0 {
		n = max(i, 1)
	}

	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	if len(w.queue) == 0 {
		w.queue = nil
	}

	return batch, w.closed
}

// commit runs a batch until every operation has failed or is committed. It returns the connection
// to use next, or nil if the connection broke.
func (w *Writer) commit(conn *connection, batch []*operation) *connection {
	for {
		// The loop ends: each round commits, removes one operation or uses up one of its retries.
		live := slices.DeleteFunc(slices.Clone(batch), func(o *operation) bool { return o.failed })
		if len(live) == 0 {
			return conn
		}

		var tx *sql.Tx
		var again bool
		var err error
		conn, tx, err = w.begin(conn)
		if err == nil {
			again, err = conn.runBatch(tx, w.o.Begin, live)
		}
		if again {
			continue
		}

		if err != nil {
			// The connection is unusable or the outcome is unknown, so all remaining operations
			// fail.
			for _, o := range live {
				o.err = err
			}
			conn.close()
			return nil
		}

		return conn
	}
}

// begin starts a transaction. It opens a new connection if there is none or if the old one broke
// between two batches. So a restart of the database server does not fail a write.
func (w *Writer) begin(conn *connection) (*connection, *sql.Tx, error) {
	var err error
	if conn == nil {
		if conn, err = open(w.ctx, w.db, w.o); err != nil {
			return nil, nil, err
		}
	}

	tx, err := conn.conn.BeginTx(w.ctx, nil)
	switch {
	case err == nil:
		return conn, tx, nil
	// The connection has been used before, so it broke since. A new connection has no statements.
	case len(conn.statements) > 0 && conn.conn.PingContext(w.ctx) != nil:
		conn.close()
		return w.begin(nil)
	}

	return conn, nil, beginError(err)
}

// connection is the writer's connection with its prepared statements.
type connection struct {
	ctx        context.Context
	conn       *sql.Conn
	o          WriterOptions
	statements map[string]*sql.Stmt
}

func open(ctx context.Context, db *sql.DB, o WriterOptions) (*connection, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the database: %w", err)
	}
	return &connection{ctx: ctx, conn: conn, o: o, statements: map[string]*sql.Stmt{}}, nil
}

func (c *connection) close() {
	if c == nil {
		return
	}

	for _, s := range c.statements {
		_ = s.Close() // the connection is discarded
	}
	_ = c.conn.Close()
}

// runBatch runs the operations in one transaction. again reports whether the batch must run again,
// without the operations marked as failed.
func (c *connection) runBatch(tx *sql.Tx, first func(*Tx) error, batch []*operation) (again bool, err error) {
	t := &Tx{conn: c, tx: tx}
	if first != nil {
		if err := recoverTx(first, t); err != nil {
			return false, errors.Join(err, tx.Rollback())
		}
	}

	for _, o := range batch {
		if err := recoverTx(o.run, t); err != nil {
			if o.retries++; o.retries > maxRetries || !serializationFailure(err) {
				o.err, o.failed = err, true
			}
			// The rollback affects all operations. The caller of runBatch repeats the others.
			if e := tx.Rollback(); e != nil && !alreadyRolledBack(e) {
				return false, fmt.Errorf("cannot roll back a failed write: %w", errors.Join(e, err))
			}
			return true, nil
		}
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("cannot commit, and whether it was written is unknown: %w", err)
	}

	return false, nil
}

// alreadyRolledBack reports whether SQLite has rolled back the transaction itself, as it does if
// the disk is full.
func alreadyRolledBack(err error) bool {
	return strings.Contains(err.Error(), "no transaction is active")
}

// serializationFailure reports whether PostgreSQL rolled back the transaction because of a deadlock
// or a serialization conflict (class 40). The operation can be repeated.
func serializationFailure(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && strings.HasPrefix(state.SQLState(), "40")
}

// recoverTx runs op and flushes its statements. It returns a panic as an error, so that one
// operation cannot stop the writer.
func recoverTx(op func(*Tx) error, t *Tx) error {
	return recoverPanic(func() error {
		err := op(t)
		if err == nil {
			err = t.flush()
		}
		t.waiting = nil // drop the statements of a failed operation
		if t.failed != nil {
			return t.failed
		}
		return err
	})
}

func recoverPanic(op func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a write failed by a defect of rouse: %v", p)
		}
	}()
	return op()
}

// Tx is the transaction of an operation. It must not be used after the operation returns.
// Statements are prepared once for the life of the connection, so their text must not vary.
type Tx struct {
	conn     *connection
	tx       *sql.Tx
	confined *confinement // nil outside DoConfined
	failed   error        // error of the first failed Run
	waiting  []Statement  // statements of Run that were not sent yet

	Redaction *Redaction // nil if no secrets are known
	Replanned bool       // set by a ledger operation that changes when a run is due
}

// Redaction removes secrets from text that people read.
type Redaction struct {
	Text     func(string) string
	Document func(json.RawMessage) json.RawMessage // the result is valid JSON, too
}

// Redact returns text without secrets.
func (t *Tx) Redact(text string) string {
	if t.Redaction == nil {
		return text
	}
	return t.Redaction.Text(text)
}

// RedactJSON returns a JSON document without secrets.
func (t *Tx) RedactJSON(document string) string {
	if t.Redaction == nil {
		return document
	}
	return string(t.Redaction.Document(json.RawMessage(document)))
}

// Context returns the context for statements of the transaction. If the transaction may be shared,
// the context is never canceled, because an interrupted statement rolls back the other operations
// too.
func (t *Tx) Context(ctx context.Context) context.Context {
	if t.confined != nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// prepare adds the statement to the cache, which closes it later.
func (t *Tx) prepare(query string) error {
	if t.failed != nil {
		return t.failed
	}
	if err := t.flush(); err != nil {
		return err
	}
	if _, ok := t.conn.statements[query]; ok {
		return nil
	}

	s, err := t.conn.conn.PrepareContext(t.conn.ctx, query)
	if err != nil {
		return fmt.Errorf("%w in: %s", err, query)
	}

	t.conn.statements[query] = s
	return nil
}

// sanitized returns the arguments in a form that the server accepts. It changes only plain strings;
// callers must convert named string types with external values.
func (c *connection) sanitized(args []any) []any {
	if c.o.SanitizeText == nil {
		return args
	}

	// Copy the arguments, because a retry of the operation uses the caller's slice again.
	out := slices.Clone(args)
	for i, arg := range out {
		if text, ok := arg.(string); ok {
			out[i] = c.o.SanitizeText(text)
		}
	}
	return out
}

// Run runs a statement and ignores its result. If the statement fails, the whole operation fails
// with its error, and later statements do not run. A sequence of writes therefore needs no error
// check after each of them.
func (t *Tx) Run(query string, args ...any) {
	if t.conn.o.Together != nil {
		t.waiting = append(t.waiting, Statement{query, t.conn.sanitized(args)})
		return
	}
	if _, err := t.Exec(query, args...); err != nil && t.failed == nil {
		t.failed = err
	}
}

// flush sends the pending statements of Run.
func (t *Tx) flush() error {
	if len(t.waiting) == 0 {
		return nil
	}
	waiting := t.waiting
	t.waiting = nil
	err := t.conn.conn.Raw(func(conn any) error { return t.conn.o.Together(t.conn.ctx, conn, waiting) })
	if t.failed == nil {
		t.failed = err
	}
	return err
}

// Exec runs a statement and returns its result.
func (t *Tx) Exec(query string, args ...any) (sql.Result, error) {
	if err := t.prepare(query); err != nil {
		return nil, err
	}
	return t.conn.statements[query].ExecContext(t.conn.ctx, t.conn.sanitized(args)...)
}

// Query runs a query and returns its rows. The caller must close them before the next statement.
func (t *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	if err := t.prepare(query); err != nil {
		return nil, err
	}
	return t.conn.statements[query].QueryContext(t.conn.ctx, t.conn.sanitized(args)...)
}

// QueryRow runs a query that returns at most one row.
func (t *Tx) QueryRow(query string, args ...any) Row {
	if err := t.prepare(query); err != nil {
		return Row{err: err}
	}
	return Row{row: t.conn.statements[query].QueryRowContext(t.conn.ctx, t.conn.sanitized(args)...)}
}

// SQL returns the underlying transaction, for SQL that varies. Its statements are not cached.
func (t *Tx) SQL() *sql.Tx { return t.tx }

// Raw calls use with the driver connection of the transaction.
func (t *Tx) Raw(use func(ctx context.Context, driverConn any) error) error {
	if err := t.flush(); err != nil {
		return err
	}
	return t.conn.conn.Raw(func(conn any) error { return use(t.conn.ctx, conn) })
}

// Row is the result of QueryRow.
type Row struct {
	row *sql.Row
	err error
}

// Scan copies the row into the variables. It returns sql.ErrNoRows if there is no row.
func (r Row) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.row.Scan(into...)
}
