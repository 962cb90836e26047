package agentdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// jsonReader reads objects, of one array or one after the other (JSON lines). Its columns
// are the keys of all of them, in the order in which they first appear.
type jsonReader struct {
	data    string
	decoder *json.Decoder
	array   bool
	begun   bool
	keys    []string
	at      map[string]int
	row     []any // by key: nil, bool, string, json.Number, nested (JSON text) or absent
	lines   int   // lines before offset
	offset  int
	start   int // line on which the current record begins
}

// nested is the text of a list or an object inside a row; it is stored as it is.
type nested string

func newJSON(data string) *jsonReader {
	r := &jsonReader{data: data, decoder: json.NewDecoder(strings.NewReader(data)), at: map[string]int{}}
	r.decoder.UseNumber()
	r.array = strings.HasPrefix(strings.TrimLeft(data, " \t\r\n"), "[")
	return r
}

// again reads the same file from the beginning, with the columns that are now known.
func (r *jsonReader) again() *jsonReader {
	next := newJSON(r.data)
	next.keys, next.at = r.keys, r.at
	return next
}

func (r *jsonReader) next() error {
	if r.array && !r.begun {
		if _, err := r.decoder.Token(); err != nil {
			return r.fault(err)
		}
	}

	r.begun = true
	if r.array && !r.decoder.More() {
		return r.end()
	}

	before := r.decoder.InputOffset()
	token, err := r.decoder.Token()
	if !r.array && errors.Is(err, io.EOF) {
		return io.EOF
	}

	r.start = r.line()
	if err != nil {
		return r.fault(err)
	}
	if token != json.Delim('{') {
		return r.wrong(before, "expected an object {…} for each row")
	}

	return r.object()
}

// end reads the closing bracket and makes sure that nothing follows.
func (r *jsonReader) end() error {
	if _, err := r.decoder.Token(); err != nil {
		return r.fault(err)
	}

	after := r.decoder.InputOffset()
	if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) {
		return r.wrong(after, "something follows the end of the array")
	}
	return io.EOF
}

// object reads the rest of an object into row.
func (r *jsonReader) object() error {
	for i := range r.row {
		r.row[i] = absent{}
	}

	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return r.fault(err)
		}

		key, _ := token.(string) // the decoder lets nothing else be a key
		var raw json.RawMessage
		if err := r.decoder.Decode(&raw); err != nil {
			return r.fault(err)
		}

		value, err := scalar(raw)
		if err != nil {
			return r.fault(err)
		}

		r.row[r.slot(key)] = value
	}

	_, err := r.decoder.Token()
	return r.fault(err)
}

func (r *jsonReader) slot(key string) int {
	i, ok := r.at[key]
	if !ok {
		i = len(r.keys)
		r.keys = append(r.keys, key)
		r.at[key] = i
	}

	for len(r.row) <= i {
		r.row = append(r.row, absent{})
	}
	return i
}

func scalar(raw json.RawMessage) (any, error) {
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
		return &lineError{1 + strings.Count(r.data, "\n"), 0, "the file ends in the middle of its JSON"}
	}
	return r.wrong(r.decoder.InputOffset(), fmt.Sprintf("this is not JSON: %v", err))
}

// wrong is a fault of what begins after an offset, up to which all is well.
func (r *jsonReader) wrong(after int64, why string) error {
	at := min(int(after), len(r.data))
	at += len(r.data[at:]) - len(strings.TrimLeft(r.data[at:], " \t\r\n,:"))
	return &lineError{lineOf(r.data, at), placeInLine(r.data, at, '\n'), why}
}

// line is the line up to which the decoder has read.
func (r *jsonReader) line() int {
	to := min(int(r.decoder.InputOffset()), len(r.data))
	r.lines += strings.Count(r.data[r.offset:to], "\n")
	r.offset = to
	return r.lines + 1
}

func (r *jsonReader) kind(i int) kind {
	if i >= len(r.row) {
		return unseen
	}
	return scalarKind(r.row[i])
}

// value is what column i of the current record is bound as.
func (r *jsonReader) value(i int, to affinity) any {
	if i >= len(r.row) {
		return absent{}
	}
	return scalarValue(r.row[i], to)
}

// scalarKind is the kind of a nil, bool, string, json.Number, nested or absent.
func scalarKind(v any) kind {
	switch v := v.(type) {
	case bool:
		return boolean
	case json.Number:
		return numberKind(v)
	case string, nested:
		return textual
	}
	return unseen
}

func numberKind(n json.Number) kind {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil && n != "-0" {
		return integerKind(i)
	}
	if !strings.ContainsAny(n.String(), ".eE") {
		return textual // more digits than an int64 or a float64 keeps
	}
	if f, err := n.Float64(); err != nil || math.IsInf(f, 0) {
		return textual
	}

	return real
}

// scalarValue is what such a value is bound as.
func scalarValue(v any, to affinity) any {
	switch v := v.(type) {
	case bool:
		if to == affinityText {
			return strconv.FormatBool(v)
		}
		if v {
			return int64(1)
		}
		return int64(0)
	case json.Number:
		if to == affinityText {
			return v.String()
		}
		return number(v)
	case nested:
		return string(v)
	default:
		return v
	}
}
