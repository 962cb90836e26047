package db

import (
	"context"

	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/agentdb/view"
)

type viewArgs struct {
	Name        string      `json:"name"`
	SQL         string      `json:"sql" jsonschema:"one SELECT; :name is a parameter"`
	RenderHint  string      `json:"render_hint" jsonschema:"how it is shown: table, bar, line, pie or number"`
	Refresh     string      `json:"refresh" jsonschema:"manual, on_run (after each run), or a duration such as 5m"`
	Description string      `json:"description,omitempty"`
	Params      []viewParam `json:"params,omitempty" jsonschema:"the parameters that the SQL names"`
}

type viewParam struct {
	Name    string `json:"name"`
	Type    string `json:"type,omitempty" jsonschema:"text (default), integer or real"`
	Default any    `json:"default,omitempty" jsonschema:"without one a value has to be given each time"`
}

// viewSpec is the spec of db_define_view.
var viewSpec = withEnum(onDemand(writing("db_define_view")), map[string][]string{"render_hint": view.RenderHints})

// defineView saves a view and returns it.
func (o Options) defineView(ctx context.Context, db *agentdb.DB, in tool.Invocation, a viewArgs) (any, []string, error) {
	spec := view.View{Name: a.Name, SQL: a.SQL, RenderHint: a.RenderHint, Refresh: a.Refresh, Description: a.Description}
	for _, p := range a.Params {
		spec.Params = append(spec.Params, view.Param(p))
	}
	v, err := db.Views.Save(ctx, by(in), spec)
	return v, nil, err
}

type viewName struct {
	Name string `json:"name"`
}

type runViewArgs struct {
	Name   string         `json:"name"`
	Params map[string]any `json:"params,omitempty" jsonschema:"parameter to value; the others have their defaults"`
}

func (o Options) runView(ctx context.Context, db *agentdb.DB, _ tool.Invocation, a runViewArgs) (any, []string, error) {
	out, err := db.Views.Run(ctx, a.Name, a.Params)
	return out, out.Warnings, err
}

func (o Options) listViews(ctx context.Context, db *agentdb.DB, _ tool.Invocation, _ schemaArgs) (any, []string, error) {
	views, err := db.Views.List(ctx)
	return map[string]any{"views": views}, nil, err
}

func (o Options) dropView(ctx context.Context, db *agentdb.DB, in tool.Invocation, a viewName) (any, []string, error) {
	out, err := db.Views.Drop(ctx, by(in), a.Name)
	return out, nil, err
}
