package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/model"
)

// anthropic implements Anthropic's Messages API.
type anthropic struct{}

func (anthropic) contentType() string { return "text/event-stream; charset=utf-8" }

type anthropicRequest struct {
	Model     string            `json:"model"`
	MaxTokens int               `json:"max_tokens"`
	Messages  []anthropicTurn   `json:"messages"`
	System    []json.RawMessage `json:"system"`
	Tools     []struct {
		Name         string          `json:"name"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"input_schema"`
		CacheControl json.RawMessage `json:"cache_control"`
	} `json:"tools"`
	ToolChoice *struct {
		Type string `json:"type"`
	} `json:"tool_choice"`
	Temperature *float64 `json:"temperature"`
	Stream      bool     `json:"stream"`
}

type anthropicTurn struct {
	Role    string           `json:"role"`
	Content []anthropicBlock `json:"content"`
}

type anthropicBlock struct {
	Type         string          `json:"type"`
	Text         *string         `json:"text,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	Content      json.RawMessage `json:"content,omitempty"`
	IsError      bool            `json:"is_error,omitempty"`
	Thinking     *string         `json:"thinking,omitempty"`
	Signature    string          `json:"signature,omitempty"`
	Data         string          `json:"data,omitempty"`
	CacheControl json.RawMessage `json:"cache_control,omitempty"`
	Source       json.RawMessage `json:"source,omitempty"`
}

var (
	anthropicID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	anthropicName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
)

func (d anthropic) validate(s *Server, r *http.Request, body []byte) string {
	var in anthropicRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields() // the API rejects misspelled fields too
	if err := dec.Decode(&in); err != nil {
		return err.Error() + ": Extra inputs are not permitted"
	}

	marks := strings.Count(string(body), `"cache_control":{`)
	switch {
	case r.Header.Get("Anthropic-Version") == "":
		return "anthropic-version: header is required"
	case in.Model == "" || len(in.Messages) == 0:
		return "model and messages are required"
	case in.MaxTokens < 1:
		return "max_tokens: Field required"
	case !in.Stream:
		return "stream: this server is only used with true"
	case marks > 4:
		return fmt.Sprintf("A maximum of 4 blocks with cache_control may be provided. Found %d.", marks)
	case in.ToolChoice != nil && len(in.Tools) == 0:
		return "tool_choice may only be specified while providing tools"
	}

	for i, t := range in.Tools {
		if problem := toolProblem(fmt.Sprintf("tools.%d.custom.input_schema", i), t.Name, t.InputSchema); problem != "" || !anthropicName.MatchString(t.Name) {
			return "Invalid tool: " + problem
		}
	}

	return d.validateTranscript(s, in.Messages)
}

// validateTranscript checks the order of roles, calls and results.
func (d anthropic) validateTranscript(s *Server, messages []anthropicTurn) string {
	var open []string // calls of the previous message
	for i, m := range messages {
		role := []string{"user", "assistant"}[i%2]
		if m.Role != role {
			return fmt.Sprintf("messages.%d: roles must alternate; it is the turn of the %s", i, role)
		}
		if len(m.Content) == 0 {
			return fmt.Sprintf("messages.%d: all messages must have non-empty content", i)
		}

		var calls []model.Call
		answered := 0
		for j, b := range m.Content {
			// Results must come first: the jth block is the jth result.
			at := slices.Index(open, b.ToolUseID)
			switch {
			case b.Type == "text" && (b.Text == nil || strings.TrimSpace(*b.Text) == ""):
				return fmt.Sprintf("messages.%d.content.%d: text content blocks must contain non-whitespace text", i, j)
			case b.Type == "tool_use" && (role != "assistant" || !anthropicID.MatchString(b.ID) || !strings.HasPrefix(string(b.Input), "{")):
				return fmt.Sprintf("messages.%d.content.%d.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$', and input be an object", i, j)
			case b.Type == "tool_use":
				calls = append(calls, model.Call{ID: b.ID, Name: b.Name, Args: b.Input})
			case b.Type == "tool_result" && at < 0:
				return fmt.Sprintf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s", i, j, b.ToolUseID)
			case b.Type == "tool_result" && answered != j:
				return fmt.Sprintf("messages.%d.content.%d: `tool_result` blocks must come first", i, j)
			case b.Type == "tool_result":
				open = slices.Delete(open, at, at+1)
				answered++
			case b.Type == "thinking" && (b.Thinking == nil || b.Signature == ""), b.Type == "redacted_thinking" && b.Data == "":
				return fmt.Sprintf("messages.%d.content.%d: Invalid `signature` in `thinking` block", i, j)
			}
		}
		if len(open) > 0 {
			return fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s", i, strings.Join(open, ", "))
		}

		for _, c := range calls {
			open = append(open, c.ID)
		}

		if len(calls) > 0 && s.altered(calls, withoutVolatile(m.Content)) {
			return fmt.Sprintf("messages.%d: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified", i)
		}
	}

	// A paused answer is sent back to continue it, so it may be the last message.
	paused := func(b anthropicBlock) bool { return b.Type == "server_tool_use" }
	if n := len(messages); n%2 == 0 && !slices.ContainsFunc(messages[n-1].Content, paused) {
		return "This model does not support assistant message prefill. The conversation must end with a user message."
	}

	return ""
}

// withoutVolatile returns content without the parts that may differ between requests.
func withoutVolatile(content []anthropicBlock) []anthropicBlock {
	out := slices.Clone(content)
	for i := range out {
		out[i].ID, out[i].CacheControl = "", nil
	}
	return out
}

func (anthropic) errorResponse(kind model.ErrorKind, message string) (int, string) {
	status, code, text := http.StatusBadRequest, "invalid_request_error", message
	switch kind {
	case model.KindAuth:
		status, code, text = http.StatusUnauthorized, "authentication_error", "invalid x-api-key: KEY"
	case model.KindRateLimited:
		status, code, text = http.StatusTooManyRequests, "rate_limit_error", "This request would exceed your organization's rate limit of 50 requests per minute."
	case model.KindContextOverflow:
		text = "prompt is too long: 208310 tokens > 200000 maximum"
	case model.KindUnavailable:
		status, code, text = 529, "overloaded_error", "Overloaded"
	}

	return status, encode(map[string]any{"type": "error", "error": map[string]any{"type": code, "message": text}, "request_id": "req_1"})
}

func (d anthropic) streamError(kind model.ErrorKind) string {
	_, text := d.errorResponse(kind, "no")
	return "event: error\ndata: " + text + "\n\n"
}

// blocks returns the content of an answer. With Opaque there is thinking before the text, and
// between the text and the calls. Some of it is encrypted.
func (anthropic) blocks(t Turn) []anthropicBlock {
	var out []anthropicBlock
	think := func(text, signature string) {
		out = append(out, anthropicBlock{Type: "thinking", Thinking: &text, Signature: signature})
	}
	if t.Opaque != "" {
		think("Let me see. 世", t.Opaque)
		out = append(out, anthropicBlock{Type: "redacted_thinking", Data: t.Opaque + "data"})
	}

	if t.Text != "" {
		out = append(out, anthropicBlock{Type: "text", Text: &t.Text})
	}

	if t.Opaque != "" && len(t.Calls) > 0 {
		think("", t.Opaque+"more") // signed thinking without text
	}

	for _, c := range t.Calls {
		out = append(out, anthropicBlock{Type: "tool_use", ID: c.ID, Name: c.Name, Input: c.Args})
	}

	return out
}

func (d anthropic) echo(t Turn) any { return withoutVolatile(d.blocks(t)) }

func (d anthropic) frames(turn Turn) []string {
	var out []string
	event := func(name string, fields map[string]any) {
		fields["type"] = name
		out = append(out, "event: "+name+"\ndata: "+encode(fields)+"\n\n")
	}
	u := turn.Usage
	fresh, created := u.Input-u.Cached, int64(0)
	if fresh >= 4 {
		fresh, created = fresh-4, 4 // part of the input is written to the cache
	}

	event("message_start", map[string]any{"message": map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": map[string]any{"input_tokens": fresh, "cache_creation_input_tokens": created, "cache_read_input_tokens": u.Cached, "output_tokens": min(u.Output, 1)}}})
	event("ping", map[string]any{})

	for i, b := range d.blocks(turn) {
		event("content_block_start", map[string]any{"index": i, "content_block": b.start()})
		for _, delta := range b.deltas() {
			event("content_block_delta", map[string]any{"index": i, "delta": map[string]any{"type": delta.kind, delta.field: delta.value}})
		}

		// A turn that hangs stops after its text, before the block ends.
		if turn.Hang && b.Type == "text" {
			return out
		}

		event("content_block_stop", map[string]any{"index": i})
	}

	if turn.Hang {
		return out
	}

	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": d.finish(turn), "stop_sequence": nil}, "usage": map[string]any{"output_tokens": u.Output}})
	event("message_stop", map[string]any{})
	return out
}

// start returns a block as in its first event, without the content of its deltas.
func (b anthropicBlock) start() map[string]any {
	start := map[string]any{"type": b.Type}
	switch b.Type {
	case "text":
		start["text"] = ""
	case "thinking":
		start["thinking"], start["signature"] = "", ""
	case "tool_use":
		start["id"], start["name"], start["input"] = b.ID, b.Name, map[string]any{}
	default:
		start["data"] = b.Data
	}

	return start
}

// anthropicDelta is one event of a block.
type anthropicDelta struct{ kind, field, value string }

func (b anthropicBlock) deltas() []anthropicDelta {
	var out []anthropicDelta
	switch b.Type {
	case "text":
		for _, piece := range deltas(*b.Text) {
			out = append(out, anthropicDelta{"text_delta", "text", piece})
		}
	case "thinking":
		for _, piece := range deltas(*b.Thinking) {
			out = append(out, anthropicDelta{"thinking_delta", "thinking", piece})
		}
		out = append(out, anthropicDelta{"signature_delta", "signature", b.Signature})
	case "tool_use":
		for _, piece := range fragments(b.Input) {
			out = append(out, anthropicDelta{"input_json_delta", "partial_json", piece})
		}
	}

	return out
}

func (anthropic) finish(t Turn) string {
	switch {
	case t.Finish == model.StopLength:
		return "max_tokens"
	case t.Finish == model.StopFilter:
		return "refusal" // the API has no other reason for it
	case t.Finish != "":
		return t.Finish
	case len(t.Calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}
