package node

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"rouse/internal/ledger/store"
)

const (
	// pingEvery is the interval at which a node checks the other nodes.
	pingEvery = 500 * time.Millisecond
	// pingTimeout is the timeout of one check.
	pingTimeout = 2 * time.Second
	// giveUpAfter is how long a node continues without a successful check. It ends before other
	// nodes take over its work.
	giveUpAfter = 3 * time.Second
	// idleTimeout is the idle timeout of a node's session. PostgreSQL ends the session of a frozen
	// or disconnected node.
	idleTimeout = 4 * time.Second
	// deadAfter is how long a node may have no session. It may be reconnecting.
	deadAfter = 1200 * time.Millisecond
	// succeedWithin is how long a starting node waits for the session of an earlier process with
	// the same name to end.
	succeedWithin = idleTimeout + 2*time.Second
	// reconnectEvery is the pause between two attempts to get another session.
	reconnectEvery = 100 * time.Millisecond
	// tellEvery limits how often the writes of other nodes wake a node.
	tellEvery = 3 * time.Millisecond
)

// databaseClock is the current time of the database in milliseconds. It is not the start of the
// transaction.
const databaseClock = `(extract(epoch from clock_timestamp()) * 1000)::bigint`

// Membership is a process's right to write into a ledger that it shares with others.
//
// Each node keeps a session of PostgreSQL that holds an advisory lock. PostgreSQL ends the session
// when the process ends or stops responding. The first node that finds the lock free marks the node
// as gone, which ends its attempts. Every transaction checks this mark, so that a frozen process
// cannot write after it resumes.
type Membership struct {
	l     *Nodes
	db    *sql.DB
	log   *slog.Logger
	node  Node
	class int32
	// config is the configuration of the node's own session, which does not belong to the
	// connection pool.
	config *pgx.ConnConfig

	stop  context.CancelFunc
	held  sync.WaitGroup
	lease *store.Lease
}

// Join adds this process to the nodes of the ledger, until Leave. It returns a *NameTakenError if a
// live node has the same name, and ErrPooled if the database does not keep sessions.
func (l *Nodes) Join(ctx context.Context, n Node) (*Membership, error) {
	if l.DB.Postgres == nil {
		return nil, errors.New("only a ledger on PostgreSQL can be shared by several processes")
	}

	n.Home = cmp.Or(n.Home, n.Name)
	m := &Membership{l: l, db: l.DB.Postgres, log: l.DB.Logger, node: n, class: l.DB.Class}
	if err := RefusePooler(ctx, m.db); err != nil {
		return nil, err
	}
	conn, err := m.db.Conn(ctx)
	if err == nil {
		err = errors.Join(store.OnSession(conn, func(pg *pgx.Conn) error { m.config = pg.Config(); return nil }), conn.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reach the ledger's database: %w", err)
	}
	m.config.OnNotification = nil // it belongs to the other connection
	pg, err := pgx.ConnectConfig(ctx, m.config)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the ledger's database: %w", err)
	}
	if err := m.register(ctx, pg); err != nil {
		return nil, errors.Join(err, pg.Close(ctx))
	}

	// Keep only the values of ctx: the membership ends after all other work.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.lease = store.NewLease(l.DB, m.node.ID)
	l.member.Store(m)
	m.held.Go(func() { m.hold(running, pg) })
	return m, nil
}

// Membership returns the membership of this process, or nil if it does not share the ledger.
func (l *Nodes) Membership() *Membership { return l.member.Load() }

// Node returns the description of this process for the other nodes.
func (m *Membership) Node() Node { return m.node }

// SetConfig records the hash of the node's new configuration.
func (m *Membership) SetConfig(ctx context.Context, hash string) error {
	_, err := m.db.ExecContext(ctx, `update nodes set config = $1 where id = $2 and gone_at = 0`, hash, m.node.ID)
	return err
}

// SetLanes records how many runs this node executes at once. With 0, it receives no more runs.
func (m *Membership) SetLanes(ctx context.Context, lanes int) error {
	_, err := m.db.ExecContext(ctx, `with changed as (update nodes set lanes = $1 where id = $2 and gone_at = 0) select pg_notify($3, '')`, lanes, m.node.ID, m.l.DB.Channel)
	return err
}

