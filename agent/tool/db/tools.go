package db

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"

	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/agentdb/changelog"
	"rouse/agentdb/pool"
	"rouse/agentdb/schema"
	"rouse/agentdb/transfer"
	"rouse/internal/domain"
	"rouse/internal/ledger/label"
)

//go:embed *.md
var descriptions embed.FS

// Options configures the tools of one run.
type Options struct {
	Pool  *pool.Pool
	Roots *tool.Roots // folders that db_import may read and db_export may write
	Locks *tool.Locks // locks of the files that tools write
	// Private marks the content of the database as private data.
	Private bool
}

// member is a tool of this package with the function that creates it for a run.
type member struct {
	spec      tool.Spec
	showsRows bool // the result contains rows, which carry the taint of the runs that wrote them
	define    func(Options, tool.Spec) (tool.Tool, error)
}

var members = []member{
	answeredBy(core(reading("db_schema")), true, Options.schema),
	answeredBy(onDemand(writing("db_create_table")), false, Options.createTable),
	answeredBy(onDemand(writing("db_alter_table")), false, Options.alterTable),
	answeredBy(onDemand(writing("db_migrate")), true, Options.migrate),
	answeredBy(core(bulk(writing("db_insert"))), false, Options.insert),
	answeredBy(bulk(writing("db_upsert")), false, Options.upsert),
	answeredBy(onDemand(writing("db_update")), false, Options.update),
	answeredBy(onDemand(writing("db_delete")), false, Options.remove),
	answeredBy(onDemand(writing("db_restore")), false, Options.restore),
	answeredBy(core(writing("db_execute")), true, Options.execute),
	answeredBy(onDemand(importSpec), false, Options.importFile),
	{onDemand(exportSpec), true, Options.exportTool},
	answeredBy(viewSpec, false, Options.defineView),
	answeredBy(onDemand(reading("db_run_view")), true, Options.runView),
	answeredBy(onDemand(reading("db_list_views")), true, Options.listViews),
	answeredBy(onDemand(writing("db_drop_view")), false, Options.dropView),
	answeredBy(paged(core(reading("db_query"))), true, Options.query),
}

// answeredBy returns a member that handles its calls with run. The tool's arguments are those of
// run.
func answeredBy[A any](s tool.Spec, showsRows bool, run handler[A]) member {
	s.Args = reflect.TypeFor[A]()
	return member{s, showsRows, withDatabase(run)}
}

// reading returns the spec of a tool that does not change the database.
func reading(name string) tool.Spec {
	return tool.Spec{
		Name: name, Description: describe(name), Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
		Requires: tool.RequiresDatabase, Example: examples[name],
	}
}

// writing returns the spec of a tool that changes the database.
func writing(name string) tool.Spec {
	s := reading(name)
	s.Effect, s.Writes = domain.EffectDatabase, tool.WritesRows
	return s
}

// bulk marks a tool that moves many rows at once.
func bulk(s tool.Spec) tool.Spec {
	s.Class = tool.ClassData
	return s
}

// onDemand removes a tool from the list shown to models.
func onDemand(s tool.Spec) tool.Spec {
	s.OnDemand = true
	return s
}

// core marks a tool that is always listed for models.
func core(s tool.Spec) tool.Spec {
	s.Core = true
	return s
}

// paged describes how to cut a long result for a small context: offset skips the rows already
// shown.
func paged(s tool.Spec) tool.Spec {
	s.Paging = tool.Paging{Field: "rows", Start: "offset"}
	return s
}

// withEnum restricts the values of string arguments.
func withEnum(s tool.Spec, values map[string][]string) tool.Spec {
	s.Enum = values
	return s
}

// describe returns the tool's description from its Markdown file. It returns "" if the file is
// missing; Define then rejects the tool.
func describe(name string) string {
	text, err := descriptions.ReadFile(strings.TrimPrefix(name, "db_") + ".md")
	if err != nil {
		return ""
	}
	return string(text)
}

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs {
	var out tool.Specs
	for _, m := range members {
		out = append(out, m.spec)
	}
	return out
}

// Tools returns the tools of one run.
func Tools(o Options) ([]tool.Tool, error) {
	var out []tool.Tool
	for _, m := range members {
		m.spec.Access = o.needs(m.showsRows, m.spec.Effect != domain.EffectRead)
		t, err := m.define(o, m.spec)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}

	return out, nil
}

