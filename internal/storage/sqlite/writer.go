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
	maxBatch   = 512 // operations that may share a commit
	maxRetries = 10
)

// WriterOptions tune a Writer.
type WriterOptions struct {
	// Text, when set, is what every text argument passes: PostgreSQL refuses some that
	// SQLite stores as they are.
	SanitizeText func(string) string
	// Begin, when set, comes first in each transaction. Its error is that of all operations that
	// share it.
	Begin func(*Tx) error
	// Together, when set, sends statements to a server whose results do not matter (Run), in one round trip.
	Together func(ctx context.Context, driverConn any, statements []Statement) error
}

// Statement is one with its arguments.
type Statement struct {
	Query string
	Args  []any
}

// Writer commits the operations of many callers together. One goroutine owns one
// connection; it works with PostgreSQL as well as with SQLite.
type Writer struct {
	// ctx is the writer's own: the callers' contexts stay outside, because one that ends
	// inside a transaction rolls all of it back, neighbours included.
	ctx  context.Context
	db   *sql.DB
	o    WriterOptions
	done chan struct{}

	committed atomic.Pointer[func()] // called after each batch; nil: nobody wants to know

	mu     sync.Mutex
	wake   chan struct{} // capacity 1
	queue  []*operation
	closed bool
}

type operation struct {
	run       func(*Tx) error
	exclusive func() error // instead of do: it has its own transaction, on a connection of its own
	reads     bool         // an exclusive one writes nothing
	err       error
	failed    bool
	retries   int // how often its transaction was rolled back in favour of another process
	done      chan struct{}
}

// NewWriter starts the goroutine that owns one connection of db, until Close. Only the values of
// ctx are used, not its end.
func NewWriter(ctx context.Context, db *sql.DB, o WriterOptions) (*Writer, error) {
	if db == nil {
		return nil, errors.New("sqlite: a writer needs a database")
	}

	w := &Writer{ctx: context.WithoutCancel(ctx), db: db, o: o, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go w.run()
	return w, nil
}

// Do runs op in a transaction that it may share with other callers. It returns once the transaction
// is durable, or op's own error, in which case nothing of op was written. After an error of the
// commit the outcome is unknown.
//
// op may run more than once, because a failing neighbour rolls the transaction back. It must set
// its results and not accumulate them. If ctx ends before op begins, op does not run; after that,
// Do waits for it.
func (w *Writer) Do(ctx context.Context, op func(*Tx) error) error {
	return w.submit(ctx, &operation{run: op, done: make(chan struct{})})
}

// DoExclusive runs op in its turn, while the writer has no transaction open.
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

	// The lock also covers closed: nothing is queued behind the goroutine's last look.
	w.queue = append(w.queue, o)
	w.mu.Unlock()

	w.wakeUp()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}

	// Once picked up it shares its transaction, and to stop it would roll back its neighbours.
	if w.withdraw(o) {
		return context.Cause(ctx)
	}

	<-o.done
	return o.err
}

// withdraw removes an operation from the queue; false when it has been picked up.
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

// Close finishes what was accepted and ends the goroutine.
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

		// Before its callers go on: what they write next, elsewhere, follows from this.
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

	// An exclusive operation is a batch of its own; the ones before it go first.
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

// commit runs a batch until every operation has either failed by itself or is committed.
// It returns the connection to use next, nil when it broke.
func (w *Writer) commit(conn *connection, batch []*operation) *connection {
	for {
		// Ends, because each round commits, or leaves one operation fewer, or uses up one of its
		// retries.
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
			// The connection is unusable, or the outcome unknown: no operation can claim success.
			for _, o := range live {
				o.err = err
			}
			conn.close()
			return nil
		}

		return conn
	}
}

// begin starts a transaction, on a new connection when there is none or when the old one broke
// between two batches, so that a restart of the database server costs nobody a write.
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
	case len(conn.statements) > 0 && conn.conn.PingContext(w.ctx) != nil: // it has served, so it broke since; a new one has no statements yet
		conn.close()
		return w.begin(nil)
	}

	return conn, nil, beginError(err)
}

// connection is the writer's own connection with its prepared statements.
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
		_ = s.Close() // the connection is given up; there is nothing to save
	}
	_ = c.conn.Close()
}