// Lost returns a channel that is closed when this process may no longer write.
func (m *Membership) Lost() <-chan struct{} { return m.lease.Lost() }

// Err returns why this process may no longer write, or nil if it may.
func (m *Membership) Err() error { return m.lease.Err() }

// Leave ends the membership. The process must have finished its work.
func (m *Membership) Leave(ctx context.Context) error {
	m.stop()
	m.held.Wait()
	defer m.lease.Lose(store.ErrLeaseLost)
	pg, err := pgx.ConnectConfig(ctx, m.config)
	if err != nil {
		return err
	}
	// The earlier session may take a moment to end.
	_, err = pg.Exec(ctx, `select pg_advisory_lock($1, $2)`, m.class, int32(m.node.ID))
	if err == nil {
		err = m.bury(ctx, pg, m.node, "it was stopped")
	}
	return errors.Join(err, pg.Close(ctx))
}

// RefusePooler returns ErrPooled if a pooler gives the connection's session to other connections
// between transactions.
func RefusePooler(ctx context.Context, db *sql.DB) error {
	one, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = one.Close() }() // it was only used to query
	other, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()

	var idle, used int
	const pid = `select pg_backend_pid()`
	if err := one.QueryRowContext(ctx, pid, pgx.QueryExecModeSimpleProtocol).Scan(&idle); err != nil {
		return err
	}
	tx, err := other.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // it was only used to query
	if err := tx.QueryRowContext(ctx, pid, pgx.QueryExecModeSimpleProtocol).Scan(&used); err != nil {
		return err
	}
	if idle == used {
		return ErrPooled
	}
	return nil
}

