package sqlite

import (
	"context"
	"database/sql"
)

// Querier is a pool of connections or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Prepared adapts a Tx with its cached prepared statements to Querier.
type Prepared struct{ Tx *Tx }

// QueryContext implements Querier. It ignores the context, because other callers may share the
// transaction.
func (p Prepared) QueryContext(_ context.Context, query string, args ...any) (*sql.Rows, error) {
	return p.Tx.Query(query, args...)
}

// Scanner reads the values of one row.
type Scanner func(into ...any) error

// Collect runs a query and returns the result of read for each row.
func Collect[T any](ctx context.Context, q Querier, read func(scan Scanner) (T, error), query string, args ...any) (out []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	for rows.Next() {
		v, err := read(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// Single reads a row with one column, for use with Collect.
func Single[T any](scan Scanner) (v T, err error) {
	err = scan(&v)
	return v, err
}
