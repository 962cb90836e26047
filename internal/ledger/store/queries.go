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

// reader reads from the ledger's database outside of transactions. It prepares each query once, because preparing one takes
// several times as long as running it.
type reader struct {
	db    *sql.DB
	after func(error) error // maps the error of a read to that of its caller; nil: they are the same

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

// BeginRead begins a transaction that reads one instant of the ledger.
func BeginRead(ctx context.Context, l *DB) (*sql.Tx, error) {
	var options sql.TxOptions
	if l.Path == "" { // a transaction of SQLite reads one instant anyway
		options = sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	}
	return l.read.db.BeginTx(ctx, &options)
}

// Querier is where rows are read from: reads, or a transaction.
type Querier interface {
	Query(text string, args ...any) (*sql.Rows, error)
}

// Reader is a querier outside of transactions.
type Reader struct {
	*reader
	ctx context.Context
}

// Reads returns the querier of a ledger outside of transactions.
func Reads(ctx context.Context, l *DB) Reader { return Reader{l.read, ctx} }

// Query implements querier.
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

// EachRow calls use with each row of a query, whatever its columns are. use must not keep the slice.
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

// TimeOf is value for a column with a time.
func TimeOf(from Querier, text string, args ...any) (time.Time, error) {
	at, err := Value[int64](from, text, args...)
	return Instant(at), err
}

// OrNotFound makes ErrNotFound of sql.ErrNoRows: "run 7 is not in the ledger".
func OrNotFound[T any](v T, err error, format string, args ...any) (T, error) {
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf(format+" is %w", append(args, ErrNotFound)...)
	}
	return v, err
}

// OrZero makes the zero value of sql.ErrNoRows.
func OrZero[T any](v T, err error) (T, error) {
	v, _, err = OrFalse(v, err)
	return v, err
}

// OrFalse makes false of sql.ErrNoRows.
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

// Time is the destination of a column with a time.
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

// Raw is the destination of a column with JSON that is returned as it is.
func Raw(text *json.RawMessage) *[]byte { return (*[]byte)(text) }

// Decoded is the destination of a column with JSON.
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

	var out T // a new one: the rows before may share memory with the last
	if err := json.Unmarshal(text, &out); err != nil {
		return fmt.Errorf("the ledger is damaged: %w", err)
	}
	*c.into = out
	return nil
}
