package sqlvalue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"rouse/agentdb/tabular"
)

// AppendNames appends names as a JSON list.
func AppendNames(out []byte, names []string) []byte {
	out = append(out, '[')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = tabular.AppendText(out, name)
	}
	return append(out, ']')
}

// AppendList appends values as a JSON list, each in the form of Append.
func AppendList(out []byte, values []any) []byte {
	out = append(out, '[')
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = Append(out, v)
	}
	return append(out, ']')
}

// Append appends a value in a form from which Parse restores it exactly. Whole numbers are
// INTEGER; numbers with a point or an exponent are REAL. Values without a JSON form are objects:
// {"blob":"…"} and {"text":"…"} in base64, {"real":"+Inf"}.
func Append(out []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(out, v, 10)
	case float64:
		return appendFloat(out, v)
	case string:
		if !utf8.ValidString(v) {
			return appendObject(out, "text", base64.StdEncoding.EncodeToString([]byte(v)))
		}
		return tabular.AppendText(out, v)
	case []byte:
		return appendObject(out, "blob", base64.StdEncoding.EncodeToString(v))
	}
	return append(out, "null"...)
}

func appendFloat(out []byte, f float64) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return appendObject(out, "real", strconv.FormatFloat(f, 'g', -1, 64))
	}

	from := len(out)
	out = strconv.AppendFloat(out, f, 'g', -1, 64)
	if !bytes.ContainsAny(out[from:], ".e") {
		out = append(out, ".0"...)
	}
	return out
}

func appendObject(out []byte, kind, text string) []byte {
	out = append(out, '{')
	out = tabular.AppendText(out, kind)
	out = append(out, ':')
	out = tabular.AppendText(out, text)
	return append(out, '}')
}

// Parse parses a value written by Append.
func Parse(raw json.RawMessage) (any, error) {
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
	// A point or an exponent distinguishes REAL from INTEGER; see Append.
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

// Decode decodes JSON without rounding whole numbers.
func Decode(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}
