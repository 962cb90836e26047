package openai_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
)

const key = "sk-canary-0123456789"

func provider(t testing.TB, url string, l modeltest.Limits) *openai.Provider {
	t.Helper()
	p, err := openai.New(openai.Options{BaseURL: url + "/v1", Model: "scripted", APIKey: key, Timeout: l.Timeout, Idle: l.Idle,
		Headers: map[string]string{"X-Api-Key": "canary-in-a-header"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(t testing.TB, url string, r model.Request) modeltest.Answer {
	t.Helper()
	return modeltest.Ask(t, t.Context(), provider(t, url, modeltest.Limits{}), r)
}

var question = model.Request{System: "be brief", Messages: []model.Message{{Role: model.RoleUser, Text: "hi"}},
	Tools: []model.Tool{{Name: "db_query", Description: "asks", Schema: json.RawMessage(`{"type":"object","properties":{}}`)}}}

func TestConformance(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, s modeltest.Script, l modeltest.Limits) model.Provider {
		return provider(t, modeltest.New(t, s...).URL, l)
	})
}

// TestIDsAreKept checks that the ids of the model are kept.
func TestIDsAreKept(t *testing.T) {
	want := []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{"sql":"select 1"}`)}, {ID: "b", Name: "notify", Args: json.RawMessage(`{}`)}}
	got := ask(t, modeltest.New(t, modeltest.Turn{Calls: want}).URL, question)
	same := slices.EqualFunc(got.Calls, want, func(a, b model.Call) bool {
		return a.ID == b.ID && a.Name == b.Name && string(a.Args) == string(b.Args) && a.Key == ""
	})
	if got.Err != nil || !same || got.Stop != model.StopCalls {
		t.Errorf("answer: %+v", got)
	}
}

func TestRequest(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "ok"})
	warm := 0.5
	r := question
	r.MaxOutput, r.Temperature = 99, &warm
	r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: "a", Key: "m1", Name: "db_query"}}},
		model.Message{Role: model.RoleTool, CallID: "a", Name: "db_query", Text: `{"ok":true}`})
	ask(t, s.URL, r)
	const messages = `{"model":"scripted","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"db_query","arguments":"{}"}}]},` +
		`{"role":"tool","content":"{\"ok\":true}","tool_call_id":"a"}],`
	const rest = `"stream":true,"stream_options":{"include_usage":true},"max_tokens":99,"temperature":0.5}`
	if got, want := string(s.Requests()[0]), messages+`"tools":[{"type":"function","function":{"name":"db_query","description":"asks","parameters":{"type":"object","properties":{}}}}],`+rest; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}

	r.NoTools = true
	ask(t, s.URL, r)
	if got, want := string(s.Requests()[1]), messages+rest; got != want {
		t.Errorf("without tools sent\n%s, want\n%s", got, want)
	}
}

// TestAdapts checks that requests omit a field after the server has rejected it.
func TestAdapts(t *testing.T) {
	for name, c := range map[string]struct{ refusal, before, after string }{
		"a reasoning model": {`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}`,
			`"max_tokens":5`, `"max_completion_tokens":5`},
		"no usage":               {`{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`, `"stream_options"`, `"stream":true`},
		"a shorter answer":       {`{"error":{"message":"max_tokens is too large: 5. This model supports at most 4 completion tokens, whereas you provided 5."}}`, `"max_tokens":5`, `"max_tokens":4`},
		"a context that is full": {`{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 5. This model's maximum context length is 8 tokens and your request has 4 input tokens (5 > 8 - 4)."}}`, `tokens":5`, `"stream":true`},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.New(t, modeltest.Turn{Status: 400, Raw: c.refusal}, modeltest.Turn{Text: "hello"})
			p, r := provider(t, s.URL, modeltest.Limits{}), question
			r.MaxOutput = 5
			for range 2 {
				if got := modeltest.Ask(t, t.Context(), p, r); got.Err != nil || got.Text != "hello" {
					t.Fatalf("answer: %+v", got)
				}
			}

			sent := s.Requests()
			if len(sent) != 3 {
				t.Fatalf("%d requests", len(sent))
			}

			for i, body := range sent {
				if has := strings.Contains(string(body), c.before); has != (i == 0) || i > 0 && !strings.Contains(string(body), c.after) {
					t.Errorf("request %d: %s", i, body)
				}
			}
		})
	}
}

// TestAdaptsOnce checks that an error about a field that is no longer sent is not retried.
func TestAdaptsOnce(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Status: 400, Raw: `{"error":"neither max_completion_tokens nor stream_options"}`})
	r := question
	r.MaxOutput = 5
	if got := ask(t, s.URL, r); got.Err == nil || len(s.Requests()) != 4 {
		t.Errorf("%d requests: %v", len(s.Requests()), got.Err)
	}
}

func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o   openai.Options
		say string
	}{
		"no model":    {openai.Options{}, "no model was named"},
		"no address":  {openai.Options{Model: "m", BaseURL: "localhost:8080/v1"}, "http://127.0.0.1:8080/v1"},
		"broken key":  {openai.Options{Model: "m", APIKey: "sk-canary\nx"}, "api_key holds a line break"},
		"broken head": {openai.Options{Model: "m", Headers: map[string]string{"X-Team": "a\r\nb"}}, "the header X-Team"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openai.New(c.o)
			if err == nil || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%v, want %q", err, c.say)
			}
		})
	}
	if _, err := openai.New(openai.Options{Model: "m", APIKey: " sk-x\n"}); err != nil {
		t.Errorf("a key with a newline at its end, as files have it: %v", err)
	}
}

func FuzzStream(f *testing.F) {
	modeltest.Fuzz(f, func(transport http.RoundTripper) (model.Provider, error) {
		return openai.New(openai.Options{BaseURL: "http://model/v1", Model: "m", Transport: transport})
	}, `{"choices":[{"message":{"tool_calls":[{"function":{"name":"x","arguments":{}}}]},"finish_reason":"stop"}]}`, "event: error\ndata: [1]\n\n", `[{"error":"x"}]`)
}
