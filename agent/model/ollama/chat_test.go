package ollama_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/ollama"
	"rouse/agent/model/wire"
)

var question = model.Request{System: "Be brief.", Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}, Tools: []model.Tool{{Name: "notify"}}}

func ask(t testing.TB, s *modeltest.Server, r model.Request) modeltest.Answer {
	t.Helper()
	return modeltest.Ask(t, t.Context(), provider(t, s.URL, modeltest.Limits{}), r)
}

// TestRequest checks that a request sets the size of the context and forbids truncation. It must
// not set how long the server keeps the model, or whether the model thinks.
func TestRequest(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "ok"})
	warm := 0.5
	r := question
	r.MaxOutput, r.Temperature = 99, &warm
	r.Tools = []model.Tool{{Name: "db_query", Description: "asks", Schema: json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string"}},"required":["sql"]}`)}, {Name: "notify"}}
	r.Messages = append(r.Messages[:1:1],
		model.Message{Role: model.RoleAssistant, Text: "I look.", Calls: []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{"sql":"x"}`)}, {ID: "b", Name: "notify"}}},
		model.Message{Role: model.RoleTool, CallID: "a", Name: "db_query", Text: `{"ok":true}`}, model.Message{Role: model.RoleTool, CallID: "b", Name: "notify", Text: `{"ok":true}`})
	p, err := ollama.New(ollama.Options{Endpoint: wire.Endpoint{BaseURL: s.URL, Model: "qwen3:8b"}, ContextWindow: 32768})
	if err != nil {
		t.Fatal(err)
	}

	modeltest.Ask(t, t.Context(), p, r)
	const messages = `{"model":"qwen3:8b","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Go."},` +
		`{"role":"assistant","content":"I look.","tool_calls":[{"id":"a","function":{"index":0,"name":"db_query","arguments":{"sql":"x"}}},{"id":"b","function":{"index":1,"name":"notify","arguments":{}}}]},` +
		`{"role":"tool","content":"{\"ok\":true}","tool_name":"db_query","tool_call_id":"a"},{"role":"tool","content":"{\"ok\":true}","tool_name":"notify","tool_call_id":"b"}],`
	const tools = `"tools":[{"type":"function","function":{"name":"db_query","description":"asks","parameters":{"type":"object","properties":{"sql":{"type":"string"}},"required":["sql"]}}},` +
		`{"type":"function","function":{"name":"notify","parameters":{"type":"object","properties":{}}}}],`
	const end = `"stream":true,"truncate":false,"shift":false,"options":{"num_ctx":32768,"num_predict":99,"temperature":0.5}}`
	if got, want := string(s.Requests()[0]), messages+tools+end; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}

	r.NoTools = true
	modeltest.Ask(t, t.Context(), p, r)
	if got, want := string(s.Requests()[1]), messages+end; got != want {
		t.Errorf("without tools sent\n%s, want\n%s", got, want)
	}

	ask(t, s, model.Request{Messages: question.Messages})
	if got, want := string(s.Requests()[2]), `{"model":"scripted","messages":[{"role":"user","content":"Go."}],"stream":true,"truncate":false,"shift":false}`; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}
}

func stream(lines ...string) modeltest.Turn {
	return modeltest.Turn{Raw: strings.Join(lines, "\n") + "\n"}
}

func says(message string) string {
	return `{"model":"qwen3:8b","created_at":"2026-11-21T08:00:00.1Z","message":{"role":"assistant",` + message + `},"done":false}`
}

func done(reason string) string {
	return `{"model":"qwen3:8b","created_at":"2026-11-21T08:00:01Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"` + reason + `","total_duration":4883583458,"load_duration":1334875,"prompt_eval_count":26,"prompt_eval_duration":342546000,"eval_count":282,"eval_duration":4535599000}`
}

const aCall = `"content":"","tool_calls":[{"function":{"name":"notify","arguments":{"title":"x"}}}]`

func TestAnswers(t *testing.T) {
	used := model.Usage{Input: 26, Output: 282}
	for name, c := range map[string]struct {
		turn  modeltest.Turn
		text  string
		stop  string
		calls string
		usage model.Usage
	}{
		"a call without id":  {stream(says(aCall), done("stop")), "", model.StopCalls, `notify({"title":"x"})`, used},
		"in the last line":   {stream(strings.Replace(done("stop"), `"content":""`, aCall, 1)), "", model.StopCalls, `notify({"title":"x"})`, used},
		"two in a line":      {stream(says(strings.Replace(aCall, `]`, `,{"function":{"index":1,"name":"notify","arguments":{}}}]`, 1)), done("stop")), "", model.StopCalls, `notify({"title":"x"}) notify({})`, used},
		"thoughts":           {stream(says(`"content":"","thinking":"hm"`), says(`"content":"a"`), done("stop")), "a", model.StopDone, "", used},
		"length":             {stream(says(`"content":"a"`), done("length")), "a", model.StopLength, "", used},
		"an older version":   {stream(says(`"content":"a"`), `{"message":{"content":"b"},"done":true}`), "ab", model.StopDone, "", model.Usage{}},
		"no line at the end": {modeltest.Turn{Raw: says(`"content":"a"`) + "\n" + done("stop")}, "a", model.StopDone, "", used},
		"what follows":       {stream(says(`"content":"a"`), done("stop"), "garbage"), "a", model.StopDone, "", used},
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

// TestFaults checks that errors contain a remedy.
func TestFaults(t *testing.T) {
	status := func(code int, text string) modeltest.Turn {
		return modeltest.Turn{Status: code, Header: map[string]string{"Retry-After": "0", "Content-Type": "application/json"}, Raw: `{"error":"` + text + `"}`}
	}
	for name, c := range map[string]struct {
		turn      modeltest.Turn
		kind      model.ErrorKind
		retryable bool
		say       string
	}{
		"not pulled":          {status(404, `model 'scripted' not found`), model.KindBadRequest, false, "model 'scripted' not found; to get it, run `ollama pull scripted`"},
		"no such place":       {modeltest.Turn{Status: 404, Raw: "404 page not found"}, model.KindBadRequest, false, "check base_url and the name of the model"},
		"no tools":            {status(400, `\"registry.ollama.ai/library/gemma:2b\" does not support tools`), model.KindBadRequest, false, "an agent needs a model that can call tools"},
		"too long":            {status(400, "the input length exceeds the context length"), model.KindContextOverflow, false, "set context_window to what the model can read"},
		"no memory":           {status(500, "model requires more system memory (5.6 GiB) than is available (3.0 GiB)"), model.KindUnavailable, true, "more system memory"},
		"crashes":             {stream(says(aCall), `{"error":"an error was encountered while running the model: unexpected EOF"}`), model.KindUnavailable, true, "unexpected EOF"},
		"too long, afterward": {stream(`{"error":"the input length exceeds the context length"}`), model.KindContextOverflow, false, "exceeds"},
		"cut off but whole":   {stream(says(aCall)), model.KindTruncated, true, "before it was complete"},
		"only loaded":         {stream(done("load")), model.KindUnavailable, true, "gave up in the middle of its answer (load)"},
		"no object":           {stream(says(`"tool_calls":[{"function":{"name":"notify","arguments":[1]}}]`), done("stop")), model.KindInvalidResponse, true, "not a JSON object"},
		"another server":      {modeltest.Turn{Raw: "data: {}\n\n"}, model.KindInvalidResponse, false, "instead of a stream: data: {}; check base_url"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn), question)
			var e *model.Error
			if !errors.As(got.Err, &e) || e.Kind != c.kind || e.Retryable != c.retryable || !strings.Contains(e.Error(), c.say) || len(got.Calls) > 0 {
				t.Errorf("%+v\nwant %s (%v) that says %q", got, c.kind, c.retryable, c.say)
			}
		})
	}

	s := modeltest.New(t, status(400, "the input length exceeds the context length"))
	p, err := ollama.New(ollama.Options{Endpoint: wire.Endpoint{BaseURL: s.URL, Model: "m"}, ContextWindow: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if got := modeltest.Ask(t, t.Context(), p, question); got.Err == nil || !strings.Contains(got.Err.Error(), "raise context_window") {
		t.Errorf("%v", got.Err)
	}
}

// refused is a machine that refuses all connections.
type refused struct{}

func (refused) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connect: connection refused")
}

func TestNotRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := ollama.New(ollama.Options{Endpoint: wire.Endpoint{Model: "m", Transport: refused{}}})
		if err != nil {
			t.Fatal(err)
		}

		got := modeltest.Ask(t, t.Context(), p, question)
		const want = "the model server http://127.0.0.1:11434 cannot be reached for the model m; is Ollama running there? `ollama serve` starts it: connect: connection refused"
		var e *model.Error
		if !errors.As(got.Err, &e) || !e.Retryable || e.Error() != want {
			t.Errorf("%v, want %s", got.Err, want)
		}
	})
}
