package agentdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	msqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rouse/agentdb/sqlite"
	"rouse/internal/text"
)

// Bounds of a query's result, OSA-56.
const (
	defaultRows = 1000
	maxRows     = 5000
	maxEncoded  = 80_000 // bytes of the rows as JSON
)

// QuerySpec asks a question in SQL.
type QuerySpec struct {
	SQL            string
	Params         []any          // for ?
	Named          map[string]any // for :name, @name and $name
	AllowExtra     bool           // Named may have values that the SQL does not ask for
	Limit          int            // 0 means 1,000; 5,000 at most
	Offset         int
	IncludeDeleted bool

	redefines string // the saved view that the SQL is going to be, which it must not name; "": none
}

// Rows is the answer. A repeated column name gets _2.
type Rows struct {
	Columns   []string         `json:"columns"`
	Rows      []map[string]any `json:"rows"`
	Truncated bool             `json:"truncated"`
	Warnings  []string         `json:"-"` // how to get the rest
}

// Query runs one SELECT on connections that cannot write, under a deadline.
func (db *DB) Query(ctx context.Context, spec QuerySpec) (Rows, error) {
	text, err := checkSelect(spec.SQL)
	if err != nil {
		return Rows{}, err
	}

	limit, err := spec.limit()
	if err != nil {
		return Rows{}, err
	}

	// SQLite takes a missing value for NULL, which gives a wrong answer instead of an error.
	want := parametersOf(text)
	if spec.AllowExtra {
		spec.Named = want.filter(spec.Named)
	}
	if err := want.check(spec.Params, spec.Named); err != nil {
		return Rows{}, err
	}

	args, err := spec.args()
	if err != nil {
		return Rows{}, err
	}

	bounded, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()

	out, err := db.query(bounded, spec, text, args, limit)
	if err != nil {
		return Rows{}, db.queryError(ctx, bounded, spec.SQL, err)
	}

	return out, nil
}

func (db *DB) query(ctx context.Context, spec QuerySpec, text string, args []any, limit int) (out Rows, err error) {
	conn, err := db.readConn(ctx, spec.IncludeDeleted)
	if err != nil {
		return Rows{}, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	statement, err := db.compileQuery(ctx, conn, spec, text, limit)
	if err != nil {
		return Rows{}, err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()

	out = Rows{Columns: slices.Clone(statement.Columns), Rows: []map[string]any{}}
	reading := &rowReader{into: &out, offset: spec.Offset, limit: limit}
	err = statement.Query(ctx, bound(args), reading.take)
	return out, err
}

// compileQuery gives the statement that answers a query, with the names of its columns. One that the connection has
// compiled before was decided on then, for the same schema; one that names saved views is never found again, because what it
// stands for can change while the schema stays.
func (db *DB) compileQuery(ctx context.Context, conn *sqlite.GuardedConn, spec QuerySpec, text string, limit int) (*sqlite.Prepared, error) {
	if statement := conn.Cached(materialized(text, limit, spec.Offset)); statement != nil {
		return statement, nil
	}

	columns, whole, err := db.describeQuery(ctx, conn.Conn, text, spec.redefines)
	if err != nil {
		return nil, err
	}

	statement, err := conn.Prepare(materialized(whole, limit, spec.Offset))
	if err != nil {
		return nil, err
	}

	statement.Columns = columns
	return statement, nil
}

// materialized wraps a query, for one row more than its limit. The driver interrupts a statement in its first step only,
// so all of the work has to happen there: a materialized expression does that, and its limit keeps the order.
func materialized(text string, limit, offset int) string {
	const before, limited, after = "WITH \"the answer\" AS MATERIALIZED (SELECT * FROM (\n", "\n) LIMIT ", ") SELECT * FROM \"the answer\""
	return before + text + limited + strconv.Itoa(limit+1) + " OFFSET " + strconv.Itoa(offset) + after
}

// bound are values as the driver takes them.
func bound(args []any) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, v := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
		if named, ok := v.(sql.NamedArg); ok {
			out[i].Name, out[i].Value = named.Name, named.Value
		}
	}
	return out
}

// describe compiles the statement as it was written, so that its errors speak of it alone,
// and names its columns.
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
		names = append(names, unique(column.Name, taken))
	}

	return names, err
}

// rowReader takes rows until one of the bounds is met.
type rowReader struct {
	into          *Rows
	offset, limit int
	size          int // bytes of the rows as JSON
	names         int // bytes of what each row has beside its values
}

func (r *rowReader) take(values []driver.Value) (more bool, err error) {
	out := r.into
	if r.names == 0 {
		r.names = len("{},") // the comma between two rows counts too
		for _, name := range out.Columns {
			n, err := jsonSize(name)
			if err != nil {
				return false, err
			}
			r.names += n + len(":,")
		}
	}

	row := make(map[string]any, len(values))
	size := r.names - len(",") // there is none after the last value
	for i, v := range values {
		v = readable(v)
		row[out.Columns[i]] = v

		n, err := jsonSize(v)
		if err != nil {
			return false, fmt.Errorf("a row cannot be written as JSON: %w", err)
		}
		size += n
	}
	r.size += size
	if r.size > maxEncoded && len(out.Rows) == 0 {
		return false, invalid("sql", "a single row of the answer has %s; ask for fewer columns, or for a part with substr()", text.Size(int64(size-1)))
	}

	if r.size > maxEncoded || len(out.Rows) == r.limit {
		out.Truncated = true
		out.Warnings = []string{fmt.Sprintf("the answer goes on: ask again with offset %d, or narrow the query", r.offset+len(out.Rows))}
		return false, nil
	}

	out.Rows = append(out.Rows, row)
	return true, nil
}

