package agentdb

import (
	"context"
	"database/sql"
)

// GuardedConn lends a connection as queries use it.
func GuardedConn(ctx context.Context, db *DB) (*sql.Conn, error) { return db.conn(ctx, false) }

// OpenFiles counts the files that a pool has open.
func OpenFiles(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots)
}
