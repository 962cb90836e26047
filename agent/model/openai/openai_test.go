package openai_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
)

func provider(t testing.TB, url string) *openai.Provider {
	t.Helper()
	p, err := openai.New(openai.Options{BaseURL: url + "/v1", Model: "scripted", APIKey: "sk-canary", Idle: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type turn struct {
	text  string
	calls []model.Call
	usage model.Usage
	err   error
}

func ask(t testing.TB, p *openai.Provider, r model.Request) turn {
	t.Helper()
	var out turn
	for e, err := range p.Stream(t.Context(), r) {
		out.text += e.Text
		if e.Call != nil {
			out.calls = append(out.calls, *e.Call)
		}
		if e.Usage != nil {
			out.usage = *e.Usage
		}
		if err != nil {
			out.err = err
		}
	}
	return out
}

var question = model.Request{System: "be brief", Messages: []model.Message{{Role: model.RoleUser, Text: "hi"}},
	Tools: []model.Tool{{Name: "db_query", Description: "asks", Schema: json.RawMessage(`{"type":"object"}`)}}}

func TestTextCallsAndUsage(t *testing.T) {
	want := []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{"sql":"select 1"}`)}, {ID: "b", Name: "notify", Args: json.RawMessage(`{"title":"ü"}`)}}
	s := modeltest.New(t, modeltest.Turn{Text: "Let me see.", Calls: want, Usage: model.Usage{Input: 10, Output: 5, Cached: 3}})
	got := ask(t, provider(t, s.URL), question)
	if got.err != nil || got.text != "Let me see." || got.usage != (model.Usage{Input: 10, Output: 5, Cached: 3}) {
		t.Errorf("turn: %+v", got)
	}
	if len(got.calls) != 2 || string(got.calls[0].Args) != string(want[0].Args) || got.calls[1].ID != "b" || string(got.calls[1].Args) != string(want[1].Args) {
		t.Errorf("calls: %+v", got.calls)
	}
	var sent struct {
		Model    string
		Stream   bool
		Messages []struct{ Role, Content string }
		Tools    []struct{ Function struct{ Name string } }
	}
	if err := json.Unmarshal(s.Requests()[0], &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Model != "scripted" || !sent.Stream || len(sent.Messages) != 2 || sent.Messages[0].Role != "system" || sent.Tools[0].Function.Name != "db_query" {
		t.Errorf("sent: %+v", sent)
	}
}

func TestTranscriptIsSent(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "ok"})
	r := question
	r.NoTools = true
	r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{}`)}}},
		model.Message{Role: model.RoleTool, CallID: "a", Name: "db_query", Text: `{"ok":true}`})
	ask(t, provider(t, s.URL), r)
	sent := string(s.Requests()[0])
	for _, part := range []string{`"content":null,"tool_calls":[{"id":"a"`, `"role":"tool","content":"{\"ok\":true}","tool_call_id":"a"`} {
		if !strings.Contains(sent, part) {
			t.Errorf("%s is missing in %s", part, sent)
		}
	}
	if strings.Contains(sent, `"tools"`) {
		t.Error("tools were offered although none may be used")
	}
}

