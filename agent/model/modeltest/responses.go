package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"rouse/agent/model"
)

// responses implements OpenAI's Responses API, for clients that store nothing on the server.
type responses struct{ openAI }

type responsesRequest struct {
	Model           string            `json:"model"`
	Instructions    string            `json:"instructions"`
	Input           []json.RawMessage `json:"input"`
	Tools           []responsesTool   `json:"tools"`
	ToolChoice      json.RawMessage   `json:"tool_choice"`
	Stream          bool              `json:"stream"`
	Store           *bool             `json:"store"`
	Include         []string          `json:"include"`
	MaxOutputTokens *int              `json:"max_output_tokens"`
	Temperature     *float64          `json:"temperature"`
	PromptCacheKey  string            `json:"prompt_cache_key"`
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	ID        string          `json:"id"`
	Encrypted string          `json:"encrypted_content"`
	Phase     string          `json:"phase"`
}

func (d responses) validate(s *Server, _ *http.Request, body []byte) string {
	var in responsesRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields() // the API rejects misspelled fields too
	if err := dec.Decode(&in); err != nil {
		return "Unknown parameter: " + err.Error()
	}

	switch {
	case in.Model == "" || len(in.Input) == 0:
		return "Missing required parameter: 'model' or 'input'."
	case in.MaxOutputTokens != nil && *in.MaxOutputTokens < 16:
		return "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
	case !in.Stream:
		return "stream: this server is only used with true"
	}

	for i, t := range in.Tools {
		if problem := toolProblem(fmt.Sprintf("tools[%d]", i), t.Name, t.Parameters); problem != "" || t.Type != "function" || t.Strict {
			return "Invalid schema: " + problem
		}
	}

	return d.validateTranscript(s, in)
}

// validateTranscript checks the order of items. Each call has one result, and reasoning comes
// before the calls that it led to.
func (responses) validateTranscript(s *Server, in responsesRequest) string {
	var open []string
	var said []any // items of one answer
	var calls []model.Call
	for i, raw := range in.Input {
		var it responsesItem
		if err := json.Unmarshal(raw, &it); err != nil {
			return fmt.Sprintf("Invalid 'input[%d]': %v", i, err)
		}

		switch it.Type {
		case "message", "":
			if !slices.Contains([]string{"user", "assistant", "system", "developer"}, it.Role) || len(it.Content) == 0 {
				return fmt.Sprintf("Invalid value: 'input[%d].role'", i)
			}
			if len(open) > 0 {
				return "No tool output found for function call " + open[0] + "."
			}

			// A user message ends an answer. An assistant message is a part of it.
			if it.Role != "assistant" {
				said, calls = nil, nil
			}
		case "function_call":
			if it.CallID == "" || it.Name == "" || !json.Valid([]byte(it.Arguments)) {
				return fmt.Sprintf("Missing required parameter: 'input[%d].call_id'", i)
			}

			open = append(open, it.CallID)
			calls = append(calls, model.Call{Name: it.Name, Args: json.RawMessage(it.Arguments)})
			if s.altered(calls, said) {
				return fmt.Sprintf("Item 'input[%d]' of type 'function_call' was provided without its required 'reasoning' item", i)
			}
		case "function_call_output":
			at := slices.Index(open, it.CallID)
			if at < 0 || len(it.Output) == 0 {
				return fmt.Sprintf("No tool call found for function call output with call_id %s.", it.CallID)
			}
			open = slices.Delete(open, at, at+1)
			said, calls = nil, nil
		case "reasoning":
			if it.Encrypted == "" {
				return fmt.Sprintf("Item with id '%s' not found. Items are not persisted when `store` is set to false.", it.ID)
			}
			said = append(said, normalize(raw))
		default:
			return fmt.Sprintf("Invalid value: '%s'. Supported values are: 'message', 'function_call', 'function_call_output', 'reasoning'", it.Type)
		}
	}
	if len(open) > 0 {
		return "No tool output found for function call " + open[0] + "."
	}

	return ""
}

