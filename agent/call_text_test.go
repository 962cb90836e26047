package agent_test

import (
	"encoding/json"
	"testing"

	"rouse/agent"
)

func TestCallText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tool, args, want string }{
		{"shell_run", `{"command":"echo a \u003e\u003e b \u0026\u0026 c","timeout":3}`, "echo a >> b && c"},
		{"bash", `{"command":"a\nb"}`, "a\nb"},
		{"shell_run", `{"comand":"\u003cx\u003E"}`, `{"comand":"<x>"}`},
		{"notify", `{ "title": "a \u0026 b" }`, `{"title":"a & b"}`},
		{"file_write", `{"content":"\\u0026 \" \u00e4 \\"}`, `{"content":"\\u0026 \" \u00e4 \\"}`},
		{"file_write", `{"content":"\\\u0026"}`, `{"content":"\\&"}`},
		{"file_write", `no \u0026 JSON`, `no \u0026 JSON`},
		{"complete", ``, ``},
	} {
		if got := agent.Specs().Find(c.tool).CallText(json.RawMessage(c.args)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.tool, c.args, got, c.want)
		}
	}
}
