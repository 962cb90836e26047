package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/openai"
)

func responses(t testing.TB, url string, l modeltest.Limits) *openai.Responses {
	t.Helper()
	p, err := openai.NewResponses(openai.Options{BaseURL: url + "/v1", Model: "scripted", APIKey: key, Timeout: l.Timeout, Idle: l.Idle})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestResponsesConformance(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, s modeltest.Script, l modeltest.Limits) model.Provider {
		return responses(t, modeltest.New(t, s...).URL, l)
	})
}

// TestResponsesRequest checks that a request has the whole conversation including reasoning, and
// that the server is told not to store it.
func TestResponsesRequest(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "I look.", Calls: []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{}`)}}, Opaque: "sealed"}, modeltest.Turn{Text: "ok"})
	p := responses(t, s.URL, modeltest.Limits{})
	warm := 0.5
	r := question
	r.MaxOutput, r.Temperature = 99, &warm
	first := modeltest.Ask(t, t.Context(), p, r)
	r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Text: first.Text, Calls: first.Calls, Raw: first.Raw},
		model.Message{Role: model.RoleTool, CallID: "a", Name: "db_query", Text: `{"ok":true}`})
	r.NoTools = true
	if second := modeltest.Ask(t, t.Context(), p, r); second.Err != nil {
		t.Fatal(second.Err)
	}

	const beginning = `{"model":"scripted","instructions":"be brief","input":[{"type":"message","role":"user","content":"hi"}`
	const tools = `],"tools":[{"type":"function","name":"db_query","description":"asks","parameters":{"type":"object","properties":{}},"strict":false}],`
	const rest = `"stream":true,"store":false,"include":["reasoning.encrypted_content"],"max_output_tokens":99,"temperature":0.5}`
	if got, want := string(s.Requests()[0]), beginning+tools+rest; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}

	const said = `,{"encrypted_content":"sealed","id":"rs_sealed","summary":[],"type":"reasoning"},{"type":"message","role":"assistant","content":"I look.","phase":"commentary"},` +
		`{"encrypted_content":"sealedmore","id":"rs_sealedmore","summary":[],"type":"reasoning"},{"type":"function_call","call_id":"a","name":"db_query","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"a","output":"{\"ok\":true}"}`
	if got, want := string(s.Requests()[1]), beginning+said+tools+`"tool_choice":"none",`+rest; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}
}

// TestResponsesCacheKey checks that all requests of a run to OpenAI have the same cache key.
func TestResponsesCacheKey(t *testing.T) {
	var sent []string
	p, err := openai.NewResponses(openai.Options{Model: "m", APIKey: key, Transport: refuses(func(body string) { sent = append(sent, body) })})
	if err != nil {
		t.Fatal(err)
	}

	other := question
	other.System = "be long"
	for _, r := range []model.Request{question, question, other} {
		modeltest.Ask(t, t.Context(), p, r)
	}

	keyOf := func(body string) string {
		var in struct {
			Key string `json:"prompt_cache_key"`
		}
		if err := json.Unmarshal([]byte(body), &in); err != nil || in.Key == "" || len(in.Key) > 64 {
			t.Errorf("%q: %v", in.Key, err)
		}
		return in.Key
	}
	if len(sent) != 3 || keyOf(sent[0]) != keyOf(sent[1]) || keyOf(sent[0]) == keyOf(sent[2]) {
		t.Errorf("%q", sent)
	}
}

// TestResponsesAdapts checks that requests omit a field after the server has rejected it.
func TestResponsesAdapts(t *testing.T) {
	for name, c := range map[string]struct{ refusal, before string }{
		"no temperature": {`{"error":{"message":"Unsupported parameter: 'temperature' is not supported with this model.","param":"temperature"}}`, `"temperature"`},
		"no reasoning":   {`{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error"}}`, `"include"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.New(t, modeltest.Turn{Status: 400, Raw: c.refusal}, modeltest.Turn{Text: "hello"})
			p, r := responses(t, s.URL, modeltest.Limits{}), question
			warm := 0.5
			r.Temperature = &warm
			for range 2 {
				if got := modeltest.Ask(t, t.Context(), p, r); got.Err != nil || got.Text != "hello" {
					t.Fatalf("answer: %+v", got)
				}
			}

			for i, body := range s.Requests() {
				if has := strings.Contains(string(body), c.before); has != (i == 0) {
					t.Errorf("request %d: %s", i, body)
				}
			}
		})
	}
}

