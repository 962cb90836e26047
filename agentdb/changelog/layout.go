package changelog

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// Layout describes a table as needed to write it and to record its rows.
type Layout struct {
	Name     string
	columns  []string // all stored columns, including the host's
	defaults []string // SQL defaults of the columns; "" means no default
	position []int    // indexes of the columns in SQLite's row values
	Key      []string // columns that identify a row: the primary key, or the row id
	ByRowID  bool     // Key is the row id, under a name that no column has
	Plain    bool     // writing a row affects and reads only that row
	Parent   bool     // a foreign key of another table refers to this one
}

const selectLayout = `select c.cid, c.name, c.hidden, c.pk, c."notnull", l.wr, coalesce(c.dflt_value, ''), c.type,
	exists (select 1 from pragma_index_list(l.name) where origin = 'pk')
	from pragma_table_list l join pragma_table_xinfo(l.name) c
	where l.schema = 'main' and l.type = 'table' and l.name = ?1 collate nocase order by c.cid`

const selectPlain = `select m.name, m.sql,
	exists (select 1 from sqlite_schema where type = 'trigger' and tbl_name = m.name collate nocase and substr(name, 1, 1) <> '_')
	or exists (select 1 from pragma_index_list(m.name) i join pragma_index_xinfo(i.name) c where i.partial or c.cid = -2),
	exists (select 1 from sqlite_schema o join pragma_foreign_key_list(o.name) f where o.type = 'table' and f."table" = m.name collate nocase)
	from sqlite_schema m where m.type = 'table' and m.name = ?1 collate nocase`

// ReadLayout reads the layout of a table. It returns sql.ErrNoRows if there is no such table.
func ReadLayout(ctx context.Context, tx *sqlite.Tx, name string) (*Layout, error) {
	t := &Layout{}
	var text string
	var busy bool
	if err := tx.QueryRow(selectPlain, name).Scan(&t.Name, &text, &busy, &t.Parent); err != nil {
		return nil, err
	}

	t.Plain = !busy && plainText(text)
	rows, err := tx.Query(selectLayout, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	nullable, rowID := false, false
	var all []string
	for rows.Next() {
		var cid, hidden, pk int
		var column, value, typ string
		var notNull, without, index bool
		if err := rows.Scan(&cid, &column, &hidden, &pk, &notNull, &without, &value, &typ, &index); err != nil {
			return nil, err
		}

		all = append(all, strings.ToLower(column))
		if hidden == 0 {
			t.columns, t.defaults, t.position = append(t.columns, column), append(t.defaults, value), append(t.position, cid)
			t.Plain = t.Plain && (sqltext.IsHostColumn(column) || constant(value))
		}

		if pk > 0 {
			for len(t.Key) < pk {
				t.Key = append(t.Key, "")
			}
			t.Key[pk-1] = column
			nullable = nullable || !notNull && !without
			rowID = strings.EqualFold(typ, "INTEGER") && !index
		}
	}

	if err := rows.Err(); err != nil {
		return nil, err
	}

	// Only a key that is never NULL identifies every row.
	if len(t.Key) == 0 || nullable && (!rowID || len(t.Key) > 1) {
		t.ByRowID, t.Key = true, []string{rowIDName(all)}
	}

	return t, nil
}

func rowIDName(columns []string) string {
	for _, name := range []string{"rowid", "_rowid_", "oid"} {
		if !slices.Contains(columns, name) {
			return name
		}
	}
	return "rowid" // CREATE TABLE rejects a table with all three
}

var literal = regexp.MustCompile(`(?is)^([-+]?[0-9.]+(e[-+]?[0-9]+)?|[-+]?0x[0-9a-f]+|x?'.*'|".*"|null|true|false)?$`)

// constant reports whether a column's default is a constant.
func constant(value string) bool { return literal.MatchString(strings.TrimSpace(value)) }

// plainText reports whether the SQL of a table ensures that writing a row affects and reads only
// that row. A wrong false only makes the write slower.
func plainText(sql string) bool {
	for i := 0; i < len(sql); {
		next, _ := sqltext.NextToken(sql, i)
		switch strings.ToUpper(sql[i:next]) {
		case "CHECK", "CONFLICT", "REFERENCES", "GENERATED", "AS", "COLLATE":
			return false
		}
		i = next
	}
	return true
}

// ImageColumns returns the columns of a complete row image.
func (t *Layout) ImageColumns() []string {
	if t.ByRowID {
		return append([]string{t.Key[0]}, t.columns...)
	}
	return t.columns
}

// Selection returns the column list for a SELECT. The plus sign keeps the driver from converting
// a text to a time if the column was declared as DATE.
func Selection(columns []string) string {
	out := make([]string, len(columns))
	for i, name := range columns {
		out[i] = "+" + sqltext.Quote(name)
	}
	return strings.Join(out, ", ")
}

// row returns the image of a row that SQLite reported.
func (t *Layout) row(values []any, rowID int64) Image {
	m := Image{Columns: t.ImageColumns()}
	if t.ByRowID {
		m.Values = append(m.Values, rowID)
	}

	for _, at := range t.position {
		var v any
		if at < len(values) {
			v = values[at]
		}
		m.Values = append(m.Values, v)
	}

	return m
}

// Pick returns an image with only these columns.
func (m Image) Pick(columns []string) Image {
	out := Image{Columns: columns, Values: make([]any, len(columns))}
	for i, name := range columns {
		out.Values[i], _ = m.Get(name)
	}
	return out
}
