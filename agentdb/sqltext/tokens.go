// Package sqltext parses the text of an agent's SQL before SQLite does: tokens, statements,
// parameters and names. It refuses forbidden statements with advice, and finds the place of an
// error.
//
// The package does not open a database. It is not a security boundary: SQLite's authorizer is.
package sqltext

import (
	"strings"

	"rouse/agentdb/dberr"
)

// CheckSelect returns a query without its final semicolon. It returns an error with advice if the
// query is not a single SELECT.
func CheckSelect(sql string) (string, error) {
	if strings.ContainsRune(sql, 0) {
		return "", dberr.Invalid("sql", "the SQL holds a NUL character")
	}

	word, end := "", len(sql)
	for i := 0; i < len(sql); {
		next, what := NextToken(sql, i)
		switch {
		case what == TokenOpen:
			return "", dberr.Invalid("sql", "a comment or a quote is opened and never closed, near %.20q", sql[i:])
		case what == TokenSpace:
		case end < len(sql):
			return "", dberr.Invalid("sql", "one statement at a time: something follows the semicolon, near %.20q", sql[i:next])
		case sql[i] == ';':
			end = i
		case word == "":
			word = strings.ToUpper(sql[i:next])
		}

		i = next
	}

	// The kind of a WITH statement is that of the statement after it.
	if word == "WITH" {
		if statements, err := SplitScript(sql[:end]); err == nil && len(statements) == 1 {
			word = statements[0].Verb()
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

// TokenKind is the kind of a token.
type TokenKind int

// Kinds of tokens.
const (
	TokenOther TokenKind = iota
	TokenSpace           // space or a comment
	TokenOpen            // a quote or a comment without its end
)

// NextToken returns the end and the kind of the token at offset i.
func NextToken(sql string, i int) (next int, what TokenKind) {
	rest := sql[i:]
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "--"):
		if n := strings.IndexByte(rest, '\n'); n >= 0 {
			return i + n + 1, TokenSpace
		}
		return len(sql), TokenSpace
	case strings.HasPrefix(rest, "/*"):
		if n := strings.Index(rest[2:], "*/"); n >= 0 {
			return i + n + 4, TokenSpace
		}
		return len(sql), TokenOpen
	case strings.IndexByte(" \t\n\r\f", c) >= 0:
		return i + 1, TokenSpace
	case c == '\'' || c == '"' || c == '`':
		return skipQuoted(sql, i, c)
	case c == '[':
		return skipQuoted(sql, i, ']')
	case wordByte(c):
		for next = i + 1; next < len(sql) && wordByte(sql[next]); next++ {
		}
		return next, TokenOther
	}

	return i + 1, TokenOther
}

// skipQuoted skips a quoted text. A text with a doubled quote inside counts as two texts, which
// makes no difference here.
func skipQuoted(sql string, i int, end byte) (next int, what TokenKind) {
	n := strings.IndexByte(sql[i+1:], end)
	if n < 0 {
		return len(sql), TokenOpen
	}
	return i + n + 2, TokenOther
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