// items returns the output of an answer. With Opaque there is reasoning before the text, and
// between the text and the calls, and the text has a phase.
func (responses) items(t Turn) []map[string]any {
	out := []map[string]any{}
	think := func(content string) {
		out = append(out, map[string]any{"type": "reasoning", "id": "rs_" + content, "summary": []any{}, "encrypted_content": content})
	}
	if t.Opaque != "" {
		think(t.Opaque)
	}

	if t.Text != "" || t.Finish == model.StopRefusal {
		part := map[string]any{"type": "output_text", "text": t.Text, "annotations": []any{}, "logprobs": []any{}}
		if t.Finish == model.StopRefusal {
			part = map[string]any{"type": "refusal", "refusal": "I will not."}
		}

		m := map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []any{part}}
		if t.Opaque != "" {
			m["phase"] = "commentary"
		}

		out = append(out, m)
	}

	if t.Opaque != "" && len(t.Calls) > 0 {
		think(t.Opaque + "more")
	}

	for _, c := range t.Calls {
		call := map[string]any{"type": "function_call", "id": "fc_" + c.ID, "name": c.Name, "arguments": string(c.Args), "status": "completed"}
		if c.ID != "" {
			call["call_id"] = c.ID
		}
		out = append(out, call)
	}

	return out
}

// echo returns the reasoning that must come before the calls of an answer.
func (d responses) echo(t Turn) any {
	out := []any{}
	for _, it := range d.items(t) {
		if it["type"] == "reasoning" {
			out = append(out, it)
		}
	}
	return out
}

func (d responses) streamError(kind model.ErrorKind) string {
	_, text := d.errorResponse(kind, "no")
	var in struct{ Error any }
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		in.Error = err.Error()
	}
	return "event: response.failed\ndata: " + encode(map[string]any{"type": "response.failed", "sequence_number": 9, "response": map[string]any{
		"id": "resp_1", "object": "response", "status": "failed", "output": []any{}, "error": in.Error}}) + "\n\n"
}

func (d responses) frames(turn Turn) []string {
	var out []string
	event := func(name string, fields map[string]any) {
		fields["type"], fields["sequence_number"] = name, len(out)
		out = append(out, "event: "+name+"\ndata: "+encode(fields)+"\n\n")
	}
	response := func(status string, more map[string]any) map[string]any {
		r := map[string]any{"id": "resp_1", "object": "response", "created_at": 1, "model": "scripted", "status": status, "output": []any{}}
		for k, v := range more {
			r[k] = v
		}
		return map[string]any{"response": r}
	}

	event("response.created", response("in_progress", nil))
	event("response.in_progress", response("in_progress", nil))
	items := d.items(turn)
	for i, it := range items {
		begun := maps.Clone(it)
		at := func(more map[string]any) map[string]any {
			more["output_index"], more["item_id"] = i, it["id"]
			return more
		}

		switch it["type"] {
		case "message":
			begun["content"], begun["status"] = []any{}, "in_progress"
			event("response.output_item.added", map[string]any{"output_index": i, "item": begun})
			part := it["content"].([]any)[0].(map[string]any)
			kind, text := "response.output_text.delta", turn.Text
			if part["type"] == "refusal" {
				kind, text = "response.refusal.delta", part["refusal"].(string)
			}

			for _, piece := range deltas(text) {
				event(kind, at(map[string]any{"content_index": 0, "delta": piece}))
			}

			if turn.Hang {
				return out
			}

			event(strings.Replace(kind, "delta", "done", 1), at(map[string]any{"content_index": 0, "text": text}))
		case "function_call":
			begun["arguments"], begun["status"] = "", "in_progress"
			event("response.output_item.added", map[string]any{"output_index": i, "item": begun})
			for _, piece := range fragments(json.RawMessage(it["arguments"].(string))) {
				event("response.function_call_arguments.delta", at(map[string]any{"delta": piece}))
			}
			event("response.function_call_arguments.done", at(map[string]any{"arguments": it["arguments"]}))
		default:
			event("response.output_item.added", map[string]any{"output_index": i, "item": map[string]any{"type": it["type"], "id": it["id"], "summary": []any{}}})
		}

		event("response.output_item.done", map[string]any{"output_index": i, "item": it})
	}

	if turn.Hang {
		return out
	}

	status, end := d.end(turn, items)
	event("response."+status, response(status, end))
	return out
}

// end returns the final status of a response, and the other fields of the last event.
func (responses) end(turn Turn, items []map[string]any) (status string, end map[string]any) {
	status, end = "completed", map[string]any{"output": items}
	if u := turn.Usage; u != (model.Usage{}) {
		end["usage"] = map[string]any{"input_tokens": u.Input, "input_tokens_details": map[string]any{"cached_tokens": u.Cached},
			"output_tokens": u.Output, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": u.Input + u.Output}
	}

	switch turn.Finish {
	case "", model.StopDone, model.StopCalls, model.StopRefusal:
	default:
		status = "incomplete"
		end["incomplete_details"] = map[string]any{"reason": strings.Replace(turn.Finish, model.StopLength, "max_output_tokens", 1)}
	}

	return status, end
}
