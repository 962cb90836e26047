// Package jsonread parses many small JSON texts, such as chunks of a model's response, with less
// work than encoding/json.
//
// json.Unmarshal sets up a parser for each text, which costs as much as parsing a short one. This
// package reuses the parser of a json.Decoder. Text that the Decoder refuses, or that has data
// after the value, is passed to encoding/json. So the values and errors are the same.
package jsonread

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"sync"
)

// maxPooled is the size of the longest text for a pooled parser, in bytes. The parser keeps a
// buffer of that size.
const maxPooled = 16 << 10

// Unmarshal parses text into the value that v points to. The value must be zero.
func Unmarshal(text []byte, v any) error {
	if readPooled(&plain, text, v) {
		return nil
	}
	return json.Unmarshal(text, v)
}

// UnmarshalNumbers is like Unmarshal, but stores numbers in an any as json.Number, so that large
// numbers stay exact.
func UnmarshalNumbers(text []byte, v any) error {
	if readPooled(&exact, text, v) {
		return nil
	}
	return freshNumbers(text, v)
}

// freshNumbers is like UnmarshalNumbers, with a new parser.
func freshNumbers(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the value")
	}
	return nil
}

// parser parses a sequence of texts with one json.Decoder.
type parser struct {
	text bytes.Reader
	json *json.Decoder
	fed  int64 // total length of all texts, in bytes
}

var (
	plain = sync.Pool{New: func() any { return newParser() }}
	exact = sync.Pool{New: func() any {
		p := newParser()
		p.json.UseNumber()
		return p
	}}
)

func newParser() *parser {
	p := &parser{}
	p.json = json.NewDecoder(&p.text)
	return p
}

// readPooled parses text with a parser of the pool. It returns false, and resets v to zero, unless
// text is a single value with optional white space.
func readPooled(pool *sync.Pool, text []byte, v any) bool {
	if len(text) > maxPooled {
		return false
	}

	p := pool.Get().(*parser)
	if !p.read(text, v) { // the position of the parser is unknown, so it is not reused
		reflect.ValueOf(v).Elem().SetZero()
		return false
	}

	pool.Put(p)
	return true
}

func (p *parser) read(text []byte, v any) bool {
	p.text.Reset(text)
	p.fed += int64(len(text))
	if p.json.Decode(v) != nil {
		return false
	}

	unread := int(p.fed - p.json.InputOffset())
	return len(bytes.TrimLeft(text[len(text)-unread:], " \t\r\n")) == 0
}
