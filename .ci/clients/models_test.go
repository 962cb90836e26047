package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"testing"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	ollamaapi "github.com/ollama/ollama/api"
	openaisdk "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
	"rouse/agent/model/wire"
)

// conversation is a conversation with a public client: it asks, answers the calls, and asks again.
type conversation func(t *testing.T, url string) (first, second clientAnswer)

// clientAnswer is what a public client decoded from a stream.
type clientAnswer struct {
	text  string
	calls []model.Call
	usage model.Usage
	stop  string
	err   error
}

var (
	query   = model.Call{ID: "a", Name: "db_query", Args: json.RawMessage(`{"limit":3,"sql":"select 'ü', \"x\" from t"}`)}
	tell    = model.Call{ID: "b", Name: "notify", Args: json.RawMessage(`{"title":"done"}`)}
	script  = modeltest.Script{{Text: "Grüße, 世界.", Calls: []model.Call{query, tell}, Usage: model.Usage{Input: 100, Output: 7, Cached: 90}, Opaque: "c2lnMQ"}, {Text: "Done."}}
	results = `{"ok":true}`
	picture = model.Image{Type: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}
)

// The public clients read what the server sends, and it accepts what they send: where it matters, it
// behaves like the real one.
func TestPublicClients(t *testing.T) {
	for name, c := range map[string]struct {
		talk conversation
		stop [2]string
	}{
		"openai":    {talkOpenAI, [2]string{"tool_calls", "stop"}},
		"responses": {talkResponses, [2]string{"completed", "completed"}},
		"anthropic": {talkAnthropic, [2]string{"tool_use", "end_turn"}},
		"gemini":    {talkGemini, [2]string{"STOP", "STOP"}},
		"ollama":    {talkOllama, [2]string{"stop", "stop"}},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := c.talk(t, modeltest.New(t, script...).URL)
			want := script[0].Usage
			if name == "ollama" {
				want.Cached = 0
			}
			if first.err != nil || first.text != script[0].Text || first.usage != want || first.stop != c.stop[0] || len(first.calls) != 2 {
				t.Fatalf("the first answer: %+v", first)
			}

			for i, call := range script[0].Calls {
				if got := first.calls[i]; got.ID != call.ID || got.Name != call.Name || !same(t, got.Args, call.Args) {
					t.Errorf("call %d: %+v", i, got)
				}
			}

			if second.err != nil || second.text != "Done." || second.stop != c.stop[1] {
				t.Errorf("the second answer: %+v", second)
			}
		})
	}
}

