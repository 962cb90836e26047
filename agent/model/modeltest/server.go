package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rouse/agent/model"
)

// Turn is one scripted answer. If Raw or an error Status is set, they are sent instead of an
// encoded answer.
type Turn struct {
	Text   string
	Calls  []model.Call // a call without an ID is sent without one
	Usage  model.Usage
	Opaque string // sent with the answer; must be sent back with its calls
	Finish string // one of model.Stop…, or a reason unknown to clients; "" depends on Calls

	// WantImages are the images that the request must have, in order. Optional.
	WantImages []model.Image
	NoImages   bool // the model does not support images, and the server rejects them

	// Fail makes the server fail with its own error for this kind, after Text if it is set.
	Fail model.ErrorKind
	// Hang makes the server stop sending until the client disconnects. It stops after Text or the
	// rest of a damaged stream. Without a Text, the server does not start an answer.
	Hang        bool
	Close       bool          // the server closes the connection instead of answering
	RepeatEvery time.Duration // interval at which the end of Text is repeated
	// Damage changes the stream before it is sent, and reports whether to break the connection
	// afterwards. Optional.
	Damage func(stream []byte) (sent []byte, abort bool)

	Status int // 0 means 200
	Header map[string]string
	Raw    string
}

// Faulty reports whether the turn has a fault or another deviation.
func (t Turn) Faulty() bool {
	odd := slices.ContainsFunc(t.Calls, func(c model.Call) bool { return c.ID == "" || c.Name == "" || !json.Valid(c.Args) || c.Args[0] != '{' })
	return odd || t.Opaque+t.Finish+string(t.Fail)+t.Raw != "" || t.Hang || t.Close || t.RepeatEvery > 0 || t.Damage != nil || t.Status != 0 || len(t.WantImages) > 0 || t.NoImages
}

// Script holds the answers of a model, turn by turn. The last one is repeated.
type Script []Turn

// Server answers each request with the next turn of its script.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	script   Script
	requests []json.RawMessage
	issued   []issuedMessage
	closing  chan struct{}
}

// issuedMessage is an answer that must be sent back unchanged.
type issuedMessage struct {
	calls   []model.Call
	message any // in the API's format, without ids
}

// dialect is the API of one kind of server.
type dialect interface {
	// validate returns the reason why a real server would reject a request, or "".
	validate(s *Server, r *http.Request, body []byte) string
	// frames returns the stream of a turn. The last frame ends it.
	frames(t Turn) []string
	// echo returns an answer as it must be sent back.
	echo(t Turn) any
	// errorResponse returns an error that replaces an answer. streamError returns an error for the
	// middle of a stream.
	errorResponse(kind model.ErrorKind, message string) (status int, body string)
	streamError(kind model.ErrorKind) string
	contentType() string
}

// New starts a server that stops at the end of the test. For OpenAI the base URL is URL + "/v1".
func New(t testing.TB, turns ...Turn) *Server {
	t.Helper()
	s := &Server{script: turns, closing: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.closing) // ends hanging handlers, because Close waits for them
		s.Close()
	})

	return s
}

// Requests returns the bodies of the received requests.
func (s *Server) Requests() []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func dialectOf(r *http.Request) (dialect, bool) {
	switch path := r.URL.Path; {
	case r.Method != http.MethodPost:
	case strings.HasSuffix(path, "/chat/completions"):
		return openAI{}, true
	case strings.HasSuffix(path, "/responses"):
		return responses{}, true
	case path == "/v1/messages":
		return anthropic{}, true
	case strings.HasPrefix(path, "/v1beta/models/") && strings.HasSuffix(path, ":streamGenerateContent") && r.URL.Query().Get("alt") == "sse":
		return gemini{}, true
	case path == "/api/chat":
		return ollama{}, true
	}
	return openAI{}, false
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d, known := dialectOf(r)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}

	if !known {
		_, text := d.errorResponse(model.KindBadRequest, fmt.Sprintf("there is no %s %s here", r.Method, r.URL.Path))
		sendJSON(w, http.StatusNotFound, text)
		return
	}

	// A request that is rejected below also uses up its turn.
	turn := s.nextTurn(body)
	if problem := d.validate(s, r, body); problem != "" {
		status, text := d.errorResponse(model.KindBadRequest, problem)
		sendJSON(w, status, text)
		return
	}

	if problem := turn.imageProblem(body); problem != "" {
		status, text := d.errorResponse(model.KindBadRequest, problem)
		sendJSON(w, status, text)
		return
	}

	if turn.Close {
		disconnect(w)
		return
	}

	for k, v := range turn.Header {
		w.Header().Set(k, v)
	}

	switch {
	case turn.Raw != "" || turn.Status >= 300:
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", d.contentType())
		}
		w.WriteHeader(max(turn.Status, http.StatusOK))
		fmt.Fprint(w, turn.Raw)
	case turn.Fail != "" && turn.Text == "":
		status, text := d.errorResponse(turn.Fail, "this cannot be done")
		sendJSON(w, status, strings.ReplaceAll(text, "KEY", keyOf(r)))
	default:
		s.stream(w, r, d, turn)
	}
}

