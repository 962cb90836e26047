package jsonread

import (
	"bytes"
	"encoding/json"
	"strings"
)

// unescapeHTML reverts the HTML escapes of encoding/json. It consumes an escaped backslash as a
// pair, so that the character after it is not treated as an escape.
var unescapeHTML = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003C`, "<", `\u003e`, ">", `\u003E`, ">", `\u0026`, "&")

// OneLine returns a JSON document on one line, with <, > and & unescaped.
func OneLine(raw json.RawMessage) string {
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return string(raw)
	}
	return unescapeHTML.Replace(line.String())
}
