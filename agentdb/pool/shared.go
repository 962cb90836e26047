package pool

import (
	"context"
	"errors"
	"fmt"

	"rouse/agentdb"
)

// Sharing moves databases between the pools of several nodes, so that each database is at one
// node at a time.
type Sharing interface {
	// Hold returns the current lease of an agent's database, or the other node that has it.
	Hold(ctx context.Context, agent string) (Hold, error)
	// Fetch updates the file of an agent to the last shipped state, unless this node continues
	// with its own file. The file must not be open.
	Fetch(ctx context.Context, agent string, h Hold) error
	// Ship waits until everything committed so far to the open database of an agent is shipped.
	// After an error, the last commits are lost if another node gets the database.
	Ship(ctx context.Context, agent string, h Hold) error
	// Stay keeps other nodes from getting an agent until its database is shipped again.
	Stay(ctx context.Context, agent string, h Hold) error
	// Known reports whether an agent has a database at any node.
	Known(agent string) bool
	// Elsewhere reports whether another node certainly has an agent's database.
	Elsewhere(agent string) bool
}

// Hold describes this pool's right to use an agent's database.
type Hold struct {
	Lease int64  // increases each time another node gets the database
	Node  string // node that has the database if it is read-only here, otherwise ""
	As    string // version of the copy that is read here
}

// Share connects the pool to other nodes. Call it before any database is opened.
func (p *Pool) Share(s Sharing) { p.sharing = s }

// hold returns the current Hold of an agent's database.
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

// serves reports whether a user with the hold h may use an open file. A read-only copy in use also
// serves users with a newer version. If these had to wait for a reload, readers could wait for each
// other.
func (s *poolEntry) serves(h Hold) bool {
	return s.hold == h || s.idle == nil && h.Node != "" && s.hold.Node == h.Node && s.hold.Lease == h.Lease
}

// fetch updates an agent's file before it is opened.
func (p *Pool) fetch(ctx context.Context, agent string, h Hold) error {
	if p.sharing == nil {
		return nil
	}
	return p.sharing.Fetch(ctx, agent, h)
}

// share connects an opened database to the other nodes.
func (p *Pool) share(agent string, db *agentdb.DB, h Hold) {
	if p.sharing == nil {
		return
	}
	db.Share(h.Node, func(ctx context.Context) error { return p.sharing.Ship(ctx, agent, h) })
}

// stay returns an error if another node has the agent's database. Otherwise it keeps other nodes
// from getting the database until shipReplaced.
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

// shipReplaced ships a database that replaced another.
func (r *Recovery) shipReplaced(ctx context.Context, agent string) error {
	if r.pool.sharing == nil {
		return nil
	}
	db, release, err := r.pool.Get(ctx, agent)
	if err != nil {
		return err
	}
	defer release()
	if err := db.CheckWritable(); err != nil { // the owner may have moved it to another node
		return err
	}
	return db.Shipped(ctx)
}

// ifHere returns err, or nil if the file is a copy of another node's database. Such a copy is
// fetched again when needed.
func (p *Pool) ifHere(agent string, err error) error {
	if err == nil || p.sharing == nil {
		return err
	}
	if p.sharing.Elsewhere(agent) {
		return nil
	}
	return err
}

// Ship waits until all commits to an agent's database are shipped, if this node has a usable
// database of the agent.
func (p *Pool) Ship(ctx context.Context, agent string) error {
	if p.sharing == nil || !p.Has(agent) {
		return nil
	}
	db, release, err := p.Get(ctx, agent)
	if errors.As(err, new(*QuarantinedError)) {
		return nil // it accepts no writes
	}
	if err != nil {
		return err
	}
	defer release()
	return db.Shipped(ctx)
}
