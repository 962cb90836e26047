package anthropic

import (
	"encoding/json"
	"slices"
	"strings"

	"rouse/agent/model"
)

type request struct {
	Model       string      `json:"model"`
	MaxTokens   int64       `json:"max_tokens"`
	System      []textBlock `json:"system,omitempty"`
	Messages    []message   `json:"messages"`
	Tools       []tool      `json:"tools,omitempty"`
	ToolChoice  *toolChoice `json:"tool_choice,omitempty"`
	Temperature *float64    `json:"temperature,omitempty"`
	Stream      bool        `json:"stream"`
}

// message holds content blocks. They are pointers, except for opaque blocks.
type message struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

// sent records the features of the last request that a server may reject.
type sent struct {
	maxTokens   int64
	temperature bool
	cacheMarked bool // the request has cache_control marks
	hour        bool // a mark requests caching for an hour
	thinking    bool // the request contains thinking of earlier answers
	images      bool
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
	TTL  string `json:"ttl,omitempty"`
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
	Content   any           `json:"content"` // a string or a list of blocks
	IsError   bool          `json:"is_error,omitempty"`
	Cache     *cacheControl `json:"cache_control,omitempty"`
}

type imageBlock struct {
	Type   string        `json:"type"`
	Source imageSource   `json:"source"`
	Cache  *cacheControl `json:"cache_control,omitempty"`
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
}

// Cache entries are kept for five minutes, or for an hour at a higher price.
var (
	ephemeral = &cacheControl{Type: "ephemeral"}
	forAnHour = &cacheControl{Type: "ephemeral", TTL: "1h"}
)

// marks returns the cache marks for the tools and for the rest. The mark with the longer duration
// must come first. If tools is nil, the mark of the system prompt covers the tools.
func (t *turn) marks() (tools, rest *cacheControl) {
	switch {
	case !t.sent.cacheMarked:
		return nil, nil
	case t.r.KeepAll && !t.p.noHour.Load():
		t.sent.hour = true
		return nil, forAnHour
	case t.r.KeepTools && !t.p.noHour.Load():
		t.sent.hour = true
		return forAnHour, ephemeral
	}
	return nil, ephemeral
}

func (t *turn) encode() request {
	out := request{Model: t.p.client.Model(), MaxTokens: t.maxTokens(), Tools: encodeTools(t.r.Tools), Stream: true}
	if !t.p.noTemperature.Load() {
		out.Temperature = t.r.Temperature
	}
	if t.r.NoTools && len(t.r.Tools) > 0 {
		out.ToolChoice = &toolChoice{"none"}
	}

	t.sent = sent{maxTokens: out.MaxTokens, temperature: out.Temperature != nil, cacheMarked: len(t.r.Tools) > 0 && !t.p.noCache.Load()}
	markOfTools, mark := t.marks()
	if strings.TrimSpace(t.r.System) != "" {
		out.System = []textBlock{{Type: "text", Text: t.r.System, Cache: mark}}
	} else if markOfTools == nil {
		markOfTools = mark
	}
	// A mark on the system prompt covers the tools before it.
	if len(out.Tools) > 0 {
		out.Tools[len(out.Tools)-1].Cache = markOfTools
	}

	history, hasImages := t.p.client.FilterImages(t.r.Messages)
	t.sent.images = hasImages
	out.Messages = t.encodeMessages(history)
	if t.sent.cacheMarked {
		markForCache(out.Messages, mark)
	}
	return out
}

// encodeMessages merges consecutive messages of one role, because the API requires alternating
// roles.
func (t *turn) encodeMessages(history []model.Message) []message {
	out := []message{}
	add := func(role string, content []any) {
		switch last := len(out) - 1; {
		case len(content) == 0:
		case last >= 0 && out[last].Role == role:
			out[last].Content = append(out[last].Content, content...)
		default:
			out = append(out, message{role, content})
		}
	}

	for _, m := range history {
		if m.Role == model.RoleAssistant {
			add(assistant, t.encodeAnswer(m))
		} else {
			add(user, encodeInput(m))
		}
	}
	add(assistant, t.pausedContent)
	return out
}

// markForCache marks the last two user messages: the ends of this request and of the previous one.
func markForCache(messages []message, mark *cacheControl) {
	left := 2
	for _, m := range slices.Backward(messages) {
		if m.Role == user && left > 0 {
			setCache(m.Content[len(m.Content)-1], mark)
			left--
		}
	}
}

func setCache(block any, mark *cacheControl) {
	switch b := block.(type) {
	case *textBlock:
		b.Cache = mark
	case *resultBlock:
		b.Cache = mark
	case *imageBlock:
		b.Cache = mark
	}
}

func encodeTools(tools []model.Tool) (out []tool) {
	for _, t := range tools {
		out = append(out, tool{Name: t.Name, Description: t.Description, InputSchema: t.ArgumentSchema()})
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

	if t.maxOutput > 0 {
		n = min(n, t.maxOutput)
	}
	return n
}

// Roles of messages.
const (
	user      = "user"
	assistant = "assistant"
)

func encodeInput(m model.Message) []any {
	if m.Role != model.RoleTool {
		return appendText(encodeImages(m), m.Text)
	}

	var result any = m.Text
	if len(m.Images) > 0 {
		result = append(appendText(nil, m.Text), encodeImages(m)...)
	}
	return []any{&resultBlock{Type: "tool_result", ToolUseID: toolUseID(m.CallID), Content: result, IsError: isFailure(m.Text)}}
}

func (t *turn) encodeAnswer(m model.Message) (out []any) {
	for _, p := range t.p.client.ContentBlocks(m) {
		switch {
		case p.Call != nil:
			out = append(out, &useBlock{"tool_use", toolUseID(p.Call.ID), p.Call.Name, inputObject(p.Call.Args)})
		case p.Opaque == nil:
			out = appendText(out, p.Text)
		case !t.dropThinking:
			out, t.sent.thinking = append(out, p.Opaque), true
		}
	}

	return out
}

// isFailure reports whether an envelope describes a failure. A notice may follow the envelope.
func isFailure(text string) bool {
	if strings.HasPrefix(text, `{"ok":true`) { // the usual case, without parsing the envelope
		return false
	}

	var e struct {
		OK *bool `json:"ok"`
	}
	return json.NewDecoder(strings.NewReader(text)).Decode(&e) == nil && e.OK != nil && !*e.OK
}

func encodeImages(m model.Message) (out []any) {
	for _, i := range m.Images {
		out = append(out, &imageBlock{Type: "image", Source: imageSource{"base64", i.Type, i.Data}})
	}
	return out
}

// appendText appends a text block, unless text is blank: the API rejects blank blocks.
func appendText(content []any, text string) []any {
	if strings.TrimSpace(text) == "" {
		return content
	}
	return append(content, &textBlock{Type: "text", Text: text})
}

// inputObject returns the input of a call as an object, because the API rejects other values.
func inputObject(args json.RawMessage) json.RawMessage {
	if len(args) == 0 || args[0] != '{' {
		return json.RawMessage("{}")
	}
	return args
}
