package changelog

import (
	"encoding/json"
	"fmt"
	"strings"

	"rouse/agentdb/sqlvalue"
	"rouse/agentdb/tabular"
)

// Image is a row, or part of a row, in the changelog's form {"column":value,…}.
type Image struct {
	Columns []string
	Values  []any // nil, int64, float64, string or []byte
}

// Get returns the value of a column and reports whether the image has the column.
func (m Image) Get(column string) (any, bool) {
	for i, name := range m.Columns {
		if strings.EqualFold(name, column) {
			return m.Values[i], true
		}
	}
	return nil, false
}

// merged returns the image with the values of other for the columns that both have.
func (m Image) merged(other Image) Image {
	out := Image{m.Columns, append([]any(nil), m.Values...)}
	for i, name := range m.Columns {
		if v, ok := other.Get(name); ok {
			out.Values[i] = v
		}
	}
	return out
}

// String returns the image in the changelog's form.
func (m Image) String() string {
	out := []byte{'{'}
	for i, name := range m.Columns {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(tabular.AppendText(out, name), ':')
		out = sqlvalue.Append(out, m.Values[i])
	}

	return string(append(out, '}'))
}

// parseImage parses {"column":value,…}. An empty text is an empty image.
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

		v, err := sqlvalue.Parse(raw)
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

// parseRows parses {"columns":[…],"rows":[[…],…]}. An empty text has no rows.
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
			v, err := sqlvalue.Parse(raw)
			if err != nil {
				return nil, fmt.Errorf("row %d, column %s: %w", i+1, stored.Columns[k], err)
			}
			out[i].Values[k] = v
		}
	}

	return out, nil
}

func wholeNumber(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%v is not a number", v)
	}
	return n.Int64()
}
