package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"rouse/agent/model"
)

func server(t *testing.T, name string) *Client {
	t.Helper()
	s, err := New(Endpoint{Model: name}, Dialect{Name: "plain", BaseURL: "http://model"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shown(pieces []ContentBlock) string {
	var out []string
	for _, p := range pieces {
		text := p.Text
		if p.Call != nil {
			text = "call " + p.Call.ID
		}

		if p.Opaque != nil {
			text += string(p.Opaque)
		}

		out = append(out, text)
	}

	return strings.Join(out, ", ")
}

// TestContentBlocks checks that opaque data is found in a stored message. It must not be used if
// another model wrote the message or the message has changed.
func TestContentBlocks(t *testing.T) {
	s := server(t, "m")
	opaque := json.RawMessage(`{"s":1}`)
	var a Accumulator
	for _, p := range []Part{{Opaque: opaque}, {Text: 2}, {Text: 1}, {Text: 3, Opaque: opaque}, {Call: 1, Opaque: opaque}, {Opaque: opaque}, {Call: 2}} {
		a.AddPart(p)
	}

	m := model.Message{Role: model.RoleAssistant, Text: "abcdef", Calls: []model.Call{{ID: "x"}, {ID: "y"}}, Raw: s.marshalParts(a.Parts)}
	const plain, whole = `abcdef, call x, call y`, `{"s":1}, abc, def{"s":1}, call x{"s":1}, {"s":1}, call y`
	if got := shown(s.ContentBlocks(m)); got != whole {
		t.Errorf("%s, want %s", got, whole)
	}
	if got := shown(server(t, "another").ContentBlocks(m)); got != plain {
		t.Errorf("another model has %s, want %s", got, plain)
	}

	elsewhere, err := New(Endpoint{Model: "m", BaseURL: "http://another"}, Dialect{Name: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(elsewhere.ContentBlocks(m)); got != plain {
		t.Errorf("the model at another place has %s, want %s", got, plain)
	}

	for name, change := range map[string]func(m *model.Message){
		"shorter":       func(m *model.Message) { m.Text = m.Text[:3] },
		"longer":        func(m *model.Message) { m.Text += "g" },
		"fewer calls":   func(m *model.Message) { m.Calls = m.Calls[:1] },
		"more calls":    func(m *model.Message) { m.Calls = append(m.Calls, model.Call{ID: "z"}) },
		"nothing":       func(m *model.Message) { m.Raw = nil },
		"not its shape": func(m *model.Message) { m.Raw = json.RawMessage(`[]`) },
		"below zero": func(m *model.Message) {
			m.Raw = json.RawMessage(`{"by":"plain","at":"` + s.host + `","model":"m","parts":[{"text":-1},{"call":1},{"call":2}]}`)
		},
		"twice": func(m *model.Message) {
			m.Raw = json.RawMessage(`{"by":"plain","at":"` + s.host + `","model":"m","parts":[{"text":6},{"call":1},{"call":1},{"call":2}]}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := m
			change(&other)
			want := strings.TrimSuffix(strings.Join([]string{other.Text, shown(server(t, "none").ContentBlocks(model.Message{Calls: other.Calls}))}, ", "), ", ")
			if got := shown(s.ContentBlocks(other)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	if raw := s.marshalParts([]Part{{Text: 3}, {Call: 1}}); raw != nil {
		t.Errorf("%s is kept, though nobody wants it back", raw)
	}
}

func TestTokenCount(t *testing.T) {
	for text, want := range map[string]TokenCount{`7`: 7, `7.0`: 7, `"7"`: 7, `-7`: 0, `null`: 0, `1e30`: 1 << 40, `"many"`: 0, `[1]`: 0, `{}`: 0, `true`: 0} {
		var u struct{ N TokenCount }
		if err := json.Unmarshal([]byte(`{"n":`+text+`}`), &u); err != nil || u.N != want {
			t.Errorf("%s: %d (%v), want %d", text, u.N, err, want)
		}
	}
	if u := NewUsage(5, 6, 9, 0); *u != (model.Usage{Input: 5, Output: 6}) {
		t.Errorf("%+v", u)
	}
}

// TestClassify checks the errors of several providers for the same failures.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		status    int
		text      string
		kind      model.ErrorKind
		retryable bool
	}{
		{400, "API key not valid. Please pass a valid API key.", model.KindAuth, false},
		{400, "Your credit balance is too low to access the Anthropic API.", model.KindQuota, false},
		{400, "You have reached your specified API usage limits. You will regain access on 2026-12-01.", model.KindQuota, false},
		{400, "prompt is too long: 208310 tokens > 200000 maximum", model.KindContextOverflow, false},
		{400, "input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000", model.KindContextOverflow, false},
		{400, "the input length exceeds the context length", model.KindContextOverflow, false},
		{413, "Request exceeds the maximum size", model.KindContextOverflow, false},
		{529, "Overloaded", model.KindUnavailable, true},
		{500, "model requires more system memory (5.6 GiB) than is available (3 GiB)", model.KindUnavailable, true},
		{504, "DEADLINE_EXCEEDED", model.KindUnavailable, true},
		{400, "tools.0: no", model.KindBadRequest, false},
	} {
		if kind, retryable := classify(c.status, ServerError{Message: c.text}); kind != c.kind || retryable != c.retryable {
			t.Errorf("%d %s: %s (%v), want %s (%v)", c.status, c.text, kind, retryable, c.kind, c.retryable)
		}
	}
}

// TestParseError checks that codes are taken from the error object, not from its surroundings.
func TestParseError(t *testing.T) {
	s := server(t, "m")
	for raw, want := range map[string]ServerError{
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}`: {Message: "Overloaded", Code: "overloaded_error"},
		`{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}`:                       {Message: "quota", Code: "429 RESOURCE_EXHAUSTED"},
		`{"error":"model 'x' not found"}`:                                                              {Message: "model 'x' not found", Code: ""},
		`{"detail":"no","code":7}`:                                                                     {Message: "no", Code: "7"},
		`no JSON`:                                                                                      {Message: "no JSON", Code: ""},
	} {
		if got := s.parseError([]byte(raw)); got != want {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}

func TestNew(t *testing.T) {
	for address, want := range map[string]string{
		"http://model":            "http://model/v1/chat?alt=sse",
		"http://model/a/":         "http://model/a/v1/chat?alt=sse",
		"http://model/a?key=xyzw": "http://model/a/v1/chat?key=xyzw&alt=sse",
	} {
		s, err := New(Endpoint{Model: "m", BaseURL: address}, Dialect{Path: "v1/chat", Query: "alt=sse"})
		if err != nil || s.url != want || strings.Contains(s.shownURL, "xyzw") {
			t.Errorf("%s: %s at %s (%v), want %s", address, s.url, s.shownURL, err, want)
		}
	}
}

// TestMoveRetryDelay checks retry delays in the body, as sent by Google. A header takes precedence.
func TestMoveRetryDelay(t *testing.T) {
	const info = `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay": "%s"}]}}`
	for name, c := range map[string]struct{ header, delay, want string }{
		"seconds":   {"", "34s", "34"},
		"fractions": {"", "8.94s", "8.94"},
		"a header":  {"5", "34s", "5"},
		"nonsense":  {"", "soon", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf(info, c.delay)
			resp := &http.Response{Header: http.Header{}, Body: http.NoBody}
			resp.Body = &readCloser{strings.NewReader(text), resp.Body}
			if c.header != "" {
				resp.Header.Set("Retry-After", c.header)
			}

			moveRetryDelay(resp)
			if got := resp.Header.Get("Retry-After"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if left, err := io.ReadAll(resp.Body); err != nil || string(left) != text {
				t.Errorf("left of the body: %s (%v)", left, err)
			}
		})
	}
}
