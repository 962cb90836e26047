package sqltext

import (
	"slices"
	"strings"

	"rouse/agentdb/dberr"
)

// Check returns an error with advice if the statement is not allowed.
func (s *Statement) Check(script string) error {
	why, at := s.forbiddenWithin()
	if why == "" {
		why, at = s.forbiddenReason(), 0
	}
	if why == "" {
		return nil
	}

	bad := dberr.Invalid("sql", "%s", why).At(Excerpt(script, s.Offset+at))
	bad.Kind = dberr.KindRejected
	return bad
}

// forbiddenWithin searches for SQL that is forbidden everywhere: in the statement itself, after a
// WITH, and in the body of a trigger. at is its offset in the statement.
func (s *Statement) forbiddenWithin() (why string, at int) {
	for i, w := range s.words {
		switch {
		case w.text == "LOAD_EXTENSION" && s.word(i+1) == "(":
			return "load_extension is not allowed: an agent's SQL has SQLite's own functions only", w.at
		case w.text == "DELETE" && s.word(i+1) == "FROM" && !s.boundedAt(i):
			return "DELETE without WHERE is not allowed: say which rows; db_delete keeps them restorable", w.at
		}
	}
	return "", 0
}

func (s *Statement) forbiddenReason() string {
	switch first := s.word(0); first {
	case "DROP":
		return s.forbiddenDrop()
	case "TRUNCATE":
		return "TRUNCATE is not allowed: delete rows with db_delete, which keeps them restorable"
	case "ATTACH", "DETACH":
		return first + " is not allowed: an agent has this one database; bring other data in with db_import"
	case "PRAGMA":
		return "PRAGMA is not allowed: db_schema lists tables, columns and indexes, and the host sets the rest"
	case "VACUUM", "ANALYZE", "REINDEX":
		return first + " is not allowed: the host looks after the file"
	case "BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE":
		return first + " is not allowed: each call is one transaction already, and an error rolls all of it back"
	case "EXPLAIN":
		return "EXPLAIN is not allowed here: leave it out and run the statement"
	case "CREATE":
		return s.forbiddenCreate()
	case "ALTER":
		// Any DROP outside parentheses drops a column: ALTER TABLE t DROP COLUMN c.
		if s.has("DROP") {
			return "dropping a column would lose its values for ever: leave it unused, or rename it"
		}
	}

	if table := s.writtenTable(); table != "" && IsReservedTable(table) {
		return "the table " + table + " belongs to the host and cannot be written"
	}

	return ""
}

// boundedAt reports whether the inner statement with this verb has its own WHERE. A WHERE within
// parentheses belongs to a subquery, and one after the next semicolon to another statement.
func (s *Statement) boundedAt(verb int) bool {
	for _, w := range s.words[verb:] {
		switch {
		case w.text == ";":
			return false
		case w.text == "WHERE" && w.depth == s.words[verb].depth:
			return true
		}
	}
	return false
}

// UpdatesAll reports whether a statement, or one in the body of a trigger, updates every row of a
// table.
func (s *Statement) UpdatesAll() bool {
	for i, w := range s.words {
		// UPDATE OF and UPDATE ON are the events of a trigger. DO UPDATE SET belongs to an INSERT.
		if w.text == "UPDATE" && !slices.Contains([]string{"OF", "ON", "SET"}, s.word(i+1)) && !s.boundedAt(i) {
			return true
		}
	}
	return false
}

func (s *Statement) forbiddenDrop() string {
	switch s.word(1) {
	case "TABLE":
		return "DROP TABLE is not allowed, because its rows could not be brought back: delete them with db_delete, or rename the table"
	case "INDEX", "VIEW", "TRIGGER":
		return ""
	}
	return "DROP " + s.word(1) + " is not allowed: only an INDEX, a VIEW or a TRIGGER can be dropped"
}

func (s *Statement) forbiddenCreate() string {
	switch s.word(1) {
	case "TEMP", "TEMPORARY":
		return "temporary objects are not allowed: use a WITH clause, or a table"
	case "VIRTUAL":
		return "virtual tables are not allowed: use an ordinary table, and LIKE or instr() for text"
	case "TABLE":
		if s.has("AS") {
			return "CREATE TABLE … AS is not allowed, because its columns get no types: create the table with db_create_table, then INSERT INTO it … SELECT"
		}
	}
	return ""
}

// writtenTable returns the table that a statement names as its target, or "" if it finds none.
func (s *Statement) writtenTable() string {
	at := -1
	for i, w := range s.words {
		if w.depth > 0 {
			continue
		}

		switch w.text {
		case "INTO", "UPDATE":
			at = i + 1
		case "FROM":
			if s.Verb() == "DELETE" {
				at = i + 1
			}
		}
		if at >= 0 {
			break
		}
	}
	// The body of a trigger also names tables, which the authorizer checks.
	if at < 0 || s.word(0) == "CREATE" {
		return ""
	}

	// UPDATE can have an OR clause: UPDATE OR REPLACE t. INSERT INTO cannot.
	if s.word(at) == "OR" {
		at += 2
	}

	// Skip the schema name in main.t.
	if s.word(at+1) == "." {
		at += 2
	}

	return strings.ToLower(strings.Trim(s.word(at), "\"'`[]"))
}
