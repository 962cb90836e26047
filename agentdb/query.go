package agentdb

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/dberr"
	"rouse/agentdb/schema"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
	"rouse/internal/storage/sqlite"
	"rouse/internal/text"
)

// Limits of a query's result.
const (
	defaultRows = 1000
	maxRows     = 5000
	maxEncoded  = 80_000 // size of the rows as JSON, in bytes
)

// QuerySpec is a SQL query with its parameters and limits.
type QuerySpec struct {
	SQL            string
	Params         []any          // for ?
	Named          map[string]any // for :name, @name and $name
	AllowExtra     bool           // Named may have values that the SQL does not use
	Limit          int            // maximum number of rows; 0 means 1,000; at most 5,000
	Offset         int
	IncludeDeleted bool

	// redefines is the saved view that will get this SQL. The SQL must not refer to it. Optional.
	redefines string
}

// Rows is the result of a query. A repeated column name gets the suffix _2.
type Rows struct {
	Columns   []string         `json:"columns"`
	Rows      []map[string]any `json:"rows"`
	Truncated bool             `json:"truncated"`
	Warnings  []string         `json:"-"` // hints for reading the remaining rows
}

// Query runs one SELECT on connections that cannot write, with a deadline.
func (db *DB) Query(ctx context.Context, spec QuerySpec) (Rows, error) {
	limit, err := spec.limit()
	if err != nil {
		return Rows{}, err
	}

	bounded, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()

	out, size := Rows{Rows: []map[string]any{}}, 0
	begin := func(columns []string) error {
		out.Columns = columns
		return nil
	}
	err = db.eachRow(bounded, spec, limit, begin, func(values []any) (more bool, err error) {
		row := make(map[string]any, len(values))
		for i, v := range values {
			row[out.Columns[i]] = v
		}

		encoded, err := json.Marshal(row)
		if err != nil {
			return false, fmt.Errorf("a row cannot be written as JSON: %w", err)
		}
		if size += len(encoded) + len(","); size > maxEncoded && len(out.Rows) == 0 {
			return false, dberr.Invalid("sql", "a single row of the answer has %s; ask for fewer columns, or for a part with substr()", text.Size(int64(len(encoded))))
		}
		if size > maxEncoded || len(out.Rows) == limit {
			out.Truncated = true
			out.Warnings = []string{fmt.Sprintf("the answer goes on: ask again with offset %d, or narrow the query", spec.Offset+len(out.Rows))}
			return false, nil
		}

		out.Rows = append(out.Rows, row)
		return true, nil
	})
	if err != nil {
		return Rows{}, db.Health.queryError(ctx, bounded, spec.SQL, err)
	}

	return out, nil
}

// eachRow calls begin with the result's columns, then take for each row until take returns false.
// It reads up to limit+1 rows. take must not keep its argument.
func (db *DB) eachRow(ctx context.Context, spec QuerySpec, limit int, begin func(columns []string) error, take func(row []any) (more bool, err error)) (err error) {
	text, err := sqltext.CheckSelect(spec.SQL)
	if err != nil {
		return err
	}
	args, err := spec.args(text)
	if err != nil {
		return err
	}

	conn, err := db.readers.conn(ctx, spec.IncludeDeleted)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	columns, text, err := describeQuery(ctx, db.db.Read(), conn, text, spec.redefines)
	if err != nil {
		return err
	}

	// The driver can interrupt only the first step of a statement. A materialized expression does
	// all its work in that step, and its LIMIT keeps the order.
	rows, err := conn.QueryContext(ctx, fmt.Sprintf("WITH \"the answer\" AS MATERIALIZED (SELECT * FROM (\n%s\n) LIMIT %d OFFSET %d) SELECT * FROM \"the answer\"",
		text, limit+1, spec.Offset), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := begin(columns); err != nil {
		return err
	}

	values := make([]any, len(columns))
	into := sqlvalue.Pointers(values)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, v := range values {
			values[i] = readable(v)
		}
		if more, err := take(values); !more || err != nil {
			return err
		}
	}
	return rows.Err()
}

// describe compiles the statement as written, so that errors refer to the original text, and
// returns its column names.
func describe(conn *sql.Conn, text string) (names []string, err error) {
	var info []msqlite.ColumnInfo
	err = conn.Raw(func(c any) error {
		describer, ok := c.(interface {
			ColumnInfo(query string) ([]msqlite.ColumnInfo, error)
		})
		if !ok {
			return errors.New("the SQLite driver cannot describe a statement")
		}

		info, err = describer.ColumnInfo(text)
		return err
	})

	taken := make(map[string]bool, len(info))
	for _, column := range info {
		names = append(names, sqltext.Unique(column.Name, taken))
	}

	return names, err
}

