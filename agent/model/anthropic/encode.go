package anthropic

import (
	"encoding/json"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// request is what stands behind the messages and the tools.
type request struct {
	ToolChoice  *toolChoice `json:"tool_choice,omitempty"`
	Temperature *float64    `json:"temperature,omitempty"`
	Stream      bool        `json:"stream"`
}

// sent is what was told in a request that a server may refuse.
type sent struct {
	maxTokens   int64
	temperature bool
	marked      bool // for the cache
	opaque      bool // what the model thought is in it
	shown       bool // pictures are
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
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
	Type      string `json:"type"`
	ToolUseID string `json:"tool_use_id"`
	Content   any    `json:"content"` // a text, or a list of blocks
	IsError   bool   `json:"is_error,omitempty"`
}

type imageBlock struct {
	Type   string      `json:"type"`
	Source imageSource `json:"source"`
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
}

var ephemeral = &cacheControl{"ephemeral"}

// writer is what the writing of a history depends on.
type writer struct {
	p    *Provider
	bare bool
}

func (t *turn) encode() (*wire.Body, error) {
	rest := request{Stream: true}
	if !t.p.noTemperature.Load() {
		rest.Temperature = t.r.Temperature
	}

	if t.r.NoTools && len(t.r.Tools) > 0 {
		rest.ToolChoice = &toolChoice{"none"}
	}

	t.sent = sent{maxTokens: t.maxTokens(), temperature: rest.Temperature != nil, marked: len(t.r.Tools) > 0 && !t.p.noCache.Load()}
	system := strings.TrimSpace(t.r.System) != ""
	draft := wire.DraftOf(t.r.Draft, writer{t.p, t.bare})
	b := &wire.Body{}
	b.Add(`{"model":`)
	b.JSON(t.p.server.Model())
	b.Add(`,"max_tokens":`)
	b.JSON(t.sent.maxTokens)

	if system {
		block := textBlock{Type: "text", Text: t.r.System}
		if t.sent.marked {
			block.Cache = ephemeral
		}
		b.Add(`,"system":`)
		b.JSON([]textBlock{block})
	}

	seen, shown := t.p.server.See(t.r.Messages)
	t.sent.shown = shown
	messages, err := draft.Messages(seen, "", t.write)
	if err != nil {
		return nil, err
	}

	b.Add(`,"messages":[`)
	t.add(b, messages)
	b.Add("]")

	if len(t.r.Tools) > 0 {
		tools, err := draft.Tools(t.r.Tools, declare)
		if err != nil {
			return nil, err
		}

		b.Add(`,"tools":[`)
		if t.sent.marked && !system {
			addMarked(b, tools)
		} else {
			b.Piece(tools)
		}

		b.Add("]")
	}

	b.Rest(rest)
	return b, nil
}

// add appends the history, marked where the provider is to keep it for the next request: at
// the ends of the last two of the user's messages.
func (t *turn) add(b *wire.Body, messages []wire.Written) {
	marks := 0
	if t.sent.marked {
		marks = 2
	}

	ends := map[int]bool{}
	above := ""
	if len(t.said) > 0 {
		above = assistant
	}

	for i := len(messages) - 1; i >= 0 && len(ends) < marks; i-- {
		if len(messages[i].Text) == 0 {
			continue
		}
		if messages[i].Role == user && above != user {
			ends[i] = true
		}
		above = messages[i].Role
	}

	last := ""
	b.Grow(len(messages))

	for i, m := range messages {
		t.sent.opaque = t.sent.opaque || m.Opaque
		if last = m.Role; ends[i] {
			addMarked(b, m.Text)
		} else {
			b.Piece(m.Text)
		}
	}

	for _, block := range t.said {
		b.Add(join(last, assistant))
		b.JSON(block)
		last = assistant
	}

	if last != "" {
		b.Add("]}")
	}
}

// addMarked appends what ends in an object, and marks that.
func addMarked(b *wire.Body, text []byte) {
	b.Piece(text[:len(text)-len("}")])
	b.Add(`,"cache_control":`)
	b.JSON(ephemeral)
	b.Add("}")
}

func declare(t model.Tool) any {
	schema := t.Schema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return tool{Name: t.Name, Description: t.Description, InputSchema: schema}
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

// The roles.
const (
	user      = "user"
	assistant = "assistant"
)

// join parts what one role says from what was said before: what one says in a row is one
// message.
func join(before, role string) string {
	switch before {
	case role:
		return ","
	case "":
		return `{"role":"` + role + `","content":[`
	}
	return `]},{"role":"` + role + `","content":[`
}

func (t *turn) write(out *wire.Text, before string, m model.Message) (role string, opaque bool) {
	role = user
	if m.Role == model.RoleAssistant {
		role = assistant
	}

	content, opaque := t.content(m)
	for _, block := range content {
		out.Add(join(before, role))
		out.JSON(block)
		before = role
	}
	return role, opaque
}

func (t *turn) content(m model.Message) (out []any, opaque bool) {
	switch m.Role {
	case model.RoleTool:
		var said any = m.Text
		if len(m.Images) > 0 {
			said = append(text(nil, m.Text), images(m)...)
		}
		return []any{&resultBlock{Type: "tool_result", ToolUseID: id(m.CallID), Content: said, IsError: failed(m.Text)}}, false
	case model.RoleAssistant:
	default:
		return text(images(m), m.Text), false
	}

	for _, p := range t.p.server.Pieces(m) {
		switch {
		case p.Call != nil:
			out = append(out, &useBlock{"tool_use", id(p.Call.ID), p.Call.Name, input(p.Call.Args)})
		case p.Opaque == nil:
			out = text(out, p.Text)
		case !t.bare:
			out, opaque = append(out, p.Opaque), true
		}
	}

	return out, opaque
}

// failed says whether a tool's answer is that it failed. A notice may follow it.
func failed(text string) bool {
	var e struct {
		OK *bool `json:"ok"`
	}
	return json.NewDecoder(strings.NewReader(text)).Decode(&e) == nil && e.OK != nil && !*e.OK
}

// images are the pictures of a message.
func images(m model.Message) (out []any) {
	for _, i := range m.Images {
		out = append(out, imageBlock{"image", imageSource{"base64", i.Type, i.Data}})
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
