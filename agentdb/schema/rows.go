package schema

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rouse/agentdb/changelog"
	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/tabular"
	"rouse/internal/storage/sqlite"
)

// KeyColumns returns the key names in the table's spelling. It returns an error for an unknown or
// repeated column.
func (t *Table) KeyColumns(keys []string) ([]string, error) {
	var out []string
	for i, key := range keys {
		c := t.Column(key)
		switch {
		case c == nil:
			return nil, dberr.Invalid(fmt.Sprintf("key_columns[%d]", i), "the table %s has no column %q%s", t.Name, key, sqltext.DidYouMean(key, t.ColumnNames()))
		case sqltext.ContainsFold(out, key):
			return nil, dberr.Invalid(fmt.Sprintf("key_columns[%d]", i), "the key column %s is named twice", key)
		}
		out = append(out, c.Name)
	}
	return out, nil
}

// EnsureUnique creates a unique index over the keys unless there is one. ON CONFLICT needs an
// index over exactly these columns.
func (t *Table) EnsureUnique(ctx context.Context, tx *sqlite.Tx, by changelog.By, keys []string) error {
	same := func(columns []string) bool {
		return len(columns) == len(keys) && !slices.ContainsFunc(columns, func(name string) bool { return !sqltext.ContainsFold(keys, name) })
	}
	if same(t.Key) || slices.ContainsFunc(t.Indexes, func(i Index) bool { return i.Unique && same(i.Columns) }) {
		return nil
	}

	name := t.Name + "_by_" + strings.Join(keys, "_")
	index := Index{Name: name[:min(len(name), sqltext.MaxName)], Columns: keys, Unique: true}
	if err := NameFree(tx, "key_columns", index.Name); err != nil {
		return err
	}

	err := ApplySchema(ctx, tx, by, sqlvalue.Now(), t.Name, index.statement(t.Name))
	if dberr.Refused(err) {
		return dberr.Invalid("key_columns", "the table %s already has rows with the same %s, so they cannot be its key", t.Name, strings.Join(keys, ", "))
	}
	return err
}

// Values returns the values of row i in the order of the table's columns. It returns an error if
// a key column has no value.
func (t *Table) Values(i int, row map[string]any, keys []string) ([]any, error) {
	out := make([]any, len(t.Columns))
	for n := range out {
		out[n] = tabular.Absent{}
	}

	given := map[int]bool{}
	for _, name := range slices.Sorted(maps.Keys(row)) { // sorted, so that the first error is always the same
		n := slices.IndexFunc(t.Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
		problem := func(format string, args ...any) error {
			return dberr.Invalid(fmt.Sprintf("rows[%d].%s", i, name), format, args...)
		}
		switch {
		case n < 0 && sqltext.IsHostColumn(name):
			return nil, problem("the column %s is written by the host; leave it out", name)
		case n < 0:
			return nil, problem("the table %s has no column %q%s", t.Name, name, sqltext.DidYouMean(name, t.ColumnNames()))
		case given[n]:
			return nil, dberr.Invalid(fmt.Sprintf("rows[%d]", i), "row %d names a column twice in different cases", i+1)
		}

		given[n] = true
		value, err := sqlvalue.Storable(row[name])
		if err != nil {
			return nil, problem("the value of %s in row %d cannot be stored: %v", t.Columns[n].Name, i+1, err)
		}
		if value != nil || t.Columns[n].Name != t.RowKey { // NULL requests the next id
			out[n] = value
		}
	}

	for n, c := range t.Columns {
		if _, missing := out[n].(tabular.Absent); (missing || out[n] == nil) && sqltext.ContainsFold(keys, c.Name) {
			return nil, dberr.Invalid(fmt.Sprintf("rows[%d].%s", i, c.Name), "row %d has no value in the key column %s", i+1, c.Name)
		}
	}
	return out, nil
}

// Where returns the condition that all columns have the given values. A nil value matches NULL.
func (t *Table) Where(where map[string]any) (string, []any, error) {
	if len(where) == 0 {
		return "", nil, dberr.Invalid("where", "say which rows, as an object of column and value; for other conditions use db_execute")
	}

	for name, value := range where {
		switch value.(type) {
		case []any, map[string]any: // as JSON text, they would not match any row
			return "", nil, dberr.Invalid("where."+name, "where says which value %s has, and is given a list or an object: for one of several values, and for other conditions, use db_execute; a stored list is asked for as its JSON text", name)
		}
	}

	columns, values, err := t.Pairs("where", where)
	if err != nil {
		return "", nil, err
	}

	for i, name := range columns {
		// IS instead of =, so that null matches NULL.
		columns[i] = sqltext.Quote(name) + " IS ?"
	}

	return " WHERE " + strings.Join(columns, " AND "), values, nil
}

// Pairs checks the columns of an object and returns them in sorted order with their values. The
// host's columns are allowed in conditions, but cannot be set.
func (t *Table) Pairs(field string, from map[string]any) (columns []string, values []any, err error) {
	names := make([]string, 0, len(from))
	for name := range from {
		names = append(names, name)
	}

	// Sorted, so that the same columns give the same statement and the same first error.
	slices.Sort(names)
	for _, given := range names {
		name, c := given, t.Column(given)
		host := t.HasHostColumns && sqltext.IsHostColumn(name)
		switch {
		case host && field == "set":
			return nil, nil, dberr.Invalid(field+"."+name, "the column %s is written by the host; leave it out", name)
		case c == nil && !host:
			return nil, nil, dberr.Invalid(field+"."+name, "the table %s has no column %q%s", t.Name, name, sqltext.DidYouMean(name, t.ColumnNames()))
		case c != nil:
			name = c.Name
		}
		if sqltext.ContainsFold(columns, name) {
			return nil, nil, dberr.Invalid(field+"."+name, "the column %s is named twice", name)
		}

		value, err := sqlvalue.Storable(from[given])
		if err != nil {
			return nil, nil, dberr.Invalid(field+"."+name, "the value of %s cannot be stored: %v", name, err)
		}

		columns, values = append(columns, name), append(values, value)
	}

	return columns, values, nil
}
