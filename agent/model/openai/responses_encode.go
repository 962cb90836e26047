package openai

import (
	"encoding/json"

	"rouse/agent/model"
)

// responsesRequest is a request whose answer the server does not store.
type responsesRequest struct {
	Model           string          `json:"model"`
	Instructions    string          `json:"instructions,omitempty"`
	Input           []any           `json:"input"`
	Tools           []responsesTool `json:"tools,omitempty"`
	ToolChoice      string          `json:"tool_choice,omitempty"`
	Stream          bool            `json:"stream"`
	Store           bool            `json:"store"`
	Include         []string        `json:"include,omitempty"`
	MaxOutputTokens int             `json:"max_output_tokens,omitempty"`
	Temperature     *float64        `json:"temperature,omitempty"`
	PromptCacheKey  string          `json:"prompt_cache_key,omitempty"`

	reasoning bool // the request contains reasoning of earlier answers
	images    bool
}

type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"` // true, the API's default, requires every field
}

type inputMessage struct {
	Type    string `json:"type"`
	Role    string `json:"role"`
	Content any    `json:"content"`
	Phase   string `json:"phase,omitempty"` // phase of an assistant message, as sent by the server
}

type inputCall struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type inputResult struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output any    `json:"output"`
}

type textState struct {
	Phase string `json:"phase"`
}

func (t *responsesTurn) encode() responsesRequest {
	out := responsesRequest{Model: t.p.client.Model(), Instructions: t.r.System, Input: []any{}, Stream: true, MaxOutputTokens: t.p.client.Limit(t.r.MaxOutput)}
	if !t.p.noTemperature.Load() {
		out.Temperature = t.r.Temperature
	}

	if !t.p.noEncrypted.Load() {
		out.Include = []string{"reasoning.encrypted_content"}
	}

	if t.p.isOpenAI {
		out.PromptCacheKey = cacheKey(t.r)
	}

	messages, hasImages := t.p.client.FilterImages(t.r.Messages)
	out.images = hasImages
	for _, m := range messages {
		t.appendMessage(&out, m)
	}

	for _, tl := range t.r.Tools {
		out.Tools = append(out.Tools, responsesTool{Type: "function", Name: tl.Name, Description: tl.Description, Parameters: tl.ArgumentSchema()})
	}

	if t.r.NoTools && len(out.Tools) > 0 { // still sent, so that the cached prefix does not change
		out.ToolChoice = "none"
	}

	return out
}

type inputPart struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	ImageURL string `json:"image_url,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// inputContent returns the content of a user message or a tool result.
func inputContent(m model.Message) any {
	if len(m.Images) == 0 {
		return m.Text
	}

	parts := []inputPart{{Type: "input_text", Text: m.Text}}
	for _, i := range m.Images {
		parts = append(parts, inputPart{Type: "input_image", ImageURL: dataURL(i), Detail: "auto"})
	}
	return parts
}

func (t *responsesTurn) appendMessage(out *responsesRequest, m model.Message) {
	switch m.Role {
	case model.RoleTool:
		out.Input = append(out.Input, inputResult{"function_call_output", m.CallID, inputContent(m)})
		return
	case model.RoleAssistant:
	default:
		out.Input = append(out.Input, inputMessage{Type: "message", Role: string(m.Role), Content: inputContent(m)})
		return
	}
	for _, p := range t.p.client.ContentBlocks(m) {
		switch {
		case p.Call != nil:
			args := string(p.Call.Args)
			if args == "" {
				args = "{}"
			}
			out.Input = append(out.Input, inputCall{"function_call", p.Call.ID, p.Call.Name, args})
		case p.Text != "":
			var state textState
			if len(p.Opaque) > 0 && json.Unmarshal(p.Opaque, &state) != nil {
				state = textState{}
			}
			out.Input = append(out.Input, inputMessage{"message", "assistant", p.Text, state.Phase})
		case p.Opaque != nil && !t.dropReasoning:
			out.Input = append(out.Input, p.Opaque)
			out.reasoning = true
		}
	}
}
