package sqltext

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"rouse/agentdb/dberr"
	"rouse/internal/text"
)

// Statement is one statement of a script.
type Statement struct {
	Text   string // without its semicolon
	Offset int    // byte offset in the script
	words  []word
}

// word is a token other than space and comments.
type word struct {
	text  string // in upper case, including quotes
	at    int    // offset in the statement
	depth int    // number of enclosing parentheses
}

// SplitScript splits SQL into statements. The body of a trigger contains semicolons. It ends with
// "; END".
func SplitScript(sql string) ([]Statement, error) {
	if strings.ContainsRune(sql, 0) {
		return nil, dberr.Invalid("sql", "the SQL holds a NUL character")
	}

	var out []Statement
	s := Statement{}
	depth, end := 0, 0 // end is the end of the last word as written, because its upper case form may be longer
	finish := func(end, next int) {
		if len(s.words) > 0 {
			s.Offset += s.words[0].at
			s.Text = sql[s.Offset:end]
			first := s.words[0].at
			for i := range s.words {
				s.words[i].at -= first
			}
			out = append(out, s)
		}
		s, depth = Statement{Offset: next}, 0
	}

	for i := 0; i < len(sql); {
		next, what := NextToken(sql, i)
		if what == TokenOpen {
			return nil, dberr.Invalid("sql", "a comment or a quote is opened and never closed").At(Excerpt(sql, i))
		}

		if what != TokenSpace {
			text := sql[i:next]
			// A trigger ends with a semicolon after END.
			if text == ";" && (!s.isTrigger() || s.endsTrigger()) {
				finish(i, next)
				i = next
				continue
			}

			if text == ")" {
				depth--
			}

			s.words, end = append(s.words, word{strings.ToUpper(text), i - s.Offset, depth}), next
			if text == "(" {
				depth++
			}
		}

		i = next
	}

	finish(end, len(sql))
	if len(out) == 0 {
		return nil, dberr.Invalid("sql", "there is no statement in the SQL")
	}

	return out, nil
}

func (s *Statement) word(i int) string {
	if i < len(s.words) {
		return s.words[i].text
	}
	return ""
}

// isTrigger ignores CREATE TEMP TRIGGER, which Check refuses in any case.
func (s *Statement) isTrigger() bool { return s.word(0) == "CREATE" && s.word(1) == "TRIGGER" }

// endsTrigger reports whether the words of a trigger end with "; END".
func (s *Statement) endsTrigger() bool {
	n := len(s.words)
	return s.words[n-1].text == "END" && s.words[n-2].text == ";"
}

// Verb returns the kind of the statement: "SELECT", "UPDATE", "CREATE TABLE", "ALTER".
func (s *Statement) Verb() string {
	switch first := s.word(0); first {
	case "WITH":
		for _, w := range s.words {
			switch w.text {
			case "SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE":
				if w.depth == 0 {
					return w.text
				}
			}
		}
		return first
	case "CREATE":
		for _, w := range s.words[1:] {
			switch w.text {
			case "TABLE", "INDEX", "VIEW", "TRIGGER":
				return first + " " + w.text
			case "TEMP", "TEMPORARY", "UNIQUE":
				continue
			}
			return first
		}
		return first
	case "DROP":
		return first + " " + s.word(1)
	default:
		return first
	}
}

// has reports whether a word occurs outside all parentheses.
func (s *Statement) has(text string) bool {
	for _, w := range s.words {
		if w.depth == 0 && w.text == text {
			return true
		}
	}
	return false
}

// Excerpt returns the line and column of an offset in SQL, the text of the line, and a caret below
// the offset.
func Excerpt(sql string, at int) string {
	at = min(max(at, 0), len(sql))
	begin := strings.LastIndexByte(sql[:at], '\n') + 1
	end := len(sql)
	if n := strings.IndexByte(sql[at:], '\n'); n >= 0 {
		end = at + n
	}

	line := strings.Count(sql[:at], "\n") + 1
	before, after := sql[begin:at], strings.TrimRight(sql[at:end], "\r")
	column := utf8.RuneCountInString(before) + 1

	const around = 60
	shown := text.Tail(before, around)
	if shown != before {
		shown = "…" + shown
	}

	shown = strings.ReplaceAll(shown, "\t", " ")

	return fmt.Sprintf(" (line %d, column %d)\n  %s%s\n  %s^", line, column, shown, text.Truncate(after, around), strings.Repeat(" ", utf8.RuneCountInString(shown)))
}
