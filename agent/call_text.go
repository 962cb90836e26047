package agent

import (
	"bytes"
	"encoding/json"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// CallText is a call of a tool as a person reads it: a command as its command line, any other with
// its arguments as JSON, without the escapes that are there for HTML alone.
func CallText(s tool.Spec, args json.RawMessage) string {
	if text := s.Summary(args); text != "" {
		return text
	}
	return PlainJSON(args)
}

// PlainJSON is a document on one line, with <, > and & as themselves: encoding/json escapes them,
// and so do some servers of models.
func PlainJSON(raw json.RawMessage) string {
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return string(raw)
	}

	text := line.String()
	var out strings.Builder
	for {
		at := strings.IndexByte(text, '\\')
		if at < 0 || at+1 == len(text) {
			out.WriteString(text)
			return out.String()
		}

		out.WriteString(text[:at])
		escape := text[at : at+2] // a quoted backslash is passed over with what it quotes
		if text[at+1] == 'u' && at+6 <= len(text) {
			escape = text[at : at+6]
		}

		switch strings.ToLower(escape) {
		case `\u003c`:
			out.WriteByte('<')
		case `\u003e`:
			out.WriteByte('>')
		case `\u0026`:
			out.WriteByte('&')
		default:
			out.WriteString(escape)
		}

		text = text[at+len(escape):]
	}
}

// oneLine is a text on one line, without anything that is not shown as itself.
func oneLine(said string) string { return text.Collapse(text.OneLine(said)) }
