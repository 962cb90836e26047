package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"rouse/agent/model"
)

// Turn is one scripted answer. With Raw or a Status that is no success, it is sent as it is.
type Turn struct {
	Text   string
	Calls  []model.Call
	Usage  model.Usage
	Hang   bool // after Text there is silence, until the client leaves
	Status int  // 0 means 200
	Header map[string]string
	Raw    string
}

// Script is what a model is to answer, turn by turn; the last turn is repeated.
type Script []Turn

// Server answers each request with the next turn of its script.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	script   Script
	requests []json.RawMessage
	closing  chan struct{}
}

// New starts a server that ends with the test. Its base URL is URL + "/v1".
func New(t testing.TB, turns ...Turn) *Server {
	t.Helper()
	s := &Server{script: turns, closing: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.closing)
		s.Close()
	})
	return s
}

// Requests are the bodies that were received.
func (s *Server) Requests() []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		refuse(w, http.StatusNotFound, fmt.Sprintf("there is no %s %s here", r.Method, r.URL.Path))
		return
	}
	turn := s.next(body)
	if problem := misfit(body); problem != "" {
		refuse(w, http.StatusBadRequest, problem)
		return
	}
	for k, v := range turn.Header {
		w.Header().Set(k, v)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	if turn.Status != 0 {
		w.WriteHeader(turn.Status)
	}
	if turn.Raw != "" || turn.Status >= 300 {
		fmt.Fprint(w, turn.Raw)
		return
	}
	for _, chunk := range Chunks(turn) {
		fmt.Fprintf(w, "data: %s\n\n", chunk)
	}
	if turn.Hang {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-s.closing:
		}
		return
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (s *Server) next(body json.RawMessage) Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, body)
	if len(s.script) == 0 {
		return Turn{Text: "done"}
	}
	return s.script[min(len(s.requests), len(s.script))-1]
}

func refuse(w http.ResponseWriter, status int, message string) {
	text, err := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error"}})
	if err != nil {
		text = []byte(message)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%s", text)
}

// misfit says what real servers would refuse in a request.
func misfit(body []byte) string {
	var r struct {
		Model    string
		Messages []struct {
			Role       string
			ToolCallID string `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return "this is no request: " + err.Error()
	}
	if r.Model == "" || len(r.Messages) == 0 {
		return "model and messages are required"
	}
	var open []string // calls without a result so far
	for i, m := range r.Messages {
		at := slices.Index(open, m.ToolCallID)
		switch {
		case m.Role == "tool" && at < 0:
			return fmt.Sprintf("messages[%d] answers %q, which no call before it has", i, m.ToolCallID)
		case m.Role == "tool":
			open = slices.Delete(open, at, at+1)
		case len(open) > 0:
			return fmt.Sprintf("messages[%d]: the call %q must be answered first", i, open[0])
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || c.Function.Name == "" || !json.Valid([]byte(c.Function.Arguments)) {
				return fmt.Sprintf("messages[%d] has a call without id, name or JSON arguments", i)
			}
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("the call %q must be answered first", open[0])
	}
	return ""
}

// Chunks are the stream of a turn, its calls in fragments as servers send them.
func Chunks(turn Turn) []string {
	var out []string
	add := func(v map[string]any) {
		v["id"], v["object"], v["model"] = "c", "chat.completion.chunk", "scripted"
		if text, err := json.Marshal(v); err == nil {
			out = append(out, string(text))
		}
	}
	chunk := func(delta map[string]any, finish any) {
		add(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	call := func(i int, fields map[string]any) {
		fields["index"] = i
		chunk(map[string]any{"tool_calls": []any{fields}}, nil)
	}
	for _, r := range turn.Text {
		chunk(map[string]any{"content": string(r)}, nil)
	}
	if turn.Hang {
		return out
	}
	for i, c := range turn.Calls {
		call(i, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": ""}})
		half := len(c.Args) / 2
		for _, part := range []string{string(c.Args[:half]), string(c.Args[half:])} {
			call(i, map[string]any{"function": map[string]any{"arguments": part}})
		}
	}
	finish := model.StopDone
	if len(turn.Calls) > 0 {
		finish = model.StopCalls
	}
	chunk(map[string]any{}, finish)
	if u := turn.Usage; u != (model.Usage{}) {
		add(map[string]any{"choices": []any{}, "usage": map[string]any{
			"prompt_tokens": u.Input, "completion_tokens": u.Output, "prompt_tokens_details": map[string]any{"cached_tokens": u.Cached}}})
	}
	return out
}