// jsonSize is how many bytes a value has as JSON.
func jsonSize(v any) (int, error) {
	switch v := v.(type) {
	case nil:
		return len("null"), nil
	case int64:
		var digits [20]byte
		return len(strconv.AppendInt(digits[:0], v, 10)), nil
	case string:
		if plainInJSON(v) {
			return len(`""`) + len(v), nil
		}
	}

	encoded, err := json.Marshal(v)
	return len(encoded), err
}

// plainInJSON says that each byte of a text stands for itself in JSON; others may be written as several.
func plainInJSON(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case b < ' ' || b >= 0x7f, b == '"', b == '\\', b == '<', b == '>', b == '&':
			return false
		}
	}
	return true
}

// readable makes a value fit for JSON, and for a person: what is stored stays as it is.
func readable(v any) any {
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case time.Time: // the driver makes these of columns that were declared DATE or the like
		return v.UTC().Format(timeLayout)
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
		return 0, invalid("limit", "limit must not be negative")
	case s.Offset < 0:
		return 0, invalid("offset", "offset must not be negative")
	case s.Limit == 0:
		return defaultRows, nil
	}
	return min(s.Limit, maxRows), nil
}

func (s QuerySpec) args() ([]any, error) {
	var args []any
	for i, v := range s.Params {
		value, err := storable(v)
		if err != nil {
			return nil, invalid(fmt.Sprintf("params[%d]", i), "the parameter cannot be used: %v", err)
		}
		args = append(args, value)
	}

	for name, v := range s.Named {
		value, err := storable(v)
		if err != nil {
			return nil, invalid("params."+name, "the parameter cannot be used: %v", err)
		}
		args = append(args, sql.Named(strings.TrimLeft(name, ":@$"), value))
	}

	return args, nil
}

// queryError turns SQLite's word into advice. ctx is the caller's, bounded ours.
func (db *DB) queryError(ctx, bounded context.Context, text string, err error) error {
	var bad *Error
	code := sqlCode(err)
	switch {
	case errors.As(err, &bad):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bounded.Err() != nil:
		return &Error{Kind: kindTimeout, Field: "sql", Retryable: true, Message: fmt.Sprintf("the query took longer than %s and was stopped; narrow it with WHERE, or split it", db.timeout)}
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		return db.marker.Quarantine(&sqlite.CorruptError{Path: db.path, Reason: "it is damaged (" + sqlText(err) + ")"})
	case code == sqlite3.SQLITE_NOMEM:
		return invalid("sql", "the query wants more memory than SQLite has here (512 MiB): make smaller values, or ask for fewer columns at once")
	case code == sqlite3.SQLITE_AUTH:
		return invalid("sql", "%s: a query only reads the agent's own tables; db_schema lists them", sqlText(err))
	case code == sqlite3.SQLITE_ERROR, code == sqlite3.SQLITE_TOOBIG, code == sqlite3.SQLITE_RANGE, code == sqlite3.SQLITE_MISMATCH, code == sqlite3.SQLITE_READONLY:
		return invalid("sql", "%s%s", sqlText(err), db.suggest(ctx, sqlText(err))).at(excerptFor(text, sqlText(err)))
	case strings.Contains(err.Error(), "missing argument"), strings.Contains(err.Error(), "missing named argument"):
		return invalid("params", "the SQL has more parameters than were given: %v", err)
	}

	return fmt.Errorf("cannot read %s: %w", db.path, err)
}

// suggest names the table or column that was probably meant.
func (db *DB) suggest(ctx context.Context, text string) string {
	return db.suggestIn(ctx, db.db.Read(), text)
}

func (db *DB) suggestIn(ctx context.Context, q querier, message string) string {
	tables, err := readTables(ctx, q, "")
	if err != nil {
		return "" // the advice is an extra; the error itself is returned
	}

	if name, ok := strings.CutPrefix(message, "no such table: "); ok {
		name = name[strings.LastIndexByte(name, '.')+1:]
		views, err := savedViews(ctx, q)
		if err != nil {
			return ""
		}
		if slices.ContainsFunc(views, func(v string) bool { return strings.EqualFold(v, name) }) {
			return "; it is a saved view, which queries can name, and statements that write cannot"
		}
		return didYouMean(name, append(tableNames(tables), views...))
	}

	name, ok := strings.CutPrefix(message, "no such column: ")
	if !ok {
		return ""
	}

	// "amout" in double quotes: SQLite adds that it may be meant as a text.
	name, _, quoted := strings.Cut(name, " - should this be")
	name = strings.Trim(name[strings.LastIndexByte(name, '.')+1:], `"`)
	columns := []string{createdAt, updatedAt}
	for _, t := range tables {
		columns = append(columns, t.columnNames()...)
	}
	if best := text.Nearest(name, columns); quoted && (best == "" || len(name) < 4) {
		return "" // it was meant as a text
	}

	return didYouMean(name, columns)
}

// savedViews are the names of the queries that were saved.
func savedViews(ctx context.Context, q querier) (names []string, err error) {
	rows, err := q.QueryContext(ctx, `select name from _views order by name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}
