package changelog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
)

// Step is one change of a database: SQL that changes the schema, or one row.
type Step struct {
	Change int64    // id of the changelog entry
	SQL    []string // statements; nil for a row

	Table string
	Key   Image // key of the row before the step
	// Before and After are the row before and after the step, or nil if there is no row. For an
	// update, they hold the columns that differ.
	Before, After *Image
}

// Steps returns the steps of a change in the order in which they happened.
func (c Change) Steps() ([]Step, error) {
	var out []Step
	var err error
	switch {
	case c.Op == opSchema:
		out = []Step{{SQL: []string{c.SQL}}}
	case c.Table == "": // executed SQL; its rows have their own entries
	case c.isChunk():
		out, err = c.chunk()
	default:
		out, err = c.row()
	}
	if err != nil {
		return nil, unreadable(c.ID, err)
	}

	for i := range out {
		out[i].Change, out[i].Table = c.ID, c.Table
	}

	return out, nil
}

// unreadable returns the error for a changelog entry with an unexpected format.
func unreadable(id int64, err error) error {
	return fmt.Errorf("row %d of the changelog cannot be read: %w", id, err)
}

// Reverse returns the steps that undo a change, in order.
func (c Change) Reverse() ([]Step, error) {
	if c.Op == opSchema {
		was, err := parseObjects(c.Before)
		if err != nil {
			return nil, unreadable(c.ID, err)
		}

		became, err := parseObjects(c.After)
		if err != nil {
			return nil, unreadable(c.ID, err)
		}

		statements, err := reverseSchema(was, became)
		if err != nil {
			return nil, fmt.Errorf("change %d cannot be undone: %w", c.ID, err)
		}

		return []Step{{Change: c.ID, Table: c.Table, SQL: statements}}, nil
	}

	steps, err := c.Steps()
	if err != nil {
		return nil, err
	}

	// Later rows of an entry may depend on earlier ones, for example if a unique value moved.
	slices.Reverse(steps)
	for i, s := range steps {
		steps[i] = s.reversed()
	}

	return steps, nil
}

// reversed returns the opposite step, keyed by the row's key after the original step.
func (s Step) reversed() Step {
	if s.After != nil {
		// The change may have changed the key.
		s.Key = s.Key.merged(*s.After)
	}
	s.Before, s.After = s.After, s.Before
	return s
}

func (c Change) row() ([]Step, error) {
	key, err := parseImage(c.PK)
	if err != nil {
		return nil, err
	}

	s := Step{Key: key}
	for text, into := range map[string]**Image{c.Before: &s.Before, c.After: &s.After} {
		if text == "" {
			continue
		}

		m, err := parseImage(text)
		if err != nil {
			return nil, err
		}
		*into = &m
	}

	return []Step{s}, nil
}

// chunkKey is the PK of a chunk; see Change.
type chunkKey struct {
	Column string   `json:"column"` // key column of rows numbered from From
	Keys   []string `json:"keys"`   // key columns, if the rows are not numbered
	From   any      `json:"from"`
	To     any      `json:"to"`
	Count  int64    `json:"count"`
	At     string   `json:"at"` // time of writing, for a chunk that was undone
}

// isChunk reports whether a change covers rows that were written or undone together.
func (c Change) isChunk() bool {
	// An undone chunk has its rows on the other side.
	rows := c.After
	if rows == "" {
		rows = c.Before
	}
	return strings.Contains(c.PK, `"count":`) && strings.HasPrefix(rows, `{"columns":[`)
}

