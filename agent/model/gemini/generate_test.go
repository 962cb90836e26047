package gemini_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/gemini"
	"rouse/agent/model/modeltest"
)

var question = model.Request{System: "Be brief.", Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, Tools: []model.Tool{{Name: "notify"}}}

func ask(t testing.TB, s *modeltest.Server, r model.Request) modeltest.Answer {
	t.Helper()
	return modeltest.Ask(t, t.Context(), provider(t, s.URL, modeltest.Limits{}), r)
}

func TestRequest(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "ok"})
	warm := 0.5
	r := question
	r.MaxOutput, r.Temperature = 99, &warm
	r.Messages = []model.Message{
		{Role: model.RoleUser, Text: "Go."},
		{Role: model.RoleAssistant, Calls: []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{"sql":"x"}`)}, {ID: "b", Name: "notify"}, {ID: "c", Name: "notify"}}},
		{Role: model.RoleTool, CallID: "a", Name: "db_query", Text: `{"ok":true,"result":{"price":"$5"}}`},
		{Role: model.RoleTool, CallID: "b", Name: "notify", Text: `{"ok":true,"result":{"$ref":"#/x"}}`},
		{Role: model.RoleTool, CallID: "c", Name: "notify", Text: `{"ok":true}` + "\n\n[System Notice] 1 of 9 steps remaining."},
		{Role: model.RoleUser, Text: "Go on."}, {Role: model.RoleUser},
	}

	ask(t, s, r)
	const begin = `{"contents":[{"role":"user","parts":[{"text":"Go."}]},` +
		`{"role":"model","parts":[{"functionCall":{"id":"a","name":"db_query","args":{"sql":"x"}}},{"functionCall":{"id":"b","name":"notify","args":{}}},{"functionCall":{"id":"c","name":"notify","args":{}}}]},` +
		`{"role":"user","parts":[{"functionResponse":{"id":"a","name":"db_query","response":{"ok":true,"result":{"price":"$5"}}}},` +
		`{"functionResponse":{"id":"b","name":"notify","response":{"output":"{\"ok\":true,\"result\":{\"$ref\":\"#/x\"}}"}}},` +
		`{"functionResponse":{"id":"c","name":"notify","response":{"notice":"[System Notice] 1 of 9 steps remaining.","output":{"ok":true}}}},{"text":"Go on."}]}],`

	const end = `"generationConfig":{"maxOutputTokens":99,"temperature":0.5}}`
	const tools = `"systemInstruction":{"parts":[{"text":"Be brief."}]},"tools":[{"functionDeclarations":[{"name":"notify"}]}],`
	if got, want := string(s.Requests()[0]), begin+tools+end; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}

	r.NoTools = true
	ask(t, s, r)
	if got, want := string(s.Requests()[1]), begin+tools+`"toolConfig":{"functionCallingConfig":{"mode":"NONE"}},`+end; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}

	ask(t, s, model.Request{Messages: question.Messages})
	if got, want := string(s.Requests()[2]), `{"contents":[{"role":"user","parts":[{"text":"Go."}]}]}`; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}
}

// TestSchemas checks that arguments are described in the API's schema, unless they contain an
// object with any properties.
func TestSchemas(t *testing.T) {
	for name, c := range map[string]struct{ schema, parameters, json string }{
		"nothing":      {``, ``, ``},
		"no arguments": {`{"type":"object","properties":{}}`, ``, ``},
		"scalars":      {`{"type":"object","properties":{"a":{"type":"string","description":"d","enum":["x","y"]},"b":{"type":"integer"},"c":{"type":"boolean"}},"required":["a"]}`, `{"type":"OBJECT","properties":{"a":{"type":"STRING","description":"d","enum":["x","y"]},"b":{"type":"INTEGER"},"c":{"type":"BOOLEAN"}},"required":["a"]}`, ``},
		"nested":       {`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"type":"string"}},"required":["b"]}}}}`, `{"type":"OBJECT","properties":{"a":{"type":"ARRAY","items":{"type":"OBJECT","properties":{"b":{"type":"STRING"}},"required":["b"]}}}}`, ``},
		"free object":  {`{"type":"object","properties":{"row":{"type":"object"}}}`, ``, `{"type":"object","properties":{"row":{"type":"object"}}}`},
		"free objects": {`{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object"}}}}`, ``, `{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object"}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.New(t)
			r := question
			r.Tools = []model.Tool{{Name: "x", Schema: json.RawMessage(c.schema)}}
			if got := ask(t, s, r); got.Err != nil {
				t.Fatal(got.Err)
			}

			var sent struct {
				Tools []struct {
					FunctionDeclarations []struct{ Parameters, ParametersJsonSchema json.RawMessage }
				}
			}
			if err := json.Unmarshal(s.Requests()[0], &sent); err != nil {
				t.Fatal(err)
			}
			if f := sent.Tools[0].FunctionDeclarations[0]; string(f.Parameters) != c.parameters || string(f.ParametersJsonSchema) != c.json {
				t.Errorf("%s\nbecame %s or %s, want %s or %s", c.schema, f.Parameters, f.ParametersJsonSchema, c.parameters, c.json)
			}
		})
	}
}

