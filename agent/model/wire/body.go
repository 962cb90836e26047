package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// BodyBuilder builds the body of a request from raw text and values. It keeps the first error
// for bytes, so that encoders need not check each step.
type BodyBuilder struct {
	buffer bytes.Buffer
	json   *json.Encoder // into buffer; nil before the first value
	err    error
}

// Raw appends text that is JSON already, or a part of it.
func (b *BodyBuilder) Raw(text string) { b.buffer.WriteString(text) }

// Value appends a value as encoding/json writes it.
func (b *BodyBuilder) Value(v any) {
	if b.json == nil {
		b.json = json.NewEncoder(&b.buffer)
	}
	if err := b.json.Encode(v); err != nil {
		b.err = fmt.Errorf("the request to the model cannot be written as JSON: %w", err)
		return
	}
	// Encode ends each value with a line feed. json.Marshal would not, and would copy the value.
	b.buffer.Truncate(b.buffer.Len() - len("\n"))
}

// EndWith appends the fields of an object to the one that is open, and closes it.
func (b *BodyBuilder) EndWith(v any) {
	at := b.buffer.Len()
	b.Value(v)
	if text := b.buffer.Bytes(); b.err == nil {
		// The value's own brace becomes the comma after the fields before it; a value without
		// fields needs neither.
		text[at] = ','
		if len(text) == at+len("{}") {
			b.buffer.Truncate(at)
			b.Raw("}")
		}
	}
}

// JSONBody returns a body that is one value.
func JSONBody(v any) (*BodyBuilder, error) {
	b := &BodyBuilder{}
	b.Value(v)
	return b, b.err
}

// bytes returns the body, or the first error.
func (b *BodyBuilder) bytes() ([]byte, error) { return b.buffer.Bytes(), b.err }
