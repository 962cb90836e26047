package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// Snapshot is a database as it was at one instant, of which a copy is made later, while others go
// on writing. Until it is closed the log grows by what they write.
type Snapshot struct {
	path string
	db   *sql.DB
	conn *sql.Conn
	tx   *sql.Tx
}

// OpenSnapshot prepares a snapshot of a database that others may have open. What can take long or
// fail is done here, so that Take is short.
func OpenSnapshot(ctx context.Context, path string) (_ *Snapshot, err error) {
	// One that could not write would leave the log behind, if it is the last to close.
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

// Take fixes the instant.
func (s *Snapshot) Take(ctx context.Context) (err error) {
	// It has to outlive the call that takes it.
	if s.tx, err = s.conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true}); err != nil {
		return openError(s.path, err)
	}
	var pages int
	return s.tx.QueryRowContext(ctx, "select count(*) from sqlite_schema").Scan(&pages) // reading begins it
}

// Bytes is how large a copy is going to be.
func (s *Snapshot) Bytes(ctx context.Context) (n int64, err error) {
	err = s.tx.QueryRowContext(ctx, "select page_count * page_size from pragma_page_count, pragma_page_size").Scan(&n)
	return n, err
}

// Path is the file of the database.
func (s *Snapshot) Path() string { return s.path }

// CopyTo writes the database as it was at the instant to a new file, which is durable when it
// returns; see Copy.
func (s *Snapshot) CopyTo(ctx context.Context, to string, progress func(done, of int)) error {
	err := copyOpen(ctx, s.conn, to, progress)
	if isCorrupt(err) {
		return openError(s.path, err)
	}
	return err
}

// Close ends the snapshot.
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