// The public clients recognize the server's error responses.
func TestPublicClientsAreRefused(t *testing.T) {
	for kind, want := range map[model.ErrorKind][5]int{
		model.KindAuth: {401, 401, 400, 401, 401}, model.KindRateLimited: {429, 429, 429, 429, 429}, model.KindUnavailable: {503, 529, 503, 503, 503}, model.KindContextOverflow: {400, 400, 400, 400, 400},
	} {
		s := modeltest.New(t, modeltest.Turn{Fail: kind})
		var got [5]int
		for i, talk := range []conversation{talkOpenAI, talkAnthropic, talkGemini, talkOllama, talkResponses} {
			first, _ := talk(t, s.URL)
			var o *openaisdk.Error
			var a *anthropicsdk.Error
			var g genai.APIError
			var l ollamaapi.StatusError
			var u ollamaapi.AuthorizationError
			switch err := first.err; {
			case errors.As(err, &o):
				got[i] = o.StatusCode
			case errors.As(err, &a):
				got[i] = a.StatusCode
			case errors.As(err, &g):
				got[i] = g.Code
			case errors.As(err, &l):
				got[i] = l.StatusCode
			case errors.As(err, &u):
				got[i] = u.StatusCode
			}
		}
		if got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

func same(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

func talkOpenAI(t *testing.T, url string) (first, second clientAnswer) {
	c := openaisdk.NewClient(openaioption.WithBaseURL(url+"/v1"), openaioption.WithAPIKey("k"), openaioption.WithMaxRetries(0))
	p := openaisdk.ChatCompletionNewParams{Model: "scripted", Messages: []openaisdk.ChatCompletionMessageParamUnion{openaisdk.SystemMessage("Be brief."), openaisdk.UserMessage("Go.")}}
	ask := func() (h clientAnswer, acc openaisdk.ChatCompletionAccumulator) {
		s := c.Chat.Completions.NewStreaming(t.Context(), p)
		for s.Next() {
			if !acc.AddChunk(s.Current()) {
				t.Error("a chunk was not taken")
			}
		}

		if h.err = s.Err(); h.err != nil {
			return h, acc
		}

		m := acc.Choices[0].Message
		h.text, h.stop = m.Content, acc.Choices[0].FinishReason
		h.usage = model.Usage{Input: acc.Usage.PromptTokens, Output: acc.Usage.CompletionTokens, Cached: acc.Usage.PromptTokensDetails.CachedTokens}
		for _, call := range m.ToolCalls {
			h.calls = append(h.calls, model.Call{ID: call.ID, Name: call.Function.Name, Args: json.RawMessage(call.Function.Arguments)})
		}

		return h, acc
	}

	first, acc := ask()
	if first.err != nil {
		return first, second
	}

	p.Messages = append(p.Messages, acc.Choices[0].Message.ToParam())
	for _, call := range first.calls {
		p.Messages = append(p.Messages, openaisdk.ToolMessage(results, call.ID))
	}

	second, _ = ask()
	return first, second
}

func talkResponses(t *testing.T, url string) (first, second clientAnswer) {
	c := openaisdk.NewClient(openaioption.WithBaseURL(url+"/v1"), openaioption.WithAPIKey("k"), openaioption.WithMaxRetries(0))
	input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("Go.", responses.EasyInputMessageRoleUser)}
	ask := func() (h clientAnswer, r responses.Response) {
		s := c.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{Model: "scripted", Instructions: openaisdk.String("Be brief."),
			Store: openaisdk.Bool(false), Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input}})
		for s.Next() {
			switch e := s.Current(); e.Type {
			case "response.output_text.delta":
				h.text += e.Delta
			case "response.completed":
				r = e.Response
			}
		}
		if h.err = s.Err(); h.err != nil {
			return h, r
		}

		h.stop = string(r.Status)
		h.usage = model.Usage{Input: r.Usage.InputTokens, Output: r.Usage.OutputTokens, Cached: r.Usage.InputTokensDetails.CachedTokens}
		for _, it := range r.Output {
			if it.Type == "function_call" {
				call := it.AsFunctionCall()
				h.calls = append(h.calls, model.Call{ID: call.CallID, Name: call.Name, Args: json.RawMessage(call.Arguments)})
			}
		}

		return h, r
	}

	first, r := ask()
	if first.err != nil {
		return first, second
	}

	for _, it := range r.Output {
		switch it.Type {
		case "reasoning":
			thought := it.AsReasoning().ToParam()
			input = append(input, responses.ResponseInputItemUnionParam{OfReasoning: &thought})
		case "message":
			said := it.AsMessage().ToParam()
			input = append(input, responses.ResponseInputItemUnionParam{OfOutputMessage: &said})
		case "function_call":
			call := it.AsFunctionCall().ToParam()
			input = append(input, responses.ResponseInputItemUnionParam{OfFunctionCall: &call})
		}
	}

	for _, call := range first.calls {
		answer := responses.ResponseInputItemParamOfFunctionCallOutput(results)
		answer.OfFunctionCallOutput.CallID = openaisdk.String(call.ID)
		input = append(input, answer)
	}

	second, _ = ask()
	return first, second
}

func talkAnthropic(t *testing.T, url string) (first, second clientAnswer) {
	c := anthropicsdk.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("k"), anthropicoption.WithMaxRetries(0))
	p := anthropicsdk.MessageNewParams{Model: "scripted", MaxTokens: 100, System: []anthropicsdk.TextBlockParam{{Text: "Be brief."}},
		Messages: []anthropicsdk.MessageParam{anthropicsdk.NewUserMessage(anthropicsdk.NewTextBlock("Go."))}}
	ask := func() (h clientAnswer, m anthropicsdk.Message) {
		s := c.Messages.NewStreaming(t.Context(), p)
		for s.Next() {
			if err := m.Accumulate(s.Current()); err != nil {
				t.Error(err)
			}
		}

		if h.err = s.Err(); h.err != nil {
			return h, m
		}

		h.stop = string(m.StopReason)
		u := m.Usage
		h.usage = model.Usage{Input: u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens, Output: u.OutputTokens, Cached: u.CacheReadInputTokens}
		for _, b := range m.Content {
			switch b.Type {
			case "text":
				h.text += b.Text
			case "tool_use":
				h.calls = append(h.calls, model.Call{ID: b.ID, Name: b.Name, Args: b.Input})
			}
		}

		return h, m
	}

	first, m := ask()
	if first.err != nil {
		return first, second
	}

	var answers []anthropicsdk.ContentBlockParamUnion
	for _, call := range first.calls {
		answers = append(answers, anthropicsdk.NewToolResultBlock(call.ID, results, false))
	}

	p.Messages = append(p.Messages, m.ToParam(), anthropicsdk.NewUserMessage(answers...))
	second, _ = ask()
	return first, second
}