// readable converts a stored value for JSON output.
func readable(v any) any {
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case time.Time: // made by the driver for columns declared as DATE or similar
		return v.UTC().Format(sqlvalue.TimeLayout)
	case float64:
		if math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return text.Decimal(v)
	}
	return v
}

func (s QuerySpec) limit() (int, error) {
	switch {
	case s.Limit < 0:
		return 0, dberr.Invalid("limit", "limit must not be negative")
	case s.Offset < 0:
		return 0, dberr.Invalid("offset", "offset must not be negative")
	case s.Limit == 0:
		return defaultRows, nil
	}
	return min(s.Limit, maxRows), nil
}

// args returns the parameter values of the SQL in the driver's form.
func (s QuerySpec) args(sqlText string) ([]any, error) {
	want := sqltext.ParametersOf(sqlText)
	if s.AllowExtra {
		s.Named = want.Filter(s.Named)
	}
	// SQLite treats a missing value as NULL, which gives a wrong result instead of an error.
	if err := want.Check(s.Params, s.Named); err != nil {
		return nil, err
	}

	var args []any
	for i, v := range s.Params {
		value, err := sqlvalue.Storable(v)
		if err != nil {
			return nil, dberr.Invalid(fmt.Sprintf("params[%d]", i), "the parameter cannot be used: %v", err)
		}
		args = append(args, value)
	}

	for name, v := range s.Named {
		value, err := sqlvalue.Storable(v)
		if err != nil {
			return nil, dberr.Invalid("params."+name, "the parameter cannot be used: %v", err)
		}
		args = append(args, sql.Named(strings.TrimLeft(name, ":@$"), value))
	}

	return args, nil
}

// queryError turns SQLite's error into a message the agent can act on. ctx is the caller's
// context; bounded also has the query's deadline.
func (h *Health) queryError(ctx, bounded context.Context, text string, err error) error {
	var bad *dberr.Error
	code := sqlite.Code(err)
	switch {
	case errors.As(err, &bad):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bounded.Err() != nil:
		return &dberr.Error{Kind: dberr.KindTimeout, Field: "sql", Retryable: true, Message: fmt.Sprintf("the query took longer than %s and was stopped; narrow it with WHERE, or split it", h.timeout)}
	case corrupt(err):
		return h.quarantine(err)
	case code == sqlite3.SQLITE_NOMEM:
		return dberr.Invalid("sql", "the query wants more memory than SQLite has here (512 MiB): make smaller values, or ask for fewer columns at once")
	case code == sqlite3.SQLITE_AUTH:
		return dberr.Invalid("sql", "%s: a query only reads the agent's own tables; db_schema lists them", dberr.SQLText(err))
	case code == sqlite3.SQLITE_ERROR, code == sqlite3.SQLITE_TOOBIG, code == sqlite3.SQLITE_RANGE, code == sqlite3.SQLITE_MISMATCH, code == sqlite3.SQLITE_READONLY:
		return dberr.Invalid("sql", "%s%s", dberr.SQLText(err), suggest(ctx, h.db.Read(), dberr.SQLText(err))).At(sqltext.ExcerptFor(text, dberr.SQLText(err)))
	case strings.Contains(err.Error(), "missing argument"), strings.Contains(err.Error(), "missing named argument"):
		return dberr.Invalid("params", "the SQL has more parameters than were given: %v", err)
	}

	return fmt.Errorf("cannot read %s: %w", h.path, err)
}

// suggest returns a hint with the table or column name that was probably meant, or "".
func suggest(ctx context.Context, q sqlite.Querier, message string) string {
	tables, err := schema.ReadTables(ctx, q, "")
	if err != nil {
		return "" // only the hint is missing
	}

	if name, ok := strings.CutPrefix(message, "no such table: "); ok {
		name = name[strings.LastIndexByte(name, '.')+1:]
		views, err := sqlite.Collect(ctx, q, sqlite.Single[string], `select name from _views order by name`)
		if err != nil {
			return ""
		}
		if slices.ContainsFunc(views, func(v string) bool { return strings.EqualFold(v, name) }) {
			return "; it is a saved view, which queries can name, and statements that write cannot"
		}
		return sqltext.DidYouMean(name, append(schema.TableNames(tables), views...))
	}

	name, ok := strings.CutPrefix(message, "no such column: ")
	if !ok {
		return ""
	}

	// SQLite adds this suffix to a name in double quotes, which may be meant as a string.
	name, _, quoted := strings.Cut(name, " - should this be")
	name = strings.Trim(name[strings.LastIndexByte(name, '.')+1:], `"`)
	columns := []string{sqltext.ColumnCreated, sqltext.ColumnUpdated}
	for _, t := range tables {
		columns = append(columns, t.ColumnNames()...)
	}
	if best := text.Nearest(name, columns); quoted && (best == "" || len(name) < 4) {
		return "" // meant as a string
	}

	return sqltext.DidYouMean(name, columns)
}
