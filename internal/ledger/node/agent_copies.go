package node

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"rouse/internal/ledger/store"
)

// insistEvery is the interval between retries after a broken connection.
const insistEvery = 100 * time.Millisecond

// copyPart is the size of an object's part in a row of agent_copies, in bytes. The last part may be
// smaller.
const copyPart = 1 << 20

// AgentCopies holds the copies of an agent's database and files in the ledger's database, as named
// objects. All nodes can read them. Only the node that has the agent can write them.
type AgentCopies struct {
	l    *Nodes
	home AgentHome
}

// AgentCopies returns the copies of an agent. Writes are made under the lease of home, and fail
// once another node has the agent.
func (l *Nodes) AgentCopies(home AgentHome) AgentCopies { return AgentCopies{l, home} }

// CopyObject is an object of an agent.
type CopyObject struct {
	Name  string
	Bytes int64
}

// held begins a statement that runs under the lease of an agent. The statement does nothing if this
// node is marked as gone, or if another node has the agent. A node that takes the agent waits for
// running statements, see takeHome.
const held = `with held as (select 1 from agent_homes where agent = $1 and node = $2 and lease = $3
		and ($4::bigint = 0 or exists (select 1 from nodes where id = $4 and gone_at = 0)) for key share)
	`

func (c AgentCopies) lease() []any {
	return []any{c.home.Agent, c.home.Node, c.home.Lease, store.NodeID(c.l.DB)}
}

