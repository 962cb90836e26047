package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// reader reads from the ledger's database outside of transactions. It prepares each query once,
// because preparing takes several times as long as running.
type reader struct {
	db    *sql.DB
	after func(error) error // maps the error of a read to the caller's error; optional

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

func newReader(db *sql.DB, after func(error) error) *reader {
	return &reader{db: db, after: after, prepared: map[string]*sql.Stmt{}}
}

func (r *reader) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if s := r.prepared[text]; s != nil {
		return s, nil
	}
	s, err := r.db.PrepareContext(ctx, text) //nolint:sqlclosecheck // close closes it
	if err == nil {
		r.prepared[text] = s
	}
	return s, err
}

func (r *reader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	var errs []error
	for _, s := range r.prepared {
		errs = append(errs, s.Close())
	}
	clear(r.prepared)
	return errors.Join(errs...)
}

// BeginRead begins a read-only transaction with a consistent view of the ledger.
func BeginRead(ctx context.Context, l *DB) (*sql.Tx, error) {
	var options sql.TxOptions
	if l.Path == "" { // SQLite transactions always have a consistent view
		options = sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	}
	return l.read.db.BeginTx(ctx, &options)
}

// Querier is a source of rows: a Reader or a transaction.
type Querier interface {
	Query(text string, args ...any) (*sql.Rows, error)
}

// Reader is a Querier outside of transactions.
type Reader struct {
	*reader
	ctx context.Context
}

// Reads returns the Reader of a ledger.
func Reads(ctx context.Context, l *DB) Reader { return Reader{l.read, ctx} }

// Query implements Querier.
func (r Reader) Query(text string, args ...any) (*sql.Rows, error) {
	s, err := r.statement(r.ctx, text) //nolint:sqlclosecheck // it is cached
	if err != nil {
		return nil, err
	}
	return s.QueryContext(r.ctx, args...)
}

// List returns the rows of a query. fields returns the destinations of its columns.
func List[T any](from Querier, fields func(*T) []any, text string, args ...any) ([]T, error) {
	all, err := scanAll(from, fields, text, args...)
	if r, ok := from.(Reader); ok && err != nil && r.after != nil {
		err = r.after(err)
	}
	return all, err
}

func scanAll[T any](from Querier, fields func(*T) []any, text string, args ...any) (all []T, err error) {
	rows, err := from.Query(text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	var row T
	into := fields(&row)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// One returns the first row of a query, or sql.ErrNoRows.
func One[T any](from Querier, fields func(*T) []any, text string, args ...any) (row T, err error) {
	all, err := List(from, fields, text, args...)
	if err == nil && len(all) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return row, err
	}
	return all[0], nil
}

// Values returns the only column of a query.
func Values[T any](from Querier, text string, args ...any) ([]T, error) {
	return List(from, column[T], text, args...)
}

// Value returns the only column of the first row of a query, or sql.ErrNoRows.
func Value[T any](from Querier, text string, args ...any) (T, error) {
	return One(from, column[T], text, args...)
}

func column[T any](v *T) []any { return []any{v} }

// Scan reads the only row of a query, or returns sql.ErrNoRows.
func Scan(from Querier, into []any, text string, args ...any) error {
	_, err := One(from, func(*struct{}) []any { return into }, text, args...)
	return err
}

// Pairs returns the two columns of a query as a map.
func Pairs[K comparable, V any](from Querier, text string, args ...any) (map[K]V, error) {
	type pair struct {
		key   K
		value V
	}
	all, err := List(from, func(p *pair) []any { return []any{&p.key, &p.value} }, text, args...)
	out := make(map[K]V, len(all))
	for _, p := range all {
		out[p.key] = p.value
	}
	return out, err
}

// EachRow calls use with each row of a query and closes rows. use must not keep the slice.
func EachRow(rows *sql.Rows, err error, use func(columns []string, row []any) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()

	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	row, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := use(columns, row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ErrNotFound is returned for a row that does not exist.
var ErrNotFound = errors.New("not in the ledger")

// TimeOf returns the first row of a query with a single time column, like Value.
func TimeOf(from Querier, text string, args ...any) (time.Time, error) {
	at, err := Value[int64](from, text, args...)
	return Instant(at), err
}

// OrNotFound replaces sql.ErrNoRows with ErrNotFound. The message begins with the formatted name,
// as in "run 7 is not in the ledger".
func OrNotFound[T any](v T, err error, format string, args ...any) (T, error) {
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf(format+" is %w", append(args, ErrNotFound)...)
	}
	return v, err
}

// OrZero replaces sql.ErrNoRows with the zero value.
func OrZero[T any](v T, err error) (T, error) {
	v, _, err = OrFalse(v, err)
	return v, err
}

// OrFalse replaces sql.ErrNoRows with ok = false.
func OrFalse[T any](v T, err error) (_ T, ok bool, _ error) {
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	} else {
		ok = err == nil
	}
	return v, ok, err
}

// Changed runs a statement and reports whether it changed a row.
func Changed(tx *Tx, text string, args ...any) (bool, error) {
	done, err := tx.Exec(text, args...)
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// Time returns the scan destination of a time column.
func Time(t *time.Time) sql.Scanner { return (*timeColumn)(t) }

type timeColumn time.Time

// Scan implements sql.Scanner.
func (t *timeColumn) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%v is not a time in milliseconds", v)
	}
	*t = timeColumn(Instant(n))
	return nil
}

// Raw returns the scan destination of a JSON column that is not decoded.
func Raw(text *json.RawMessage) *[]byte { return (*[]byte)(text) }

// Decoded returns the scan destination of a JSON column that is decoded into into.
func Decoded[T any](into *T) sql.Scanner { return jsonColumn[T]{into} }

type jsonColumn[T any] struct{ into *T }

// Scan implements sql.Scanner.
func (c jsonColumn[T]) Scan(v any) error {
	var text sql.RawBytes
	switch v := v.(type) {
	case string:
		text = sql.RawBytes(v)
	case []byte:
		text = v
	}

	var out T // a new value, because earlier rows may share memory with the last one
	if err := json.Unmarshal(text, &out); err != nil {
		return fmt.Errorf("the ledger is damaged: %w", err)
	}
	*c.into = out
	return nil
}
