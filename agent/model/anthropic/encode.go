package anthropic

import (
	"encoding/json"
	"strings"

	"rouse/agent/model"
)

type request struct {
	Model       string      `json:"model"`
	MaxTokens   int64       `json:"max_tokens"`
	System      []any       `json:"system,omitempty"`
	Messages    []message   `json:"messages"`
	Tools       []tool      `json:"tools,omitempty"`
	ToolChoice  *toolChoice `json:"tool_choice,omitempty"`
	Temperature *float64    `json:"temperature,omitempty"`
	Stream      bool        `json:"stream"`

	marked bool // for the cache
	opaque bool // what the model thought is in it
}

type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Cache       *cacheControl   `json:"cache_control,omitempty"`
}

type toolChoice struct {
	Type string `json:"type"`
}

type cacheControl struct {
	Type string `json:"type"`
}

type textBlock struct {
	Type  string        `json:"type"`
	Text  string        `json:"text"`
	Cache *cacheControl `json:"cache_control,omitempty"`
}

type useBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type resultBlock struct {
	Type      string        `json:"type"`
	ToolUseID string        `json:"tool_use_id"`
	Content   string        `json:"content"`
	IsError   bool          `json:"is_error,omitempty"`
	Cache     *cacheControl `json:"cache_control,omitempty"`
}

var ephemeral = &cacheControl{"ephemeral"}

func (t *turn) encode() request {
	out := request{Model: t.p.server.Model(), MaxTokens: t.maxTokens(), Stream: true}
	if !t.p.noTemperature.Load() {
		out.Temperature = t.r.Temperature
	}
	if strings.TrimSpace(t.r.System) != "" {
		out.System = []any{&textBlock{Type: "text", Text: t.r.System}}
	}
	for _, m := range t.r.Messages {
		out.add(role(m), t.content(m, &out))
	}
	if len(t.said) > 0 {
		out.add("assistant", t.said)
	}
	for _, tl := range t.r.Tools {
		schema := tl.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		out.Tools = append(out.Tools, tool{Name: tl.Name, Description: tl.Description, InputSchema: schema})
	}
	if t.r.NoTools && len(out.Tools) > 0 {
		out.ToolChoice = &toolChoice{"none"}
	}
	if len(out.Tools) > 0 && !t.p.noCache.Load() {
		out.mark()
	}
	return out
}

func (t *turn) maxTokens() int64 {
	n := int64(t.r.MaxOutput)
	if n <= 0 {
		n = defaultMaxTokens
	}
	if most := t.p.maxTokens.Load(); most > 0 {
		n = min(n, most)
	}
	if t.room > 0 {
		n = min(n, t.room)
	}
	return n
}

func role(m model.Message) string {
	if m.Role == model.RoleAssistant {
		return "assistant"
	}
	return "user"
}

// add appends content; what one role says in a row is one message.
func (r *request) add(role string, content []any) {
	if len(content) == 0 {
		return
	}
	if n := len(r.Messages) - 1; n >= 0 && r.Messages[n].Role == role {
		r.Messages[n].Content = append(r.Messages[n].Content, content...)
		return
	}
	r.Messages = append(r.Messages, message{role, content})
}

func (t *turn) content(m model.Message, r *request) []any {
	switch m.Role {
	case model.RoleTool:
		return []any{&resultBlock{Type: "tool_result", ToolUseID: id(m.CallID), Content: m.Text, IsError: strings.HasPrefix(m.Text, `{"ok":false`)}}
	case model.RoleAssistant:
	default:
		return text(nil, m.Text)
	}
	var out []any
	for _, p := range t.p.server.Pieces(m) {
		switch {
		case p.Call != nil:
			out = append(out, &useBlock{"tool_use", id(p.Call.ID), p.Call.Name, input(p.Call.Args)})
		case p.Opaque == nil:
			out = text(out, p.Text)
		case !t.bare:
			out = append(out, p.Opaque)
			r.opaque = true
		}
	}
	return out
}

// text appends what is said, if it is more than blanks, which the API refuses.
func text(content []any, said string) []any {
	if strings.TrimSpace(said) == "" {
		return content
	}
	return append(content, &textBlock{Type: "text", Text: said})
}

// input is an object, whatever was recorded of a call.
func input(args json.RawMessage) json.RawMessage {
	if len(args) == 0 || args[0] != '{' {
		return json.RawMessage("{}")
	}
	return args
}

// mark says where the provider is to keep the request for the next one.
func (r *request) mark() {
	r.marked = true
	if len(r.System) > 0 {
		mark(r.System)
	} else {
		r.Tools[len(r.Tools)-1].Cache = ephemeral
	}
	left := 2
	for i := len(r.Messages) - 1; i >= 0 && left > 0; i-- {
		if r.Messages[i].Role == "user" {
			mark(r.Messages[i].Content)
			left--
		}
	}
}
