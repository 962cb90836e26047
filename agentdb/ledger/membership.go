package ledger

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
	"github.com/jackc/pgx/v5/stdlib"

	"rouse/agentdb/sqlite"
)

const (
	// renewEvery is how often a node says that it is there.
	renewEvery = 500 * time.Millisecond
	// deadAfter is how long a node whose session has ended may not have been seen: it may be connecting again.
	deadAfter = 1500 * time.Millisecond
	// frozenAfter is how long any node may not have been seen.
	frozenAfter = 4 * time.Second
	// giveUpAfter is how long a node goes on that cannot renew its lease: it ends before others begin its work.
	giveUpAfter = 3 * time.Second
	// tellEvery is how often it is told of what other nodes write.
	tellEvery = 3 * time.Millisecond
	// leaseTimeout is for one renewal.
	leaseTimeout = 2 * time.Second
	// maxIdleInTx is after how many milliseconds the server ends a transaction whose process does nothing: what a
	// frozen node has locked would hold up the others.
	maxIdleInTx = 3000
)

// Numbers of advisory locks, within the class of a ledger. A node has its id.
const (
	lockJoin   = 0
	lockLanes  = -1
	lockValues = -2 // the place of large values
)

// databaseClock is the time of the database in milliseconds, and not that of the transaction.
const databaseClock = `(extract(epoch from clock_timestamp()) * 1000)::bigint`

// Membership is a process's right to write into a ledger that it shares with others.
//
// Each node renews its lease on a connection of its own, whose session holds an advisory lock. A node whose session has
// ended is dead as soon as it is not seen for a moment, and one that is not seen for longer is frozen or cut off; what
// counts is how long the watching node has seen no change, so that neither clocks nor a restart of the server matter.
// Whoever notices marks it as gone, and with that its attempts are over. The mark is looked at in each transaction of
// each node, so that one that was taken for dead and comes back writes nothing.
type Membership struct {
	l     *Ledger
	db    *sql.DB
	log   *slog.Logger
	node  Node
	class int32

	session *sql.Conn // that holds the lock; nil while there is none
	seen    map[int64]sighting

	stop  context.CancelFunc
	all   sync.WaitGroup
	once  sync.Once
	lost  chan struct{}
	heard chan struct{} // of capacity 1: another node has written
	why   error         // set before lost is closed
}

// session is a querier on one connection.
type session struct {
	conn *sql.Conn
	ctx  context.Context
}

// Query implements querier.
func (s session) Query(text string, args ...any) (*sql.Rows, error) {
	return s.conn.QueryContext(s.ctx, text, args...)
}

// sighting is when a node was first seen at its present state.
type sighting struct {
	at    time.Time // SeenAt of the node
	since time.Time // by the clock of this process
}

// Join makes this process one of the nodes that work on a ledger together, until Leave. The error is a *NameTakenError
// when another node of that name is at work, and ErrPooled when sessions cannot be kept. An earlier process of that
// name that is dead is marked as gone.
func (l *Ledger) Join(ctx context.Context, n Node) (*Membership, error) {
	if l.db == nil {
		return nil, errors.New("only a ledger on PostgreSQL can be shared by several processes")
	}

	n.Home = cmp.Or(n.Home, n.Name)
	m := &Membership{l: l, db: l.db, log: l.logger, node: n, class: l.class, seen: map[int64]sighting{}, lost: make(chan struct{}), heard: make(chan struct{}, 1)}
	if err := RefusePooler(ctx, m.db); err != nil {
		return nil, err
	}
	if err := m.register(ctx); err != nil {
		return nil, err
	}

	// Only the values of ctx are kept: a process leaves after everything else has ended.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	l.member.Store(m)
	m.all.Go(func() { m.renew(running) })
	m.all.Go(func() { m.listen(running) })
	m.all.Go(func() { m.tell(running) })

	return m, nil
}

// Membership is this process's among the nodes of the ledger; nil: it has the ledger to itself.
func (l *Ledger) Membership() *Membership { return l.member.Load() }

// Node is the process as the others see it.
func (m *Membership) Node() Node { return m.node }