// needs returns the function that describes a call to the authorizer. A call reads rows, which
// carry the taint of the runs that wrote them, and the file at its argument path. It writes the
// table it names, or any table if it does not name one.
func (o Options) needs(shows, keeps bool) func(context.Context, tool.Invocation, json.RawMessage) (tool.Access, error) {
	return func(ctx context.Context, in tool.Invocation, args json.RawMessage) (n tool.Access, err error) {
		var a struct{ Table, Path string }
		if err := json.Unmarshal(args, &a); err != nil {
			return n, nil //nolint:nilerr // the call itself says what is wrong with them
		}

		if shows {
			n = o.readNeed(in.Agent)
		}

		if a.Path != "" {
			file := o.Roots.ReadNeed(a.Path)
			n.AddsTaint, n.Reads, n.Bind = n.AddsTaint|file.AddsTaint, append(n.Reads, file.Reads...), file.Bind
		}
		n.Bind = o.bindDatabase(ctx, in.Agent, n.Bind)

		if keeps {
			n.Writes = []label.Place{label.TablePlace(in.Agent, strings.ToLower(a.Table))}
		}
		return n, nil
	}
}

// bindDatabase refuses a call if its database cannot be used, before the owner is asked for an
// approval. then is the next check and may be nil.
func (o Options) bindDatabase(ctx context.Context, agent string, then func(tool.Access) (tool.Access, error)) func(tool.Access) (tool.Access, error) {
	return func(n tool.Access) (tool.Access, error) {
		_, release, err := o.Pool.Get(ctx, agent)
		if err != nil && ctx.Err() == nil {
			e := tool.Failure(tool.KindUnavailable, "%s", err.Error())
			n.Refused = &e
			return n, nil
		}
		if err != nil {
			return n, err
		}

		release()
		if then == nil {
			return n, nil
		}
		return then(n)
	}
}

// readNeed returns the need of a call that shows rows. It covers all tables, because a query may
// name any table and views hide the tables they use.
func (o Options) readNeed(agent string) (n tool.Access) {
	if n.Reads = []label.Place{label.TablePlace(agent, "")}; o.Private {
		n.AddsTaint |= tool.Private
		n.NotPrivate = "private: {database: false}"
	}
	return n
}

// handler handles the calls of a tool. It returns a result and warnings.
type handler[A any] func(Options, context.Context, *agentdb.DB, tool.Invocation, A) (any, []string, error)

// withDatabase returns a function that creates a tool. Each call of the tool borrows the agent's
// database from the pool.
func withDatabase[A any](run handler[A]) func(Options, tool.Spec) (tool.Tool, error) {
	return func(o Options, s tool.Spec) (tool.Tool, error) {
		return tool.Define(s, func(ctx context.Context, in tool.Invocation, args A) (tool.Envelope, error) {
			db, release, err := o.Pool.Get(ctx, in.Agent)
			if err != nil {
				return tool.Envelope{}, &domain.HostError{Err: err} // the error already names the agent and the file
			}
			defer release()

			result, warnings, err := run(o, ctx, db, in, args)
			return answer(result, warnings, err)
		})
	}
}

// answer returns the envelope of a call. Errors other than *agentdb.Error are returned as errors of
// the host.
func answer(result any, warnings []string, err error) (tool.Envelope, error) {
	var bad *agentdb.Error
	switch {
	case errors.As(err, &bad):
		e := tool.Failure(tool.Kind(bad.Kind), "%s", bad.Text()).WithField(bad.Field, "")
		e.Retryable = bad.Retryable
		return e, nil
	case err != nil:
		return tool.Envelope{}, err
	}

	return tool.Success(result, warnings...), nil
}

func by(in tool.Invocation) changelog.By {
	return changelog.By{Run: in.Run, Key: in.Key, Actor: "agent"}
}

type schemaArgs struct{}

func (o Options) schema(ctx context.Context, db *agentdb.DB, _ tool.Invocation, _ schemaArgs) (any, []string, error) {
	s, err := db.Schema(ctx)
	return s, nil, err
}

type columnArgs struct {
	Name       string `json:"name"`
	Type       string `json:"type" jsonschema:"TEXT, INTEGER, REAL, NUMERIC or BLOB"`
	Nullable   *bool  `json:"nullable,omitempty" jsonschema:"default true"`
	Default    any    `json:"default,omitempty" jsonschema:"a text, a number, true or false"`
	PrimaryKey bool   `json:"primary_key,omitempty"`
}

type indexArgs struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Unique  bool     `json:"unique,omitempty"`
}

type createArgs struct {
	Name    string       `json:"name"`
	Purpose string       `json:"purpose" jsonschema:"what the rows are, in a sentence"`
	Columns []columnArgs `json:"columns"`
	Indexes []indexArgs  `json:"indexes,omitempty"`

	IfNotExists bool `json:"if_not_exists,omitempty" jsonschema:"a table of this name that exists is no failure and stays as it is"`
}