// Put writes an object completely or not at all, and replaces an object with the same name. It
// returns an *AgentElsewhereError if another node has the agent now.
func (c AgentCopies) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if c.l.DB.Postgres == nil {
		return errors.New("the ledger is a file: nothing is shipped to it")
	}
	part, err := io.ReadAll(io.LimitReader(r, copyPart))
	if err != nil {
		return err
	}
	if size <= copyPart {
		return c.l.insist(ctx, func() error { return c.put(ctx, c.l.DB.Postgres, name, 0, part) })
	}

	tx, err := c.l.DB.Postgres.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after Commit
	// The lease is held until the end. Without a timeout, a frozen process would block a node that
	// wants the agent.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`set local idle_in_transaction_session_timeout = %d`, store.MaxIdleInTx)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `delete from agent_copies where agent = $1 and name = $2`, c.home.Agent, name); err != nil {
		return err
	}
	for n := 0; len(part) > 0; n++ {
		if err := c.put(ctx, tx, name, n, part); err != nil {
			return err
		}
		if part, err = io.ReadAll(io.LimitReader(r, copyPart)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (c AgentCopies) put(ctx context.Context, db execer, name string, part int, data []byte) error {
	done, err := db.ExecContext(ctx, held+`insert into agent_copies (agent, name, part, data) select $1, $5, $6, $7 from held
		on conflict (agent, name, part) do update set data = excluded.data`, append(c.lease(), name, part, data)...)
	return c.refused(ctx, done, err)
}

// refused returns an error that names the node of the agent if a statement changed no row.
func (c AgentCopies) refused(ctx context.Context, done sql.Result, err error) error {
	if err != nil {
		return fmt.Errorf("the copies of %s in the ledger's database: %w", c.home.Agent, err)
	}
	if n, err := done.RowsAffected(); n > 0 || err != nil {
		return err
	}

	if m := c.l.member.Load(); m != nil && m.Err() != nil {
		return m.Err()
	}
	now, err := store.One(store.Reads(ctx, c.l.DB), agentHomeFields, `select `+agentHomeColumns+` from agent_homes h where h.agent = $1`, c.home.Agent)
	if err != nil {
		return err
	}
	if now.Node == c.home.Node && now.Lease == c.home.Lease { // this node is marked as gone
		return store.ErrLeaseLost
	}
	return &AgentElsewhereError{c.home.Agent, now.Node}
}

// Get returns a reader of an object from an offset. It reads length bytes, or to the end if length
// is 0. It returns fs.ErrNotExist if there is no such object. The caller must close the reader.
func (c AgentCopies) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r := &copyReader{ctx: ctx, l: c.l, agent: c.home.Agent, name: name, part: offset / copyPart}
	if err := r.next(); err != nil {
		return nil, err
	}
	if r.last && r.part == 1 && len(r.data) == 0 {
		return nil, fmt.Errorf("%s of %s: %w", name, c.home.Agent, fs.ErrNotExist)
	}
	r.data = r.data[min(offset%copyPart, int64(len(r.data))):]
	if length > 0 {
		return io.NopCloser(io.LimitReader(r, length)), nil
	}
	return io.NopCloser(r), nil
}

// copyReader reads the parts of an object one after the other.
type copyReader struct {
	ctx         context.Context
	l           *Nodes
	agent, name string
	part        int64 // number of the next part
	data        []byte
	last        bool // whether the last part was read
}

func (r *copyReader) next() error {
	err := r.l.insist(r.ctx, func() (err error) {
		r.data, err = store.Value[[]byte](store.Reads(r.ctx, r.l.DB), `select data from agent_copies where agent = $1 and name = $2 and part = $3`, r.agent, r.name, r.part)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		r.data, err = nil, nil
	}
	r.part, r.last = r.part+1, len(r.data) < copyPart
	return err
}

func (r *copyReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if r.last {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// List returns the objects with a name that begins with prefix and is greater than after, in order.
func (c AgentCopies) List(ctx context.Context, prefix, after string) ([]CopyObject, error) {
	// The upper bound is the prefix followed by the greatest code point.
	var all []CopyObject
	err := c.l.insist(ctx, func() (err error) {
		all, err = store.List(store.Reads(ctx, c.l.DB), func(o *CopyObject) []any { return []any{&o.Name, &o.Bytes} }, `select name, sum(length(data)) from agent_copies where agent = $1 and name >= $2 and name < $3 and name > $4 group by name order by name`,
			c.home.Agent, prefix, prefix+"\U0010FFFF", after)
		return err
	})
	return all, err
}

// Newest returns the last name that begins with prefix, or "" if there is no such object.
func (c AgentCopies) Newest(ctx context.Context, prefix string) (name string, err error) {
	err = c.l.insist(ctx, func() (err error) {
		name, err = store.Value[string](store.Reads(ctx, c.l.DB), `select coalesce(max(name), '') from agent_copies where agent = $1 and name >= $2 and name < $3`, c.home.Agent, prefix, prefix+"\U0010FFFF")
		return err
	})
	return name, err
}

// Delete removes objects. It does nothing if this node does not have the agent any more.
func (c AgentCopies) Delete(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := c.l.DB.Postgres.ExecContext(ctx, held+`delete from agent_copies where agent = $1 and name = any($5::text[]) and exists (select 1 from held)`, append(c.lease(), names)...)
	return err
}

// Keep records whether other nodes can take over the agent.
func (c AgentCopies) Keep(ctx context.Context, state HomeState) error {
	return c.l.insist(ctx, func() error {
		done, err := c.l.DB.Postgres.ExecContext(ctx, held+`update agent_homes set kept = $5 from held where agent = $1`, append(c.lease(), int(state))...)
		return c.refused(ctx, done, err)
	})
}

// insist calls do, and retries it while the connection is broken and this node may keep its lease.
// do must be idempotent.
func (l *Nodes) insist(ctx context.Context, do func() error) error {
	for begun := time.Now(); ; {
		err := do()
		if !broken(err) || time.Since(begun) > giveUpAfter {
			return err
		}
		if m := l.member.Load(); m != nil && m.Err() != nil {
			return m.Err()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(insistEvery):
		}
	}
}

// broken reports whether an error comes from the connection, or from a server that is stopping or
// starting.
func broken(err error) bool {
	var refused *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows), errors.Is(err, context.Canceled), errors.Is(err, store.ErrLeaseLost), errors.As(err, new(*AgentElsewhereError)):
		return false
	case errors.As(err, &refused):
		return strings.HasPrefix(refused.Code, "08") || strings.HasPrefix(refused.Code, "57P")
	}
	return errors.Is(err, driver.ErrBadConn) || errors.As(err, new(net.Error)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*pgconn.ConnectError))
}
