package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// JSONBuilder writes JSON, raw text and values in turn. The first error is kept and given at
// the end, so that encoders need not check each step.
type JSONBuilder struct {
	buffer bytes.Buffer
	json   *json.Encoder // into buffer; nil before the first value
	err    error
}

// Raw appends text that is JSON already, or a part of it.
func (t *JSONBuilder) Raw(parts ...string) {
	for _, p := range parts {
		t.buffer.WriteString(p)
	}
}

// Value appends a value as encoding/json writes it.
func (t *JSONBuilder) Value(v any) {
	if t.json == nil {
		t.json = json.NewEncoder(&t.buffer)
	}
	if err := t.json.Encode(v); err != nil {
		t.err = fmt.Errorf("the request to the model cannot be written as JSON: %w", err)
		return
	}
	// Encode ends each value with a line feed. json.Marshal would not, and would copy the value.
	t.buffer.Truncate(t.buffer.Len() - len("\n"))
}

// flush returns what was written so far, and empties the builder.
func (t *JSONBuilder) flush() []byte {
	text := bytes.Clone(t.buffer.Bytes())
	t.buffer.Reset()
	return text
}

// BodyBuilder builds the body of a request from chunks, so that what was encoded for an earlier
// request is sent again without a copy. Chunks are never changed: a request that is still being
// sent may hold them too.
type BodyBuilder struct {
	chunks [][]byte
	text   JSONBuilder
}

// Grow makes room for so many chunks, and a few for what is around them.
func (b *BodyBuilder) Grow(chunks int) { b.chunks = slices.Grow(b.chunks, chunks+8) }

// Raw appends text that is JSON already, or a part of it.
func (b *BodyBuilder) Raw(parts ...string) { b.text.Raw(parts...) }

// Value appends a value as encoding/json writes it.
func (b *BodyBuilder) Value(v any) { b.text.Value(v) }

// EndWith appends the fields of an object to the one that is open, and closes it.
func (b *BodyBuilder) EndWith(v any) {
	at := b.text.buffer.Len()
	b.text.Value(v)
	if text := b.text.buffer.Bytes(); b.text.err == nil {
		// The value's own brace becomes the comma after the fields before it; a value without
		// fields needs neither.
		text[at] = ','
		if len(text) == at+len("{}") {
			b.text.buffer.Truncate(at)
			b.text.Raw("}")
		}
	}
}

// Shared appends bytes without copying them. Nobody may change them afterwards.
func (b *BodyBuilder) Shared(p []byte) {
	if b.text.buffer.Len() > 0 {
		b.chunks = append(b.chunks, b.text.flush())
	}
	b.chunks = append(b.chunks, p)
}

// JSONBody is a body that is one value.
func JSONBody(v any) (*BodyBuilder, error) {
	b := &BodyBuilder{}
	b.Value(v)
	return b, b.text.err
}

// finish flushes what is still buffered, and returns the first error.
func (b *BodyBuilder) finish() error {
	b.Shared(nil)
	return b.text.err
}

// newReader reads the body from its start; each try needs one of its own.
func (b *BodyBuilder) newReader() (io.Reader, error) {
	r := &bodyReader{chunks: b.chunks}
	for _, chunk := range b.chunks {
		r.remaining += len(chunk)
	}
	return r, nil
}

// bodyReader reads the chunks one after the other.
type bodyReader struct {
	chunks    [][]byte
	offset    int // in the first chunk
	remaining int
}

// Len is how many bytes are left. retryablehttp takes it for the Content-Length; without
// one the body would be sent chunked.
func (r *bodyReader) Len() int { return r.remaining }

// Read implements io.Reader. It fills p across chunks, for most of them are far smaller than
// the buffer that they are sent through.
func (r *bodyReader) Read(p []byte) (n int, err error) {
	for n < len(p) && r.remaining > 0 {
		copied := copy(p[n:], r.chunks[0][r.offset:])
		n, r.offset, r.remaining = n+copied, r.offset+copied, r.remaining-copied
		if r.offset == len(r.chunks[0]) {
			r.chunks, r.offset = r.chunks[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}

	return n, nil
}
