package agentdb

import (
	"context"
	"fmt"

	"rouse/agentdb/dberr"
)

// Share connects the database to other nodes. Call it before the first write. If node is not
// empty, that node has the database, which is read-only here. Otherwise ship waits until other
// nodes can fetch the committed changes.
func (db *DB) Share(node string, ship func(context.Context) error) {
	if db.readAt = node; node == "" {
		db.ship = ship
	}
}

// Shipped waits until other nodes can fetch the committed changes.
func (db *DB) Shipped(ctx context.Context) error {
	if db.ship == nil {
		return nil
	}
	return db.ship(ctx)
}

// CheckWritable returns an error if another node has the database.
func (db *DB) CheckWritable() error {
	if db.readAt == "" {
		return nil
	}
	return ReadElsewhere(db.agent, db.readAt)
}

// ReadElsewhere returns the error for a write to an agent's database that another node has.
func ReadElsewhere(agent, node string) error {
	return &dberr.Error{Kind: dberr.KindRejected, Message: fmt.Sprintf("the database of %s is at the node %s, and can only be read here: write there, or bring it here while that node is stopped (rouse engine take)", agent, node)}
}
