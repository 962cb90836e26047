package wire

import (
	"slices"
	"sync"

	"rouse/agent/model"
)

// EncodedMessage is a message as it is in the body of a request.
type EncodedMessage struct {
	Role   string // in the server's words
	JSON   []byte // with the separator from the message before; empty if nothing of it is sent
	Opaque bool   // it contains opaque data of the provider
}

// EncodeCache holds what was encoded of a conversation for its last request: the messages and
// the tools. It needs no invalidation: messages that equal those of the last request are not
// encoded again, and from the first one that differs (it carried a notice, or the history was
// compacted) everything is.
type EncodeCache struct {
	key           any
	precedingRole string          // the role of what comes before the first message
	messages      []model.Message // that were encoded: the caller's own, who does not change them
	encoded       []EncodedMessage
	tools         *encodedTools // nil before the first request with tools
}

// encodedTools are the tools of a request as they are in its body. Nobody changes them.
type encodedTools struct {
	key  any // of the cache that they were encoded for
	list []model.Tool
	json []byte
}

// CacheOf is the cache of a conversation. key has to be comparable, and holds all that the
// encoding depends on beside the messages and tools: another adapter, or one that has learned
// to encode them differently, starts with an empty cache.
func CacheOf(d *model.EncodeCache, key any) *EncodeCache {
	if d == nil {
		return &EncodeCache{key: key}
	}
	if cache, ok := d.State.(*EncodeCache); ok && cache.key == key {
		return cache
	}

	cache := &EncodeCache{key: key}
	d.State = cache
	return cache
}

// builders are *JSONBuilder without text: what is written in one is copied out of it.
var builders = sync.Pool{New: func() any { return &JSONBuilder{} }}

// maxPooledBuilder is the longest buffer that is kept for later messages, in bytes; pictures are longer.
const maxPooledBuilder = 64 << 10

// Messages encodes the messages of a request. encode appends one of them and says whose it is;
// before is the role of the message before it, or for the first one that of what precedes the
// messages. The caller must not change the result.
func (e *EncodeCache) Messages(messages []model.Message, before string, encode func(b *JSONBuilder, before string, m model.Message) (role string, opaque bool)) ([]EncodedMessage, error) {
	same := 0
	if e.precedingRole == before {
		same = commonPrefix(messages, e.messages)
	}

	// Clipped, so that appending to them below does not overwrite what an earlier request holds.
	if same < len(e.messages) {
		e.encoded = slices.Clip(e.encoded[:same])
	}

	e.messages, e.precedingRole = slices.Clip(messages[:same]), before
	if same > 0 {
		before = e.encoded[same-1].Role
	}

	b := builders.Get().(*JSONBuilder)
	for _, m := range messages[same:] {
		role, opaque := encode(b, before, m)
		if b.err != nil {
			return nil, b.err
		}

		w := EncodedMessage{role, b.flush(), opaque}
		// A message of which nothing is sent has no role either: the separator of the next one
		// depends on what is before it in the body.
		if len(w.JSON) == 0 {
			w.Role = before
		}

		e.encoded, before = append(e.encoded, w), w.Role
		e.messages = messages[:len(e.encoded)] // in step, should a later message fail
	}

	if b.buffer.Cap() <= maxPooledBuilder {
		builders.Put(b)
	}
	return e.encoded, nil
}

// commonPrefix is how many messages at the start of two histories are equal.
func commonPrefix(a, b []model.Message) (n int) {
	short := min(len(a), len(b))
	// One was appended to the other: they share their messages, which nobody changes in place.
	if short > 0 && &a[0] == &b[0] {
		return short
	}

	for n < short && a[n].Equal(b[n]) {
		n++
	}
	return n
}

// Tools encodes tools, separated by commas. The caller must not change the result: runs of an agent at one time have the
// same tools, and share what one of them has encoded.
func (c *Client) Tools(cache *EncodeCache, tools []model.Tool, encode func(model.Tool) any) ([]byte, error) {
	for _, known := range []*encodedTools{cache.tools, c.tools.Load()} {
		if known != nil && known.key == cache.key && slices.EqualFunc(tools, known.list, model.Tool.Equal) {
			cache.tools = known
			return known.json, nil
		}
	}

	var b JSONBuilder
	for i, tool := range tools {
		if i > 0 {
			b.Raw(",")
		}
		b.Value(encode(tool))
	}

	if b.err != nil {
		return nil, b.err
	}

	cache.tools = &encodedTools{cache.key, slices.Clone(tools), b.flush()}
	c.tools.Store(cache.tools)
	return cache.tools.json, nil
}