// stream sends an answer.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, d dialect, turn Turn) {
	if turn.Opaque != "" && len(turn.Calls) > 0 {
		s.mu.Lock()
		s.issued = append(s.issued, issuedMessage{turn.Calls, d.echo(turn)})
		s.mu.Unlock()
	}

	// If damage is set, it cuts off a turn that hangs inside its calls. Otherwise a turn that hangs
	// or fails after its text has no other frames.
	complete := turn
	complete.Hang = false
	frames := d.frames(complete)
	if turn.Hang && turn.Damage == nil || turn.Fail != "" || turn.RepeatEvery > 0 {
		frames = d.frames(Turn{Text: turn.Text, Hang: true})
	}

	if turn.Fail != "" {
		frames = append(frames, d.streamError(turn.Fail))
	}

	stream := []byte(strings.Join(frames, ""))
	abort := false
	if turn.Damage != nil {
		stream, abort = turn.Damage(stream)
	}

	if !turn.Hang || turn.Text != "" {
		w.Header().Set("Content-Type", d.contentType())
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(stream)
		w.(http.Flusher).Flush()
	}

	for turn.RepeatEvery > 0 {
		select {
		case <-r.Context().Done():
			return
		case <-s.closing:
			return
		case <-time.After(turn.RepeatEvery):
			_, _ = io.WriteString(w, frames[len(frames)-1])
			w.(http.Flusher).Flush()
		}
	}

	if turn.Hang {
		select {
		case <-r.Context().Done():
		case <-s.closing:
		}
	}

	// Close without the last chunk, so that the client notices the broken connection.
	if abort {
		disconnect(w)
	}
}

func disconnect(w http.ResponseWriter) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}

func (s *Server) nextTurn(body json.RawMessage) Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, body)
	if len(s.script) == 0 {
		return Turn{Text: "done"}
	}
	return s.script[min(len(s.requests), len(s.script))-1]
}

// keyOf returns the API key of a request, because some servers repeat it in an error.
func keyOf(r *http.Request) string {
	for _, header := range []string{"X-Api-Key", "X-Goog-Api-Key", "Authorization"} {
		if v := r.Header.Get(header); v != "" {
			return strings.TrimPrefix(v, "Bearer ")
		}
	}
	return "none"
}

func sendJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}

// altered reports whether the answer with these calls was sent back with changes.
func (s *Server) altered(calls []model.Call, message any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.issued, func(i issuedMessage) bool {
		same := slices.EqualFunc(i.calls, calls, func(a, b model.Call) bool { return a.Name == b.Name && canonical(a.Args) == canonical(b.Args) })
		return same && !reflect.DeepEqual(normalize(i.message), normalize(message))
	})
}

// canonical returns JSON with sorted keys and without white space.
func canonical(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return encode(v)
}

// normalize returns a value after a round trip through JSON.
func normalize(v any) any {
	var out any
	if json.Unmarshal([]byte(encode(v)), &out) != nil {
		return v
	}
	return out
}

// encode is json.Marshal without HTML escaping.
func encode(v any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// deltas splits a text into the parts in which it is streamed: runes, or larger parts if it is
// long.
func deltas(text string) []string {
	if len(text) <= 1000 {
		return strings.Split(text, "")
	}

	var out []string
	for piece := range slices.Chunk([]byte(text), 64<<10) {
		out = append(out, string(piece))
	}
	return out
}

// fragments splits arguments into the parts in which they are streamed.
func fragments(args json.RawMessage) []string {
	return []string{"", string(args[:len(args)/2]), string(args[len(args)/2:])}
}
