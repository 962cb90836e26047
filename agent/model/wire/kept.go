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

// kept is what model.Message.Raw holds.
type kept struct {
	By    string `json:"by"`
	At    string `json:"at,omitempty"` // the server's name; "" in what older versions kept
	Model string `json:"model"`
	Parts []Part `json:"parts"`
}

// Keep notes a part of an answer. Text that comes in pieces is one part, unless a piece
// brings something with it.
func (a *Answer) Keep(p Part) {
	if n := len(a.Parts) - 1; p.Call == 0 && p.Opaque == nil && n >= 0 && a.Parts[n].Call == 0 && a.Parts[n].Opaque == nil {
		a.Parts[n].Text += p.Text
		return
	}
	a.Parts = append(a.Parts, p)
}

// keep writes down what the server wants back, nil when that is nothing.
func (s *Server) keep(parts []Part) json.RawMessage {
	if !slices.ContainsFunc(parts, func(p Part) bool { return p.Opaque != nil }) {
		return nil
	}

	raw, err := json.Marshal(kept{s.d.Name, s.host, s.e.Model, parts})
	if err != nil {
		return nil // what came as JSON can be written as JSON
	}
	return raw
}

// Piece is a part of a message: text, a call, or neither, and what belongs to it.
type Piece struct {
	Text   string
	Call   *model.Call
	Opaque json.RawMessage
}

// Pieces are a message as this server said it. What another model said, or one of this name at
// another place, or what was kept of
// a message that has changed since, is text and then calls.
func (s *Server) Pieces(m model.Message) []Piece {
	var k kept
	if len(m.Raw) > 0 && json.Unmarshal(m.Raw, &k) == nil && k.By == s.d.Name && k.Model == s.e.Model && (k.At == "" || k.At == s.host) {
		if pieces, ok := resolve(m, k.Parts); ok {
			return pieces
		}
	}

	var pieces []Piece
	if m.Text != "" {
		pieces = append(pieces, Piece{Text: m.Text})
	}

	for i := range m.Calls {
		pieces = append(pieces, Piece{Call: &m.Calls[i]})
	}

	return pieces
}

// resolve follows the parts into their message; they have to name all of it.
func resolve(m model.Message, parts []Part) ([]Piece, bool) {
	pieces := make([]Piece, 0, len(parts))
	text, calls := m.Text, 0
	for _, p := range parts {
		switch {
		case p.Call == 0 && p.Text >= 0 && p.Text <= len(text):
			pieces = append(pieces, Piece{Text: text[:p.Text], Opaque: p.Opaque})
			text = text[p.Text:]
		case p.Call == calls+1 && p.Call <= len(m.Calls):
			pieces = append(pieces, Piece{Call: &m.Calls[calls], Opaque: p.Opaque})
			calls++
		default:
			return nil, false
		}
	}

	return pieces, text == "" && calls == len(m.Calls)
}
