package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// Snapshot is a consistent state of a database that can be copied later, while writes continue. The
// log grows with these writes until the snapshot is closed.
type Snapshot struct {
	path string
	db   *sql.DB
	conn *sql.Conn
	tx   *sql.Tx
}

// OpenSnapshot prepares a snapshot of a database that may be open elsewhere. It does the slow and
// fallible work, so that Take is short. The caller must close the snapshot.
func OpenSnapshot(ctx context.Context, path string) (_ *Snapshot, err error) {
	// Open it writable: if a read-only connection is the last one to close, the log stays behind.
	s := &Snapshot{path: path, db: openOne(path, "mode=rw", "_pragma=query_only(1)", "_pragma=cell_size_check(1)")}
	defer func() {
		if err != nil {
			err = errors.Join(openError(path, err), s.Close())
		}
	}()

	if s.conn, err = s.db.Conn(ctx); err != nil {
		return nil, err
	}
	var version int
	return s, s.conn.QueryRowContext(ctx, "pragma schema_version").Scan(&version)
}

// Take starts the read transaction that defines the state of the snapshot.
func (s *Snapshot) Take(ctx context.Context) (err error) {
	// The transaction must outlive this call.
	if s.tx, err = s.conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true}); err != nil {
		return openError(s.path, err)
	}
	var pages int
	// The first read begins the snapshot.
	return s.tx.QueryRowContext(ctx, "select count(*) from sqlite_schema").Scan(&pages)
}

// Bytes returns the size of a copy, in bytes.
func (s *Snapshot) Bytes(ctx context.Context) (n int64, err error) {
	err = s.tx.QueryRowContext(ctx, "select page_count * page_size from pragma_page_count, pragma_page_size").Scan(&n)
	return n, err
}

// Path returns the path of the database file.
func (s *Snapshot) Path() string { return s.path }

// CopyTo writes the state of the snapshot to a new file. The copy is durable when CopyTo returns.
// See DB.Copy.
func (s *Snapshot) CopyTo(ctx context.Context, to string, progress func(done, of int)) error {
	err := copyOpen(ctx, s.conn, to, progress)
	if isCorrupt(err) {
		return openError(s.path, err)
	}
	return err
}

// Close closes the snapshot.
func (s *Snapshot) Close() error {
	var errs []error
	if s.tx != nil {
		errs = append(errs, s.tx.Rollback())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}
