package wire

import (
	"slices"

	"rouse/agent/model"
)

// Written is a message as it stands in the body of a request.
type Written struct {
	Role   string // who says it, in the server's words
	Text   []byte // with what parts it from the message before; empty when it says nothing
	Opaque bool   // it holds something of the provider's own
}

// Draft is what was written of a conversation: its history, message by message, and its
// tools. Nothing has to be told to it. What is equal to what was written is not written
// again; from the first message that differs (a notice rode on it, or the history was
// compacted) everything is.
type Draft struct {
	by       any
	before   string          // the role that has spoken before the messages
	messages []model.Message // that were written: the caller's own, who does not change them
	written  []Written
	tools    []model.Tool
	declared []byte
}

// DraftOf is the draft of a conversation as its writer left it. by is comparable, and all
// that the writing depends on beside what is written: another adapter, or one that has
// learned to write otherwise, begins anew.
func DraftOf(d *model.Draft, by any) *Draft {
	if d == nil {
		return &Draft{by: by}
	}
	if kept, ok := d.Kept.(*Draft); ok && kept.by == by {
		return kept
	}

	kept := &Draft{by: by}
	d.Kept = kept
	return kept
}

// Messages are the messages of a request. write appends one to a text, and says whose it is;
// before is the role that has spoken last, first that of what stands before the messages.
// The result is not to be changed.
func (d *Draft) Messages(messages []model.Message, before string, write func(t *Text, before string, m model.Message) (role string, opaque bool)) ([]Written, error) {
	same := 0
	if d.before == before {
		same = common(messages, d.messages)
	}

	if same < len(d.messages) { // earlier requests keep what they were given
		d.written = slices.Clip(d.written[:same])
	}

	d.messages, d.before = slices.Clip(messages[:same]), before
	if same > 0 {
		before = d.written[same-1].Role
	}

	var t Text
	for _, m := range messages[same:] {
		t.buffer.Grow(len(m.Text) + len(m.Text)/8 + 256) // with what is escaped, as a rule
		role, opaque := write(&t, before, m)
		if t.err != nil {
			return nil, t.err
		}

		w := Written{role, t.cut(), opaque}
		if len(w.Text) == 0 {
			w.Role = before
		}

		d.written, before = append(d.written, w), w.Role
		d.messages = messages[:len(d.written)]
	}

	return d.written, nil
}

// common is how many messages two histories begin with alike. One that the other was appended to
// is not looked at.
func common(a, b []model.Message) (n int) {
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
func (d *Draft) Tools(tools []model.Tool, declare func(model.Tool) any) ([]byte, error) {
	if d.declared != nil && slices.EqualFunc(tools, d.tools, model.Tool.Equal) {
		return d.declared, nil
	}

	var t Text
	for i, tool := range tools {
		if i > 0 {
			t.Add(",")
		}
		t.JSON(declare(tool))
	}

	if t.err != nil {
		return nil, t.err
	}

	d.tools, d.declared = slices.Clone(tools), t.cut()
	return d.declared, nil
}
