package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Text is JSON that is being written.
type Text struct {
	buffer bytes.Buffer
	err    error
}

// Add appends what is JSON already, or a part of it.
func (t *Text) Add(parts ...string) {
	for _, p := range parts {
		t.buffer.WriteString(p)
	}
}

// JSON appends a value as encoding/json writes it.
func (t *Text) JSON(v any) {
	if err := json.NewEncoder(&t.buffer).Encode(v); err != nil {
		t.err = fmt.Errorf("the request to the model cannot be written as JSON: %w", err)
		return
	}
	t.buffer.Truncate(t.buffer.Len() - len("\n"))
}

// cut takes out what was written so far.
func (t *Text) cut() []byte {
	text := bytes.Clone(t.buffer.Bytes())
	t.buffer.Reset()
	return text
}

// Body is a request's body in pieces, so that what was written for the last request is sent
// again without being copied. A piece is not changed any more: an earlier request that has it
// may still be read.
type Body struct {
	pieces [][]byte
	text   Text
}

// Grow makes room for so many pieces, and a few more.
func (b *Body) Grow(pieces int) { b.pieces = slices.Grow(b.pieces, pieces+8) }

// Add appends to the body what is JSON already, or a part of it.
func (b *Body) Add(parts ...string) { b.text.Add(parts...) }

// JSON appends a value.
func (b *Body) JSON(v any) { b.text.JSON(v) }

// Rest appends an object's fields and its end.
func (b *Body) Rest(v any) {
	at := b.text.buffer.Len()
	b.text.JSON(v)
	if text := b.text.buffer.Bytes(); b.text.err == nil {
		text[at] = ','
		if len(text) == at+len("{}") {
			b.text.buffer.Truncate(at)
			b.text.Add("}")
		}
	}
}

// Piece appends a piece, which has to stay as it is.
func (b *Body) Piece(p []byte) {
	if b.text.buffer.Len() > 0 {
		b.pieces = append(b.pieces, b.text.cut())
	}
	b.pieces = append(b.pieces, p)
}

// JSON is a body that is written as a whole.
func JSON(v any) (*Body, error) {
	b := &Body{}
	b.JSON(v)
	return b, b.text.err
}

// end says whether everything could be written.
func (b *Body) end() error {
	b.Piece(nil)
	return b.text.err
}

// open begins to read, for each try anew.
func (b *Body) open() (io.Reader, error) {
	r := &bodyReader{rest: b.pieces}
	for _, piece := range b.pieces {
		r.left += len(piece)
	}
	return r, nil
}

// bodyReader reads the pieces as one.
type bodyReader struct {
	rest [][]byte
	at   int // in the first of them
	left int
}

// Len is how many bytes are left: the request's Content-Length.
func (r *bodyReader) Len() int { return r.left }

// Read implements io.Reader. It fills p as far as it can, across pieces.
func (r *bodyReader) Read(p []byte) (n int, err error) {
	for n < len(p) && r.left > 0 {
		copied := copy(p[n:], r.rest[0][r.at:])
		n, r.at, r.left = n+copied, r.at+copied, r.left-copied
		if r.at == len(r.rest[0]) {
			r.rest, r.at = r.rest[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}

	return n, nil
}
