package tabular

import (
	"encoding/json"
	"io"
	"strconv"
)

// jsonWriter writes objects with their keys in column order.
type jsonWriter struct {
	to    io.Writer
	keys  []string // encoded keys, with quotes and colon
	array bool
	n     int
	out   []byte
}

func newJSONWriter(to io.Writer, columns []string, array bool) (*jsonWriter, error) {
	e := &jsonWriter{to: to, array: array}
	for _, name := range columns {
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		e.keys = append(e.keys, string(key)+":")
	}

	return e, nil
}

func (e *jsonWriter) Row(values []any) error {
	e.out = e.out[:0]
	if e.array {
		e.out = append(e.out, [2]string{"[\n", ",\n"}[min(e.n, 1)]...)
	}

	e.n++
	for i, v := range values {
		e.out = append(e.out, "{,"[min(i, 1)])
		e.out = append(e.out, e.keys[i]...)
		switch v := v.(type) {
		case nil:
			e.out = append(e.out, "null"...)
		case int64:
			e.out = strconv.AppendInt(e.out, v, 10)
		case float64:
			e.out = append(e.out, floatText(v)...) // never infinite: see readable
		case string:
			e.out = AppendText(e.out, v)
		}
	}

	e.out = append(e.out, '}')
	if !e.array {
		e.out = append(e.out, '\n')
	}

	_, err := e.to.Write(e.out)
	return err
}

func (e *jsonWriter) Close() error {
	end := ""
	if e.array {
		end = "\n]\n"
		// Without a row, the opening bracket is not written yet.
		if e.n == 0 {
			end = "[]\n"
		}
	}

	_, err := io.WriteString(e.to, end)
	return err
}

func (e *jsonWriter) Warnings() []string { return nil }