func (o Options) createTable(ctx context.Context, db *agentdb.DB, in tool.Invocation, a createArgs) (any, []string, error) {
	list, err := columns(a.Columns)
	if err != nil {
		return nil, nil, err
	}

	spec := schema.TableSpec{Name: a.Name, Purpose: a.Purpose, Columns: list, IfNotExists: a.IfNotExists}
	for _, i := range a.Indexes {
		spec.Indexes = append(spec.Indexes, schema.Index(i))
	}

	created, err := db.CreateTable(ctx, by(in), spec)
	warnings := created.Warnings
	created.Warnings = nil
	return created, warnings, err
}

func columns(args []columnArgs) (out []schema.Column, err error) {
	for _, c := range args {
		column := schema.Column{Name: c.Name, Type: c.Type, Nullable: c.Nullable, PrimaryKey: c.PrimaryKey}
		if c.Default != nil {
			if column.Default, err = json.Marshal(c.Default); err != nil {
				return nil, err
			}
			// Models can only send text. For a numeric column, use the number in the text.
			if text, ok := c.Default.(string); ok && column.IsNumeric() && json.Valid([]byte(text)) {
				column.Default = json.RawMessage(text)
			}
		}
		out = append(out, column)
	}
	return out, nil
}

type insertArgs struct {
	Table string           `json:"table"`
	Row   map[string]any   `json:"row,omitempty"`
	Rows  []map[string]any `json:"rows,omitempty"`
}

// insert returns {id} for one row and {ids, count} for several.
func (o Options) insert(ctx context.Context, db *agentdb.DB, in tool.Invocation, a insertArgs) (any, []string, error) {
	rows, one, err := rowsOf(a.Row, a.Rows)
	if err != nil {
		return nil, nil, err
	}

	done, err := db.Insert(ctx, by(in), a.Table, rows)
	if err != nil {
		return nil, nil, err
	}
	// The result has the form of the request: {id} only for row.
	if one && len(done.IDs) == 1 {
		return map[string]any{"id": done.IDs[0]}, done.Warnings, nil
	}

	return map[string]any{"ids": done.IDs, "count": done.Count}, done.Warnings, nil
}

type importArgs struct {
	Table       string   `json:"table"`
	Path        string   `json:"path" jsonschema:"relative to the working folder, or absolute inside a granted folder"`
	Format      string   `json:"format,omitempty" jsonschema:"by the name and the content of the file when absent"`
	Mode        string   `json:"mode,omitempty" jsonschema:"insert (default) or upsert"`
	KeyColumns  []string `json:"key_columns,omitempty" jsonschema:"of upsert"`
	CreateTable *bool    `json:"create_table,omitempty" jsonschema:"make the table when it does not exist; default true"`
	HasHeader   *bool    `json:"has_header,omitempty" jsonschema:"default true"`
	Columns     []string `json:"columns,omitempty" jsonschema:"csv, tsv: names of the columns in order, instead of the header; json: the keys to import"`
	MaxRows     int      `json:"max_rows,omitempty" jsonschema:"stop after so many rows"`
}

// importSpec is the spec of db_import.
var importSpec = withEnum(bulk(writing("db_import")), map[string][]string{"mode": {"insert", "upsert"}, "format": fileFormats})

// importFile imports a file that the run may read.
func (o Options) importFile(ctx context.Context, db *agentdb.DB, in tool.Invocation, a importArgs) (any, []string, error) {
	f := &lazyFile{roots: o.Roots, path: a.Path}
	defer f.close()

	done, err := db.Import(ctx, by(in), transfer.ImportSpec{
		Table: a.Table, Source: f, Size: f.size(), Name: filepath.Base(a.Path), Format: a.Format, Mode: a.Mode, KeyColumns: a.KeyColumns,
		NoCreate: a.CreateTable != nil && !*a.CreateTable, NoHeader: a.HasHeader != nil && !*a.HasHeader, Columns: a.Columns, MaxRows: a.MaxRows,
	})
	warnings := done.Warnings
	done.Warnings = nil

	return done, warnings, err
}

type queryArgs struct {
	SQL            string      `json:"sql"`
	Params         tool.Values `json:"params,omitempty"`
	Limit          int         `json:"limit,omitempty"`
	Offset         int         `json:"offset,omitempty"`
	IncludeDeleted bool        `json:"include_deleted,omitempty"`
}

// query returns {columns, rows, truncated}.
func (o Options) query(ctx context.Context, db *agentdb.DB, _ tool.Invocation, a queryArgs) (any, []string, error) {
	spec := agentdb.QuerySpec{SQL: a.SQL, Params: a.Params.List, Named: a.Params.Named, Limit: a.Limit, Offset: a.Offset, IncludeDeleted: a.IncludeDeleted}
	rows, err := db.Query(ctx, spec)
	return rows, rows.Warnings, err
}
