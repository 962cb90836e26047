package db

import (
	"context"

	"rouse/agent/tool"
	"rouse/agentdb"
)

type upsertArgs struct {
	Table      string           `json:"table"`
	KeyColumns []string         `json:"key_columns"`
	Row        map[string]any   `json:"row,omitempty"`
	Rows       []map[string]any `json:"rows,omitempty"`
}

// upsert returns {rows_affected}.
func (o Options) upsert(ctx context.Context, db *agentdb.DB, in tool.Invocation, a upsertArgs) (any, []string, error) {
	rows, _, err := rowsOf(a.Row, a.Rows)
	if err != nil {
		return nil, nil, err
	}
	return splitAffected(db.Upsert(ctx, by(in), a.Table, a.KeyColumns, rows))
}

// rowsOf returns the rows of a call. one reports whether the call used row instead of rows. An
// empty argument counts as absent, because models fill unused arguments with empty values.
func rowsOf(row map[string]any, rows []map[string]any) (all []map[string]any, one bool, err error) {
	bad := func(field, message string) error {
		return &agentdb.Error{Kind: string(tool.KindInvalidArgs), Field: field, Message: message, Retryable: true}
	}
	switch {
	case len(row) > 0 && len(rows) == 0:
		return []map[string]any{row}, true, nil
	case len(rows) > 0 && len(row) == 0:
		return rows, false, nil
	case row != nil && len(row)+len(rows) == 0:
		return nil, false, bad("row", `row has no column; give at least one value, as {"column": value}`)
	case rows != nil && len(row)+len(rows) == 0:
		return nil, false, bad("rows", "rows is an empty list; give at least one row")
	}

	return nil, false, bad("row", "give exactly one of row and rows")
}

type updateArgs struct {
	Table          string         `json:"table"`
	Set            map[string]any `json:"set" jsonschema:"column to new value"`
	Where          map[string]any `json:"where" jsonschema:"column to value: rows where all are equal; null finds NULL"`
	IncludeDeleted bool           `json:"include_deleted,omitempty"`
}

// update returns {rows_affected}.
func (o Options) update(ctx context.Context, db *agentdb.DB, in tool.Invocation, a updateArgs) (any, []string, error) {
	return splitAffected(db.Update(ctx, by(in), a.Table, a.Set, a.Where, a.IncludeDeleted))
}

type whereArgs struct {
	Table string         `json:"table"`
	Where map[string]any `json:"where" jsonschema:"column to value: rows where all are equal; null finds NULL"`
}

func (o Options) remove(ctx context.Context, db *agentdb.DB, in tool.Invocation, a whereArgs) (any, []string, error) {
	return splitAffected(db.Delete(ctx, by(in), a.Table, a.Where))
}

func (o Options) restore(ctx context.Context, db *agentdb.DB, in tool.Invocation, a whereArgs) (any, []string, error) {
	return splitAffected(db.Restore(ctx, by(in), a.Table, a.Where))
}

// splitAffected separates the warnings from the result.
func splitAffected(done agentdb.Affected, err error) (any, []string, error) {
	warnings := done.Warnings
	done.Warnings = nil
	return done, warnings, err
}
