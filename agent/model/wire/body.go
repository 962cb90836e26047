package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// JSONBuilder is JSON that is being written.
type JSONBuilder struct {
	buffer bytes.Buffer
	err    error
}

// Raw appends what is JSON already, or a part of it.
func (t *JSONBuilder) Raw(parts ...string) {
	for _, p := range parts {
		t.buffer.WriteString(p)
	}
}

// Value appends a value as encoding/json writes it.
func (t *JSONBuilder) Value(v any) {
	if err := json.NewEncoder(&t.buffer).Encode(v); err != nil {
		t.err = fmt.Errorf("the request to the model cannot be written as JSON: %w", err)
		return
	}
	t.buffer.Truncate(t.buffer.Len() - len("\n"))
}

// flush takes out what was written so far.
func (t *JSONBuilder) flush() []byte {
	text := bytes.Clone(t.buffer.Bytes())
	t.buffer.Reset()
	return text
}

// BodyBuilder is a request's body in pieces, so that what was written for the last request is sent
// again without being copied. A piece is not changed any more: an earlier request that has it
// may still be read.
type BodyBuilder struct {
	chunks [][]byte
	text   JSONBuilder
}

// Grow makes room for so many pieces, and a few more.
func (b *BodyBuilder) Grow(pieces int) { b.chunks = slices.Grow(b.chunks, pieces+8) }

// Raw appends to the body what is JSON already, or a part of it.
func (b *BodyBuilder) Raw(parts ...string) { b.text.Raw(parts...) }

// Value appends a value.
func (b *BodyBuilder) Value(v any) { b.text.Value(v) }

// EndWith appends an object's fields and its end.
func (b *BodyBuilder) EndWith(v any) {
	at := b.text.buffer.Len()
	b.text.Value(v)
	if text := b.text.buffer.Bytes(); b.text.err == nil {
		text[at] = ','
		if len(text) == at+len("{}") {
			b.text.buffer.Truncate(at)
			b.text.Raw("}")
		}
	}
}

// Shared appends a piece, which has to stay as it is.
func (b *BodyBuilder) Shared(p []byte) {
	if b.text.buffer.Len() > 0 {
		b.chunks = append(b.chunks, b.text.flush())
	}
	b.chunks = append(b.chunks, p)
}

// JSONBody is a body that is written as a whole.
func JSONBody(v any) (*BodyBuilder, error) {
	b := &BodyBuilder{}
	b.Value(v)
	return b, b.text.err
}

// finish says whether everything could be written.
func (b *BodyBuilder) finish() error {
	b.Shared(nil)
	return b.text.err
}

// newReader begins to read, for each try anew.
func (b *BodyBuilder) newReader() (io.Reader, error) {
	r := &bodyReader{chunks: b.chunks}
	for _, piece := range b.chunks {
		r.remaining += len(piece)
	}
	return r, nil
}

// bodyReader reads the pieces as one.
type bodyReader struct {
	chunks    [][]byte
	offset    int // in the first of them
	remaining int
}

// Len is how many bytes are left: the request's Content-Length.
func (r *bodyReader) Len() int { return r.remaining }

// Read implements io.Reader. It fills p as far as it can, across pieces.
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
