package wire

import (
	"encoding/json"
	"slices"

	"rouse/agent/model"
)

// Part is a part of an answer, in the order in which the model gave them: text, a call, or
// opaque data of the server. It refers to text and calls of the neutral message.
type Part struct {
	Text   int             `json:"text,omitempty"`   // its length in bytes
	Call   int             `json:"call,omitempty"`   // its number, from 1
	Opaque json.RawMessage `json:"opaque,omitempty"` // goes with the text or the call, or is a part by itself
}

// providerState is what model.Message.Raw holds.
type providerState struct {
	Provider string `json:"by"`
	Host     string `json:"at,omitempty"` // of the server
	Model    string `json:"model"`
	Parts    []Part `json:"parts"`
}

// AddPart adds a part to the answer. Deltas of text become one part, unless opaque data comes
// with one of them.
func (a *Accumulator) AddPart(p Part) {
	if n := len(a.Parts) - 1; p.Call == 0 && p.Opaque == nil && n >= 0 && a.Parts[n].Call == 0 && a.Parts[n].Opaque == nil {
		a.Parts[n].Text += p.Text
		return
	}
	a.Parts = append(a.Parts, p)
}

// marshalParts is the Raw of an answer: nil unless some part has opaque data, for without any
// the neutral message says it all.
func (c *Client) marshalParts(parts []Part) json.RawMessage {
	if !slices.ContainsFunc(parts, func(p Part) bool { return p.Opaque != nil }) {
		return nil
	}

	raw, err := json.Marshal(providerState{c.dialect.Name, c.host, c.endpoint.Model, parts})
	if err != nil {
		return nil // cannot happen: the opaque data came as JSON
	}
	return raw
}

// ContentBlock is a part of a message with its content: text, a call, or opaque data alone.
type ContentBlock struct {
	Text   string
	Call   *model.Call
	Opaque json.RawMessage
}

// ContentBlocks are a message as its server sent it. A message of another model or another host,
// or one that was changed since, becomes its text and then its calls: nobody else can read the
// opaque data, and its place is not known any more.
func (c *Client) ContentBlocks(m model.Message) []ContentBlock {
	var k providerState
	if len(m.Raw) > 0 && json.Unmarshal(m.Raw, &k) == nil && k.Provider == c.dialect.Name && k.Model == c.endpoint.Model && k.Host == c.host {
		if pieces, ok := resolveParts(m, k.Parts); ok {
			return pieces
		}
	}

	var pieces []ContentBlock
	if m.Text != "" {
		pieces = append(pieces, ContentBlock{Text: m.Text})
	}

	for i := range m.Calls {
		pieces = append(pieces, ContentBlock{Call: &m.Calls[i]})
	}

	return pieces
}

// resolveParts looks up the parts in their message, and fails unless they cover all of it.
func resolveParts(m model.Message, parts []Part) ([]ContentBlock, bool) {
	pieces := make([]ContentBlock, 0, len(parts))
	text, calls := m.Text, 0
	for _, p := range parts {
		switch {
		case p.Call == 0 && p.Text >= 0 && p.Text <= len(text):
			pieces = append(pieces, ContentBlock{Text: text[:p.Text], Opaque: p.Opaque})
			text = text[p.Text:]
		case p.Call == calls+1 && p.Call <= len(m.Calls):
			pieces = append(pieces, ContentBlock{Call: &m.Calls[calls], Opaque: p.Opaque})
			calls++
		default:
			return nil, false
		}
	}

	return pieces, text == "" && calls == len(m.Calls)
}
