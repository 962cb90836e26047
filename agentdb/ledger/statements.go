package ledger

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// statementCache keeps the prepared statements of the reads that every run needs: preparing one
// takes several times as long as running it.
type statementCache struct {
	db reader

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

func (r *statementCache) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if s := r.prepared[text]; s != nil {
		return s, nil
	}

	// Under the lock, so that two callers of a new text do not prepare it twice.
	s, err := r.db.PrepareContext(ctx, text) //nolint:sqlclosecheck // close closes it
	if err != nil {
		return nil, err
	}

	if r.prepared == nil {
		r.prepared = map[string]*sql.Stmt{}
	}

	r.prepared[text] = s
	return s, nil
}

// query reads rows with a cached statement, so its text must not vary.
func (r *statementCache) query(ctx context.Context, text string, args ...any) (*readRows, error) {
	s, err := r.statement(ctx, text) //nolint:sqlclosecheck // it is cached
	if err != nil {
		return nil, r.db.ended(err)
	}
	return r.db.rows(s.QueryContext(ctx, args...)) //nolint:sqlclosecheck,rowserrcheck // the caller closes it
}

// row is query for at most one row.
func (r *statementCache) row(ctx context.Context, text string, args ...any) readRow {
	s, err := r.statement(ctx, text) //nolint:sqlclosecheck // it is cached
	if err != nil {
		return readRow{err: r.db.ended(err)}
	}
	return readRow{Row: s.QueryRowContext(ctx, args...), from: r.db}
}

func (r *statementCache) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()

	var errs []error
	for _, s := range r.prepared {
		errs = append(errs, s.Close())
	}

	r.prepared = nil
	return errors.Join(errs...)
}
