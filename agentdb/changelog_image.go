package agentdb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"rouse/agentdb/tabular"
)

// Image is a row, or a part of one, as the changelog keeps it: {"column":value,…}.
type Image struct {
	Columns []string
	Values  []any // nil, int64, float64, string or []byte
}

// Get finds the value of a column.
func (m Image) Get(column string) (any, bool) {
	for i, name := range m.Columns {
		if strings.EqualFold(name, column) {
			return m.Values[i], true
		}
	}
	return nil, false
}

// merged gives the image with the values of another for the columns that both have.
func (m Image) merged(other Image) Image {
	out := Image{m.Columns, append([]any(nil), m.Values...)}
	for i, name := range m.Columns {
		if v, ok := other.Get(name); ok {
			out.Values[i] = v
		}
	}
	return out
}

// String writes the image as the changelog has it.
func (m Image) String() string {
	out := []byte{'{'}
	for i, name := range m.Columns {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(tabular.AppendText(out, name), ':')
		out = appendValue(out, m.Values[i])
	}

	return string(append(out, '}'))
}

// parseImage reads {"column":value,…}; "" is an empty image.
func parseImage(text string) (m Image, err error) {
	if text == "" {
		return Image{}, nil
	}

	d := json.NewDecoder(strings.NewReader(text))
	// A float64 would round integers of more than 53 bits.
	d.UseNumber()
	if err := expect(d, json.Delim('{')); err != nil {
		return Image{}, err
	}

	for d.More() {
		name, err := d.Token()
		if err != nil {
			return Image{}, err
		}

		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return Image{}, err
		}

		v, err := parseValue(raw)
		if err != nil {
			return Image{}, fmt.Errorf("column %v: %w", name, err)
		}

		m.Columns, m.Values = append(m.Columns, name.(string)), append(m.Values, v)
	}

	return m, nil
}

func expect(d *json.Decoder, want json.Token) error {
	got, err := d.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v where %v should be", got, want)
	}
	return err
}

// parseRows reads {"columns":[…],"rows":[[…],…]}; "" has no rows.
func parseRows(text string) ([]Image, error) {
	if text == "" {
		return nil, nil
	}

	var stored struct {
		Columns []string            `json:"columns"`
		Rows    [][]json.RawMessage `json:"rows"`
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}

	out := make([]Image, len(stored.Rows))
	for i, row := range stored.Rows {
		if len(row) != len(stored.Columns) {
			return nil, fmt.Errorf("row %d has %d values for %d columns", i+1, len(row), len(stored.Columns))
		}

		out[i] = Image{stored.Columns, make([]any, len(row))}
		for k, raw := range row {
			v, err := parseValue(raw)
			if err != nil {
				return nil, fmt.Errorf("row %d, column %s: %w", i+1, stored.Columns[k], err)
			}
			out[i].Values[k] = v
		}
	}

	return out, nil
}

// parseValue reads what appendValue wrote.
func parseValue(raw json.RawMessage) (any, error) {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return nil, io.ErrUnexpectedEOF
	case string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	case raw[0] == '{':
		return parseObject(raw)
	// A point or an exponent is what tells REAL from INTEGER; see appendValue.
	case bytes.ContainsAny(raw, ".eE"):
		return strconv.ParseFloat(string(raw), 64)
	}
	return strconv.ParseInt(string(raw), 10, 64)
}

func parseObject(raw json.RawMessage) (any, error) {
	var o struct {
		Blob, Text, Real *string
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}

	switch {
	case o.Blob != nil:
		data, err := base64.StdEncoding.DecodeString(*o.Blob)
		// An empty BLOB is not NULL.
		if data == nil {
			data = []byte{}
		}
		return data, err
	case o.Text != nil:
		data, err := base64.StdEncoding.DecodeString(*o.Text)
		return string(data), err
	case o.Real != nil:
		return strconv.ParseFloat(*o.Real, 64)
	}

	return nil, errors.New("a value of an unknown kind")
}

func decodeNumbers(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

func wholeNumber(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%v is not a number", v)
	}
	return n.Int64()
}
