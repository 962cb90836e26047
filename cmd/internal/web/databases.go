package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// Databases gives access to the agents' databases.
type Databases interface {
	// Database lends an agent's database until release is called.
	Database(ctx context.Context, agent string) (db *agentdb.DB, release func(), err error)
	// Databases is the pool, for what can be done with a database that cannot be opened. It refuses an
	// unknown agent.
	Databases(agent string) (*agentdb.Pool, error)
	// Kept are the places of all that an agent keeps: its database, and where it may write.
	Kept(agent string) ([]ledger.Place, error)
	// PlaceOf is what is at a path, by its name and its identity: a file that was renamed keeps its labels.
	PlaceOf(path string) ledger.Place
	// Idle refuses while a run of an agent is unfinished; with force one that waits does not count.
	Idle(ctx context.Context, agent string, force bool) error
	// Reconsider has the queued runs checked again: what blocked them may be gone.
	Reconsider()
}

func (s *server) databaseRoutes(mux *http.ServeMux) {
	mux.Handle("GET /v1/agents/{agent}/schema", s.answer(s.schema))
	mux.Handle("POST /v1/agents/{agent}/query", s.answer(s.query))
	mux.Handle("GET /v1/agents/{agent}/stats", s.answer(s.stats))
	mux.Handle("GET /v1/agents/{agent}/changes", s.answer(s.changes))
	mux.Handle("GET /v1/agents/{agent}/views", s.answer(s.views))
	mux.Handle("POST /v1/agents/{agent}/views/{view}/run", s.answer(s.runView))
	mux.HandleFunc("POST /v1/agents/{agent}/backups", s.backup)
	mux.Handle("GET /v1/agents/{agent}/backups", s.answer(s.backups))
	mux.Handle("POST /v1/agents/{agent}/restore", s.answer(s.restoreDatabase))
	mux.Handle("POST /v1/agents/{agent}/reset", s.answer(s.resetDatabase))
	mux.Handle("POST /v1/agents/{agent}/accept", s.answer(s.acceptDatabase))
	mux.HandleFunc("POST /v1/agents/{agent}/import", s.importFile)
	mux.HandleFunc("POST /v1/agents/{agent}/export", s.exportFile)
}

// byUser marks changes that a person makes, in the changelog.
var byUser = agentdb.By{Actor: "user"}

func (s *server) schema(r *http.Request) (any, error) {
	db, release, err := s.backend.Databases.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	defer release()
	return db.Schema(r.Context())
}

func (s *server) query(r *http.Request) (any, error) {
	var in api.QueryRequest
	if err := read(r, &in); err != nil {
		return nil, err
	}

	db, release, err := s.backend.Databases.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	defer release()

	return db.Query(r.Context(), agentdb.QuerySpec{SQL: in.SQL, Params: in.Params, Limit: in.Limit, Offset: in.Offset, IncludeDeleted: in.IncludeDeleted})
}

func (s *server) stats(r *http.Request) (any, error) {
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (api.Stats, error) { return db.Stats(ctx) })
}

func (s *server) views(r *http.Request) (any, error) {
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) ([]api.View, error) { return db.Views(ctx) })
}

func (s *server) runView(r *http.Request) (any, error) {
	var ask api.ViewRequest
	if err := read(r, &ask); err != nil {
		return nil, err
	}
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (api.ViewResult, error) {
		return db.RunView(ctx, r.PathValue("view"), ask.Params)
	})
}

// changes are the newest entries of the changelog, the newest first.
func (s *server) changes(r *http.Request) (any, error) {
	n, err := count(r, "n", defaultRuns, maxRuns)
	if err != nil {
		return nil, err
	}

	f := agentdb.ChangeFilter{Table: r.URL.Query().Get("table"), Newest: true, MaxCount: n}
	if text := r.URL.Query().Get("run"); text != "" {
		if f.Run, err = runID(text); err != nil {
			return nil, err
		}
	}

	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) ([]api.Change, error) {
		found, err := db.Changes(ctx, f)
		out := make([]api.Change, len(found))
		for i, c := range found {
			out[i] = api.Change{ID: c.ID, At: c.At, Run: strconv.FormatInt(c.Run, 10), Other: c.OtherLedger, Actor: c.Actor, Op: c.Op, Table: c.Table,
				Key: rawJSON(c.PK), Before: rawJSON(c.Before), After: rawJSON(c.After), SQL: c.SQL}
		}
		return out, err
	})
}

// rawJSON is a JSON text of the changelog, null if it is empty.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}

// withDatabase calls do with the agent's database, and releases it afterwards.
func withDatabase[T any](s *server, r *http.Request, do func(context.Context, *agentdb.DB) (T, error)) (out T, err error) {
	db, release, err := s.backend.Databases.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return out, err
	}
	defer release()
	return do(r.Context(), db)
}
