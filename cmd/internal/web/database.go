package web

import (
	"net/http"

	"rouse/agentdb"
)

// maxImport bounds a file that is sent for import, in bytes: one more than an import takes
// (OSA-58), so that the import says what is wrong with a larger one.
const maxImport = 64<<20 + 1

// What an agent's database answers, as the API sends it.
type (
	Schema   = agentdb.Schema
	Rows     = agentdb.Rows
	Imported = agentdb.Imported
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

func (s *server) importFile(r *http.Request) (any, error) {
	db, release, err := s.engine.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return nil, err
	}
	defer release()
	q := r.URL.Query()
	return db.Import(r.Context(), owner, agentdb.ImportSpec{
		Table: q.Get("table"), Name: q.Get("name"), Format: q.Get("format"), Mode: q.Get("mode"), KeyColumns: q["key"],
		Source: http.MaxBytesReader(nil, r.Body, maxImport),
	})
}