// TestResponsesWithoutReasoning checks that a conversation continues without reasoning that was
// encrypted for another account.
func TestResponsesWithoutReasoning(t *testing.T) {
	call := model.Call{ID: "a", Name: "db_query", Args: json.RawMessage(`{}`)}
	s := modeltest.New(t, modeltest.Turn{Calls: []model.Call{call}, Opaque: "sealed"})
	p := responses(t, s.URL, modeltest.Limits{})
	first := modeltest.Ask(t, t.Context(), p, question)
	r := question
	r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Calls: first.Calls, Raw: first.Raw}, model.Message{Role: model.RoleTool, CallID: "a", Name: "db_query", Text: `{"ok":true}`})
	refused := modeltest.New(t, modeltest.Turn{Status: 400, Raw: `{"error":{"message":"The encrypted content could not be verified.","code":"invalid_encrypted_content"}}`}, modeltest.Turn{Text: "on"})
	if a := modeltest.Ask(t, t.Context(), responses(t, refused.URL, modeltest.Limits{}), r); a.Err != nil || a.Text != "on" {
		t.Fatalf("answer: %+v", a)
	}
	if sent := refused.Requests(); len(sent) != 2 || !strings.Contains(string(sent[0]), "sealed") || strings.Contains(string(sent[1]), "sealed") {
		t.Errorf("%s", sent)
	}
}

// TestResponsesAreMissing checks that the error for a missing endpoint differs from the error for a
// missing model.
func TestResponsesAreMissing(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Status: 404, Raw: "404 page not found"})
	if a := modeltest.Ask(t, t.Context(), responses(t, s.URL, modeltest.Limits{}), question); a.Err == nil || !strings.Contains(a.Err.Error(), "api: chat") {
		t.Errorf("%v", a.Err)
	}
}

// TestResponsesQuirks checks unusual but valid answers of servers.
func TestResponsesQuirks(t *testing.T) {
	const call = `{"type":"function_call","call_id":"a","name":"x","arguments":`
	end := func(output string) string {
		return `{"type":"response.completed","response":{"status":"completed","output":[` + output + `]}}`
	}
	for name, c := range map[string]struct {
		turn              modeltest.Turn
		text, stop, calls string
	}{
		"does not stream":     {body("application/json", `{"object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"hm"}]},`+call+`"{\"a\":1}"}]}`), "hm", "tool_calls", `x({"a":1})`},
		"tells only the end":  {stream(end(call + `"{}"}`)), "", "tool_calls", "x({})"},
		"an object":           {stream(end(call + `{"a":2}}`)), "", "tool_calls", `x({"a":2})`},
		"no pieces of a text": {stream(`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"text":"hm"}]}}`, end("")), "hm", "stop", ""},
		"a text without item": {stream(`{"type":"response.output_text.delta","output_index":0,"delta":"hm"}`, end(""), "[DONE]"), "hm", "stop", ""},
		"unknown events":      {stream(`{"type":"response.something.new","x":[1]}`, `{"type":"response.output_item.done","output_index":0,"item":{"type":"web_search_call"}}`, end("")), "", "stop", ""},
		"a refusal":           {stream(`{"type":"response.refusal.delta","output_index":0,"delta":"I will not."}`, end("")), "I will not.", model.StopRefusal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := modeltest.Ask(t, t.Context(), responses(t, modeltest.New(t, c.turn).URL, modeltest.Limits{}), question)
			var calls []string
			for _, call := range got.Calls {
				calls = append(calls, call.Name+"("+string(call.Args)+")")
			}
			if made := strings.Join(calls, " "); got.Err != nil || got.Text != c.text || got.Stop != c.stop || made != c.calls {
				t.Errorf("%+v with %s", got, made)
			}
		})
	}
}

func FuzzResponses(f *testing.F) {
	modeltest.Fuzz(f, func(transport http.RoundTripper) (model.Provider, error) {
		return openai.NewResponses(openai.Options{BaseURL: "http://model/v1", Model: "m", Transport: transport})
	}, `{"object":"response","status":"completed","output":[{"type":"function_call","name":"x","arguments":{}}]}`, "event: error\ndata: [1]\n\n",
		"data: {\"type\":\"response.output_item.done\",\"output_index\":99999999,\"item\":{}}\n\n")
}
