package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"rouse/agent/model"
)

// ollama implements Ollama's chat API.
type ollama struct{}

func (ollama) contentType() string { return "application/x-ndjson" }

type ollamaMessage struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Thinking  string `json:"thinking,omitempty"`
	ToolCalls []struct {
		ID       string `json:"id,omitempty"`
		Function struct {
			Name      string                     `json:"name"`
			Arguments map[string]json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls,omitempty"`
	ToolName   string `json:"tool_name,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

func (ollama) validate(s *Server, _ *http.Request, body []byte) string {
	var in struct {
		Model    string
		Messages []ollamaMessage
		Options  map[string]float64
		Tools    []struct {
			Type     string
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err.Error()
	}
	if in.Model == "" || len(in.Messages) == 0 {
		return "model is required"
	}

	for i, t := range in.Tools {
		if problem := toolProblem(fmt.Sprintf("tools[%d]", i), t.Function.Name, t.Function.Parameters); problem != "" || t.Type != "function" {
			return "invalid tool: " + problem
		}
	}

	for i, m := range in.Messages {
		if m.Role == "tool" && m.ToolName == "" {
			return fmt.Sprintf("messages[%d] does not say whose result it is", i)
		}

		var calls []model.Call
		for _, c := range m.ToolCalls {
			if c.Function.Arguments == nil {
				return fmt.Sprintf("messages[%d] has a call without arguments", i)
			}
			calls = append(calls, model.Call{Name: c.Function.Name, Args: json.RawMessage(encode(c.Function.Arguments))})
		}
		if len(calls) > 0 && s.altered(calls, []string{m.Thinking, m.Content}) {
			return fmt.Sprintf("messages[%d] has lost what was thought", i)
		}
	}

	return ""
}

func (ollama) echo(t Turn) any { return []string{t.Opaque, t.Text} }

func (ollama) errorResponse(kind model.ErrorKind, message string) (int, string) {
	status, text := http.StatusBadRequest, message
	switch kind {
	case model.KindAuth:
		status, text = http.StatusUnauthorized, "unauthorized: KEY"
	case model.KindRateLimited:
		status, text = http.StatusTooManyRequests, "you have reached your hourly usage limit"
	case model.KindContextOverflow:
		text = "the input length exceeds the context length"
	case model.KindUnavailable:
		status, text = http.StatusServiceUnavailable, "server busy, please try again.  maximum pending requests exceeded"
	}

	return status, encode(map[string]any{"error": text})
}

func (d ollama) streamError(kind model.ErrorKind) string {
	_, text := d.errorResponse(kind, "an error was encountered while running the model: unexpected EOF")
	return text + "\n"
}

func (ollama) frames(turn Turn) []string {
	var out []string
	add := func(message, more map[string]any) {
		message["role"] = "assistant"
		if message["content"] == nil {
			message["content"] = ""
		}

		v := map[string]any{"model": "scripted", "created_at": "2026-11-21T08:00:00.000000001Z", "message": message, "done": false}
		for key, value := range more {
			v[key] = value
		}

		out = append(out, encode(v)+"\n")
	}

	for _, piece := range deltas(turn.Opaque) {
		add(map[string]any{"thinking": piece}, nil)
	}

	for _, piece := range deltas(turn.Text) {
		add(map[string]any{"content": piece}, nil)
	}

	if turn.Hang {
		return out
	}

	for i, c := range turn.Calls {
		call := map[string]any{"function": map[string]any{"index": i, "name": c.Name, "arguments": "@args@"}}
		if c.ID != "" {
			call["id"] = c.ID
		}
		add(map[string]any{"tool_calls": []any{call}}, nil)
		// Inserted as text: arguments that are broken on purpose cannot be encoded.
		out[len(out)-1] = strings.Replace(out[len(out)-1], `"@args@"`, string(c.Args), 1)
	}

	finish := turn.Finish
	if finish == "" {
		finish = "stop" // also with calls
	}

	end := map[string]any{"done": true, "done_reason": finish, "total_duration": 5_000_000, "load_duration": 1_000_000}
	if u := turn.Usage; u != (model.Usage{}) {
		end["prompt_eval_count"], end["eval_count"] = u.Input, u.Output
	}

	add(map[string]any{}, end)
	return out
}