func stream(chunks ...string) modeltest.Turn {
	return modeltest.Turn{Raw: "data: " + strings.Join(chunks, "\r\n\r\ndata: ") + "\r\n\r\n"}
}

func parts(finish string, parts ...string) string {
	if finish != "" {
		finish = `,"finishReason":"` + finish + `"`
	}
	return `{"candidates":[{"content":{"parts":[` + strings.Join(parts, ",") + `],"role":"model"}` + finish + `,"index":0}],"modelVersion":"gemini-flash-latest","responseId":"y0"}`
}

const (
	aCall  = `{"functionCall":{"name":"notify","args":{"title":"x"}},"thoughtSignature":"CiQB"}`
	usages = `{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":20,"totalTokenCount":1150,"cachedContentTokenCount":900,"promptTokensDetails":[{"modality":"TEXT","tokenCount":1000}],"thoughtsTokenCount":100,"toolUsePromptTokenCount":30}}`
)

// TestAnswers checks unusual but valid answers of servers.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		turn  modeltest.Turn
		text  string
		stop  string
		calls string
		usage model.Usage
	}{
		"a call":             {stream(parts("", aCall), usages), "", model.StopCalls, `notify({"title":"x"})`, model.Usage{Input: 1030, Output: 120, Cached: 900}},
		"no arguments":       {stream(parts("STOP", `{"functionCall":{"name":"notify"}}`)), "", model.StopCalls, `notify({})`, model.Usage{}},
		"calls and text":     {stream(parts("", `{"text":"a"}`, aCall, `{"text":"b"}`), parts("STOP", aCall)), "ab", model.StopCalls, `notify({"title":"x"}) notify({"title":"x"})`, model.Usage{}},
		"thoughts":           {stream(parts("", `{"text":"hm","thought":true}`), parts("STOP", `{"text":"a","thoughtSignature":"CiQB"}`)), "a", model.StopDone, "", model.Usage{}},
		"other parts":        {stream(parts("STOP", `{"executableCode":{"code":"x"}}`, `{"text":"a"}`)), "a", model.StopDone, "", model.Usage{}},
		"another candidate":  {stream(`{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"},{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`), "a", model.StopDone, "", model.Usage{}},
		"no content":         {stream(`{"candidates":[{"finishReason":"STOP"}]}`), "", model.StopDone, "", model.Usage{}},
		"recitation":         {stream(parts("", `{"text":"a"}`), parts("RECITATION")), "a", model.StopFilter, "", model.Usage{}},
		"a list, no stream":  {modeltest.Turn{Raw: "[" + parts("", `{"text":"a"}`) + "\n,\r\n" + parts("STOP", aCall) + "]"}, "a", model.StopCalls, `notify({"title":"x"})`, model.Usage{}},
		"whole, no stream":   {modeltest.Turn{Raw: parts("STOP", aCall)}, "", model.StopCalls, `notify({"title":"x"})`, model.Usage{}},
		"rated as dangerous": {stream(`{"promptFeedback":{"safetyRatings":[]},"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`), "a", model.StopDone, "", model.Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn), question)
			var calls []string
			for _, call := range got.Calls {
				calls = append(calls, call.Name+"("+string(call.Args)+")")
			}
			if made := strings.Join(calls, " "); got.Err != nil || got.Text != c.text || got.Stop != c.stop || made != c.calls || got.Usage != c.usage {
				t.Errorf("%+v with %s\nwant %q, stop %q, calls %s, %+v", got, made, c.text, c.stop, c.calls, c.usage)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	status := func(code int, raw string) modeltest.Turn {
		return modeltest.Turn{Status: code, Header: map[string]string{"Retry-After": "0"}, Raw: raw}
	}
	for name, c := range map[string]struct {
		turn      modeltest.Turn
		kind      model.ErrorKind
		retryable bool
		say       string
	}{
		"malformed call":       {stream(parts("MALFORMED_FUNCTION_CALL")), model.KindInvalidResponse, true, "a call that cannot be read (malformed_function_call)"},
		"unexpected call":      {stream(parts("", aCall), parts("UNEXPECTED_TOOL_CALL")), model.KindInvalidResponse, true, "unexpected_tool_call"},
		"unsafe call":          {stream(parts("", aCall), parts("SAFETY")), model.KindBadRequest, false, "withheld a part of its answer (safety)"},
		"for other reasons":    {stream(parts("", aCall), parts("OTHER")), model.KindUnavailable, true, "gave up"},
		"blocked prompt":       {stream(`{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":5}}`), model.KindBadRequest, false, "withheld any answer to this prompt (PROHIBITED_CONTENT)"},
		"cut off but whole":    {stream(parts("", aCall)), model.KindTruncated, true, "before it was complete"},
		"a call in pieces":     {stream(parts("STOP", `{"functionCall":{"name":"notify","args":{},"willContinue":true}}`)), model.KindInvalidResponse, true, "a call in pieces"},
		"parts of arguments":   {stream(parts("STOP", `{"functionCall":{"name":"notify","partialArgs":[{"jsonPath":"$.title"}]}}`)), model.KindInvalidResponse, true, "a call in pieces"},
		"no object":            {stream(parts("STOP", `{"functionCall":{"name":"notify","args":"x"}}`)), model.KindInvalidResponse, true, "not a JSON object"},
		"overloaded midway":    {stream(parts("", aCall), `{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`), model.KindUnavailable, true, "overloaded"},
		"error in a list":      {modeltest.Turn{Raw: `[{"error":{"code":429,"message":"quota ` + key + `"}}]`}, model.KindRateLimited, true, "quota [secret]"},
		"not found":            {status(404, `{"error":{"code":404,"message":"models/scripted is not found for API version v1beta","status":"NOT_FOUND"}}`), model.KindBadRequest, false, "check base_url and the name of the model"},
		"no billing":           {status(403, `{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}`), model.KindAuth, false, "check api_key"},
		"nothing in an answer": {modeltest.Turn{Raw: `{"usageMetadata":{}}`}, model.KindInvalidResponse, true, "without a choice"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn), question)
			var e *model.Error
			if !errors.As(got.Err, &e) || e.Kind != c.kind || e.Retryable != c.retryable || !strings.Contains(e.Error(), c.say) || len(got.Calls) > 0 || strings.Contains(e.Error(), "canary") {
				t.Errorf("%+v\nwant %s (%v) that says %q", got, c.kind, c.retryable, c.say)
			}
		})
	}
}