func talkGemini(t *testing.T, url string) (first, second clientAnswer) {
	c, err := genai.NewClient(t.Context(), &genai.ClientConfig{APIKey: "k", Backend: genai.BackendGeminiAPI, HTTPClient: http.DefaultClient, HTTPOptions: genai.HTTPOptions{BaseURL: url}})
	if err != nil {
		t.Fatal(err)
	}

	contents := []*genai.Content{genai.NewContentFromText("Go.", genai.RoleUser)}
	ask := func() (h clientAnswer, parts []*genai.Part) {
		for r, err := range c.Models.GenerateContentStream(t.Context(), "scripted", contents, nil) {
			if err != nil {
				return clientAnswer{err: err}, nil
			}

			candidate := r.Candidates[0]
			for _, p := range candidate.Content.Parts {
				if p.Thought {
					continue
				}

				h.text += p.Text
				if f := p.FunctionCall; f != nil {
					args, err := json.Marshal(f.Args)
					if err != nil {
						t.Error(err)
					}
					h.calls = append(h.calls, model.Call{ID: f.ID, Name: f.Name, Args: args})
				}

				n := len(parts) - 1
				if p.FunctionCall == nil && p.ThoughtSignature == nil && n >= 0 && parts[n].FunctionCall == nil && parts[n].ThoughtSignature == nil {
					parts[n].Text += p.Text
				} else if p.FunctionCall != nil || p.ThoughtSignature != nil || p.Text != "" {
					parts = append(parts, p)
				}
			}

			if candidate.FinishReason != "" {
				h.stop = string(candidate.FinishReason)
			}

			if u := r.UsageMetadata; u != nil {
				h.usage = model.Usage{Input: int64(u.PromptTokenCount), Output: int64(u.CandidatesTokenCount + u.ThoughtsTokenCount), Cached: int64(u.CachedContentTokenCount)}
			}
		}
		return h, parts
	}

	first, parts := ask()
	if first.err != nil {
		return first, second
	}

	answer := &genai.Content{Role: genai.RoleUser}
	for _, call := range first.calls {
		answer.Parts = append(answer.Parts, &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: call.ID, Name: call.Name, Response: map[string]any{"ok": true}}})
	}

	contents = append(contents, &genai.Content{Role: genai.RoleModel, Parts: parts}, answer)
	second, _ = ask()
	return first, second
}

func talkOllama(t *testing.T, at string) (first, second clientAnswer) {
	base, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}

	c := ollamaapi.NewClient(base, http.DefaultClient)
	r := ollamaapi.ChatRequest{Model: "scripted", Messages: []ollamaapi.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Go."}}}
	ask := func() (h clientAnswer, m ollamaapi.Message) {
		m.Role = "assistant"
		h.err = c.Chat(t.Context(), &r, func(part ollamaapi.ChatResponse) error {
			m.Content += part.Message.Content
			m.Thinking += part.Message.Thinking
			m.ToolCalls = append(m.ToolCalls, part.Message.ToolCalls...)
			if part.Done {
				h.stop, h.usage = part.DoneReason, model.Usage{Input: int64(part.PromptEvalCount), Output: int64(part.EvalCount)}
			}
			return nil
		})

		h.text = m.Content
		for _, call := range m.ToolCalls {
			h.calls = append(h.calls, model.Call{ID: call.ID, Name: call.Function.Name, Args: json.RawMessage(call.Function.Arguments.String())})
		}

		return h, m
	}

	first, m := ask()
	if first.err != nil {
		return first, second
	}

	r.Messages = append(r.Messages, m)
	for _, call := range first.calls {
		r.Messages = append(r.Messages, ollamaapi.Message{Role: "tool", Content: results, ToolName: call.Name, ToolCallID: call.ID})
	}

	second, _ = ask()
	return first, second
}

