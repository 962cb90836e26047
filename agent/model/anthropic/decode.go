package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"rouse/agent/model/wire"
	"rouse/internal/jsonread"
)

// event is any event of a stream, or a whole message from a server that does not stream.
type event struct {
	Type         string            `json:"type"`
	Message      *startedMessage   `json:"message"`
	Index        int               `json:"index"`
	ContentBlock json.RawMessage   `json:"content_block"`
	Delta        delta             `json:"delta"`
	Usage        *usage            `json:"usage"`
	Content      []json.RawMessage `json:"content"`
	StopReason   string            `json:"stop_reason"`
	Error        json.RawMessage   `json:"error"`
}

type startedMessage struct {
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

// usage is sent at the start and at the end of an answer; later counts replace earlier ones.
// input_tokens does not include tokens read from and written to the cache.
type usage struct {
	Input   *wire.TokenCount `json:"input_tokens"`
	Output  *wire.TokenCount `json:"output_tokens"`
	Read    *wire.TokenCount `json:"cache_read_input_tokens"`
	Created *wire.TokenCount `json:"cache_creation_input_tokens"`
	ByTime  struct {
		Hour wire.TokenCount `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"` // parts of Created
}

func (u *usage) merge(by *usage) {
	for _, f := range []struct{ into, from **wire.TokenCount }{{&u.Input, &by.Input}, {&u.Output, &by.Output}, {&u.Read, &by.Read}, {&u.Created, &by.Created}} {
		if *f.from != nil {
			*f.into = *f.from
		}
	}
	u.ByTime.Hour = max(u.ByTime.Hour, by.ByTime.Hour) // may be sent only once
}

func (t *turn) addUsage(by *usage, a *wire.Accumulator) {
	if by == nil {
		return
	}

	t.usage.merge(by)
	n := func(c *wire.TokenCount) wire.TokenCount {
		if c == nil {
			return 0
		}
		return *c
	}

	a.Usage = wire.NewUsage(n(t.usage.Input)+n(t.usage.Read)+n(t.usage.Created), n(t.usage.Output), n(t.usage.Read), n(t.usage.Created))
	a.Usage.WrittenLong = min(int64(t.usage.ByTime.Hour), a.Usage.Written)
}

// block is a content block. Blocks other than text and calls are opaque.
type block struct {
	text    strings.Builder
	call    *wire.PartialCall
	input   string                     // input of a call that arrived in one event
	fields  map[string]json.RawMessage // fields of an opaque block
	deltas  map[string]*strings.Builder
	stopped bool
}

// Decode implements wire.Exchange.
func (t *turn) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	var e event
	err := jsonread.Unmarshal(f.Data, &e)
	switch {
	case f.Event == "error", e.Type == "error", len(e.Error) > 0 && string(e.Error) != "null":
		return "", t.p.client.APIError(f.Data)
	case err != nil:
		return "", t.p.client.InvalidChunk(err)
	case f.Document && e.Type != "message":
		return "", t.p.client.NoAnswer(f.Data)
	}

	switch e.Type {
	case "message":
		return t.decodeDocument(e, a)
	case "message_start": // has the first token counts
		if e.Message != nil {
			t.addUsage(e.Message.Usage, a)
		}
	case "content_block_start":
		return t.startBlock(e.Index, e.ContentBlock, a)
	case "content_block_delta":
		return t.addDelta(e.Index, e.Delta)
	case "content_block_stop":
		if e.Index >= 0 && e.Index < len(t.blocks) {
			t.blocks[e.Index].stopped = true
		}
	case "message_delta":
		t.addUsage(e.Usage, a)
		if e.Delta.StopReason != "" {
			t.finish(e.Delta.StopReason, a)
		}
	case "message_stop":
		return "", io.EOF
	}

	return "", nil
}

func (t *turn) decodeDocument(e event, a *wire.Accumulator) (string, error) {
	var all strings.Builder
	for i, raw := range e.Content {
		text, err := t.startBlock(i, raw, a)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
		t.blocks[i].stopped = true
	}

	t.addUsage(e.Usage, a)
	if e.StopReason != "" {
		t.finish(e.StopReason, a)
	}

	return all.String(), nil
}

// startBlock adds a block and returns its text. Blocks start in order, and a gap means a lost
// event.
func (t *turn) startBlock(index int, raw json.RawMessage, a *wire.Accumulator) (string, error) {
	var head struct {
		Type, Text, ID, Name string
		Input                json.RawMessage
	}
	if index != len(t.blocks) {
		return "", t.p.client.InvalidChunk(fmt.Errorf("block %d begins where block %d should", index, len(t.blocks)))
	}
	if err := jsonread.Unmarshal(raw, &head); err != nil {
		return "", t.p.client.InvalidChunk(err)
	}

	b := &block{}
	t.blocks = append(t.blocks, b)

	switch head.Type {
	case "text":
		b.text.WriteString(head.Text)
		return head.Text, nil
	case "tool_use":
		b.call = a.StartCall(index, head.ID, head.Name)
		// A streamed call starts with an empty object. Its input arrives in deltas.
		if input := string(head.Input); input != "{}" {
			b.input = input
		}
		return "", nil
	}

	b.deltas = map[string]*strings.Builder{}
	if err := json.Unmarshal(raw, &b.fields); err != nil {
		return "", t.p.client.InvalidChunk(err)
	}

	return "", nil
}

func (t *turn) addDelta(index int, d delta) (string, error) {
	if index < 0 || index >= len(t.blocks) || t.blocks[index].stopped {
		return "", t.p.client.InvalidChunk(fmt.Errorf("a piece of block %d, which is not being written", index))
	}

	b := t.blocks[index]
	switch {
	case d.Type == "text_delta" && b.call == nil && b.fields == nil:
		b.text.WriteString(d.Text)
		return d.Text, nil
	case d.Type == "input_json_delta" && b.call != nil:
		b.call.Args.WriteString(d.PartialJSON)
	case b.fields != nil:
		// An opaque block must be sent back unchanged, so every field with deltas is collected.
		for field, piece := range map[string]string{"thinking": d.Thinking, "signature": d.Signature, "text": d.Text, "input": d.PartialJSON} {
			if piece == "" {
				continue
			}
			if b.deltas[field] == nil {
				b.deltas[field] = &strings.Builder{}
			}
			b.deltas[field].WriteString(piece)
		}
	}

	return "", nil
}

// finish records why the model stopped. It sets no finish reason if a call is incomplete.
func (t *turn) finish(reason string, a *wire.Accumulator) {
	for _, b := range t.blocks {
		if b.call != nil && !b.stopped {
			return
		}
	}

	paused := reason == "pause_turn"
	for _, b := range t.blocks {
		switch {
		case b.call != nil:
			if b.call.Args.Len() == 0 { // the call arrived without deltas
				b.call.Args.WriteString(b.input)
			}
			a.AddPart(wire.Part{Call: 1 + slices.Index(a.Calls, b.call)})
		case b.fields == nil:
			a.AddPart(wire.Part{Text: b.text.Len()})
			if paused {
				t.pausedContent = appendText(t.pausedContent, b.text.String())
			}
		default:
			raw := b.marshal()
			a.AddPart(wire.Part{Opaque: raw})
			if paused {
				t.pausedContent = append(t.pausedContent, raw)
			}
		}
	}

	// An answer with calls is not continued: the next request has their results.
	a.SetFinishReason(reason, stopReasons)
	a.Paused = paused && len(a.Calls) == 0
}

// marshal returns an opaque block as JSON to send back.
func (b *block) marshal() json.RawMessage {
	for field, grown := range b.deltas {
		var before string
		_ = json.Unmarshal(b.fields[field], &before) // a field that is not a string is replaced
		value := json.RawMessage(before + grown.String())
		// The deltas of input are JSON, those of the other fields are a string.
		if field != "input" || !json.Valid(value) {
			value = mustMarshal(before + grown.String())
		}
		b.fields[field] = value
	}
	return mustMarshal(b.fields)
}

// mustMarshal encodes values that came from JSON, so it cannot fail.
func mustMarshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}
