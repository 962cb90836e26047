package agentdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/sqlvalue"
)

// maxJoinedViews bounds how many saved views one query may name, with those that they name.
const maxJoinedViews = 50

// describeQuery compiles a query on a connection and names its columns. Saved views can be named
// like tables (OSA-60): the statement that is returned defines each that is named, with the
// defaults of its parameters, before what was written.
func (db *DB) describeQuery(ctx context.Context, conn *sql.Conn, text, redefined string) (columns []string, whole string, err error) {
	whole = text
	var views []string // as common table expressions
	for {
		if columns, err = describe(conn, whole); err == nil {
			return columns, whole, nil
		}

		name, missing := strings.CutPrefix(dberr.SQLText(err), "no such table: ")
		if !missing {
			return nil, "", err
		}
		if strings.EqualFold(name, redefined) {
			return nil, "", dberr.Invalid("sql", "the view %s would ask itself", redefined)
		}

		v, ok, problem := db.findView(ctx, name)
		switch {
		case problem != nil:
			return nil, "", problem
		case !ok:
			return nil, "", err // of the table that is not there
		case len(views) == maxJoinedViews:
			return nil, "", dberr.Invalid("sql", "the query names more than %d saved views, with those that they name", maxJoinedViews)
		}

		expression, err := v.expression()
		if err != nil {
			return nil, "", err
		}
		views = append(views, expression)
		whole = withExpressions(text, views)
	}
}

// findView reads the view of a name; false where there is none.
func (db *DB) findView(ctx context.Context, name string) (View, bool, error) {
	v, _, err := scanView(db.db.Read().QueryRowContext(ctx, selectView+whereName, name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return v, false, nil
	}
	return v, err == nil, err
}

// expression is a view as a common table expression, with the defaults of its parameters in their
// places: the names of parameters belong to the query that it is part of.
func (v View) expression() (string, error) {
	values, err := v.values(nil)
	var bad *dberr.Error
	if errors.As(err, &bad) {
		bad.Message += ", and is asked with db_run_view: like a table a view has the defaults of its parameters alone"
		return "", bad
	}

	text, err := sqltext.CheckSelect(v.SQL)
	if err != nil {
		return "", err
	}

	var b strings.Builder
	done := 0
	sqltext.EachParameter(text, func(at, end int) {
		if name := text[at+1 : end]; name != "" {
			b.WriteString(text[done:at] + sqlLiteral(values[name]))
			done = end
		}
	})
	return fmt.Sprintf("%s AS (\n%s\n)", sqltext.Quote(v.Name), b.String()+text[done:]), nil
}

// sqlLiteral writes a value of a parameter, which is a text, an int64, a realNumber or nil.
func sqlLiteral(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case sqlvalue.Real:
		return strconv.FormatFloat(float64(v), 'e', -1, 64) // with an exponent it stays a REAL
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	return "NULL"
}

// withExpressions puts common table expressions before those of a statement.
func withExpressions(text string, expressions []string) string {
	all := strings.Join(expressions, ",\n")
	first, after := nextWord(text, 0)
	if !strings.EqualFold(first, "WITH") {
		return "WITH " + all + "\n" + text
	}

	if second, end := nextWord(text, after); strings.EqualFold(second, "RECURSIVE") {
		after = end
	}
	return text[:after] + " " + all + "," + text[after:]
}

// nextWord is the first token from a place on, and where it ends.
func nextWord(sql string, i int) (word string, end int) {
	for i < len(sql) {
		next, what := sqltext.NextToken(sql, i)
		if what == sqltext.TokenOther {
			return sql[i:next], next
		}
		i = next
	}
	return "", i
}
