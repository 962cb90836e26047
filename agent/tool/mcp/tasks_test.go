package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
)

// everything holds the recorded responses of the protocol's reference server,
// @modelcontextprotocol/server-everything 2026.8.31.
//
//go:embed testdata/everything-2026.8.31.jsonl
var everything []byte

// recorded answers requests like a recorded server. Several responses to the same request come in
// order, and the last one is repeated.
type recorded struct {
	mu    sync.Mutex
	lines map[string][][]json.RawMessage
	asked []string
}

func newRecorded() *recorded {
	r := &recorded{lines: map[string][][]json.RawMessage{}}
	for line := range bytes.Lines(everything) {
		var one struct {
			Method, Name string
			Task         bool
			Messages     []json.RawMessage
		}
		if err := json.Unmarshal(line, &one); err != nil {
			panic(err)
		}
		key := fmt.Sprint(one.Method, " ", one.Name, " ", one.Task)
		r.lines[key] = append(r.lines[key], one.Messages)
	}
	return r
}

// answer returns the messages for a request, the last of which is the response.
func (r *recorded) answer(request []byte) (out [][]byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name string          `json:"name"`
			Task json.RawMessage `json:"task"`
		} `json:"params"`
	}
	if json.Unmarshal(request, &m) != nil || len(m.ID) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, m.Method)
	key := fmt.Sprint(m.Method, " ", m.Params.Name, " ", len(m.Params.Task) > 0)
	all := r.lines[key]
	if len(all) == 0 {
		return [][]byte{fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`, m.ID)}
	}
	for _, msg := range all[0] {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(msg, &fields); err != nil {
			panic(err)
		}
		if fields["id"] != nil {
			fields["id"] = m.ID
		}
		text, err := json.Marshal(fields)
		if err != nil {
			panic(err)
		}
		out = append(out, bytes.ReplaceAll(text, []byte(`"pollInterval":1000`), []byte(`"pollInterval":1`))) // for a quick test
	}
	if len(all) > 1 {
		r.lines[key] = all[1:]
	}
	return out
}

// serveRecorded runs the recorded server as a program.
func serveRecorded() {
	r, in := newRecorded(), bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		for _, msg := range r.answer(in.Bytes()) {
			fmt.Printf("%s\n", msg)
		}
	}
}

// ServeHTTP serves the recorded server over HTTP.
func (r *recorded) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	out := r.answer(body)
	switch {
	case err != nil || req.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case len(out) == 0:
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out[len(out)-1])
	}
}

// TestRecordedServer checks that a tool that requires a task is called as one, over both
// transports, and that its result is that of the task. Other content of the reference server
// reaches the run.
func TestRecordedServer(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			s := b.server("recorded")
			if transport == "http" {
				web := httptest.NewServer(newRecorded())
				t.Cleanup(web.Close)
				s = mcp.Server{Name: "srv", URL: web.URL, Near: true, Start: patience, Timeout: patience}
			}
			b.approve(s)
			one := b.sessions()
			defer one.Close()
			for _, c := range []struct {
				tool string
				args map[string]any
				want string
			}{
				{"simulate-research-query", map[string]any{"topic": "the sea"}, `{"text":"# Research Report: the sea`},
				{"echo", map[string]any{"message": "hello"}, `{"text":"Echo: hello"}`},
				{"get-structured-content", map[string]any{"location": "Chicago"}, `{"structured":{"conditions":`},
				{"get-resource-reference", map[string]any{"resourceType": "Blob"}, `\nResource 1: This is a base64 blob created at `},
				{"gzip-file-as-resource", map[string]any{"name": "a.gz"}, `"files":[{"name":"a.gz","media_type":"application/gzip","size":25,"path":"/kept/1-a.gz"}]`},
			} {
				if e := b.callIn(one, s, c.tool, c.args); !e.OK || !strings.Contains(string(e.Result), c.want) || len(e.Warnings) > 0 {
					t.Errorf("%s: %+v %s", c.tool, e, e.Result)
				}
			}
		})
	}
}

