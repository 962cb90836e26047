// Package schema describes the tables of an agent's database. It reads, creates and changes
// tables inside a transaction of the caller, and checks rows that are given as maps.
package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/internal/storage/sqlite"
)

// Schema lists the tables and views of an agent's database.
type Schema struct {
	Tables []Table `json:"tables"`
	Views  []View  `json:"views,omitempty"`
}

// View is a query that the agent saved, or an SQL view.
type View struct {
	Name   string   `json:"name"`
	SQL    string   `json:"sql"`
	Params []string `json:"params,omitempty"`
	Saved  bool     `json:"saved"` // saved query, which db_run_view can run; false for an SQL view
}

// Table is one table of a Schema, without the host's columns.
type Table struct {
	Name           string   `json:"name"`
	Purpose        string   `json:"purpose"`
	RowCount       int64    `json:"row_count"` // live rows
	Columns        []Column `json:"columns"`
	Indexes        []Index  `json:"indexes"`
	Key            []string // primary key
	RowKey         string   // column that is the row id, or ""
	HasHostColumns bool
	createdAt      string
}

// ReadViews returns the SQL views and the saved views, in the order of their names.
func ReadViews(ctx context.Context, q sqlite.Querier) ([]View, error) {
	return sqlite.Collect(ctx, q, func(scan sqlite.Scanner) (v View, err error) {
		var params string
		if err := scan(&v.Name, &v.SQL, &params, &v.Saved); err != nil {
			return v, err
		}

		var declared []struct{ Name string }
		if err := json.Unmarshal([]byte(params), &declared); err != nil {
			return v, fmt.Errorf("the parameters of the view %s cannot be read: %w", v.Name, err)
		}
		for _, p := range declared {
			v.Params = append(v.Params, p.Name)
		}
		return v, nil
	}, `select name, sql, '[]', 0 from sqlite_schema where type = 'view' and substr(name, 1, 1) <> '_'
		union all select name, sql, params, 1 from _views order by 1`)
}

// UserTables is a condition that excludes the tables of the host and of SQLite.
const UserTables = `m.type = 'table' and substr(m.name, 1, 1) <> '_' and m.name not like 'sqlite\_%' escape '\'`

// ReadTables returns all tables. If only is not empty, it returns only the table of that name.
func ReadTables(ctx context.Context, q sqlite.Querier, only string) ([]Table, error) {
	tables, err := readColumns(ctx, q, only)
	if err != nil {
		return nil, err
	}
	if err := readIndexes(ctx, q, tables, only); err != nil {
		return nil, err
	}
	return tables, readPurposes(ctx, q, tables)
}

func readColumns(ctx context.Context, q sqlite.Querier, only string) ([]Table, error) {
	rows, err := q.QueryContext(ctx, `select m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk
		from sqlite_schema m join pragma_table_xinfo(m.name) c where c.hidden = 0 and (?1 = '' or m.name = ?1 collate nocase) and `+UserTables+` order by m.rowid, c.cid`, only)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	var tables []Table
	for rows.Next() {
		var table string
		var c Column
		var notNull bool
		var def *string
		var pk int
		if err := rows.Scan(&table, &c.Name, &c.Type, &notNull, &def, &pk); err != nil {
			return nil, err
		}

		if len(tables) == 0 || tables[len(tables)-1].Name != table {
			tables = append(tables, Table{Name: table, Indexes: []Index{}})
		}

		t := &tables[len(tables)-1]
		if sqltext.IsHostColumn(c.Name) {
			// The last of the three columns is enough: checkObjects ensures that a table has all
			// or none.
			t.HasHostColumns = t.HasHostColumns || strings.EqualFold(c.Name, sqltext.ColumnDeleted)
			continue
		}

		nullable := !notNull && pk == 0
		c.Nullable, c.PrimaryKey = &nullable, pk > 0
		if def != nil {
			if c.Default, err = json.Marshal(*def); err != nil {
				return nil, err
			}
		}

		t.addColumn(c, pk)
	}

	return tables, rows.Err()
}

