package model

import (
	"bytes"
	"slices"
)

// Equal says whether two messages are the same. Comparing texts that share their memory, as
// those of one history do, does not read them.
func (m Message) Equal(o Message) bool {
	return m.Role == o.Role && m.Text == o.Text && m.CallID == o.CallID && m.Name == o.Name && bytes.Equal(m.Raw, o.Raw) && slices.EqualFunc(m.Calls, o.Calls, Call.Equal) &&
		slices.EqualFunc(m.Images, o.Images, Image.Equal)
}

// Equal says whether two calls are the same.
func (c Call) Equal(o Call) bool {
	return c.ID == o.ID && c.Key == o.Key && c.Name == o.Name && bytes.Equal(c.Args, o.Args)
}

// Equal says whether two tools are the same to a model.
func (t Tool) Equal(o Tool) bool {
	return t.Name == o.Name && t.Description == o.Description && bytes.Equal(t.Schema, o.Schema)
}
