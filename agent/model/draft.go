package model

import (
	"bytes"
	"slices"
)

// Draft is what an adapter keeps of a conversation between its requests, so that it need not
// write all of the history anew with each of them. Who makes the requests of a conversation
// gives each the same Draft, makes one at a time, and does not look into it; nor does it change
// a message that a request had: one that is to differ stands in another list. Without one the
// same bytes are written.
type Draft struct{ Kept any }

// Equal says whether two messages are the same; those that share their text are compared
// without reading it.
func (m Message) Equal(o Message) bool {
	return m.Role == o.Role && m.Text == o.Text && m.CallID == o.CallID && m.Name == o.Name && bytes.Equal(m.Raw, o.Raw) && slices.EqualFunc(m.Calls, o.Calls, Call.Equal) &&
		slices.EqualFunc(m.Images, o.Images, Image.Equal)
}

// Equal says whether two calls are the same.
func (c Call) Equal(o Call) bool {
	return c.ID == o.ID && c.Key == o.Key && c.Name == o.Name && bytes.Equal(c.Args, o.Args)
}

// Equal says whether a model is told the same of two tools.
func (t Tool) Equal(o Tool) bool {
	return t.Name == o.Name && t.Description == o.Description && bytes.Equal(t.Schema, o.Schema)
}
