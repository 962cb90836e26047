package ollama

import (
	"encoding/json"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// request are the fields after the messages and the tools.
type request struct {
	Stream   bool           `json:"stream"`
	Truncate bool           `json:"truncate"` // cut off the beginning of what does not fit
	Shift    bool           `json:"shift"`    // forget the beginning while answering
	Options  map[string]any `json:"options,omitempty"`
}

type message struct {
	Role       string   `json:"role"`
	Content    string   `json:"content"`
	Images     [][]byte `json:"images,omitempty"`
	Thinking   string   `json:"thinking,omitempty"`
	ToolCalls  []call   `json:"tool_calls,omitempty"`
	ToolName   string   `json:"tool_name,omitempty"`
	ToolCallID string   `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string   `json:"id,omitempty"`
	Function function `json:"function"`
}

type function struct {
	Index     int             `json:"index"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type tool struct {
	Type     string       `json:"type"`
	Function functionSpec `json:"function"`
}

type functionSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

func (t *turn) encode() (*wire.BodyBuilder, error) {
	// Truncate and Shift are false, and have to be sent: the server's defaults are true.
	rest := request{Stream: true, Options: map[string]any{}}
	if t.p.window > 0 {
		rest.Options["num_ctx"] = t.p.window
	}

	if t.r.MaxOutput > 0 {
		rest.Options["num_predict"] = t.r.MaxOutput
	}

	if t.r.Temperature != nil {
		rest.Options["temperature"] = *t.r.Temperature
	}

	b := &wire.BodyBuilder{}
	b.Raw(`{"model":`)
	b.Value(t.p.client.Model())
	b.Raw(`,"messages":[`)
	if t.r.System != "" {
		b.Value(message{Role: string(model.RoleSystem), Content: t.r.System})
	}

	messages, hasImages := t.p.client.FilterImages(t.r.Messages)
	t.sentImages = hasImages
	for i, m := range wire.MoveToolImages(messages, hasImages) {
		if i > 0 || t.r.System != "" {
			b.Raw(",")
		}
		b.Value(t.toMessage(m))
	}

	b.Raw("]")
	if len(t.r.Tools) > 0 && !t.r.NoTools { // the API has no tool_choice
		b.Raw(`,"tools":`)
		b.Value(encodeTools(t.r.Tools))
	}

	b.EndWith(rest)
	return b, nil
}

func encodeTools(tools []model.Tool) (out []tool) {
	for _, t := range tools {
		out = append(out, tool{"function", functionSpec{t.Name, t.Description, t.ArgumentSchema()}})
	}
	return out
}

func (t *turn) toMessage(m model.Message) message {
	out := message{Role: string(m.Role), Content: m.Text, ToolName: m.Name, ToolCallID: m.CallID}
	for _, i := range m.Images {
		out.Images = append(out.Images, i.Data)
	}

	for _, p := range t.p.client.ContentBlocks(m) {
		switch {
		case p.Call != nil:
			args := p.Call.Args
			if len(args) == 0 || args[0] != '{' {
				args = json.RawMessage("{}")
			}
			out.ToolCalls = append(out.ToolCalls, call{p.Call.ID, function{len(out.ToolCalls), p.Call.Name, args}})
		case p.Opaque != nil: // thinking: the content is Text already
			if json.Unmarshal(p.Opaque, &out.Thinking) != nil {
				out.Thinking = ""
			}
		}
	}

	return out
}