// runBatch runs the operations in one transaction. again says that they have to run once more:
// without the one that failed and was marked, or all of them.
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
			// Everybody is rolled back; the caller of runBatch repeats the others.
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

// alreadyRolledBack reports whether SQLite has rolled the transaction back by itself, as it does
// when the disk is full.
func alreadyRolledBack(err error) bool {
	return strings.Contains(err.Error(), "no transaction is active")
}

// serializationFailure reports whether PostgreSQL rolled the transaction back in favour of another
// process (class 40: deadlock, serialization). The operation did nothing wrong and is repeated.
func serializationFailure(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && strings.HasPrefix(state.SQLState(), "40")
}

// recoverTx keeps a panic in one operation from ending the writer of all of them.
func recoverTx(op func(*Tx) error, t *Tx) error {
	return recoverPanic(func() error {
		err := op(t)
		if err == nil {
			err = t.flush()
		}
		t.waiting = nil // of an operation that failed
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

// Tx is the transaction that an operation runs in. It must not be kept. Statements are prepared
// once for the life of the connection, so their text must not vary.
type Tx struct {
	conn     *connection
	tx       *sql.Tx
	confined *confinement // nil in a transaction of the host
	failed   error        // of the first Run that failed
	waiting  []Statement  // of Run, until something else is asked or the operation ends

	Redaction *Redaction // nil: what is written holds no secrets that are known
	Replanned bool       // set by an operation of the ledger that changed when something is due
}

// Redaction removes secrets from what is written for people.
type Redaction struct {
	Text     func(string) string
	Document func(json.RawMessage) json.RawMessage // JSON, which stays JSON
}

// Redact returns a text without secrets.
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

// Context returns the context for statements of the transaction: ctx if the transaction is not
// shared, and otherwise one without an end, because an interrupted statement rolls back the
// neighbours too.
func (t *Tx) Context(ctx context.Context) context.Context {
	if t.confined != nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// prepare makes sure that the statement is in the cache, which closes it in the end.
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

// sanitized returns the arguments as the server accepts them. Only plain strings are looked at:
// callers convert named string types whose value may come from outside.
func (c *connection) sanitized(args []any) []any {
	if c.o.SanitizeText == nil {
		return args
	}

	// The caller may use its slice again, for the retry of its operation.
	out := slices.Clone(args)
	for i, arg := range out {
		if text, ok := arg.(string); ok {
			out[i] = c.o.SanitizeText(text)
		}
	}
	return out
}

// Run runs a statement whose result does not matter. If it fails, the whole operation fails with its error, and no
// later statement runs. So a sequence of writes needs no check after each of them.
func (t *Tx) Run(query string, args ...any) {
	if t.conn.o.Together != nil {
		t.waiting = append(t.waiting, Statement{query, t.conn.sanitized(args)})
		return
	}
	if _, err := t.Exec(query, args...); err != nil && t.failed == nil {
		t.failed = err
	}
}

// flush sends what Run has left waiting.
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

// Exec runs a statement.
func (t *Tx) Exec(query string, args ...any) (sql.Result, error) {
	if err := t.prepare(query); err != nil {
		return nil, err
	}
	return t.conn.statements[query].ExecContext(t.conn.ctx, t.conn.sanitized(args)...)
}

// Query runs a statement that gives rows; the caller closes them before it goes on.
func (t *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	if err := t.prepare(query); err != nil {
		return nil, err
	}
	return t.conn.statements[query].QueryContext(t.conn.ctx, t.conn.sanitized(args)...)
}

// QueryRow runs a statement that gives at most one row.
func (t *Tx) QueryRow(query string, args ...any) Row {
	if err := t.prepare(query); err != nil {
		return Row{err: err}
	}
	return Row{row: t.conn.statements[query].QueryRowContext(t.conn.ctx, t.conn.sanitized(args)...)}
}

// SQL is the transaction itself, for statements whose text varies (they are not cached).
func (t *Tx) SQL() *sql.Tx { return t.tx }

// Raw lends the connection of the transaction as its driver knows it.
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

// Scan reads the row; sql.ErrNoRows when there is none.
func (r Row) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.row.Scan(into...)
}
