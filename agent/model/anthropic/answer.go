package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"rouse/agent/model/wire"
)

// event is any of the events of a stream, or a whole message.
type event struct {
	Type         string            `json:"type"`
	Message      *whole            `json:"message"`
	Index        int               `json:"index"`
	ContentBlock json.RawMessage   `json:"content_block"`
	Delta        delta             `json:"delta"`
	Usage        *usage            `json:"usage"`
	Content      []json.RawMessage `json:"content"`
	StopReason   string            `json:"stop_reason"`
	Error        json.RawMessage   `json:"error"`
}

type whole struct {
	Usage *usage `json:"usage"`
}

type delta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	PartialJSON string `json:"partial_json"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	StopReason  string `json:"stop_reason"`
}

// usage is told twice; what is told later counts, and what is left out then still holds.
// What the cache read and what it took in are told apart from the rest of the input.
type usage struct {
	Input   *wire.Count `json:"input_tokens"`
	Output  *wire.Count `json:"output_tokens"`
	Read    *wire.Count `json:"cache_read_input_tokens"`
	Created *wire.Count `json:"cache_creation_input_tokens"`
}

func (u *usage) update(by *usage) {
	for _, f := range []struct{ into, from **wire.Count }{{&u.Input, &by.Input}, {&u.Output, &by.Output}, {&u.Read, &by.Read}, {&u.Created, &by.Created}} {
		if *f.from != nil {
			*f.into = *f.from
		}
	}
}

func (t *turn) count(by *usage, a *wire.Answer) {
	if by == nil {
		return
	}

	t.use.update(by)
	n := func(c *wire.Count) wire.Count {
		if c == nil {
			return 0
		}
		return *c
	}

	a.Usage = wire.Tokens(n(t.use.Input)+n(t.use.Read)+n(t.use.Created), n(t.use.Output), n(t.use.Read), n(t.use.Created))
}

// block is a part of the content. All but text and calls is the provider's own.
type block struct {
	text    strings.Builder
	call    *wire.Call
	input   string                     // of a call that came with it, not in pieces
	fields  map[string]json.RawMessage // of one that is neither
	grown   map[string]*strings.Builder
	stopped bool
}

// Take implements wire.Exchange.
func (t *turn) Take(f wire.Frame, a *wire.Answer) (string, error) {
	var e event
	err := json.Unmarshal(f.Data, &e)
	switch {
	case f.Event == "error", e.Type == "error", len(e.Error) > 0 && string(e.Error) != "null":
		return "", t.p.server.Failure(f.Data)
	case err != nil:
		return "", t.p.server.Unreadable(err)
	case f.Whole && e.Type != "message":
		return "", t.p.server.Pointless(f.Data)
	}

	switch e.Type {
	case "message":
		return t.takeWhole(e, a)
	case "message_start":
		if e.Message != nil {
			t.count(e.Message.Usage, a)
		}
	case "content_block_start":
		return t.begin(e.Index, e.ContentBlock, a)
	case "content_block_delta":
		return t.grow(e.Index, e.Delta)
	case "content_block_stop":
		if e.Index >= 0 && e.Index < len(t.blocks) {
			t.blocks[e.Index].stopped = true
		}
	case "message_delta":
		t.count(e.Usage, a)
		if e.Delta.StopReason != "" {
			t.end(e.Delta.StopReason, a)
		}
	case "message_stop":
		return "", io.EOF
	}

	return "", nil
}

// takeWhole takes in the answer of a server that does not stream.
func (t *turn) takeWhole(e event, a *wire.Answer) (string, error) {
	var said strings.Builder
	for i, raw := range e.Content {
		text, err := t.begin(i, raw, a)
		if err != nil {
			return "", err
		}
		said.WriteString(text)
		t.blocks[i].stopped = true
	}

	t.count(e.Usage, a)
	if e.StopReason != "" {
		t.end(e.StopReason, a)
	}

	return said.String(), nil
}

// begin takes in the beginning of a block, or all of it, and gives its text. Blocks begin
// one after the other.
func (t *turn) begin(index int, raw json.RawMessage, a *wire.Answer) (string, error) {
	var head struct {
		Type, Text, ID, Name string
		Input                json.RawMessage
	}
	if index != len(t.blocks) {
		return "", t.p.server.Unreadable(fmt.Errorf("block %d begins where block %d should", index, len(t.blocks)))
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return "", t.p.server.Unreadable(err)
	}

	b := &block{}
	t.blocks = append(t.blocks, b)

	switch head.Type {
	case "text":
		b.text.WriteString(head.Text)
		return head.Text, nil
	case "tool_use":
		b.call = a.Call(index, head.ID, head.Name)
		if input := string(head.Input); input != "{}" {
			b.input = input
		}
		return "", nil
	}

	b.grown = map[string]*strings.Builder{}
	if err := json.Unmarshal(raw, &b.fields); err != nil {
		return "", t.p.server.Unreadable(err)
	}

	return "", nil
}

// grow adds a piece to a block, and gives its text.
func (t *turn) grow(index int, d delta) (string, error) {
	if index < 0 || index >= len(t.blocks) || t.blocks[index].stopped {
		return "", t.p.server.Unreadable(fmt.Errorf("a piece of block %d, which is not being written", index))
	}

	b := t.blocks[index]
	switch {
	case d.Type == "text_delta" && b.call == nil && b.fields == nil:
		b.text.WriteString(d.Text)
		return d.Text, nil
	case d.Type == "input_json_delta" && b.call != nil:
		b.call.Args.WriteString(d.PartialJSON)
	case b.fields != nil:
		for field, piece := range map[string]string{"thinking": d.Thinking, "signature": d.Signature, "text": d.Text, "input": d.PartialJSON} {
			if piece == "" {
				continue
			}
			if b.grown[field] == nil {
				b.grown[field] = &strings.Builder{}
			}
			b.grown[field].WriteString(piece)
		}
	}

	return "", nil
}

// end notes why the model stopped, and what it wants back. A call that was begun and not
// ended leaves the answer incomplete.
func (t *turn) end(reason string, a *wire.Answer) {
	for _, b := range t.blocks {
		if b.call != nil && !b.stopped {
			return
		}
	}

	paused := reason == "pause_turn"
	for _, b := range t.blocks {
		switch {
		case b.call != nil:
			if b.call.Args.Len() == 0 {
				b.call.Args.WriteString(b.input)
			}
			a.Keep(wire.Part{Call: 1 + slices.Index(a.Calls, b.call)})
		case b.fields == nil:
			a.Keep(wire.Part{Text: b.text.Len()})
			if paused {
				t.said = text(t.said, b.text.String())
			}
		default:
			raw := b.raw()
			a.Keep(wire.Part{Opaque: raw})
			if paused {
				t.said = append(t.said, raw)
			}
		}
	}

	a.End(reason, meanings)
	a.Paused = paused && len(a.Calls) == 0
}

// raw is a block of the provider's own as it is to go back.
func (b *block) raw() json.RawMessage {
	for field, grown := range b.grown {
		var before string
		_ = json.Unmarshal(b.fields[field], &before) // what is no text begins anew
		value := json.RawMessage(before + grown.String())
		if field != "input" || !json.Valid(value) {
			value = quoted(before + grown.String())
		}
		b.fields[field] = value
	}
	return quoted(b.fields)
}

// quoted is a value as JSON. It came as JSON, and can be written as such.
func quoted(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}
