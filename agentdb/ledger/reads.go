package ledger

import (
	"context"
	"database/sql"
)

// reader is the database that reads go to.
type reader struct {
	*sql.DB
	after func(error) error // is given how each read ended, and returns what its caller is told; nil: the same
}

// ended is what the caller of a read that ended with err is told.
func (r reader) ended(err error) error {
	if err == nil || r.after == nil {
		return err
	}
	return r.after(err)
}

// QueryContext reads rows.
func (r reader) QueryContext(ctx context.Context, text string, args ...any) (*readRows, error) {
	rows, err := r.DB.QueryContext(ctx, text, args...) //nolint:sqlclosecheck,rowserrcheck // the caller closes it
	return r.rows(rows, err)
}

// QueryRowContext reads at most one row.
func (r reader) QueryRowContext(ctx context.Context, text string, args ...any) readRow {
	return readRow{Row: r.DB.QueryRowContext(ctx, text, args...), from: r}
}

func (r reader) rows(rows *sql.Rows, err error) (*readRows, error) {
	if err != nil {
		return nil, r.ended(err)
	}
	return &readRows{Rows: rows, from: r}, nil
}

// readRows are the rows of a read.
type readRows struct {
	*sql.Rows
	from reader
}

// Err says why there were no more rows; nil: they are all.
func (r *readRows) Err() error { return r.from.ended(r.Rows.Err()) }

// readRow is at most one row of a read, or why it could not be asked for.
type readRow struct {
	*sql.Row
	from reader
	err  error
}

// Scan reads the row; sql.ErrNoRows when there is none.
func (r readRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.from.ended(r.Row.Scan(into...))
}

// scanner is a row that is read: of a query, of many, or the only one.
type scanner interface {
	Scan(into ...any) error
}

// rowSet are the rows of a query, of a read or within a write.
type rowSet interface {
	scanner
	Next() bool
	Err() error
	Close() error
}

// collect reads all rows of a query.
func collect[T any](rows rowSet, err error, scan func(scanner) (T, error)) ([]T, error) {
	return collectUpTo(rows, err, 0, scan)
}

// collectUpTo is collect where there will be about so many rows; 0: that is not known.
func collectUpTo[T any](rows rowSet, err error, about int, scan func(scanner) (T, error)) ([]T, error) {
	const roomAtOnce = 64 // what is asked for may be far more than there is
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err says what there is to say

	var out []T
	for rows.Next() {
		if out == nil {
			out = make([]T, 0, min(max(about, 1), roomAtOnce))
		}
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}

	return out, rows.Err()
}
