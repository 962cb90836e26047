package mcp

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// FuzzFrame checks that all output of a server is a message or an error. The resulting tools and
// results must be valid, bounded and free of terminal control sequences.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1},"isError":true}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress"}`, `[]`, `{"jsonrpc":"2.0","id":{},"result":null}`,
		`{"name":"t","description":"\u001b[2J","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/a"}}},"outputSchema":{"type":"object"}}`,
		`{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"resource_link","uri":"x"},{"type":"resource","resource":{"uri":"x","blob":"AA=="}},{"type":"audio","data":"","mimeType":""}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > 0 {
			if msg, err := decodeFrame(frame); err == nil && msg == nil {
				t.Fatal("neither a message nor an error")
			}
		}

		var d Definition
		var told sdk.Tool
		if json.Unmarshal(frame, &told) == nil {
			var err error
			if d, err = define(&told, ""); err == nil {
				checkDefinition(t, d)
			}
		}

		res, err := decodeResult(frame)
		if err != nil {
			return
		}
		e := envelope("srv", d, res, func(s string) string { return s }, func(_ int, name, _ string, _ []byte) (string, error) {
			if strings.ContainsAny(name, "/\\\x00") || strings.HasPrefix(name, ".") || name == "" || len(name) > 120 {
				t.Fatalf("the file name %q", name)
			}
			return "/" + name, nil
		})
		raw, err := e.MarshalJSON()
		if err != nil || !json.Valid(raw) || strings.ContainsRune(e.Message, '\x1b') {
			t.Fatalf("%+v (%v)", e, err)
		}
	})
}

func checkDefinition(t *testing.T, d Definition) {
	t.Helper()
	if says := d.Description(); !utf8.ValidString(says) || strings.ContainsRune(says, '\x1b') || utf8.RuneCountInString(says) > maxDescription {
		t.Fatalf("the description %q", says)
	}
	schema, err := d.Schema("srv")
	if err == nil && (!json.Valid(schema) || len(schema) > maxSchema || strings.Contains(string(schema), `"$ref":`)) {
		t.Fatalf("the schema %s", schema)
	}
	d.misfit(map[string]any{"a": 1})
	d.difference(d)
}
