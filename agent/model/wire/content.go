package wire

import (
	"encoding/json"
	"slices"

	"rouse/agent/model"
)

// Part is a part of an answer in the order in which it was said: text, a call, or what is
// the server's alone. It points into the neutral message.
type Part struct {
	Text   int             `json:"text,omitempty"`   // so many bytes
	Call   int             `json:"call,omitempty"`   // the first is 1
	Opaque json.RawMessage `json:"opaque,omitempty"` // belongs to the text or the call, or stands alone
}

// providerState is what model.Message.Raw holds.
type providerState struct {
	Provider string `json:"by"`
	Host     string `json:"at,omitempty"` // the server's name; "" in what older versions kept
	Model    string `json:"model"`
	Parts    []Part `json:"parts"`
}

// AddPart notes a part of an answer. Text that comes in pieces is one part, unless a piece
// brings something with it.
func (a *Accumulator) AddPart(p Part) {
	if n := len(a.Parts) - 1; p.Call == 0 && p.Opaque == nil && n >= 0 && a.Parts[n].Call == 0 && a.Parts[n].Opaque == nil {
		a.Parts[n].Text += p.Text
		return
	}
	a.Parts = append(a.Parts, p)
}

// marshalParts writes down what the server wants back, nil when that is nothing.
func (s *Client) marshalParts(parts []Part) json.RawMessage {
	if !slices.ContainsFunc(parts, func(p Part) bool { return p.Opaque != nil }) {
		return nil
	}

	raw, err := json.Marshal(providerState{s.dialect.Name, s.host, s.endpoint.Model, parts})
	if err != nil {
		return nil // what came as JSON can be written as JSON
	}
	return raw
}

// ContentBlock is a part of a message: text, a call, or neither, and what belongs to it.
type ContentBlock struct {
	Text   string
	Call   *model.Call
	Opaque json.RawMessage
}

// ContentBlocks are a message as this server said it. What another model said, or one of this name at
// another place, or what was kept of
// a message that has changed since, is text and then calls.
func (s *Client) ContentBlocks(m model.Message) []ContentBlock {
	var k providerState
	if len(m.Raw) > 0 && json.Unmarshal(m.Raw, &k) == nil && k.Provider == s.dialect.Name && k.Model == s.endpoint.Model && (k.Host == "" || k.Host == s.host) {
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

// resolveParts follows the parts into their message; they have to name all of it.
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
