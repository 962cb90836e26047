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

// Databases returns the pool, which can also repair a database that cannot be opened. It returns an
// error if the agent is unknown.
func (x *Storage) Databases(agent string) (*pool.Pool, error) {
	return x.Parts.Databases, x.Setup().Known("", agent)
}

// Kept returns the places of an agent's database and of the folders it can write to.
func (x *Storage) Kept(agent string) ([]label.Place, error) {
	return permit.Kept(x.Runner.Plan.Load(), agent)
}

// PlaceOf returns the place of a path. It includes the identity of the file, so that a renamed file
// keeps its labels.
func (x *Storage) PlaceOf(path string) label.Place { return tool.PlaceOf(path) }

// Idle returns an error if the agent has an unfinished run. If force is set, it ignores waiting
// runs. Without a daemon, it then also ignores running runs, because they are left over and will be
// resumed.
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

// Reconsider makes the dispatcher check all queued runs again, because the reason that blocks a run
// may be gone.
func (x *Storage) Reconsider() {
	x.Wake()
}

// Database opens the database of an agent. The caller must call the returned function when done.
func (x *Storage) Database(ctx context.Context, agent string) (*agentdb.DB, func(), error) {
	if err := x.Setup().Known("", agent); err != nil {
		return nil, nil, err
	}
	return x.Parts.Databases.Get(ctx, agent)
}