// SetConfig tells the other nodes of another configuration.
func (m *Membership) SetConfig(ctx context.Context, hash string) error {
	_, err := m.db.ExecContext(ctx, `update nodes set config = $1 where id = $2 and gone_at = 0`, hash, m.node.ID)
	return err
}

// Lost is closed once this process may not write any more.
func (m *Membership) Lost() <-chan struct{} { return m.lost }

// Err says why, nil before.
func (m *Membership) Err() error {
	select {
	case <-m.lost:
		return m.why
	default:
		return nil
	}
}

func (m *Membership) lose(why error) {
	m.once.Do(func() {
		m.why = why
		close(m.lost)
		m.l.notifyChanged() // whoever waits for a change learns that there is none for it any more
	})
}

// Leave gives the lease up, after all that the process has begun is over.
func (m *Membership) Leave(ctx context.Context) error {
	m.stop()
	m.all.Wait()
	_, err := m.db.ExecContext(ctx, `update nodes set gone_at = `+databaseClock+`, why = 'it was stopped' where id = $1 and gone_at = 0`, m.node.ID)
	if err == nil {
		_, err = m.db.ExecContext(ctx, `select pg_notify($1, '')`, m.l.channel())
	}

	m.lose(ErrLeaseLost)
	if m.session != nil {
		err = errors.Join(err, m.session.Close())
	}
	return err
}

// findClass makes the locks and notifications of this ledger different from those of another one in the same database.
func (l *Ledger) findClass(ctx context.Context) error {
	var oid int64
	if err := l.db.QueryRowContext(ctx, `select 'nodes'::regclass::oid::bigint`).Scan(&oid); err != nil {
		return fmt.Errorf("the nodes of the ledger cannot be read: %w", err)
	}
	l.class = int32(oid)
	return nil
}

// channel is on which the processes of a ledger tell each other that they have written.
func (l *Ledger) channel() string { return fmt.Sprintf("rouse_%d", uint32(l.class)) }

// RefusePooler is ErrPooled for a database whose idle sessions are lent to somebody else. It asks nothing that would fail
// there in other words.
func RefusePooler(ctx context.Context, db *sql.DB) error {
	one, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = one.Close() }() // it only asked
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
	defer tx.Rollback() // it only asks
	if err := tx.QueryRowContext(ctx, pid, pgx.QueryExecModeSimpleProtocol).Scan(&used); err != nil {
		return err
	}
	if idle == used {
		return ErrPooled
	}
	return nil
}

// register gives the node its row and its session. Those of one name are let in one at a time.
func (m *Membership) register(ctx context.Context) error {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("cannot reach the ledger's database: %w", err)
	}
	done := false
	defer func() {
		if !done {
			_ = conn.Close()
		}
	}()

	if _, err := conn.ExecContext(ctx, `select pg_advisory_lock($1, $2)`, m.class, lockJoin); err != nil {
		return err
	}
	defer func() { // the session would keep it for as long as the node is there
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `select pg_advisory_unlock($1, $2)`, m.class, lockJoin)
	}()

	if err := m.succeed(ctx, conn); err != nil {
		return err
	}

	n := &m.node
	var started int64
	err = conn.QueryRowContext(ctx, `insert into nodes (name, home, host, pid, version, config, address, triggers, work, started_at, seen_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, `+databaseClock+`, `+databaseClock+`) returning id, started_at`,
		storable(n.Name), storable(n.Home), storable(n.Host), n.PID, n.Version, n.Config, n.Address, flag(n.Triggers), flag(n.Work)).Scan(&n.ID, &started)
	if err != nil {
		return err
	}
	n.StartedAt = instant(started)

	if _, err := conn.ExecContext(ctx, `select pg_advisory_lock($1, $2)`, m.class, int32(n.ID)); err != nil {
		return err
	}
	m.session, done = conn, true
	return m.measureClock(ctx)
}

