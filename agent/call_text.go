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

// unescapeHTML undoes what encoding/json escapes for HTML. A quoted backslash is passed over with what it quotes.
var unescapeHTML = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003C`, "<", `\u003e`, ">", `\u003E`, ">", `\u0026`, "&")

// PlainJSON is a document on one line, with <, > and & as themselves: encoding/json escapes them,
// and so do some servers of models.
func PlainJSON(raw json.RawMessage) string {
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return string(raw)
	}
	return unescapeHTML.Replace(line.String())
}

// oneLine is a text on one line, without anything that is not shown as itself.
func oneLine(said string) string { return text.Collapse(text.OneLine(said)) }
