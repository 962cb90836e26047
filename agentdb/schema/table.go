package schema

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
)

// Column types of a table. Other types are rejected or mapped to these, because SQLite derives a
// column's behavior from the spelling of its type: a column declared STRING turns "007" into 7.
const (
	TypeInteger = "INTEGER"
	TypeReal    = "REAL"
	TypeText    = "TEXT"
	typeBlob    = "BLOB"
	TypeNumeric = "NUMERIC"
)

// TableSpec is the specification of a new table.
type TableSpec struct {
	Name    string   `json:"name"`
	Purpose string   `json:"purpose"`
	Columns []Column `json:"columns"`
	Indexes []Index  `json:"indexes,omitempty"`
	// Existing table with this name stays unchanged.
	IfNotExists bool `json:"if_not_exists,omitempty"`
}

// Column is one column of a table.
type Column struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Nullable   *bool           `json:"nullable,omitempty"` // nil means true
	Default    json.RawMessage `json:"default,omitempty"`  // text, number, true, false or null
	PrimaryKey bool            `json:"primary_key,omitempty"`
}

// IsNumeric reports whether the column holds numbers.
func (c Column) IsNumeric() bool {
	kind, err := c.columnType("")
	return err == nil && (kind == TypeInteger || kind == TypeReal || kind == TypeNumeric)
}

// Index is one index of a table.
type Index struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Unique  bool     `json:"unique,omitempty"`
}

// Statements checks a specification and returns the SQL that creates the table and its indexes.
func (s TableSpec) Statements() ([]string, error) {
	if err := s.check(); err != nil {
		return nil, err
	}

	defs, key, err := s.columns()
	if err != nil {
		return nil, err
	}

	for _, name := range []string{sqltext.ColumnCreated, sqltext.ColumnUpdated} {
		defs = append(defs, sqltext.Quote(name)+" TEXT NOT NULL DEFAULT ("+sqltext.Now+")")
	}

	defs = append(defs, sqltext.Quote(sqltext.ColumnDeleted)+" TEXT")
	if len(key) > 0 {
		defs = append(defs, "PRIMARY KEY ("+sqltext.QuoteAll(key)+")")
	}

	out := []string{
		"CREATE TABLE " + sqltext.Quote(s.Name) + " (\n  " + strings.Join(defs, ",\n  ") + "\n)",
		sqltext.TouchTrigger(s.Name),
	}
	for _, index := range s.Indexes {
		out = append(out, index.statement(s.Name))
	}

	return out, nil
}

func (i Index) statement(table string) string {
	unique := ""
	if i.Unique {
		unique = "UNIQUE "
	}
	return "CREATE " + unique + "INDEX " + sqltext.Quote(i.Name) + " ON " + sqltext.Quote(table) + " (" + sqltext.QuoteAll(i.Columns) + ")"
}

func (s TableSpec) check() error {
	if err := sqltext.CheckTable("name", s.Name); err != nil {
		return err
	}
	if strings.TrimSpace(s.Purpose) == "" {
		return dberr.Invalid("purpose", "say in a sentence what the table %s is for; later runs see it in the schema", s.Name)
	}
	if len(s.Columns) == 0 {
		return dberr.Invalid("columns", "the table %s needs at least one column", s.Name)
	}

	if len(s.Columns) > MaxColumns {
		return dberr.Invalid("columns", "the table %s would have %d columns, and %d are allowed; keep what belongs together in a table of its own", s.Name, len(s.Columns), MaxColumns)
	}

	taken := make(map[string]bool, len(s.Columns))
	for i, c := range s.Columns {
		if err := sqltext.CheckColumn(fmt.Sprintf("columns[%d].name", i), c.Name); err != nil {
			return err
		}
		if taken[strings.ToLower(c.Name)] {
			return dberr.Invalid(fmt.Sprintf("columns[%d].name", i), "the column %s is declared twice", c.Name)
		}
		taken[strings.ToLower(c.Name)] = true
	}

	names := []string{s.Name}
	for i, index := range s.Indexes {
		field := fmt.Sprintf("indexes[%d]", i)
		if err := index.check(field, s); err != nil {
			return err
		}
		if sqltext.ContainsFold(names, index.Name) {
			return dberr.Invalid(field+".name", "the name %s is given twice: tables and indexes share their names", index.Name)
		}
		names = append(names, index.Name)
	}

	return nil
}

func (i Index) check(field string, s TableSpec) error {
	if err := sqltext.CheckTable(field+".name", i.Name); err != nil {
		return err
	}
	if len(i.Columns) == 0 {
		return dberr.Invalid(field+".columns", "the index %s names no column", i.Name)
	}

	names := []string{"id", sqltext.ColumnCreated, sqltext.ColumnUpdated, sqltext.ColumnDeleted}
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}

	for _, name := range i.Columns {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) }) {
			return dberr.Invalid(field+".columns", "the index %s names the column %q, which the table %s does not have%s", i.Name, name, s.Name, sqltext.DidYouMean(name, names))
		}
	}

	return nil
}

