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
	"rouse/internal/ledger/label"
	"rouse/internal/ledger/runs"
)

// Databases returns the pool, which can repair a database that cannot be opened. It returns an error for an unknown agent.
func (x *Storage) Databases(agent string) (*pool.Pool, error) {
	return x.Parts.Databases, x.Setup().Known("", agent)
}

// Kept returns the database of an agent and the folders that it can write.
func (x *Storage) Kept(agent string) ([]label.Place, error) {
	return permit.Kept(x.Runner.Plan.Load(), agent)
}

// PlaceOf returns the path with the identity of its file, so that a renamed file keeps its labels.
func (x *Storage) PlaceOf(path string) label.Place { return tool.PlaceOf(path) }

// Idle returns an error if a run of the agent is unfinished. If force is true, it ignores runs that wait for an answer. Without
// a daemon, a running run is left over and will be resumed.
func (x *Storage) Idle(ctx context.Context, agent string, force bool) error {
	for _, state := range []domain.State{domain.StateRunning, domain.StateWaiting} {
		runs, err := x.Ledger.Runs.List(ctx, runs.Filter{Agent: agent, State: state, Limit: 1})
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

// Reconsider checks all queued runs again, because the reason that blocks a run may be gone.
func (x *Storage) Reconsider() {
	x.Wake()
}

// Database lends the database of an agent until the returned function is called.
func (x *Storage) Database(ctx context.Context, agent string) (*agentdb.DB, func(), error) {
	if err := x.Setup().Known("", agent); err != nil {
		return nil, nil, err
	}
	return x.Parts.Databases.Get(ctx, agent)
}
