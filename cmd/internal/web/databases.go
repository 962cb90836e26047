package web

import (
	"context"
	"encoding/json"
	"net/http"

	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/control"
	"rouse/cmd/internal/homebackup"
	"rouse/internal/ledger"
)

// databases handles requests about the databases of agents, and about backups.
type databases struct {
	*responder
	ledger  *ledger.Ledger
	storage *control.Storage
	nodes   *cluster.Self
	homes   *homebackup.Maker
}

func (s *databases) routes() []Route {
	file := Route{Method: http.MethodPost, Path: "/v1/agents/{agent}/import", Summary: "Imports the file that is sent into a table.", Body: Content{Media: mediaBytes},
		Query: []Param{
			{Name: "table", Kind: ParamText, Description: "where its rows go"}, {Name: "name", Kind: ParamText, Description: "of the file, whose extension can say the format"},
			{Name: "format", Kind: ParamText, Description: "csv, json, …"}, {Name: "mode", Kind: ParamText, Description: "what becomes of rows that are there"},
			{Name: "key", Kind: ParamText, Many: true, Description: "columns by which rows are the same"}, {Name: "size", Kind: ParamCursor, Description: "bytes of the file, for the progress"},
		}, Answer: []Content{linesOf[api.Imported]()}, handler: http.HandlerFunc(s.importFile)}
	export := Route{Method: http.MethodPost, Path: "/v1/agents/{agent}/export", Summary: "The answer of a query as a file; the header Rouse-Exported says what it is.", Body: jsonOf[api.ExportRequest](),
		Answer: []Content{{Media: mediaBytes}}, handler: http.HandlerFunc(s.exportFile)}

	return []Route{
		get[api.Schema]("/v1/agents/{agent}/schema", "The tables of an agent's database.", s.answer(s.schema)),
		post[api.QueryRequest, api.Rows]("/v1/agents/{agent}/query", "What an agent's database answers to a query that reads.", s.answer(withBody(s.query))),
		get[api.Stats]("/v1/agents/{agent}/stats", "How large an agent's database is.", s.answer(s.stats)),
		get[[]api.Change]("/v1/agents/{agent}/changes", "Who changed what in an agent's database, the newest first.", s.answer(s.changes),
			Param{Name: "n", Kind: ParamCount, Most: maxRuns, Description: "how many, at most 1000"}, Param{Name: "before", Kind: ParamCursor, Description: "those older than the change of this id"},
			Param{Name: "table", Kind: ParamText, Description: "of one table"}, Param{Name: "run", Kind: ParamCursor, Description: "by one run"}),
		get[[]api.View]("/v1/agents/{agent}/views", "The saved views of an agent's database.", s.answer(s.views)),
		post[api.ViewRequest, api.ViewResult]("/v1/agents/{agent}/views/{view}/run", "What a saved view answers.", s.answer(withBody(s.runView))),
		work(s.responder, "/v1/agents/{agent}/backups", "Copies an agent's database.", s.backup),
		get[[]api.Backup]("/v1/agents/{agent}/backups", "The copies of an agent's database.", s.answer(s.backups)),
		post[api.RestoreRequest, api.Replaced]("/v1/agents/{agent}/restore", "Puts a copy in the place of an agent's database, which is kept.", s.answer(withBody(s.restoreDatabase))),
		post[api.ResetRequest, api.Replaced]("/v1/agents/{agent}/reset", "Puts an empty database in the place of an agent's, which is kept.", s.answer(withBody(s.resetDatabase))),
		post[api.Nothing, api.Nothing]("/v1/agents/{agent}/accept", "Has a database used as it is, which another program changed.", s.answer(s.acceptDatabase)),
		file, export,
	}
}

// byUser marks changes by a person in the changelog.
var byUser = changelog.By{Actor: "user"}

func (s *databases) schema(r *http.Request) (any, error) {
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (api.Schema, error) { return db.Schema(ctx) })
}

func (s *databases) query(r *http.Request, in api.QueryRequest) (any, error) {
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (api.Rows, error) {
		return db.Query(ctx, agentdb.QuerySpec{SQL: in.SQL, Params: in.Params, Limit: in.Limit, Offset: in.Offset, IncludeDeleted: in.IncludeDeleted})
	})
}

func (s *databases) stats(r *http.Request) (any, error) {
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (api.Stats, error) { return db.Stats(ctx) })
}

func (s *databases) views(r *http.Request) (any, error) {
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) ([]api.View, error) { return db.Views.List(ctx) })
}

func (s *databases) runView(r *http.Request, ask api.ViewRequest) (any, error) {
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) (api.ViewResult, error) {
		return db.Views.Run(ctx, r.PathValue("view"), ask.Params)
	})
}

// changes lists the entries of the changelog, newest first.
func (s *databases) changes(r *http.Request) (any, error) {
	f := changelog.Filter{Table: r.URL.Query().Get("table"), Run: number(r, "run", 0), Before: number(r, "before", 0), Newest: true, MaxCount: int(number(r, "n", defaultRuns))}
	return withDatabase(s, r, func(ctx context.Context, db *agentdb.DB) ([]api.Change, error) { return Changes(ctx, db, f) })
}

// Changes returns entries of the changelog of an agent's database.
func Changes(ctx context.Context, db *agentdb.DB, f changelog.Filter) ([]api.Change, error) {
	found, err := db.Changes(ctx, f)
	return convert(found, func(c changelog.Change) api.Change {
		return api.Change{ID: c.ID, At: c.At, Run: api.ID(c.Run), Other: c.OtherLedger, Actor: c.Actor, Op: c.Op, Table: c.Table,
			Key: rawJSON(c.PK), Before: rawJSON(c.Before), After: rawJSON(c.After), SQL: c.SQL}
	}), err
}

// rawJSON returns a JSON text of the changelog, or null if it is empty.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return json.RawMessage("null")
	}
	return json.RawMessage(text)
}

// withDatabase calls do with the agent's database and releases it afterwards.
func withDatabase[T any](s *databases, r *http.Request, do func(context.Context, *agentdb.DB) (T, error)) (out T, err error) {
	db, release, err := s.storage.Database(r.Context(), r.PathValue("agent"))
	if err != nil {
		return out, err
	}
	defer release()
	return do(r.Context(), db)
}
