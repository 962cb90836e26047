package web

import (
	"net/http"

	"rouse/agentdb"
)

// What an agent's database answers, as the API sends it.
type (
	Schema = agentdb.Schema
	Rows   = agentdb.Rows
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