func (c Change) chunk() ([]Step, error) {
	var pk chunkKey
	if err := sqlvalue.Decode(c.PK, &pk); err != nil {
		return nil, err
	}
	if pk.At != "" {
		return c.undoneChunk(pk)
	}

	rows, err := parseRows(c.After)
	if err != nil {
		return nil, err
	}

	before, err := parseRows(c.Before)
	if err != nil {
		return nil, err
	}

	// An upsert updated the rows in Before and inserted the others.
	was := make(map[string]Image, len(before))
	for _, m := range before {
		was[m.Pick(pk.Keys).String()] = m
	}

	out := make([]Step, len(rows))
	for i := range rows {
		if out[i], err = c.chunkRow(pk, rows[i], was, i); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// undoneChunk returns the steps of a chunk that was undone: the steps of the chunk, reversed.
func (c Change) undoneChunk(pk chunkKey) ([]Step, error) {
	written := Change{ID: c.ID, At: pk.At, Table: c.Table, Before: c.After, After: c.Before}
	pk.At = ""
	text, err := json.Marshal(pk)
	if err != nil {
		return nil, err
	}

	written.PK = string(text)
	out, err := written.chunk()
	slices.Reverse(out)
	for i := range out {
		out[i] = out[i].reversed()
	}

	return out, err
}

func (c Change) chunkRow(pk chunkKey, row Image, was map[string]Image, i int) (Step, error) {
	if pk.Column != "" {
		from, err := wholeNumber(pk.From)
		if err != nil {
			return Step{}, err
		}
		// The numbers are consecutive, so they are not stored for each row.
		number := Image{[]string{pk.Column}, []any{from + int64(i)}}
		whole := c.withTimestamps(Image{append(number.Columns[:1:1], row.Columns...), append(number.Values[:1:1], row.Values...)})
		return Step{Key: number, After: &whole}, nil
	}

	s := Step{Key: row.Pick(pk.Keys)}
	if m, ok := was[s.Key.String()]; ok {
		s.Before, s.After = &m, &row
		return s, nil
	}

	whole := c.withTimestamps(row)
	s.After = &whole
	return s, nil
}

// withTimestamps adds the host's columns. The rows of a chunk omit them because all rows have the
// same values. storedIn removes them for tables without these columns.
func (c Change) withTimestamps(m Image) Image {
	if _, ok := m.Get(sqltext.ColumnCreated); ok {
		return m
	}
	// The limited capacity makes append copy the columns, which all rows of a chunk share.
	n := len(m.Columns)
	return Image{append(m.Columns[:n:n], sqltext.ColumnCreated, sqltext.ColumnUpdated), append(m.Values[:n:n], c.At, c.At)}
}

// UnknownColumn returns a column of the step that the table does not have, or "".
func (s Step) UnknownColumn(t *Layout) string {
	for _, m := range []*Image{&s.Key, s.Before, s.After} {
		if m == nil {
			continue
		}
		if lost := m.missingIn(t); len(lost) > 0 {
			return lost[0]
		}
	}
	return ""
}

// Statement returns the SQL of a step for a row. Column names are qualified with the table,
// because SQLite takes an unknown bare name for a string. A conflicting row makes the statement
// fail. The query is empty if the table stores no column of an update any more.
func (s Step) Statement(t *Layout) (query string, args []any) {
	where := func() {
		conds := make([]string, len(s.Key.Columns))
		for i, name := range s.Key.Columns {
			conds[i] = sqltext.Quote(s.Table) + "." + sqltext.Quote(name) + " IS ?"
			args = append(args, s.Key.Values[i])
		}
		query += " WHERE " + strings.Join(conds, " AND ")
	}
	switch {
	case s.After == nil:
		query = "DELETE FROM " + sqltext.Quote(s.Table)
		where()
	case s.Before == nil:
		m := s.After.storedIn(t)
		args = m.Values
		query = "INSERT OR ABORT INTO " + sqltext.Quote(s.Table) + " (" + sqltext.QuoteAll(m.Columns) + ") VALUES (" + sqltext.Placeholders(len(m.Columns)) + ")"
	default:
		m := s.After.storedIn(t)
		// The table has lost every column that differed.
		if len(m.Columns) == 0 {
			return "", nil
		}

		set := make([]string, len(m.Columns))
		for i, name := range m.Columns {
			set[i] = sqltext.Quote(name) + " = ?"
		}

		args = append(args, m.Values...)
		query = "UPDATE OR ABORT " + sqltext.Quote(s.Table) + " SET " + strings.Join(set, ", ")
		where()
	}

	return query, args
}

// storedIn returns the image without the columns that the table does not store.
func (m Image) storedIn(t *Layout) (out Image) {
	for i, name := range m.Columns {
		if sqltext.ContainsFold(t.ImageColumns(), name) {
			out.Columns, out.Values = append(out.Columns, name), append(out.Values, m.Values[i])
		}
	}
	return out
}

// missingIn returns the columns that the table does not store, except the host's columns: chunk
// rows always get these.
func (m Image) missingIn(t *Layout) (out []string) {
	for _, name := range m.Columns {
		if !sqltext.IsHostColumn(name) && !sqltext.ContainsFold(t.ImageColumns(), name) {
			out = append(out, name)
		}
	}
	return out
}