// tasked is a server with a tool that requires a task. The states of the task are given.
type tasked struct {
	*recorded
	call   string // the result of tools/call
	states []string
	result string
	seen   func(method string)
}

func (s *tasked) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(body, &m) != nil || len(m.ID) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := ""
	switch m.Method {
	case "tools/call":
		result = s.call
	case "tasks/get":
		s.mu.Lock()
		result = s.states[0]
		if len(s.states) > 1 {
			s.states = s.states[1:]
		}
		s.mu.Unlock()
	case "tasks/result":
		result = s.result
	case "tasks/cancel":
		result = `{}`
	default:
		req.Body = io.NopCloser(bytes.NewReader(body))
		s.recorded.ServeHTTP(w, req)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, m.Method)
	s.mu.Unlock()
	if s.seen != nil {
		s.seen(m.Method)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// TestTasks checks that a call has a result or an error, however its task ends, and that an
// abandoned task is cancelled.
func TestTasks(t *testing.T) {
	t.Parallel()
	created := `{"task":{"taskId":"t1","status":"working","pollInterval":1}}`
	state := func(status string) string { return `{"taskId":"t1","status":"` + status + `","pollInterval":1}` }
	fine := `{"content":[{"type":"text","text":"fine"}]}`
	for name, c := range map[string]struct {
		call      string
		states    []string
		result    string
		stop      bool // the run is stopped while the task is working
		kind      tool.Kind
		says      string
		cancelled bool
	}{
		"completed":      {call: created, states: []string{state("working"), state("completed")}, result: fine, says: `{"text":"fine"}`},
		"done at once":   {call: `{"task":{"taskId":"t1","status":"completed"}}`, result: fine, says: `{"text":"fine"}`},
		"no task":        {call: fine, says: `{"text":"fine"}`},
		"failed":         {call: created, states: []string{state("failed")}, result: `{"isError":true,"content":[{"type":"text","text":"no paper"}]}`, kind: tool.KindExecutionError, says: "no paper"},
		"cancelled":      {call: created, states: []string{`{"status":"cancelled","statusMessage":"by\u001b[2J me"}`}, kind: tool.KindExecutionError, says: "the task was cancelled: by me"},
		"asks":           {call: created, states: []string{state("input_required")}, kind: tool.KindExecutionError, says: "wants something of its caller", cancelled: true},
		"stands still":   {call: created, states: []string{state("working")}, kind: tool.KindTimeout, says: "made no progress within 5s", cancelled: true},
		"without sense":  {call: created, states: []string{`[1]`}, kind: tool.KindUnavailable, says: "not understood", cancelled: true},
		"a stopped run":  {call: created, states: []string{state("working")}, stop: true, kind: tool.KindUnavailable, says: "its owner stops it", cancelled: true},
		"another result": {call: created, states: []string{state("completed")}, result: `7`, kind: tool.KindUnavailable, says: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			server := &tasked{recorded: newRecorded(), call: c.call, states: c.states, result: c.result}
			if c.stop {
				server.seen = func(method string) {
					if method == "tasks/get" {
						stop(fmt.Errorf("its owner stops it"))
					}
				}
			}
			web := httptest.NewServer(server)
			t.Cleanup(web.Close)
			s := mcp.Server{Name: "srv", URL: web.URL, Near: true, Start: patience, Timeout: patience}
			b.approve(s)
			if name == "stands still" {
				s.Timeout = 5 * time.Second
			}

			one := b.sessions()
			defer one.Close()
			e, err := b.tools(one, s).Call(ctx, tool.Invocation{Run: 1, Agent: "clerk", Key: "k"}, "srv__simulate-research-query", json.RawMessage(`{"topic":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			if said := e.Message + string(e.Result); e.Kind != c.kind || e.OK != (c.kind == "") || !strings.Contains(said, c.says) || strings.Contains(said, "\x1b") {
				t.Errorf("%+v %s", e, e.Result)
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if slices.Contains(server.asked, "tasks/cancel") != c.cancelled {
				t.Errorf("it was asked %q", server.asked)
			}
		})
	}
}
