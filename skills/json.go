package skills

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// value is a JSON value with its position in the file.
type value struct {
	kind         jsonKind
	line, column int             // from 1; columns in runes
	text         string          // decoded string, digits of a number, or "true" or "false"
	raw          json.RawMessage // source text
	members      []member        // of an object, in source order
	items        []value         // of a list
}

// member is a key of an object and its value.
type member struct {
	key          string
	line, column int
	value        value
}

// lookup returns the value of a member of an object.
func (v value) lookup(key string) (value, bool) {
	for _, m := range v.members {
		if m.key == key {
			return m.value, true
		}
	}
	return value{}, false
}

// jsonKind is the kind of a value, worded for messages.
type jsonKind string

const (
	kindObject  jsonKind = "an object"
	kindList    jsonKind = "a list"
	kindText    jsonKind = "a text"
	kindNumber  jsonKind = "a number"
	kindBoolean jsonKind = "true or false"
	kindNull    jsonKind = "null"
)

// maxNesting is the maximum nesting depth of objects and lists. It stops hostile input.
const maxNesting = 64

// parseJSON parses a JSON file. A syntax error yields one problem with its position. A duplicate
// key is also a problem, because parsers differ in which of the values they use.
func parseJSON(file string, source []byte) (value, []Problem) {
	r := &jsonReader{report: report{file: file}, source: source, line: 1, column: 1}
	switch {
	case !utf8.Valid(source):
		return value{}, r.failAt(0, RuleEncoding, "is not UTF-8 text; save it as UTF-8")
	case bytes.HasPrefix(source, bom):
		return value{}, r.failAt(0, RuleEncoding, "begins with a byte order mark, which JSON does not have; save it as UTF-8 without one")
	}

	// Check the syntax of the whole file first, so that reading tokens cannot fail later.
	var all json.RawMessage
	if err := json.Unmarshal(source, &all); err != nil {
		offset := len(source)
		var wrong *json.SyntaxError
		if errors.As(err, &wrong) {
			offset = max(int(wrong.Offset)-1, 0)
		}
		return value{}, r.failAt(offset, RuleJSON, "is not JSON: %v; JSON has no comments, no comma after the last item, and double quotes around keys and texts", err)
	}

	r.decoder = json.NewDecoder(bytes.NewReader(source))
	r.decoder.UseNumber() // keep large numbers unchanged
	v, err := r.value("", 0)
	if err != nil {
		return value{}, r.failAt(r.start(), RuleJSON, "%v", err)
	}

	return v, r.problems
}

// failAt returns an error at an offset of the file.
func (r *jsonReader) failAt(offset int, rule Rule, format string, args ...any) []Problem {
	p := problem(r.file, rule, format, args...)
	p[0].Line, p[0].Column = r.position(offset)
	return p
}

// jsonReader reads JSON values with their positions.
type jsonReader struct {
	report
	source  []byte
	decoder *json.Decoder

	offset, line, column int // of the last call of position
}

// position returns the line and column of an offset. It continues from the previous offset, so that
// long lines are not scanned repeatedly.
func (r *jsonReader) position(offset int) (line, column int) {
	offset = min(offset, len(r.source))
	if offset < r.offset {
		r.offset, r.line, r.column = 0, 1, 1
	}

	for r.offset < offset {
		_, size := utf8.DecodeRune(r.source[r.offset:])
		r.column++
		if r.source[r.offset] == '\n' {
			r.line, r.column = r.line+1, 1
		}
		r.offset += size
	}
	return r.line, r.column
}

// start returns the offset of the next token. The decoder only knows the end of the last token.
func (r *jsonReader) start() int {
	at := int(r.decoder.InputOffset())
	for at < len(r.source) && strings.IndexByte(" \t\r\n,:", r.source[at]) >= 0 {
		at++
	}
	return at
}

// value reads the next value. path is its path in messages.
func (r *jsonReader) value(path string, depth int) (v value, err error) {
	if depth > maxNesting {
		return v, fmt.Errorf("is nested more than %d levels deep", maxNesting)
	}

	from := r.start()
	v.line, v.column = r.position(from)
	token, err := r.decoder.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("is empty")
		}
		return v, err
	}

	switch t := token.(type) {
	case json.Delim:
		err = r.composite(&v, t, path, depth)
	case string:
		v.kind, v.text = kindText, t
	case json.Number:
		v.kind, v.text = kindNumber, t.String()
	case bool:
		v.kind, v.text = kindBoolean, fmt.Sprint(t)
	default:
		v.kind = kindNull
	}

	v.raw = r.source[from:r.decoder.InputOffset()]
	return v, err
}

// composite reads an object or list, including its closing delimiter.
func (r *jsonReader) composite(v *value, open json.Delim, path string, depth int) error {
	v.kind = kindList
	if open == '{' {
		v.kind = kindObject
	}
	seen := map[string]bool{}

	for r.decoder.More() {
		if v.kind == kindList {
			item, err := r.value(fmt.Sprintf("%s[%d]", path, len(v.items)), depth+1)
			if err != nil {
				return err
			}
			v.items = append(v.items, item)
			continue
		}

		line, column := r.position(r.start())
		token, err := r.decoder.Token()
		if err != nil {
			return err
		}

		key, _ := token.(string)
		one, err := r.value(join(path, key), depth+1)
		if err != nil {
			return err
		}
		if seen[key] {
			r.add(value{line: line, column: column}, join(path, key), RuleFieldTwice, false, "is given twice; remove one of them")
			continue
		}
		seen[key] = true
		v.members = append(v.members, member{key, line, column, one})
	}

	_, err := r.decoder.Token() // the closing delimiter
	return err
}

// join returns the path of a member.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