// The types of the public clients decode what the adapters send, and encode the same: no field is
// lost, and none has a wrong name.
func TestPublicTypesDecodeRequests(t *testing.T) {
	warm := 0.5
	for name, c := range map[string]struct {
		open   func(url string) (model.Provider, error)
		decode func(body []byte) (any, error)
	}{
		"openai": {
			func(url string) (model.Provider, error) {
				return openai.New(openai.Options{BaseURL: url + "/v1", Model: "scripted"})
			},
			func(body []byte) (any, error) {
				var p openaisdk.ChatCompletionNewParams
				err := json.Unmarshal(body, &p)
				return with(p, "stream", true), err
			},
		},
		"responses": {
			func(url string) (model.Provider, error) {
				return openai.NewResponses(openai.Options{BaseURL: url + "/v1", Model: "scripted"})
			},
			func(body []byte) (any, error) {
				var p responses.ResponseNewParams
				err := json.Unmarshal(body, &p)
				return with(p, "stream", true), err
			},
		},
		"anthropic": {
			func(url string) (model.Provider, error) {
				return anthropic.New(anthropic.Options{BaseURL: url, Model: "scripted"})
			},
			func(body []byte) (any, error) {
				var p anthropicsdk.MessageNewParams
				err := json.Unmarshal(body, &p)
				return with(p, "stream", true), err
			},
		},
		"gemini": {
			func(url string) (model.Provider, error) {
				return gemini.New(gemini.Options{BaseURL: url, Model: "scripted"})
			},
			func(body []byte) (any, error) {
				var p struct {
					Contents          []*genai.Content        `json:"contents"`
					SystemInstruction *genai.Content          `json:"systemInstruction"`
					Tools             []*genai.Tool           `json:"tools"`
					ToolConfig        *genai.ToolConfig       `json:"toolConfig"`
					GenerationConfig  *genai.GenerationConfig `json:"generationConfig"`
				}
				return &p, decode(body, &p)
			},
		},
		"ollama": {
			func(url string) (model.Provider, error) {
				return ollama.New(ollama.Options{Endpoint: wire.Endpoint{BaseURL: url, Model: "scripted"}, ContextWindow: 8192})
			},
			func(body []byte) (any, error) {
				var p ollamaapi.ChatRequest
				return &p, decode(body, &p)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.New(t, script...)
			p, err := c.open(s.URL)
			if err != nil {
				t.Fatal(err)
			}

			r := model.Request{System: "Be brief.", Messages: []model.Message{{Role: model.RoleUser, Text: "Go.", Images: []model.Image{picture}}}, MaxOutput: 99, Temperature: &warm, Tools: []model.Tool{
				{Name: "db_query", Description: "asks", Schema: json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string","description":"one SELECT"}},"required":["sql"]}`)},
				{Name: "notify", Description: "tells", Schema: json.RawMessage(`{"type":"object","properties":{"title":{"type":"string","enum":["a","b"]}}}`)}}}
			first := modeltest.Ask(t, context.Background(), p, r)
			r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Text: first.Text, Calls: first.Calls, Raw: first.Raw})
			for _, call := range first.Calls {
				r.Messages = append(r.Messages, model.Message{Role: model.RoleTool, CallID: call.ID, Name: call.Name, Text: `{"ok":false,"kind":"not_found","message":"no"}`})
			}

			r.Messages[len(r.Messages)-1].Images = []model.Image{picture}
			r.NoTools = true
			if second := modeltest.Ask(t, context.Background(), p, r); second.Err != nil || second.Text != "Done." {
				t.Fatalf("answer: %+v", second)
			}

			for i, sent := range s.Requests() {
				decoded, err := c.decode(sent)
				if err != nil {
					t.Fatalf("request %d: %v in\n%s", i, err, sent)
				}

				again, err := json.Marshal(decoded)
				if err != nil {
					t.Fatal(err)
				}
				if was, is := settled(t, sent), settled(t, again); !bytes.Equal(was, is) {
					t.Errorf("request %d was\n%s, and again\n%s", i, was, is)
				}
			}
		})
	}
}

// decode refuses fields that the type does not know.
func decode(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// with adds what a client adds by itself.
func with(v any, key string, value any) map[string]any {
	raw, err := json.Marshal(v)
	out := map[string]any{}
	if err == nil && json.Unmarshal(raw, &out) == nil {
		out[key] = value
	}
	return out
}

// settled is JSON without the differences that mean nothing: null, and an empty text beside a
// signature, can be left out, and the content of a result is a string or a list of one text.
func settled(t *testing.T, raw []byte) []byte {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}

	out, err := json.MarshalIndent(settle(v), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func settle(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = settle(v[i])
		}
	case map[string]any:
		for key, inner := range v {
			if inner = settle(inner); inner == nil || inner == "" && v["thoughtSignature"] != nil {
				delete(v, key)
				continue
			}
			v[key] = inner
		}
		if text, ok := v["content"].(string); ok && v["type"] == "tool_result" {
			v["content"] = []any{map[string]any{"type": "text", "text": text}}
		}
	}
	return v
}
