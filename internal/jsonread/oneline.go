package jsonread

import (
	"bytes"
	"encoding/json"
	"strings"
)

// unescapeHTML undoes the HTML escapes of encoding/json. It skips a quoted backslash together with the character after it.
var unescapeHTML = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003C`, "<", `\u003e`, ">", `\u003E`, ">", `\u0026`, "&")

// OneLine returns a document on one line, with <, > and & unescaped.
func OneLine(raw json.RawMessage) string {
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return string(raw)
	}
	return unescapeHTML.Replace(line.String())
}
