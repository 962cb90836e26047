package anthropic

import (
	"encoding/json"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// request are the fields after the messages and the tools.
type request struct {
	ToolChoice  *toolChoice `json:"tool_choice,omitempty"`
	Temperature *float64    `json:"temperature,omitempty"`
	Stream      bool        `json:"stream"`
}

// sent is what the last request contained of what a server may refuse.
type sent struct {
	maxTokens   int64
	temperature bool
	cacheMarked bool // with cache_control
	hour        bool // for an hour
	thinking    bool // thinking of earlier answers
	images      bool
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

// What the provider is asked to cache is kept for five minutes, or for an hour at a higher price.
var (
	ephemeral = &cacheControl{Type: "ephemeral"}
	forAnHour = &cacheControl{Type: "ephemeral", TTL: "1h"}
)

// marks returns the marks for the tools, and for what comes after them: the longer ones have to come first. nil means that the tools
// have none, because the mark of the system prompt covers them.
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

// cacheKey is all that the encoding of a message depends on: see wire.CacheOf.
type cacheKey struct {
	p            *Provider
	dropThinking bool
}

func (t *turn) encode() (*wire.BodyBuilder, error) {
	// Written in pieces, so that the messages of earlier requests are sent as they were encoded.
	rest := request{Stream: true}
	if !t.p.noTemperature.Load() {
		rest.Temperature = t.r.Temperature
	}

	if t.r.NoTools && len(t.r.Tools) > 0 {
		rest.ToolChoice = &toolChoice{"none"}
	}

	t.sent = sent{maxTokens: t.maxTokens(), temperature: rest.Temperature != nil, cacheMarked: len(t.r.Tools) > 0 && !t.p.noCache.Load()}
	markOfTools, mark := t.marks()
	system := strings.TrimSpace(t.r.System) != ""
	if !system && markOfTools == nil {
		markOfTools = mark
	}
	cache := wire.CacheOf(t.r.EncodeCache, cacheKey{t.p, t.dropThinking})
	b := &wire.BodyBuilder{}
	b.Raw(`{"model":`)
	b.Value(t.p.client.Model())
	b.Raw(`,"max_tokens":`)
	b.Value(t.sent.maxTokens)

	if system {
		block := textBlock{Type: "text", Text: t.r.System, Cache: mark}
		b.Raw(`,"system":`)
		b.Value([]textBlock{block})
	}

	messages, hasImages := t.p.client.FilterImages(t.r.Messages)
	t.sent.images = hasImages
	encoded, err := cache.Messages(messages, "", t.encodeMessage)
	if err != nil {
		return nil, err
	}

	b.Raw(`,"messages":[`)
	t.appendMessages(b, encoded, mark)
	b.Raw("]")

	if len(t.r.Tools) > 0 {
		tools, err := t.p.client.Tools(cache, t.r.Tools, encodeTool)
		if err != nil {
			return nil, err
		}

		b.Raw(`,"tools":[`)
		// Tools come before the system prompt in what the provider caches, so that a mark on that
		// covers them. Without a system prompt the last tool has to carry it.
		if markOfTools != nil {
			appendMarked(b, tools, markOfTools)
		} else {
			b.Shared(tools)
		}

		b.Raw("]")
	}

	b.EndWith(rest)
	return b, nil
}

// appendMessages appends the history, with marks up to where the provider should cache it: at the
// ends of the last two user messages. The last one is where the next request goes on; the one
// before is where this one did.
func (t *turn) appendMessages(b *wire.BodyBuilder, messages []wire.EncodedMessage, mark *cacheControl) {
	marks := 0
	if t.sent.cacheMarked {
		marks = 2
	}

	ends := map[int]bool{}
	above := "" // the role after the message that the loop is at
	if len(t.pausedContent) > 0 {
		above = assistant
	}

	for i := len(messages) - 1; i >= 0 && len(ends) < marks; i-- {
		if len(messages[i].JSON) == 0 {
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
		t.sent.thinking = t.sent.thinking || m.Opaque
		if last = m.Role; ends[i] {
			appendMarked(b, m.JSON, mark)
		} else {
			b.Shared(m.JSON)
		}
	}

	for _, block := range t.pausedContent {
		b.Raw(separator(last, assistant))
		b.Value(block)
		last = assistant
	}

	if last != "" {
		b.Raw("]}")
	}
}

// appendMarked appends JSON that ends in an object, and marks that object for the cache.
func appendMarked(b *wire.BodyBuilder, text []byte, mark *cacheControl) {
	b.Shared(text[:len(text)-len("}")])
	b.Raw(`,"cache_control":`)
	b.Value(mark)
	b.Raw("}")
}

func encodeTool(t model.Tool) any {
	return tool{Name: t.Name, Description: t.Description, InputSchema: t.ArgumentSchema()}
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

// The roles.
const (
	user      = "user"
	assistant = "assistant"
)

// separator is what comes between two content blocks: consecutive blocks of one role are one
// message, because the API demands that the roles alternate.
func separator(before, role string) string {
	switch before {
	case role:
		return ","
	case "":
		return `{"role":"` + role + `","content":[`
	}
	return `]},{"role":"` + role + `","content":[`
}

func (t *turn) encodeMessage(out *wire.JSONBuilder, before string, m model.Message) (role string, opaque bool) {
	role = user
	if m.Role == model.RoleAssistant {
		role = assistant
	}

	content, opaque := t.encodeContent(m)
	for _, block := range content {
		out.Raw(separator(before, role))
		out.Value(block)
		before = role
	}
	return role, opaque
}

func (t *turn) encodeContent(m model.Message) (out []any, opaque bool) {
	switch m.Role {
	case model.RoleTool:
		var result any = m.Text
		if len(m.Images) > 0 {
			result = append(appendText(nil, m.Text), encodeImages(m)...)
		}
		return []any{&resultBlock{Type: "tool_result", ToolUseID: toolUseID(m.CallID), Content: result, IsError: isFailure(m.Text)}}, false
	case model.RoleAssistant:
	default:
		return appendText(encodeImages(m), m.Text), false
	}

	for _, p := range t.p.client.ContentBlocks(m) {
		switch {
		case p.Call != nil:
			out = append(out, &useBlock{"tool_use", toolUseID(p.Call.ID), p.Call.Name, inputObject(p.Call.Args)})
		case p.Opaque == nil:
			out = appendText(out, p.Text)
		case !t.dropThinking:
			out, opaque = append(out, p.Opaque), true
		}
	}

	return out, opaque
}

// isFailure says whether an envelope reports a failure. A notice may follow it.
func isFailure(text string) bool {
	if strings.HasPrefix(text, `{"ok":true`) { // as nearly all begin, which need not be read to their ends
		return false
	}

	var e struct {
		OK *bool `json:"ok"`
	}
	return json.NewDecoder(strings.NewReader(text)).Decode(&e) == nil && e.OK != nil && !*e.OK
}

// encodeImages are the image blocks of a message.
func encodeImages(m model.Message) (out []any) {
	for _, i := range m.Images {
		out = append(out, imageBlock{"image", imageSource{"base64", i.Type, i.Data}})
	}
	return out
}

// appendText appends a text block. The API refuses one of blanks alone.
func appendText(content []any, text string) []any {
	if strings.TrimSpace(text) == "" {
		return content
	}
	return append(content, &textBlock{Type: "text", Text: text})
}

// inputObject is the input of a call. The API refuses anything but an object, and a transcript of
// another provider, or a playbook's, may hold a call without arguments.
func inputObject(args json.RawMessage) json.RawMessage {
	if len(args) == 0 || args[0] != '{' {
		return json.RawMessage("{}")
	}
	return args
}
