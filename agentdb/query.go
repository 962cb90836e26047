package agentdb

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

	if out.Columns, err = describe(conn, text); err != nil {
		return Rows{}, err
	}

	// The driver interrupts a statement in its first step only, so all of the work has to
	// happen there: a materialized expression does that, and its limit keeps the order.
	wrapped := fmt.Sprintf("WITH \"the answer\" AS MATERIALIZED (SELECT * FROM (\n%s\n) LIMIT %d OFFSET %d) SELECT * FROM \"the answer\"", text, limit+1, spec.Offset)
	rows, err := conn.QueryContext(ctx, wrapped, args...)
	if err != nil {
		return Rows{}, err
	}
	defer rows.Close()

	err = out.read(rows, spec.Offset, limit)
	return out, err
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

// read takes rows until one of the bounds is met.
func (out *Rows) read(rows *sql.Rows, offset, limit int) error {
	out.Rows = []map[string]any{}
	values := make([]any, len(out.Columns))
	size := 0
	for rows.Next() {
		if err := rows.Scan(pointers(values)...); err != nil {
			return err
		}

		row := make(map[string]any, len(values))
		for i, v := range values {
			row[out.Columns[i]] = readable(v)
		}

		encoded, err := json.Marshal(row)
		if err != nil {
			return fmt.Errorf("a row cannot be written as JSON: %w", err)
		}

		// The comma between two rows counts too.
		size += len(encoded) + 1
		if size > maxEncoded && len(out.Rows) == 0 {
			return invalid("sql", "a single row of the answer has %s; ask for fewer columns, or for a part with substr()", text.Size(int64(len(encoded))))
		}

		if size > maxEncoded || len(out.Rows) == limit {
			out.Truncated = true
			out.Warnings = []string{fmt.Sprintf("the answer goes on: ask again with offset %d, or narrow the query", offset+len(out.Rows))}
			return nil
		}

		out.Rows = append(out.Rows, row)
	}

	return rows.Err()
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
		if saved, err := savedView(ctx, q, name); err == nil && saved {
			return "; it is a saved view, and db_run_view asks it"
		}
		return didYouMean(name, tableNames(tables))
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

func savedView(ctx context.Context, q querier, name string) (saved bool, err error) {
	rows, err := q.QueryContext(ctx, `select 1 from _views where name = ? collate nocase`, name)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	saved = rows.Next()
	return saved, rows.Err()
}
