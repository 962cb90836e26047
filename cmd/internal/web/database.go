package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"rouse/agentdb"
)

// What an agent's database answers, as the API sends it.
type (
	Schema = agentdb.Schema
	Rows   = agentdb.Rows
	Stats  = agentdb.Stats
	View   = agentdb.View
	// ViewParam is a parameter of a saved view.
	ViewParam = agentdb.ViewParam
	// ViewResult is what a saved view answered, and when.
	ViewResult = agentdb.ViewResult
)

// owner is on whose behalf a person writes.
var owner = agentdb.By{Actor: "user"}

func (s *server) schema(r *http.Request) (any, error) {
	db, release, err := s.engine.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	defer release()
	return db.Schema(r.Context())
}

func (s *server) query(r *http.Request) (any, error) {
	var in Query
	if err := read(r, &in); err != nil {
		return nil, err
	}
	db, release, err := s.engine.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	defer release()
	return db.Query(r.Context(), agentdb.QuerySpec{SQL: in.SQL, Params: in.Params, Limit: in.Limit, Offset: in.Offset, IncludeDeleted: in.IncludeDeleted})
}

// Change is an entry of an agent's changelog.
type Change struct {
	ID     int64           `json:"id"`
	At     string          `json:"at"`
	Run    string          `json:"run"` // "0": no run's
	Actor  string          `json:"actor"`
	Op     string          `json:"op"`
	Table  string          `json:"table"`
	Key    json.RawMessage `json:"key"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	SQL    string          `json:"sql"`
}

func (s *server) stats(r *http.Request) (any, error) {
	return lend(s, r, func(ctx context.Context, db *agentdb.DB) (Stats, error) { return db.Stats(ctx) })
}

func (s *server) views(r *http.Request) (any, error) {
	return lend(s, r, func(ctx context.Context, db *agentdb.DB) ([]View, error) { return db.Views(ctx) })
}

// ViewAsk is what a saved view is asked with.
type ViewAsk struct {
	Params map[string]any `json:"params,omitempty"`
}

func (s *server) runView(r *http.Request) (any, error) {
	var ask ViewAsk
	if err := read(r, &ask); err != nil {
		return nil, err
	}
	return lend(s, r, func(ctx context.Context, db *agentdb.DB) (ViewResult, error) {
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
	return lend(s, r, func(ctx context.Context, db *agentdb.DB) ([]Change, error) {
		found, err := db.Changes(ctx, f)
		out := make([]Change, len(found))
		for i, c := range found {
			out[i] = Change{c.ID, c.At, strconv.FormatInt(c.Run, 10), c.Actor, c.Op, c.Table, raw(c.PK), raw(c.Before), raw(c.After), c.SQL}
		}
		return out, err
	})
}

// raw is JSON of the changelog, null when there is none.
func raw(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}

// lend does something with the agent's database.
func lend[T any](s *server, r *http.Request, do func(context.Context, *agentdb.DB) (T, error)) (out T, err error) {
	db, release, err := s.engine.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return out, err
	}
	defer release()
	return do(r.Context(), db)
}
