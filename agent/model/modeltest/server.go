// Package modeltest is an OpenAI-compatible server that answers from a script, for tests
// that need a model's side of the wire.
package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"rouse/agent/model"
)

// Turn is one scripted answer. With Raw, it is sent as it is.
type Turn struct {
	Text   string
	Calls  []model.Call
	Usage  model.Usage
	Status int // 0 means 200
	Header map[string]string
	Raw    string
}

// Server answers each request with the next turn, and the last one again after that.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	turns    []Turn
	requests []json.RawMessage
}

// New starts a server that ends with the test.
func New(t testing.TB, turns ...Turn) *Server {
	t.Helper()
	s := &Server{turns: turns}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// Requests are the bodies that were received.
func (s *Server) Requests() []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]json.RawMessage(nil), s.requests...)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, body)
	turn := Turn{Text: "done"}
	if len(s.turns) > 0 {
		turn = s.turns[min(len(s.requests), len(s.turns))-1]
	}
	s.mu.Unlock()
	for k, v := range turn.Header {
		w.Header().Set(k, v)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	if turn.Status != 0 {
		w.WriteHeader(turn.Status)
	}
	if turn.Raw != "" || turn.Status >= 400 {
		fmt.Fprint(w, turn.Raw)
		return
	}
	for _, chunk := range Chunks(turn) {
		fmt.Fprintf(w, "data: %s\n\n", chunk)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// Chunks are the stream of a turn, its calls in fragments as servers send them.
func Chunks(turn Turn) []string {
	var out []string
	chunk := func(delta any, finish any) {
		text, err := json.Marshal(map[string]any{"id": "c", "object": "chat.completion.chunk", "model": "scripted",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
		if err == nil {
			out = append(out, string(text))
		}
	}
	for _, r := range turn.Text {
		chunk(map[string]any{"content": string(r)}, nil)
	}
	for i, c := range turn.Calls {
		chunk(map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": ""}}}}, nil)
		half := len(c.Args) / 2
		for _, part := range []string{string(c.Args[:half]), string(c.Args[half:])} {
			chunk(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": part}}}}, nil)
		}
	}
	finish := "stop"
	if len(turn.Calls) > 0 {
		finish = "tool_calls"
	}
	chunk(map[string]any{}, finish)
	if turn.Usage != (model.Usage{}) {
		text, err := json.Marshal(map[string]any{"id": "c", "choices": []any{}, "usage": map[string]any{
			"prompt_tokens": turn.Usage.Input, "completion_tokens": turn.Usage.Output, "prompt_tokens_details": map[string]any{"cached_tokens": turn.Usage.Cached}}})
		if err == nil {
			out = append(out, string(text))
		}
	}
	return out
}