// succeed waits until no node of this name is at work: one that is dead is marked as gone, and one that lives refuses us.
func (m *Membership) succeed(ctx context.Context, conn *sql.Conn) error {
	for begun := time.Now(); ; {
		before, err := list(session{conn, ctx}, nodeFields, `select `+nodeColumns+` from nodes where gone_at = 0 and name = $1`, storable(m.node.Name))
		if err != nil || len(before) == 0 {
			return err
		}

		sessions, err := m.sessions(ctx, conn)
		if err != nil {
			return err
		}
		for _, n := range before {
			if was, ok := m.seen[n.ID]; ok && !was.at.Equal(n.SeenAt) {
				return &NameTakenError{n}
			}
		}
		for _, n := range before {
			if why := m.unseen(n, sessions); why != "" {
				if _, err := markGone(ctx, conn, n, why); err != nil {
					return err
				}
			}
		}

		if time.Since(begun) > 2*frozenAfter {
			return &NameTakenError{before[0]}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(renewEvery / 2):
		}
	}
}

// sessions are the ids of the nodes that hold their lock.
func (m *Membership) sessions(ctx context.Context, conn *sql.Conn) (map[int64]bool, error) {
	ids, err := values[int64](session{conn, ctx}, `select objid::bigint from pg_locks where locktype = 'advisory' and granted and objsubid = 2 and classid::bigint = $1
		and database = (select oid from pg_database where datname = current_database())`, int64(uint32(m.class)))
	if err != nil {
		return nil, err
	}

	held := map[int64]bool{}
	for _, id := range ids {
		held[id] = true
	}
	return held, nil
}

// unseen says why a node counts as gone, "" when it does not.
func (m *Membership) unseen(n Node, sessions map[int64]bool) string {
	was, ok := m.seen[n.ID]
	if !ok || !was.at.Equal(n.SeenAt) {
		m.seen[n.ID] = sighting{n.SeenAt, time.Now()}
		return ""
	}

	switch silent := time.Since(was.since); {
	case silent >= frozenAfter:
		return fmt.Sprintf("it was not heard of for %s: it is frozen, or cut off from the database", frozenAfter)
	case silent >= deadAfter && !sessions[n.ID]:
		return "its process ended"
	}
	return ""
}

// renew keeps the lease, and takes those of nodes that are gone.
func (m *Membership) renew(ctx context.Context) {
	renewed := time.Now()
	var failure error
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.lost:
			return
		case <-time.After(renewEvery):
		}

		begun := time.Now()
		err := m.renewOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLeaseLost):
			m.lose(err)
			return
		case err == nil:
			renewed, failure = begun, nil
			continue
		case failure == nil:
			m.log.Warn("the lease of this node could not be renewed; it is tried again", "node", m.node.Name, "error", err)
		}

		// Measured by a clock that goes on while the process is frozen, or the machine asleep.
		failure = err
		if time.Since(renewed) > giveUpAfter || time.Now().Round(0).Sub(renewed.Round(0)) > giveUpAfter {
			m.lose(fmt.Errorf("%w (the database cannot be reached: %w)", ErrLeaseLost, err))
			return
		}
	}
}

func (m *Membership) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()

	if m.session == nil {
		conn, err := m.db.Conn(ctx)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, `select pg_advisory_lock($1, $2)`, m.class, int32(m.node.ID)); err != nil {
			return errors.Join(err, conn.Close())
		}
		m.session = conn
		clear(m.seen) // the others could not be seen meanwhile
	}

	err := m.renewOn(ctx, m.session)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		_ = m.session.Close() // broken; the next try gets another
		m.session = nil
	}
	return err
}