// columns returns the column definitions. It adds an id unless an id or a primary key is
// declared. key lists the columns of a separate PRIMARY KEY clause.
func (s TableSpec) columns() (defs, key []string, err error) {
	declared := s.primaryKey()
	if len(declared) == 0 {
		defs = append(defs, sqltext.Quote("id")+" INTEGER PRIMARY KEY AUTOINCREMENT")
	}

	for i, c := range s.Columns {
		isKey := slices.Contains(declared, c.Name)
		def, whole, err := c.definition(fmt.Sprintf("columns[%d]", i), isKey, len(declared) == 1)
		if err != nil {
			return nil, nil, err
		}

		defs = append(defs, def)
		if isKey && !whole {
			key = declared
		}
	}

	return defs, key, nil
}

// primaryKey returns the columns declared as the primary key, or a declared id. It returns nil if
// the host adds its own id.
func (s TableSpec) primaryKey() (key []string) {
	var id []string
	for _, c := range s.Columns {
		if c.PrimaryKey {
			key = append(key, c.Name)
		}
		if strings.EqualFold(c.Name, "id") {
			id = []string{c.Name}
		}
	}

	if len(key) == 0 {
		return id
	}
	return key
}

// definition returns the SQL of one column. whole reports whether it includes the primary key.
func (c Column) definition(field string, key, alone bool) (def string, whole bool, err error) {
	typ, err := c.columnType(field)
	if err != nil {
		return "", false, err
	}

	def = sqltext.Quote(c.Name) + " " + typ
	if key && alone && typ == TypeInteger {
		// SQLite makes the column the row id only with this spelling.
		def += " PRIMARY KEY"
		if strings.EqualFold(c.Name, "id") {
			def += " AUTOINCREMENT"
		}
		return def, true, nil
	}

	if key || c.Nullable != nil && !*c.Nullable {
		def += " NOT NULL" // SQLite allows NULL in a primary key
	}

	if len(c.Default) > 0 && string(c.Default) != "null" {
		literal, err := c.defaultLiteral(field)
		if err != nil {
			return "", false, err
		}
		def += " DEFAULT " + literal
	}

	return def, false, nil
}

func (c Column) defaultLiteral(field string) (string, error) {
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(c.Default)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return "", dberr.Invalid(field+".default", "the default of %s is not JSON: %v", c.Name, err)
	}

	switch v := value.(type) {
	case bool:
		if v {
			return "1", nil
		}
		return "0", nil
	case json.Number:
		return v.String(), nil
	case string:
		if word := strings.ToUpper(v); word == "CURRENT_TIMESTAMP" || word == "CURRENT_DATE" || word == "CURRENT_TIME" {
			return word, nil
		}
		if strings.ContainsRune(v, 0) {
			return "", dberr.Invalid(field+".default", "the default of %s holds a NUL character", c.Name)
		}
		return "'" + strings.ReplaceAll(v, "'", "''") + "'", nil
	}

	return "", dberr.Invalid(field+".default", "the default of %s must be a text, a number, true, false or null", c.Name)
}

// TypeLength matches a length such as (10) or (10,2), which SQLite ignores.
var TypeLength = regexp.MustCompile(`\s*\(\s*\d+\s*(,\s*\d+\s*)?\)$`)

func (c Column) columnType(field string) (string, error) {
	// VARCHAR(20) is accepted as TEXT. SQLite does not enforce the length either.
	name := strings.ToUpper(strings.TrimSpace(TypeLength.ReplaceAllString(strings.TrimSpace(c.Type), "")))
	switch name {
	case TypeInteger, "INT", "BIGINT", "SMALLINT", "TINYINT", "BOOLEAN", "BOOL", "LONG":
		return TypeInteger, nil
	case TypeReal, "FLOAT", "DOUBLE", "DOUBLE PRECISION", "NUMBER":
		return TypeReal, nil
	case TypeText, "STRING", "VARCHAR", "CHAR", "NVARCHAR", "CLOB", "DATE", "DATETIME", "TIMESTAMP", "TIME", "JSON", "UUID":
		return TypeText, nil
	case typeBlob, "BYTES", "BINARY":
		return typeBlob, nil
	case TypeNumeric, "DECIMAL", "MONEY":
		return TypeNumeric, nil
	}

	return "", dberr.Invalid(field+".type", "the column %s has the unknown type %q; use TEXT (also for dates), INTEGER, REAL, NUMERIC or BLOB", c.Name, c.Type)
}

// MaxColumns is the maximum number of columns of a table. SQLite allows 2,000, including the
// host's.
const MaxColumns = 1990
