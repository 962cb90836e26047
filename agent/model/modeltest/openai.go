package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"rouse/agent/model"
)

// openAI implements OpenAI's chat completions API.
type openAI struct{}

func (openAI) contentType() string { return "text/event-stream" }

func (openAI) echo(Turn) any { return nil } // no opaque data

func (openAI) validate(_ *Server, _ *http.Request, body []byte) string {
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
		Tools []struct {
			Type     string
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return "this is no request: " + err.Error()
	}
	if r.Model == "" || len(r.Messages) == 0 {
		return "model and messages are required"
	}

	for i, t := range r.Tools {
		if problem := toolProblem(fmt.Sprintf("tools[%d]", i), t.Function.Name, t.Function.Parameters); problem != "" || t.Type != "function" {
			return "JSON schema conversion failed: " + problem
		}
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

func (openAI) errorResponse(kind model.ErrorKind, message string) (int, string) {
	status, text, code := http.StatusBadRequest, message, "invalid_request_error"
	switch kind {
	case model.KindAuth:
		status, text, code = http.StatusUnauthorized, "Incorrect API key provided: KEY.", "invalid_api_key"
	case model.KindRateLimited:
		status, text, code = http.StatusTooManyRequests, "Rate limit reached for requests", "rate_limit_exceeded"
	case model.KindContextOverflow:
		text, code = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.", "context_length_exceeded"
	case model.KindUnavailable:
		status, text, code = http.StatusServiceUnavailable, "The server is currently overloaded with other requests.", "server_error"
	}

	return status, encode(map[string]any{"error": map[string]any{"message": text, "type": code, "code": code}})
}

func (d openAI) streamError(kind model.ErrorKind) string {
	_, text := d.errorResponse(kind, "no")
	return "data: " + text + "\n\n"
}

func (openAI) frames(turn Turn) []string {
	var out []string
	for _, chunk := range Chunks(turn) {
		out = append(out, "data: "+chunk+"\n\n")
	}

	if !turn.Hang {
		out = append(out, "data: [DONE]\n\n")
	}
	return out
}

// Chunks returns the data of the events in which OpenAI streams a turn.
func Chunks(turn Turn) []string {
	var out []string
	add := func(v map[string]any) {
		v["id"], v["object"], v["created"], v["model"] = "c", "chat.completion.chunk", 1, "scripted"
		out = append(out, encode(v))
	}
	chunk := func(delta map[string]any, finish any) {
		add(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	call := func(i int, fields map[string]any) {
		fields["index"] = i
		chunk(map[string]any{"tool_calls": []any{fields}}, nil)
	}
	if turn.Opaque != "" {
		chunk(map[string]any{"reasoning_content": turn.Opaque}, nil)
	}

	for _, piece := range deltas(turn.Text) {
		chunk(map[string]any{"content": piece}, nil)
	}

	if turn.Hang {
		return out
	}

	for i, c := range turn.Calls {
		begin := map[string]any{"type": "function", "function": map[string]any{"name": c.Name, "arguments": ""}}
		if c.ID != "" {
			begin["id"] = c.ID
		}

		call(i, begin)
		for _, part := range fragments(c.Args) {
			call(i, map[string]any{"function": map[string]any{"arguments": part}})
		}
	}

	// A refusal is a separate kind of text with the finish reason "stop".
	finish := turn.Finish
	switch {
	case finish == model.StopRefusal:
		chunk(map[string]any{"refusal": "I will not."}, nil)
		finish = model.StopDone
	case finish == "" && len(turn.Calls) > 0:
		finish = model.StopCalls
	case finish == "":
		finish = model.StopDone
	}

	chunk(map[string]any{}, finish)
	if u := turn.Usage; u != (model.Usage{}) {
		add(map[string]any{"choices": []any{}, "usage": map[string]any{
			"prompt_tokens": u.Input, "completion_tokens": u.Output, "prompt_tokens_details": map[string]any{"cached_tokens": u.Cached}}})
	}

	return out
}
