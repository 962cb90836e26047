package daemon

import (
	"context"
	"fmt"
	"net/http"

	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// Databases implements web.Backend.
func (d *Daemon) Databases(agent string) (*agentdb.Pool, error) {
	return d.databases, d.Current().Known("", agent)
}

// Kept implements web.Backend.
func (d *Daemon) Kept(agent string) ([]ledger.Place, error) { return d.runner.Kept(agent) }

// PlaceOf implements web.Backend.
func (d *Daemon) PlaceOf(path string) ledger.Place { return tool.PlaceOf(path) }

// Idle implements web.Backend. Without a daemon, a running run is left over and will be resumed.
func (d *Daemon) Idle(ctx context.Context, agent string, force bool) error {
	for _, state := range []domain.State{domain.StateRunning, domain.StateWaiting} {
		runs, err := d.ledger.Runs(ctx, ledger.RunFilter{Agent: agent, State: state, Limit: 1})
		if err != nil {
			return err
		}

		alive := state == domain.StateRunning && d.reloads != nil
		if len(runs) == 0 || force && !alive {
			continue
		}

		advice := fmt.Sprintf("wait for its end, or cancel it: rouse stop %d", runs[0].ID)
		if !alive {
			advice += "; or say --force, and it goes on with another database than it began with"
		}

		return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("run %d of %s is half-way (%s), so its database stays as it is: %s", runs[0].ID, agent, state, advice)}
	}
	return nil
}

// Reconsider implements web.Backend.
func (d *Daemon) Reconsider() {
	// A command has no dispatcher; the next daemon considers all queued runs anyway.
	if dispatcher := d.dispatching.Load(); dispatcher != nil {
		dispatcher.Reconsider()
	}
}

// Database implements web.Backend.
func (d *Daemon) Database(ctx context.Context, agent string) (*agentdb.DB, func(), error) {
	if err := d.Current().Known("", agent); err != nil {
		return nil, nil, err
	}
	return d.databases.Get(ctx, agent)
}
