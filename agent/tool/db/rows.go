package db

import (
	"context"

	"rouse/agent/tool"
	"rouse/agentdb"
)

type upsertArgs struct {
	Table      string           `json:"table"`
	KeyColumns []string         `json:"key_columns" jsonschema:"a row with the same values there is updated"`
	Row        map[string]any   `json:"row,omitempty" jsonschema:"one row: column to value"`
	Rows       []map[string]any `json:"rows,omitempty" jsonschema:"several rows instead"`
}

// upsert answers {rows_affected} (OSA-54).
func (o Options) upsert(ctx context.Context, db *agentdb.DB, in tool.Invocation, a upsertArgs) (any, []string, error) {
	rows, one := a.Rows, len(a.Row) > 0
	if one == (len(rows) > 0) {
		return nil, nil, &agentdb.Error{Kind: string(tool.KindInvalidArgs), Field: "row", Message: "give exactly one of row and rows", Retryable: true}
	}
	if one {
		rows = []map[string]any{a.Row}
	}
	return affected(db.Upsert(ctx, by(in), a.Table, a.KeyColumns, rows))
}

type updateArgs struct {
	Table          string         `json:"table"`
	Set            map[string]any `json:"set" jsonschema:"column to new value"`
	Where          map[string]any `json:"where" jsonschema:"column to value: rows where all are equal; null finds NULL"`
	IncludeDeleted bool           `json:"include_deleted,omitempty"`
}

// update answers {rows_affected} (OSA-55).
func (o Options) update(ctx context.Context, db *agentdb.DB, in tool.Invocation, a updateArgs) (any, []string, error) {
	return affected(db.Update(ctx, by(in), a.Table, a.Set, a.Where, a.IncludeDeleted))
}

type whereArgs struct {
	Table string         `json:"table"`
	Where map[string]any `json:"where" jsonschema:"column to value: rows where all are equal; null finds NULL"`
}

func (o Options) remove(ctx context.Context, db *agentdb.DB, in tool.Invocation, a whereArgs) (any, []string, error) {
	return affected(db.Delete(ctx, by(in), a.Table, a.Where))
}

func (o Options) restore(ctx context.Context, db *agentdb.DB, in tool.Invocation, a whereArgs) (any, []string, error) {
	return affected(db.Restore(ctx, by(in), a.Table, a.Where))
}

func affected(done agentdb.Affected, err error) (any, []string, error) {
	warnings := done.Warnings
	done.Warnings = nil
	return done, warnings, err
}
