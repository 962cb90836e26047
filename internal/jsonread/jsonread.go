// Package jsonread reads JSON as encoding/json does, for half of the work where texts are small and many: the chunks of
// a model's answer, the arguments of its calls.
//
// # Design
//
// Unmarshal of encoding/json makes a parser for each text, which costs as much as to read a short one. A json.Decoder
// keeps its parser, so that one is used for text after text. Whatever it refuses, and what follows a value, is left to
// encoding/json alone: values and errors are the same.
package jsonread

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"sync"
)

// maxPooled is the longest text, in bytes, that a parser is used again for: it keeps a buffer of that size.
const maxPooled = 16 << 10

// Unmarshal reads a text into what v points to, which has to be zero.
func Unmarshal(text []byte, v any) error {
	if readPooled(&plain, text, v) {
		return nil
	}
	return json.Unmarshal(text, v)
}

// UnmarshalNumbers is Unmarshal with numbers that go into an any as json.Number, so that large ones stay exact.
func UnmarshalNumbers(text []byte, v any) error {
	if readPooled(&exact, text, v) {
		return nil
	}
	return freshNumbers(text, v)
}

// freshNumbers reads with a parser that has read nothing before.
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

// parser reads one text after the other.
type parser struct {
	text bytes.Reader
	json *json.Decoder
	fed  int64 // bytes of all texts
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

// readPooled reads a text that is one value, and blanks, with a parser of a pool. After any other v is zero again.
func readPooled(pool *sync.Pool, text []byte, v any) bool {
	if len(text) > maxPooled {
		return false
	}

	p := pool.Get().(*parser)
	if !p.read(text, v) { // it stands at a place that nobody knows, and is not used again
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