// What a server can do wrong is an error with its reason; no half call gets through, and
// the key is never told.
func TestFaults(t *testing.T) {
	whole := strings.Join(modeltest.Chunks(modeltest.Turn{Calls: []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{"sql":"select 1"}`)}}}), "\n\ndata: ")
	cases := map[string]struct {
		turn      modeltest.Turn
		kind      model.ErrorKind
		retryable bool
		say       string
	}{
		"no key":         {modeltest.Turn{Status: 401, Raw: `{"error":{"message":"bad key"}}`}, model.KindAuth, false, "bad key; check api_key"},
		"no such model":  {modeltest.Turn{Status: 404, Raw: `{"error":"model not found"}`}, model.KindBadRequest, false, "check base_url and the model's name"},
		"too long":       {modeltest.Turn{Status: 400, Raw: `{"error":{"message":"maximum context length exceeded"}}`}, model.KindContextOverflow, false, "context length"},
		"limited":        {modeltest.Turn{Status: 429, Header: map[string]string{"Retry-After": "3600"}, Raw: `slow down`}, model.KindRateLimited, true, "slow down"},
		"a web page":     {modeltest.Turn{Header: map[string]string{"Content-Type": "text/html"}, Raw: "<html>login</html>"}, model.KindNonsense, false, "text/html"},
		"not JSON":       {modeltest.Turn{Raw: "data: {broken\n\n"}, model.KindNonsense, true, "not JSON"},
		"cut off":        {modeltest.Turn{Raw: "data: " + whole[:len(whole)/2][:strings.LastIndex(whole[:len(whole)/2], "\n\n")] + "\n\n"}, model.KindTruncated, true, "before it was complete"},
		"fails midway":   {modeltest.Turn{Raw: "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"}, model.KindUnavailable, true, "overloaded"},
		"length":         {modeltest.Turn{Raw: "data: " + strings.Replace(whole, `"finish_reason":"tool_calls"`, `"finish_reason":"length"`, 1) + "\n\ndata: [DONE]\n\n"}, model.KindTruncated, true, "max_output"},
		"empty JSON":     {modeltest.Turn{Header: map[string]string{"Content-Type": "application/json"}, Raw: `{"choices":[]}`}, model.KindNonsense, true, "without a choice"},
		"strange number": {modeltest.Turn{Raw: `data: {"choices":[{"delta":{"tool_calls":[{"index":7,"function":{"name":"x"}}]}}]}` + "\n\n"}, model.KindNonsense, true, "numbered its calls"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := modeltest.New(t, c.turn)
			got := ask(t, provider(t, s.URL), question)
			var e *model.Error
			if !errors.As(got.err, &e) || e.Kind != c.kind || e.Retryable != c.retryable || !strings.Contains(e.Error(), c.say) {
				t.Errorf("%v (%+v), want %s that says %q", got.err, e, c.kind, c.say)
			}
			if len(got.calls) != 0 {
				t.Errorf("a call got through: %+v", got.calls)
			}
			if got.err != nil && strings.Contains(got.err.Error(), "sk-canary") {
				t.Error("the key is in the message")
			}
		})
	}
}

func TestServerThatDoesNotStream(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Header: map[string]string{"Content-Type": "application/json"},
		Raw: `{"choices":[{"finish_reason":"tool_calls","message":{"content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{\"a\":1}"}}]}}],"usage":{"prompt_tokens":4,"completion_tokens":2}}`})
	got := ask(t, provider(t, s.URL), question)
	if got.err != nil || got.text != "hm" || len(got.calls) != 1 || string(got.calls[0].Args) != `{"a":1}` || got.usage.Input != 4 {
		t.Errorf("turn: %+v", got)
	}
}

// A server that is down for a moment is asked again before anything is lost.
func TestTransportRetries(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Status: 503, Header: map[string]string{"Retry-After": "0"}, Raw: "starting"}, modeltest.Turn{Text: "hello"})
	if got := ask(t, provider(t, s.URL), question); got.err != nil || got.text != "hello" {
		t.Errorf("turn: %+v", got)
	}
}

func TestHungServer(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-release
	}))
	defer s.Close()
	defer close(release)
	p, err := openai.New(openai.Options{BaseURL: s.URL, Model: "m", Idle: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	got := ask(t, p, question)
	var e *model.Error
	if !errors.As(got.err, &e) || e.Kind != model.KindUnavailable || !strings.Contains(e.Error(), "sent nothing for 50ms") {
		t.Errorf("%v", got.err)
	}
}

// FuzzStream: whatever bytes a server sends, a call gets through only whole.
func FuzzStream(f *testing.F) {
	args := `{"sql":"select 1"}`
	whole := "data: " + strings.Join(modeltest.Chunks(modeltest.Turn{Calls: []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(args)}}}), "\n\ndata: ") + "\n\ndata: [DONE]\n\n"
	for i := range 20 {
		f.Add(whole[:len(whole)*i/20])
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, body string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(body))
		}))
		defer s.Close()
		got := ask(t, provider(t, s.URL), question)
		for _, c := range got.calls {
			if !json.Valid(c.Args) || c.Name == "" {
				t.Errorf("a broken call got through: %+v", c)
			}
		}
	})
}
