package agentdb

import (
	"rouse/agentdb/dberr"
	"strings"
)

// checkSelect returns a query without its final semicolon, or advice if it is not one SELECT. The
// boundary is the authorizer (see queryAuthorizer).
func checkSelect(sql string) (string, error) {
	if strings.ContainsRune(sql, 0) {
		return "", dberr.Invalid("sql", "the SQL holds a NUL character")
	}

	word, end := "", len(sql)
	for i := 0; i < len(sql); {
		next, what := nextToken(sql, i)
		switch {
		case what == tokenOpen:
			return "", dberr.Invalid("sql", "a comment or a quote is opened and never closed, near %.20q", sql[i:])
		case what == tokenSpace:
		case end < len(sql):
			return "", dberr.Invalid("sql", "one statement at a time: something follows the semicolon, near %.20q", sql[i:next])
		case sql[i] == ';':
			end = i
		case word == "":
			word = strings.ToUpper(sql[i:next])
		}

		i = next
	}

	// What a WITH does is said by the statement after it.
	if word == "WITH" {
		if statements, err := splitScript(sql[:end]); err == nil && len(statements) == 1 {
			word = statements[0].verb()
		}
	}

	switch word {
	case "SELECT", "WITH", "VALUES":
		return sql[:end], nil
	case "":
		return "", dberr.Invalid("sql", "there is no statement in the SQL")
	case "INSERT", "REPLACE", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER":
		return "", dberr.Invalid("sql", "a query only reads and %s writes; use db_insert, db_update, db_import or db_create_table", word)
	case "PRAGMA", "EXPLAIN":
		return "", dberr.Invalid("sql", "%s is not allowed here; db_schema lists tables, columns and indexes", word)
	}

	return "", dberr.Invalid("sql", "a query begins with SELECT, WITH or VALUES, not with %.20s", word)
}

type tokenKind int

const (
	tokenOther tokenKind = iota
	tokenSpace           // space or a comment
	tokenOpen            // a quote or a comment without its end
)

// nextToken finds the end of the token that begins at i.
func nextToken(sql string, i int) (next int, what tokenKind) {
	rest := sql[i:]
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "--"):
		if n := strings.IndexByte(rest, '\n'); n >= 0 {
			return i + n + 1, tokenSpace
		}
		return len(sql), tokenSpace
	case strings.HasPrefix(rest, "/*"):
		if n := strings.Index(rest[2:], "*/"); n >= 0 {
			return i + n + 4, tokenSpace
		}
		return len(sql), tokenOpen
	case strings.IndexByte(" \t\n\r\f", c) >= 0:
		return i + 1, tokenSpace
	case c == '\'' || c == '"' || c == '`':
		return skipQuoted(sql, i, c)
	case c == '[':
		return skipQuoted(sql, i, ']')
	case wordByte(c):
		for next = i + 1; next < len(sql) && wordByte(sql[next]); next++ {
		}
		return next, tokenOther
	}

	return i + 1, tokenOther
}

// skipQuoted goes past a quoted text; a doubled quote inside reads as two texts, which is all
// the same here.
func skipQuoted(sql string, i int, end byte) (next int, what tokenKind) {
	n := strings.IndexByte(sql[i+1:], end)
	if n < 0 {
		return len(sql), tokenOpen
	}
	return i + n + 2, tokenOther
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
