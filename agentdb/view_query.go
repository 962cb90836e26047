package agentdb

import (
	"context"
	"database/sql"
	"strings"

	"rouse/agentdb/dberr"
	"rouse/agentdb/sqltext"
	"rouse/agentdb/view"
)

// maxJoinedViews is the maximum number of saved views in one query, including indirect ones.
const maxJoinedViews = 50

// describeQuery compiles a query on a connection and returns its column names. A query can refer
// to saved views like tables. The returned statement starts with a definition of each such view,
// using the defaults of its parameters.
func describeQuery(ctx context.Context, db *sql.DB, conn *sql.Conn, text, redefined string) (columns []string, whole string, err error) {
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

		v, ok, problem := view.Find(ctx, db, name)
		switch {
		case problem != nil:
			return nil, "", problem
		case !ok:
			return nil, "", err // the original error about the missing table
		case len(views) == maxJoinedViews:
			return nil, "", dberr.Invalid("sql", "the query names more than %d saved views, with those that they name", maxJoinedViews)
		}

		expression, err := v.Expression()
		if err != nil {
			return nil, "", err
		}
		views = append(views, expression)
		whole = withExpressions(text, views)
	}
}

// withExpressions inserts common table expressions before those of a statement.
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

// nextWord returns the first token at or after i, and its end.
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
