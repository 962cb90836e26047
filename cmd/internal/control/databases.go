package control

import (
	"context"
	"fmt"
	"net/http"

	"rouse/agent/permit"
	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// Databases implements web.Backend.
func (x *Storage) Databases(agent string) (*pool.Pool, error) {
	return x.Parts.Databases, x.Setup().Known("", agent)
}

// Kept implements web.Backend.
func (x *Storage) Kept(agent string) ([]ledger.Place, error) {
	return permit.Kept(x.Runner.Plan.Load(), agent)
}

// PlaceOf implements web.Backend.
func (x *Storage) PlaceOf(path string) ledger.Place { return tool.PlaceOf(path) }

// Idle implements web.Backend. Without a daemon, a running run is left over and will be resumed.
func (x *Storage) Idle(ctx context.Context, agent string, force bool) error {
	for _, state := range []domain.State{domain.StateRunning, domain.StateWaiting} {
		runs, err := x.Ledger.Runs(ctx, ledger.RunFilter{Agent: agent, State: state, Limit: 1})
		if err != nil {
			return err
		}

		alive := state == domain.StateRunning && x.Serves
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
func (x *Storage) Reconsider() {
	x.Wake()
}

// Database implements web.Backend.
func (x *Storage) Database(ctx context.Context, agent string) (*agentdb.DB, func(), error) {
	if err := x.Setup().Known("", agent); err != nil {
		return nil, nil, err
	}
	return x.Parts.Databases.Get(ctx, agent)
}
