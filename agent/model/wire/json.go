package wire

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// UnmarshalString decodes a JSON string or null. It is faster than encoding/json for the many short
// strings of a stream.
func UnmarshalString(raw []byte, into *string) error {
	if string(raw) == "null" {
		return nil
	}

	n := len(raw)
	if n < 2 || raw[0] != '"' || raw[n-1] != '"' || bytes.ContainsFunc(raw[1:n-1], func(c rune) bool { return c == '\\' || c == utf8.RuneError }) {
		return json.Unmarshal(raw, into)
	}

	// Without escapes and invalid UTF-8, the bytes between the quotes are the value.
	*into = string(raw[1 : n-1])
	return nil
}