func (m *Membership) renewOn(ctx context.Context, conn *sql.Conn) error {
	if err := m.measureClock(ctx); err != nil {
		return err
	}

	others, err := list(session{conn, ctx}, nodeFields, `select `+nodeColumns+` from nodes where gone_at = 0 and id <> $1`, m.node.ID)
	if err != nil || len(others) == 0 {
		return err
	}
	sessions, err := m.sessions(ctx, conn)
	if err != nil {
		return err
	}

	for _, n := range others {
		why := m.unseen(n, sessions)
		if why == "" {
			continue
		}
		gone, err := markGone(ctx, conn, n, why)
		if err != nil {
			return err
		}
		if gone {
			m.log.Warn("a node is gone; others do its work", "node", n.Name, "process", n.PID, "host", n.Host, "why", why)
			m.l.remoteChanged()
			if _, err := conn.ExecContext(ctx, `select pg_notify($1, $2)`, m.l.channel(), strconv.FormatInt(m.node.ID, 10)); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureClock says that this node is there, and how much its clock differs from the database's, which decides.
func (m *Membership) measureClock(ctx context.Context) error {
	begun := time.Now()
	var at int64
	err := m.session.QueryRowContext(ctx, `update nodes set seen_at = `+databaseClock+` where id = $1 and gone_at = 0 returning seen_at`, m.node.ID).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrLeaseLost
	}
	if err != nil {
		return err
	}

	took := time.Since(begun)
	if took < leaseTimeout/4 { // else it says little
		m.l.setSkew(instant(at).Sub(m.l.wall().Add(-took/2)), took)
	}
	return nil
}

// tell tells of what other nodes write: at once, and of much together. Nodes that are busy would else wake each other for each
// of their writes, and read more than they do.
func (m *Membership) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.heard:
			m.l.remoteChanged()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(tellEvery):
		}
	}
}

// listen hears of what other nodes write.
func (m *Membership) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.listenOnce(ctx)
		if ctx.Err() != nil || m.Err() != nil {
			return
		}

		m.log.Warn("what other nodes write is not heard of for a moment; it is tried again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(renewEvery):
		}
	}
}

func (m *Membership) listenOnce(ctx context.Context) error {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()

	own := strconv.FormatInt(m.node.ID, 10)
	return conn.Raw(func(driver any) error {
		pg := driver.(*stdlib.Conn).Conn()
		if _, err := pg.Exec(ctx, "listen "+m.l.channel()); err != nil {
			return err
		}
		m.l.remoteChanged() // what was written before

		for {
			heard, err := pg.WaitForNotification(ctx)
			if err != nil {
				return errors.Join(err, pg.Close(context.WithoutCancel(ctx))) // never lent to others with its subscription
			}
			if heard.Payload == own {
				continue
			}
			select {
			case m.heard <- struct{}{}:
			default: // it is told with what was heard before
			}
		}
	})
}

// fence begins each transaction on PostgreSQL. That of a node ends there for one that the others have taken for dead, and tells the
// others of the commit. Its lock holds up who takes the lease (markGone), and not the renewal: a node that writes all the time
// would else wait for itself until it is taken for dead.
func (l *Ledger) fence(tx *sqlite.Tx) error {
	m := l.member.Load()
	if m == nil { // a command that writes once
		_, err := tx.Exec(`select pg_notify($1, '')`, l.channel())
		return err
	}
	if err := m.Err(); err != nil {
		return err
	}

	var timeout, notified sql.NullString
	var alive int
	err := tx.QueryRow(`select set_config('idle_in_transaction_session_timeout', $1, true), pg_notify($2, $3)::text,
		(select count(*) from (select 1 from nodes where id = $4 and gone_at = 0 for key share) lease)`,
		strconv.Itoa(maxIdleInTx), m.l.channel(), strconv.FormatInt(m.node.ID, 10), m.node.ID).Scan(&timeout, &notified, &alive)
	if err != nil {
		return err
	}
	if alive == 0 {
		m.lose(ErrLeaseLost)
		return ErrLeaseLost
	}
	return nil
}

// remoteChanged tells those who wait for a change of one that another node has made.
func (l *Ledger) remoteChanged() {
	l.remote.Add(1)
	l.notifyChanged()
	l.notifyPlanChanged()
}

// setSkew has the ledger's time be that of its database. Small differences are those of the measurement, which took so
// long: on a busy machine, nodes would else disagree by what they waited for an answer.
func (l *Ledger) setSkew(skew, took time.Duration) {
	if was := time.Duration(l.skew.Load()); (skew - was).Abs() > max(100*time.Millisecond, took) {
		l.skew.Store(int64(skew))
	}
}

// Skew is how much later the clock of the ledger's database is than this machine's; 0 for a file.
func (l *Ledger) Skew() time.Duration { return time.Duration(l.skew.Load()) }

// Now is the time by which the ledger records what happens: that of its database, where there are several nodes.
func (l *Ledger) Now() time.Time { return l.now() }
