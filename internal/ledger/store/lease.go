package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Keys of advisory locks, within the class of a ledger. A node uses its id.
const (
	LockJoin   = 0
	LockLanes  = -1
	LockValues = -2 // storage of large values
)

// MaxIdleInTx is the idle timeout of a transaction in milliseconds. Without it, the locks of a
// frozen node would block the others.
const MaxIdleInTx = 3000

// ErrLeaseLost is returned by every write after other nodes have marked this node as gone.
var ErrLeaseLost = errors.New("this node has lost its lease: the others have not heard of it for too long, and do its work now")

// Lease is the right of a node to write. It ends when the other nodes mark the node as gone.
type Lease struct {
	l    *DB
	node int64
	once sync.Once
	lost chan struct{}
	why  error // set before lost is closed
}

// NewLease gives this process the lease of a node. From then on, every transaction checks it.
func NewLease(l *DB, node int64) *Lease {
	s := &Lease{l: l, node: node, lost: make(chan struct{})}
	l.lease.Store(s)
	return s
}

// Lost returns a channel that is closed when this process may no longer write.
func (s *Lease) Lost() <-chan struct{} { return s.lost }

// Err returns why this process may no longer write, or nil if it may.
func (s *Lease) Err() error {
	select {
	case <-s.lost:
		return s.why
	default:
		return nil
	}
}

// Lose ends the lease.
func (s *Lease) Lose(why error) {
	s.once.Do(func() {
		s.why = why
		close(s.lost)
		s.l.notifyChanged() // wakes waiters, because no later change will
	})
}

// NodeID returns the id of this process, or 0 if it does not share the ledger.
func NodeID(l *DB) int64 {
	if s := l.lease.Load(); s != nil {
		return s.node
	}
	return 0
}

// findClass sets the class of the advisory locks, which is unique for each ledger in a database.
func (l *DB) findClass(ctx context.Context) error {
	var oid int64
	if err := l.Postgres.QueryRowContext(ctx, `select 'nodes'::regclass::oid::bigint`).Scan(&oid); err != nil {
		return fmt.Errorf("the nodes of the ledger cannot be read: %w", err)
	}
	l.Class, l.Channel = int32(oid), fmt.Sprintf("rouse_%d", uint32(oid))
	return nil
}

// OnSession calls use with the pgx connection of conn.
func OnSession(conn *sql.Conn, use func(*pgx.Conn) error) error {
	return conn.Raw(func(driver any) error { return use(driver.(*stdlib.Conn).Conn()) })
}

// fence starts each transaction on PostgreSQL. It returns ErrLeaseLost if this node is marked as
// gone, and notifies the other nodes at the commit. Its row lock delays bury until the transaction
// ends.
func (l *DB) fence(tx *Tx) error {
	lease := l.lease.Load()
	if lease == nil { // a command that writes once
		_, err := tx.Exec(`select pg_notify($1, '')`, l.Channel)
		return err
	}
	if err := lease.Err(); err != nil {
		return err
	}

	var timeout, notified sql.NullString
	var alive int
	err := tx.QueryRow(`select set_config('idle_in_transaction_session_timeout', $1, true), pg_notify($2, $3)::text,
		(select count(*) from (select 1 from nodes where id = $4 and gone_at = 0 for key share) lease)`,
		strconv.Itoa(MaxIdleInTx), l.Channel, strconv.FormatInt(lease.node, 10), lease.node).Scan(&timeout, &notified, &alive)
	if err != nil {
		return err
	}
	if alive == 0 {
		lease.Lose(ErrLeaseLost)
		return ErrLeaseLost
	}
	return nil
}

// RemoteChanged wakes all waiters for a change of the ledger, after another node has written.
func RemoteChanged(l *DB) {
	l.notifyChanged()
	l.notifyPlanChanged()
}

// SetClock sets the offset from the clock of the database, which was read half of took ago. It
// ignores changes that are within the error of such a measurement.
func SetClock(l *DB, clock time.Time, took time.Duration) {
	skew := clock.Sub(l.wall().Add(-took / 2))
	if was := time.Duration(l.skew.Load()); (skew - was).Abs() > max(100*time.Millisecond, took) {
		l.skew.Store(int64(skew))
	}
}

// Skew returns how far the clock of the database is ahead of this machine. It is 0 for a file.
func (c *clock) Skew() time.Duration { return time.Duration(c.skew.Load()) }

// Now returns the time of the ledger. Nodes that share a ledger use the clock of its database.
func (c *clock) Now() time.Time { return c.now() }