// addColumn adds a column. pk is its position in the primary key, starting at 1, or 0.
func (t *Table) addColumn(c Column, pk int) {
	t.Columns = append(t.Columns, c)
	if pk == 0 {
		return
	}

	for len(t.Key) < pk {
		t.Key = append(t.Key, "")
	}

	t.Key[pk-1] = c.Name
	t.RowKey = ""
	// SQLite uses a primary key as the row id only with this spelling of the type.
	if len(t.Key) == 1 && strings.EqualFold(c.Type, TypeInteger) {
		t.RowKey = c.Name
	}
}

func readIndexes(ctx context.Context, q sqlite.Querier, tables []Table, only string) error {
	rows, err := q.QueryContext(ctx, `select m.name, i.name, i."unique", c.name
		from sqlite_schema m join pragma_index_list(m.name) i join pragma_index_info(i.name) c
		where i.origin = 'c' and i.partial = 0 and c.name is not null and (?1 = '' or m.name = ?1 collate nocase) and `+UserTables+` order by m.rowid, i.name, c.seqno`, only)
	if err != nil {
		return err
	}
	defer rows.Close()

	for rows.Next() {
		var table, name, column string
		var unique bool
		if err := rows.Scan(&table, &name, &unique, &column); err != nil {
			return err
		}

		i := slices.IndexFunc(tables, func(t Table) bool { return t.Name == table })
		if i < 0 {
			continue
		}

		indexes := &tables[i].Indexes
		if n := len(*indexes); n == 0 || (*indexes)[n-1].Name != name {
			*indexes = append(*indexes, Index{Name: name, Unique: unique})
		}

		last := &(*indexes)[len(*indexes)-1]
		last.Columns = append(last.Columns, column)
	}

	return rows.Err()
}

func readPurposes(ctx context.Context, q sqlite.Querier, tables []Table) error {
	known, err := sqlite.Collect(ctx, q, func(scan sqlite.Scanner) (t Table, err error) {
		err = scan(&t.Name, &t.Purpose, &t.createdAt)
		return t, err
	}, `select name, purpose, created_at from _tables_meta`)
	for _, k := range known {
		if i := slices.IndexFunc(tables, func(t Table) bool { return strings.EqualFold(t.Name, k.Name) }); i >= 0 {
			tables[i].Purpose, tables[i].createdAt = k.Purpose, k.createdAt
		}
	}
	return err
}

// Column returns the column with the given name, ignoring case, or nil.
func (t *Table) Column(name string) *Column {
	for i := range t.Columns {
		if strings.EqualFold(t.Columns[i].Name, name) {
			return &t.Columns[i]
		}
	}
	return nil
}

// ColumnNames returns the names of the columns.
func (t *Table) ColumnNames() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

// TableNames returns the names of tables.
func TableNames(tables []Table) []string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.Name
	}
	return names
}

// NeedTable returns the table with the given name. It returns an error if the table does not exist
// or belongs to the host. The error suggests a similar name.
func NeedTable(ctx context.Context, q sqlite.Querier, name string) (*Table, error) {
	if sqltext.IsReservedTable(name) {
		return nil, dberr.Invalid("table", "the table %q belongs to the host and cannot be written", name)
	}

	tables, err := ReadTables(ctx, q, name)
	if err != nil {
		return nil, err
	}
	if len(tables) > 0 {
		return &tables[0], nil
	}
	if tables, err = ReadTables(ctx, q, ""); err != nil {
		return nil, err
	}

	hint := sqltext.DidYouMean(name, TableNames(tables))
	if len(tables) == 0 {
		hint = "; there are no tables yet, create it with db_create_table"
	}

	return nil, &dberr.Error{Kind: dberr.KindNotFound, Field: "table", Retryable: true, Message: fmt.Sprintf("there is no table %q%s", name, hint)}
}
