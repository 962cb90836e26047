package pool

import (
	"context"
	"errors"
	"fmt"

	"rouse/agentdb"
)

// Sharing has the databases of a pool be at one of several nodes at a time, each with a pool of its
// own.
type Sharing interface {
	// Hold says as what an agent's database may be used now.
	Hold(ctx context.Context, agent string) (Hold, error)
	// Fetch brings the file of an agent, which nobody has open, to what was shipped of it, unless
	// what is here goes on.
	Fetch(ctx context.Context, agent string, h Hold) error
	// Ship returns once all is shipped that was committed before to the database of an agent, which
	// is open. An error says that what was committed last is lost, should another node get the
	// database.
	Ship(ctx context.Context, agent string, h Hold) error
	// Stay keeps other nodes from getting an agent until something of its database is shipped
	// again.
	Stay(ctx context.Context, agent string, h Hold) error
	// Known says whether an agent has a database at any node.
	Known(agent string) bool
	// Elsewhere says whether another node has an agent's database, for certain.
	Elsewhere(agent string) bool
}

// Hold is as what a pool has an agent's database.
type Hold struct {
	Lease int64  // grows each time that another node gets the database
	Node  string // the one that has it, where it is only read here: "" where it is this one
	As    string // which state of it that is
}

// Share keeps the pool's databases together with other nodes. It comes before anything is opened.
func (p *Pool) Share(s Sharing) { p.sharing = s }

// hold asks as what an agent's database may be used now.
func (p *Pool) hold(ctx context.Context, agent string) (Hold, error) {
	if p.sharing == nil {
		return Hold{}, nil
	}
	h, err := p.sharing.Hold(ctx, agent)
	if err != nil {
		return Hold{}, fmt.Errorf("the database of agent %s: %w", agent, err)
	}
	return h, nil
}

// serves says whether an open file is one that somebody who was given the hold h may use. A file
// that is only read may be older than the newest state while others read it: they might wait for
// each other.
func (s *poolEntry) serves(h Hold) bool {
	return s.hold == h || s.idle == nil && h.Node != "" && s.hold.Node == h.Node && s.hold.Lease == h.Lease
}

// fetch brings an agent's file up to date before it is opened.
func (p *Pool) fetch(ctx context.Context, agent string, h Hold) error {
	if p.sharing == nil {
		return nil
	}
	return p.sharing.Fetch(ctx, agent, h)
}

// share ties an opened database to the other nodes.
func (p *Pool) share(agent string, db *agentdb.DB, h Hold) {
	if p.sharing == nil {
		return
	}
	db.Share(h.Node, func(ctx context.Context) error { return p.sharing.Ship(ctx, agent, h) })
}

// stay refuses to replace an agent's database that another node has, and keeps others from getting
// it until shipReplaced.
func (r *Recovery) stay(ctx context.Context, agent string) error {
	if r.pool.sharing == nil {
		return nil
	}
	h, err := r.pool.hold(ctx, agent)
	if err != nil {
		return err
	}
	if h.Node != "" {
		return agentdb.ReadElsewhere(agent, h.Node)
	}
	return r.pool.sharing.Stay(ctx, agent, h)
}

// shipReplaced ships a database that has taken another's place.
func (r *Recovery) shipReplaced(ctx context.Context, agent string) error {
	if r.pool.sharing == nil {
		return nil
	}
	db, release, err := r.pool.Get(ctx, agent)
	if err != nil {
		return err
	}
	defer release()
	if err := db.CheckWritable(); err != nil { // its owner has given it to another node meanwhile
		return err
	}
	return db.Shipped(ctx)
}

// ifHere is an error about a file, and nil where that is a copy of another node's database: one is
// fetched again when it is wanted.
func (p *Pool) ifHere(agent string, err error) error {
	if err == nil || p.sharing == nil {
		return err
	}
	if p.sharing.Elsewhere(agent) {
		return nil
	}
	return err
}

// Ship returns once all is shipped that was committed to an agent's database, if this node has it
// and it is open.
func (p *Pool) Ship(ctx context.Context, agent string) error {
	if p.sharing == nil || !p.Has(agent) {
		return nil
	}
	db, release, err := p.Get(ctx, agent)
	if errors.As(err, new(*QuarantinedError)) {
		return nil // it is not written to
	}
	if err != nil {
		return err
	}
	defer release()
	return db.Shipped(ctx)
}
