package openai

import (
	"encoding/base64"
	"encoding/json"

	"rouse/agent/model"
)

// request has only the fields that every server knows. Some servers reject even
// parallel_tool_calls.
type request struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Tools               []tool         `json:"tools,omitempty"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
	MaxTokens           int            `json:"max_tokens,omitempty"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role       string `json:"role"`
	Content    any    `json:"content"` // a string, a list of parts, or null if there are only calls
	ToolCalls  []call `json:"tool_calls,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

type contentPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type call struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Arguments   string          `json:"arguments,omitempty"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

func (p *Provider) encode(r model.Request, history []model.Message) request {
	out := request{Model: p.client.Model(), Messages: []message{}, Stream: true, Temperature: r.Temperature}
	if !p.noUsage.Load() {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if most := p.client.Limit(r.MaxOutput); p.maxCompletion.Load() {
		out.MaxCompletionTokens = most
	} else {
		out.MaxTokens = most
	}

	if r.System != "" {
		out.Messages = append(out.Messages, message{Role: string(model.RoleSystem), Content: r.System})
	}
	for _, m := range history {
		out.Messages = append(out.Messages, toMessage(m))
	}
	if !r.NoTools { // too many servers ignore tool_choice: none
		out.Tools = encodeTools(r.Tools)
	}
	return out
}

func dataURL(i model.Image) string {
	return "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}

func encodeTools(tools []model.Tool) (out []tool) {
	for _, t := range tools {
		out = append(out, tool{"function", function{Name: t.Name, Description: t.Description, Parameters: t.ArgumentSchema()}})
	}
	return out
}

func toMessage(m model.Message) message {
	out := message{Role: string(m.Role), Content: m.Text, ToolCallID: m.CallID}
	if len(m.Images) > 0 {
		parts := []contentPart{{Type: "text", Text: m.Text}}
		for _, i := range m.Images {
			parts = append(parts, contentPart{Type: "image_url", ImageURL: &imageURL{dataURL(i)}})
		}
		out.Content = parts
	}

	for _, c := range m.Calls {
		args := string(c.Args) // a string with JSON; it must not be empty
		if args == "" {
			args = "{}"
		}
		out.ToolCalls = append(out.ToolCalls, call{c.ID, "function", function{Name: c.Name, Arguments: args}})
	}

	if len(out.ToolCalls) > 0 && m.Text == "" {
		out.Content = nil
	}

	return out
}
