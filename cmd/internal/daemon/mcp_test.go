package daemon

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The sessions of one client are limited: the oldest are closed.
func TestMCPSessionsAreBounded(t *testing.T) {
	t.Parallel()
	handler := openHere(t, hooked).mcp(t.Context(), slog.New(slog.DiscardHandler))
	ask := func(session, body string) *http.Response {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set(mcpSession, session)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Result()
	}

	var sessions []string
	for range maxMCPSessions + 4 {
		resp := ask("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		if resp.StatusCode != http.StatusOK || resp.Header.Get(mcpSession) == "" {
			t.Fatal(resp.Status)
		}
		sessions = append(sessions, resp.Header.Get(mcpSession))
	}
	for i, session := range sessions {
		want := http.StatusOK
		if i < 4 {
			want = http.StatusNotFound
		}
		if resp := ask(session, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); resp.StatusCode != want {
			t.Errorf("session %d: %s, want %d", i, resp.Status, want)
		}
	}
}
