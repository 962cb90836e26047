package tabular

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// jsonReader reads objects from an array or from JSON lines. Its columns are the keys of all
// objects, in the order of their first occurrence.
type jsonReader struct {
	data    string
	decoder *json.Decoder
	array   bool
	begun   bool
	keys    []string
	at      map[string]int
	row     []any // by key: nil, bool, string, json.Number, nested (JSON text) or absent
	lines   int   // number of lines before offset
	offset  int
	start   int // first line of the current record
}

func newJSON(data string) *jsonReader {
	r := &jsonReader{data: data, decoder: json.NewDecoder(strings.NewReader(data)), at: map[string]int{}}
	// A float64 would round long IDs.
	r.decoder.UseNumber()
	r.array = strings.HasPrefix(strings.TrimLeft(data, " \t\r\n"), "[")
	return r
}

// again returns a reader for the same content, from the beginning and with the known columns.
func (r *jsonReader) again() *jsonReader {
	next := newJSON(r.data)
	next.keys, next.at = r.keys, r.at
	return next
}

func (r *jsonReader) Next() error {
	if r.array && !r.begun {
		if _, err := r.decoder.Token(); err != nil {
			return r.fault(err)
		}
	}

	r.begun = true
	if r.array && !r.decoder.More() {
		return r.end()
	}

	// The decoder reports only the end of a token, so errors are placed after this offset.
	before := r.decoder.InputOffset()
	token, err := r.decoder.Token()
	if !r.array && errors.Is(err, io.EOF) {
		return io.EOF
	}

	r.start = r.lineRead()
	if err != nil {
		return r.fault(err)
	}
	if token != json.Delim('{') {
		return r.faultAfter(before, "expected an object {…} for each row")
	}

	return r.object()
}

// end reads the closing bracket and returns an error if more content follows.
func (r *jsonReader) end() error {
	if _, err := r.decoder.Token(); err != nil {
		return r.fault(err)
	}

	after := r.decoder.InputOffset()
	if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) {
		return r.faultAfter(after, "something follows the end of the array")
	}
	return io.EOF
}

// object reads the rest of an object into row.
func (r *jsonReader) object() error {
	for i := range r.row {
		r.row[i] = Absent{}
	}

	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return r.fault(err)
		}

		key, _ := token.(string) // the decoder accepts only strings as keys
		// Decode the raw value, so that lists and objects keep their text.
		var raw json.RawMessage
		if err := r.decoder.Decode(&raw); err != nil {
			return r.fault(err)
		}

		value, err := parseScalar(raw)
		if err != nil {
			return r.fault(err)
		}

		r.row[r.keyIndex(key)] = value
	}

	_, err := r.decoder.Token()
	return r.fault(err)
}

func (r *jsonReader) keyIndex(key string) int {
	i, ok := r.at[key]
	if !ok {
		i = len(r.keys)
		r.keys = append(r.keys, key)
		r.at[key] = i
	}

	for len(r.row) <= i {
		r.row = append(r.row, Absent{})
	}
	return i
}

func parseScalar(raw json.RawMessage) (any, error) {
	if raw[0] == '{' || raw[0] == '[' {
		var compact bytes.Buffer
		err := json.Compact(&compact, raw)
		return nested(compact.String()), err
	}

	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	err := decoder.Decode(&value)

	return value, err
}

func (r *jsonReader) fault(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{1 + strings.Count(r.data, "\n"), 0, "the file ends in the middle of its JSON"}
	}
	return r.faultAfter(r.decoder.InputOffset(), fmt.Sprintf("this is not JSON: %v", err))
}

// faultAfter returns a syntax error for the first token after an offset.
func (r *jsonReader) faultAfter(after int64, why string) error {
	at := min(int(after), len(r.data))
	at += len(r.data[at:]) - len(strings.TrimLeft(r.data[at:], " \t\r\n,:"))
	return &SyntaxError{lineOf(r.data, at), columnInLine(r.data, at, '\n'), why}
}

// lineRead returns the line up to which the decoder has read.
func (r *jsonReader) lineRead() int {
	to := min(int(r.decoder.InputOffset()), len(r.data))
	r.lines += strings.Count(r.data[r.offset:to], "\n")
	r.offset = to
	return r.lines + 1
}

func (r *jsonReader) Line() int        { return r.start }
func (r *jsonReader) columnCount() int { return len(r.keys) }
func (r *jsonReader) Mismatch() string { return "" }

func (r *jsonReader) kind(i int) Kind {
	if i >= len(r.row) {
		return unseen
	}
	return scalarKind(r.row[i])
}

// Value returns the value of column i of the current record, converted for a column of the given
// affinity.
func (r *jsonReader) Value(i int, to Affinity) any {
	if i >= len(r.row) {
		return Absent{}
	}
	return scalarValue(r.row[i], to)
}