// register inserts the row of the node and takes its lock. Nodes register one at a time.
func (m *Membership) register(ctx context.Context, pg *pgx.Conn) error {
	if _, err := pg.Exec(ctx, `select pg_advisory_lock($1, $2)`, m.class, store.LockJoin); err != nil {
		return err
	}
	// otherwise the session would keep the lock as long as the node lives
	defer func() {
		_, _ = pg.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock($1, $2)`, m.class, store.LockJoin)
	}()
	if err := m.succeed(ctx, pg); err != nil {
		return err
	}

	n := &m.node
	var started int64
	err := pg.QueryRow(ctx, `insert into nodes (name, home, host, pid, version, config, address, triggers, lanes, queue, started_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, `+databaseClock+`) returning id, started_at`,
		store.Storable(n.Name), store.Storable(n.Home), store.Storable(n.Host), n.PID, n.Version, n.Config, n.Address, store.Flag(n.Triggers), n.Lanes, Queue(n.Name)).Scan(&n.ID, &started)
	if err != nil {
		return err
	}
	n.StartedAt = store.Instant(started)
	if err := m.lock(ctx, pg); err != nil {
		return err
	}
	return m.ping(ctx, pg, map[int64]sighting{}) // also sets the clock of the ledger
}

// succeed waits until no node with this name is alive. It marks a node without a session as gone.
func (m *Membership) succeed(ctx context.Context, pg *pgx.Conn) error {
	for begun := time.Now(); ; {
		rows, err := pg.Query(ctx, `select id, name, host, pid from nodes where gone_at = 0 and name = $1`, store.Storable(m.node.Name))
		if err != nil {
			return err
		}
		before, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Node, err error) {
			return n, row.Scan(&n.ID, &n.Name, &n.Host, &n.PID)
		})
		if err != nil || len(before) == 0 {
			return err
		}
		for _, n := range before {
			if err := m.bury(ctx, pg, n, whyEnded); err != nil {
				return err
			}
		}

		if time.Since(begun) > succeedWithin {
			return &NameTakenError{before[0]}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pingEvery / 2):
		}
	}
}

// lock takes the node's lock and subscribes to the writes of other nodes. It first ends an earlier
// session of this node, which may remain after a network failure.
func (m *Membership) lock(ctx context.Context, pg *pgx.Conn) error {
	for _, step := range []struct {
		statement string
		args      []any
	}{
		{fmt.Sprintf(`set idle_session_timeout = %d`, idleTimeout.Milliseconds()), nil},
		{`select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and objsubid = 2 and classid::bigint = $1 and objid::bigint = $2
			and database = (select oid from pg_database where datname = current_database()) and pid <> pg_backend_pid()`, []any{int64(uint32(m.class)), m.node.ID}},
		{`select pg_advisory_lock($1, $2)`, []any{m.class, int32(m.node.ID)}},
		{`listen ` + m.l.DB.Channel, nil},
	} {
		if _, err := pg.Exec(ctx, step.statement, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps a session with the node's lock until ctx ends or the lock is lost.
func (m *Membership) hold(ctx context.Context, pg *pgx.Conn) {
	heard := time.Now() // time of the last answer of the database
	for {
		err := m.watch(ctx, pg, &heard)
		m.closeSession(ctx, pg)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, store.ErrLeaseLost) {
			m.log.Warn("the session of this node ended; another one is begun", "node", m.node.Name, "error", err)
			pg, err = m.reconnect(ctx, heard, err)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			m.lease.Lose(err)
			return
		}
	}
}

// closeSession closes a session. Errors are ignored, because the database ends broken sessions.
func (m *Membership) closeSession(ctx context.Context, pg *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reconnectEvery)
	defer cancel()
	_ = pg.Close(ctx)
}

// reconnect opens another session. It returns ErrLeaseLost if that takes longer than giveUpAfter.
func (m *Membership) reconnect(ctx context.Context, heard time.Time, failure error) (*pgx.Conn, error) {
	for {
		// The wall clock also counts the time in which the machine sleeps.
		if time.Since(heard) > giveUpAfter || time.Now().Round(0).Sub(heard.Round(0)) > giveUpAfter {
			return nil, fmt.Errorf("%w (its session ended, and it could not begin another one in time: %w)", store.ErrLeaseLost, failure)
		}
		pg, err := m.relock(ctx)
		if err == nil || ctx.Err() != nil {
			return pg, err
		}
		failure = err
		select {
		case <-ctx.Done():
		case <-time.After(reconnectEvery):
		}
	}
}

func (m *Membership) relock(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	pg, err := pgx.ConnectConfig(ctx, m.config)
	if err != nil {
		return nil, err
	}
	if err := m.lock(ctx, pg); err != nil {
		m.closeSession(ctx, pg)
		return nil, err
	}
	return pg, nil
}

// sighting is the last known state of another node.
type sighting struct {
	node     Node
	unlocked time.Time // when its lock was found free; zero if it holds the lock
	silent   bool      // whether it made no requests for pingTimeout
	met      bool      // whether it was seen with its lock
}

// watch checks the other nodes and reports their writes, until ctx ends or the session breaks.
func (m *Membership) watch(ctx context.Context, pg *pgx.Conn, heard *time.Time) error {
	own := strconv.FormatInt(m.node.ID, 10)
	seen := map[int64]sighting{} // starts empty, because a node cannot be observed without a session
	var pinged, toldAt time.Time
	news := true // other nodes may have written before
	for {
		if time.Since(pinged) >= pingEvery {
			pinged = time.Now()
			if err := m.ping(ctx, pg, seen); err != nil {
				return err
			}
			*heard = pinged
			if err := m.lookAfter(ctx, pg, seen); err != nil {
				return err
			}
		}
		wait := pingEvery - time.Since(pinged)
		if rest := tellEvery - time.Since(toldAt); news && rest > 0 {
			wait = min(wait, rest)
		} else if news {
			news, toldAt = false, time.Now()
			store.RemoteChanged(m.l.DB)
		}

		waiting, cancel := context.WithTimeout(ctx, wait)
		told, err := pg.WaitForNotification(waiting)
		over := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			news = news || told.Payload != own
		case ctx.Err() != nil:
			return ctx.Err()
		case !over:
			return err
		}
	}
}

// Reasons why nodes are gone.
const (
	whyEnded  = "its process ended"
	whyBefore = "its session had ended before this node started"
	whySilent = "it was not heard of for 4s: it is frozen, or cut off from the database"
)

// others selects the nodes that are not marked as gone, with the idle time of their sessions in
// seconds: null without a session.
const others = `select n.id, n.name, n.host, n.pid, extract(epoch from clock_timestamp() - a.state_change)::float8, ` + databaseClock + `
	from nodes n left join pg_locks l on l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.classid::bigint = $1 and l.objid::bigint = n.id
		and l.database = (select oid from pg_database where datname = current_database())
	left join pg_stat_activity a on a.pid = l.pid where n.gone_at = 0`

// ping reads the state of all nodes. It returns ErrLeaseLost if this node is marked as gone.
func (m *Membership) ping(ctx context.Context, pg *pgx.Conn, seen map[int64]sighting) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	type other struct {
		Node
		idle *float64
	}
	begun := time.Now()
	var clock int64
	rows, err := pg.Query(ctx, others, int64(uint32(m.class)))
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o other, err error) {
		return o, row.Scan(&o.ID, &o.Name, &o.Host, &o.PID, &o.idle, &clock)
	})
	if err != nil {
		return err
	}
	if took := time.Since(begun); took < pingTimeout/4 { // a slow answer is too imprecise
		store.SetClock(m.l.DB, store.Instant(clock), took)
	}

	alive := false
	for _, o := range all {
		was := seen[o.ID]
		switch {
		case o.ID == m.node.ID:
			alive = true
		case o.idle != nil:
			seen[o.ID] = sighting{o.Node, time.Time{}, *o.idle > pingTimeout.Seconds(), true}
		case was.unlocked.IsZero():
			seen[o.ID] = sighting{o.Node, time.Now(), was.silent, was.node.ID != 0}
		}
	}
	if !alive {
		return store.ErrLeaseLost
	}
	return nil
}

// lookAfter marks dead nodes as gone, and removes a leader that is gone. If another process holds a
// lock, the next check tries again.
func (m *Membership) lookAfter(ctx context.Context, pg *pgx.Conn, seen map[int64]sighting) error {
	for id, s := range seen {
		if s.unlocked.IsZero() || time.Since(s.unlocked) < deadAfter {
			continue
		}
		delete(seen, id)
		why := whyEnded
		switch {
		case s.silent:
			why = whySilent
		case !s.met:
			why = whyBefore
		}
		if err := m.briefly(ctx, func(ctx context.Context) error { return m.bury(ctx, pg, s.node, why) }); err != nil {
			return err
		}
	}
	return m.briefly(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pg, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, waitBriefly); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, depose)
			return err
		})
	})
}

// waitBriefly limits the wait for locks. A waiting node could not check the others.
const waitBriefly = `set local lock_timeout = 200`

// briefly calls do with a timeout. It logs errors of statements, and returns errors of the
// connection.
func (m *Membership) briefly(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := do(ctx)
	if refused := new(pgconn.PgError); errors.As(err, &refused) && !broken(err) {
		m.log.Warn("what nodes that are gone have left could not be taken; it is tried again", "error", err)
		return nil
	}
	return err
}

// bury marks a node as gone if its lock is free and it has no open transaction. PostgreSQL soon
// ends the transactions of a dead node.
func (m *Membership) bury(ctx context.Context, pg *pgx.Conn, n Node, why string) error {
	gone := int64(0)
	err := pgx.BeginFunc(ctx, pg, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, waitBriefly); err != nil {
			return err
		}
		// free is held until the commit. A node that reconnects waits for the lock and then finds
		// the mark.
		var free bool
		if err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock($1, $2)`, m.class, int32(n.ID)).Scan(&free); err != nil || !free {
			return err
		}
		done, err := tx.Exec(ctx, `update nodes set gone_at = `+databaseClock+`, why = $1 where id = (select id from nodes where id = $2 and gone_at = 0 for update skip locked)`, why, n.ID)
		if err != nil || done.RowsAffected() == 0 {
			return err
		}
		gone = done.RowsAffected()
		_, err = tx.Exec(ctx, `select pg_notify($1, '')`, m.l.DB.Channel)
		return err
	})
	if err == nil && gone > 0 && n.ID != m.node.ID {
		m.log.Warn("a node is gone; others do its work", "node", n.Name, "process", n.PID, "host", n.Host, "why", why)
	}
	return err
}
