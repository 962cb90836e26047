package openai

import (
	"encoding/json"

	"rouse/agent/model"
)

type request struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages"`
	Tools         []tool         `json:"tools,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
	MaxTokens     int            `json:"max_tokens,omitempty"`
	Temperature   *float64       `json:"temperature,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"` // null beside calls
	ToolCalls  []call  `json:"tool_calls,omitempty"`
	ToolCallID string  `json:"tool_call_id,omitempty"`
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

func (p *Provider) encode(r model.Request) request {
	out := request{Model: p.o.Model, Stream: true, StreamOptions: &streamOptions{true}, MaxTokens: r.MaxOutput, Temperature: r.Temperature}
	if r.System != "" {
		out.Messages = append(out.Messages, message{Role: "system", Content: &r.System})
	}
	for _, m := range r.Messages {
		text := m.Text
		e := message{Role: string(m.Role), Content: &text, ToolCallID: m.CallID}
		for _, c := range m.Calls {
			args := string(c.Args)
			if args == "" {
				args = "{}"
			}
			e.ToolCalls = append(e.ToolCalls, call{c.ID, "function", function{Name: c.Name, Arguments: args}})
		}
		if len(e.ToolCalls) > 0 && text == "" {
			e.Content = nil
		}
		out.Messages = append(out.Messages, e)
	}
	if r.NoTools {
		return out
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, tool{"function", function{Name: t.Name, Description: t.Description, Parameters: t.Schema}})
	}
	return out
}