// TestRetryInfo checks the retry delay in the body of an error.
func TestRetryInfo(t *testing.T) {
	const quota = `{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3600s"}]}}`
	s := modeltest.New(t, modeltest.Turn{Status: 429, Raw: quota})
	var e *model.Error
	if got := ask(t, s, question); !errors.As(got.Err, &e) || e.Kind != model.KindRateLimited || e.RetryAfter != time.Hour || !strings.Contains(e.Message, "current quota") || len(s.Requests()) != 1 {
		t.Errorf("%d requests: %v", len(s.Requests()), got.Err)
	}
}

// TestAddress checks that the key is not in the URL, and that a model may be named with its
// collection.
func TestAddress(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "ok"})
	p, err := gemini.New(gemini.Options{BaseURL: s.URL, Model: "models/scripted", APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	if got := modeltest.Ask(t, t.Context(), p, question); got.Err != nil {
		t.Error(got.Err)
	}
}

// TestSignatures checks calls of another model, which have no signature, and rejected signatures.
func TestSignatures(t *testing.T) {
	call := model.Call{ID: "a", Name: "notify", Args: json.RawMessage(`{}`)}
	other := call
	other.ID, other.Args = "b", json.RawMessage(`{"title":"x"}`)
	refuse := func(say string) modeltest.Turn {
		return modeltest.Turn{Status: 400, Raw: `{"error":{"code":400,"message":"` + say + `","status":"INVALID_ARGUMENT"}}`}
	}
	const missing, corrupted = "Function call is missing a thought_signature in functionCall parts.", "Corrupted thought signature."
	const any, own = `"thoughtSignature":"skip_thought_signature_validator"`, `"thoughtSignature":"YzJsbg=="`
	s := modeltest.New(t, modeltest.Turn{Text: "I look.", Calls: []model.Call{call, other}, Opaque: "c2ln"}, refuse(missing), refuse(corrupted), modeltest.Turn{Text: "Done."})
	p := provider(t, s.URL, modeltest.Limits{})
	r := question
	old := other
	r.Messages = append(slices.Clip(r.Messages), model.Message{Role: model.RoleAssistant, Calls: []model.Call{old, old}},
		model.Message{Role: model.RoleTool, CallID: "b", Name: "notify", Text: "1"}, model.Message{Role: model.RoleTool, CallID: "b", Name: "notify", Text: "2"})
	first := modeltest.Ask(t, t.Context(), p, r)
	r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Text: first.Text, Calls: first.Calls, Raw: first.Raw},
		model.Message{Role: model.RoleTool, CallID: "a", Name: "notify", Text: `{"ok":true}`}, model.Message{Role: model.RoleTool, CallID: "b", Name: "notify", Text: `{"ok":true}`})
	second := modeltest.Ask(t, t.Context(), p, r)
	var counts []int
	for _, body := range s.Requests()[1:] {
		counts = append(counts, strings.Count(string(body), any), strings.Count(string(body), own))
	}
	if want := []int{0, 1, 1, 1, 2, 0}; first.Err != nil || !slices.Equal(counts, want) {
		t.Errorf("signatures %v, want %v (%v, %v)", counts, want, first.Err, second.Err)
	}

	before := len(s.Requests())
	if modeltest.Ask(t, t.Context(), p, question); len(s.Requests()) != before+1 {
		t.Error("what was learned was forgotten")
	}
}
