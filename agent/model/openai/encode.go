package openai

import (
	"encoding/json"

	"rouse/agent/model"
)

// request has only what every server knows; some refuse even parallel_tool_calls.
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
	out := request{Model: p.server.Model(), Stream: true, Temperature: r.Temperature}
	if !p.noUsage.Load() {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if p.maxCompletion.Load() {
		out.MaxCompletionTokens = r.MaxOutput
	} else {
		out.MaxTokens = r.MaxOutput
	}
	if r.System != "" {
		out.Messages = append(out.Messages, message{Role: string(model.RoleSystem), Content: &r.System})
	}
	for _, m := range r.Messages {
		out.Messages = append(out.Messages, encodeMessage(m))
	}
	if r.NoTools {
		return out // tool_choice: none is ignored by too many servers to be relied on
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, tool{"function", function{Name: t.Name, Description: t.Description, Parameters: t.Schema}})
	}
	return out
}

func encodeMessage(m model.Message) message {
	out := message{Role: string(m.Role), Content: &m.Text, ToolCallID: m.CallID}
	for _, c := range m.Calls {
		args := string(c.Args)
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
