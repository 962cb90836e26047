package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/web"
)

// Databases implements web.Engine.
func (d *daemon) Databases(agent string) (*agentdb.Pool, error) {
	now := d.current()
	if err := now.usable(); err != nil {
		return nil, err
	}
	return d.databases, now.known("", agent)
}

// Idle implements web.Engine. Without a daemon nothing runs: what the ledger says is running
// was left by a process that is gone, and goes on later like a run that waits.
func (d *daemon) Idle(ctx context.Context, agent string, force bool) error {
	for _, state := range []ledger.State{ledger.StateRunning, ledger.StateWaiting} {
		runs, err := d.ledger.Runs(ctx, ledger.Filter{Agent: agent, State: state, Limit: 1})
		if err != nil {
			return err
		}
		alive := state == ledger.StateRunning && d.reloads != nil
		if len(runs) == 0 || force && !alive {
			continue
		}
		advice := fmt.Sprintf("wait for its end, or cancel it: rouse cancel %d", runs[0].ID)
		if !alive {
			advice += "; or say --force, and it goes on with another database than it began with"
		}
		return &web.Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d of %s is half-way (%s), so its database stays as it is: %s", runs[0].ID, agent, state, advice)}
	}
	return nil
}

// Reconsider implements web.Engine.
func (d *daemon) Reconsider() {
	if d.reloads != nil && d.reloads.dispatcher != nil {
		d.reloads.dispatcher.Reconsider()
	}
}

// checkDatabases looks at the agents' databases without opening any.
func (d *daemon) checkDatabases(s *setup) web.Check {
	c := web.Check{Name: "databases", OK: true, Detail: "nothing is known against any"}
	var bad, remedies []string
	for _, agent := range s.agentNames() {
		err := d.databases.Barred(agent)
		var damaged *agentdb.DamagedError
		switch {
		case err == nil:
		case errors.As(err, &damaged):
			bad = append(bad, fmt.Sprintf("that of %s cannot be used: %s", agent, damaged.Reason))
			remedies = append(remedies, damaged.Remedy())
		default:
			bad = append(bad, err.Error())
		}
	}
	if len(bad) > 0 {
		c.OK, c.Detail, c.Remedy = false, strings.Join(bad, "; "), strings.Join(remedies, "; ")
	}
	return c
}
