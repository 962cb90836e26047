package wire

import (
	"slices"

	"rouse/agent/model"
)

// EncodedMessage is a message as it stands in the body of a request.
type EncodedMessage struct {
	Role   string // who says it, in the server's words
	JSON   []byte // with what parts it from the message before; empty when it says nothing
	Opaque bool   // it holds something of the provider's own
}

// EncodeCache is what was written of a conversation: its history, message by message, and its
// tools. Nothing has to be told to it. What is equal to what was written is not written
// again; from the first message that differs (a notice rode on it, or the history was
// compacted) everything is.
type EncodeCache struct {
	key           any
	precedingRole string          // the role that has spoken before the messages
	messages      []model.Message // that were written: the caller's own, who does not change them
	encoded       []EncodedMessage
	tools         []model.Tool
	encodedTools  []byte
}

// CacheOf is the draft of a conversation as its writer left it. by is comparable, and all
// that the writing depends on beside what is written: another adapter, or one that has
// learned to write otherwise, begins anew.
func CacheOf(d *model.Draft, by any) *EncodeCache {
	if d == nil {
		return &EncodeCache{key: by}
	}
	if kept, ok := d.Kept.(*EncodeCache); ok && kept.key == by {
		return kept
	}

	kept := &EncodeCache{key: by}
	d.Kept = kept
	return kept
}

// Messages are the messages of a request. write appends one to a text, and says whose it is;
// before is the role that has spoken last, first that of what stands before the messages.
// The result is not to be changed.
func (d *EncodeCache) Messages(messages []model.Message, before string, write func(t *JSONBuilder, before string, m model.Message) (role string, opaque bool)) ([]EncodedMessage, error) {
	same := 0
	if d.precedingRole == before {
		same = commonPrefix(messages, d.messages)
	}

	if same < len(d.messages) { // earlier requests keep what they were given
		d.encoded = slices.Clip(d.encoded[:same])
	}

	d.messages, d.precedingRole = slices.Clip(messages[:same]), before
	if same > 0 {
		before = d.encoded[same-1].Role
	}

	var t JSONBuilder
	for _, m := range messages[same:] {
		t.buffer.Grow(len(m.Text) + len(m.Text)/8 + 256) // with what is escaped, as a rule
		role, opaque := write(&t, before, m)
		if t.err != nil {
			return nil, t.err
		}

		w := EncodedMessage{role, t.flush(), opaque}
		if len(w.JSON) == 0 {
			w.Role = before
		}

		d.encoded, before = append(d.encoded, w), w.Role
		d.messages = messages[:len(d.encoded)]
	}

	return d.encoded, nil
}

// commonPrefix is how many messages two histories begin with alike. One that the other was appended to
// is not looked at.
func commonPrefix(a, b []model.Message) (n int) {
	short := min(len(a), len(b))
	if short > 0 && &a[0] == &b[0] {
		return short
	}

	for n < short && a[n].Equal(b[n]) {
		n++
	}
	return n
}

// Tools are the declarations of tools, parted by commas.
func (d *EncodeCache) Tools(tools []model.Tool, declare func(model.Tool) any) ([]byte, error) {
	if d.encodedTools != nil && slices.EqualFunc(tools, d.tools, model.Tool.Equal) {
		return d.encodedTools, nil
	}

	var t JSONBuilder
	for i, tool := range tools {
		if i > 0 {
			t.Raw(",")
		}
		t.Value(declare(tool))
	}

	if t.err != nil {
		return nil, t.err
	}

	d.tools, d.encodedTools = slices.Clone(tools), t.flush()
	return d.encodedTools, nil
}
