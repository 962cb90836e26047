package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"rouse/agent/model"
)

// Limits of a recording: bytes of a line, and messages of all requests. Without limits, a short
// file could cause an allocation of any size.
const (
	maxLine     = 64 << 20
	maxMessages = 4 << 20
)

// line is one line of a file. Exactly one field is set.
type line struct {
	Recording *header   `json:"recording,omitempty"`
	Attempt   *Attempt  `json:"attempt,omitempty"`
	Exchange  *exchange `json:"exchange,omitempty"`
	Step      *Step     `json:"step,omitempty"`
	Call      *Call     `json:"call,omitempty"`
}

type header struct {
	Version int  `json:"version"`
	Run     *Run `json:"run,omitempty"`
}

type exchange struct {
	Exchange
	Request *request `json:"request,omitempty"`
}

// request holds the new part of a request. If System or Tools is missing, the previous request's
// value applies. The first Same messages of the previous request come before Messages.
type request struct {
	System      *string         `json:"system,omitempty"`
	Tools       *[]tool         `json:"tools,omitempty"`
	Same        int             `json:"same,omitempty"`
	Messages    []model.Message `json:"messages,omitempty"`
	MaxOutput   int             `json:"max_output,omitempty"`
	Temperature *float64        `json:"temperature,omitempty"`
	NoTools     bool            `json:"no_tools,omitempty"`
}

// Texts holds one or more texts. In JSON, a single text may be a string.
type Texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*t = Texts{one}
		return nil
	}
	var all []string
	if err := json.Unmarshal(raw, &all); err != nil {
		return errors.New("it is a text, or a list of texts")
	}
	*t = all
	return nil
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// Write writes a recording in the file format.
func Write(w io.Writer, r Recording) error {
	lines := []line{{Recording: &header{Version, r.Run}}}
	for i := range r.Attempts {
		lines = append(lines, line{Attempt: &r.Attempts[i]})
	}
	var e Encoder
	for _, x := range r.Exchanges {
		lines = append(lines, line{Exchange: e.delta(x)})
	}
	for i := range r.Steps {
		lines = append(lines, line{Step: &r.Steps[i]})
	}
	for i := range r.Calls {
		lines = append(lines, line{Call: &r.Calls[i]})
	}

	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("the recording cannot be written: %w", err)
		}
	}
	return nil
}

// Encoder encodes the exchanges of one attempt as lines, in order. The zero Encoder is ready to
// use.
type Encoder struct {
	last    *model.Request
	attempt int
}

// Exchange returns the line of an exchange, including its newline.
func (e *Encoder) Exchange(x Exchange) ([]byte, error) { return encode(line{Exchange: e.delta(x)}) }

// AttemptLine returns the line of an attempt, including its newline.
func AttemptLine(a Attempt) ([]byte, error) { return encode(line{Attempt: &a}) }

func encode(l line) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(l)
	return out.Bytes(), err
}

func (e *Encoder) delta(x Exchange) *exchange {
	out := &exchange{Exchange: x}
	r := x.Request
	if r == nil {
		return out
	}

	// Each attempt is recorded in its own file, so its first request is complete.
	if e.attempt != x.Attempt {
		e.last, e.attempt = nil, x.Attempt
	}

	p := &request{MaxOutput: r.MaxOutput, Temperature: r.Temperature, NoTools: r.NoTools}
	if e.last == nil || e.last.System != r.System {
		p.System = &r.System
	}

	if e.last == nil || !slices.EqualFunc(e.last.Tools, r.Tools, sameTool) {
		tools := make([]tool, len(r.Tools))
		for i, t := range r.Tools {
			tools[i] = tool(t)
		}
		p.Tools = &tools
	}

	if e.last != nil {
		for p.Same < min(len(r.Messages), len(e.last.Messages)) && SameMessage(r.Messages[p.Same], e.last.Messages[p.Same]) {
			p.Same++
		}
	}

	// Only the beginning is compared. After a shortened history, all following messages are
	// written.
	p.Messages = r.Messages[p.Same:]
	out.Request, e.last = p, r
	return out
}

func sameTool(a, b model.Tool) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(a.Schema, b.Schema)
}

// SameMessage reports whether two messages are equal, apart from their images.
func SameMessage(a, b model.Message) bool {
	return a.Role == b.Role && a.Text == b.Text && a.CallID == b.CallID && a.Name == b.Name && bytes.Equal(a.Raw, b.Raw) &&
		slices.EqualFunc(a.Calls, b.Calls, func(a, b model.Call) bool {
			return a.ID == b.ID && a.Key == b.Key && a.Name == b.Name && bytes.Equal(a.Args, b.Args)
		}) &&
		slices.EqualFunc(a.Images, b.Images, func(a, b model.Image) bool { return a.Type == b.Type && bytes.Equal(a.Data, b.Data) })
}

// Read reads a file. Its error contains the number of the line.
func Read(r io.Reader) (Recording, error) { return read(r, true) }

// ReadLines reads lines of an Encoder, without a header. It ignores an incomplete last line.
func ReadLines(r io.Reader) (Recording, error) { return read(r, false) }

func read(from io.Reader, headed bool) (Recording, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	d := decoder{headed: headed, strict: headed}
	for n := 1; ; n++ {
		text, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF):
			return d.out, d.decodeRest(text, n)
		case err != nil:
			return d.out, fmt.Errorf("line %d: %w", n, err)
		case len(bytes.TrimSpace(text)) == 0:
			continue
		}

		if err := d.decodeLine(text); err != nil {
			return d.out, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// decodeRest decodes the text after the last newline, unless the recorder was interrupted there.
func (d *decoder) decodeRest(text []byte, n int) error {
	cutOff := !d.strict && !json.Valid(text)
	if len(bytes.TrimSpace(text)) > 0 && !cutOff {
		if err := d.decodeLine(text); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}

	// If the header is still missing, the file is empty.
	if d.headed {
		return fmt.Errorf(`line 1: a recording begins with {"recording":{"version":%d}}`, Version)
	}
	return nil
}

// readLine reads up to the next newline. A bufio.Scanner would need a buffer for the longest line.
func readLine(in *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := in.ReadSlice('\n')
		text = append(text, part...)
		if len(text) > maxLine {
			return nil, fmt.Errorf("is longer than %d MiB", maxLine>>20)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

type decoder struct {
	out      Recording
	strict   bool // a complete file, which must not be cut off
	headed   bool // the first line must be a header
	last     *model.Request
	attempt  int
	messages int
}

func (d *decoder) decodeLine(text []byte) error {
	var l line
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields() // otherwise a misspelled field would be ignored
	if err := dec.Decode(&l); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one JSON value")
	}
	if set := l.count(); set != 1 {
		return fmt.Errorf("holds %d of recording, attempt, exchange, step and call, and must hold one", set)
	}

	if (l.Recording != nil) != d.headed {
		return fmt.Errorf(`a recording begins with {"recording":{"version":%d}}, which stands there once`, Version)
	}

	switch {
	case l.Recording != nil:
		if l.Recording.Version != Version {
			return fmt.Errorf("is of version %d of the format, and this rouse reads version %d", l.Recording.Version, Version)
		}
		d.headed, d.out.Run = false, l.Recording.Run
	case l.Attempt != nil:
		d.out.Attempts = append(d.out.Attempts, *l.Attempt)
	case l.Step != nil:
		d.out.Steps = append(d.out.Steps, *l.Step)
	case l.Call != nil:
		d.out.Calls = append(d.out.Calls, *l.Call)
	default:
		return d.decodeExchange(*l.Exchange)
	}

	return nil
}

func (l line) count() (n int) {
	for _, set := range []bool{l.Recording != nil, l.Attempt != nil, l.Exchange != nil, l.Step != nil, l.Call != nil} {
		if set {
			n++
		}
	}
	return n
}

func (d *decoder) decodeExchange(x exchange) error {
	out := x.Exchange
	for i, c := range x.Calls {
		if c.Name == "" {
			return fmt.Errorf("call %d of the answer has no name", i+1)
		}
	}
	switch {
	case x.Request != nil && x.Contains != nil:
		return errors.New("an answer is to a request, or to all that contain something; leave out request, or contains")
	case x.Contains != nil && (len(x.Contains) == 0 || slices.Contains(x.Contains, "")):
		return errors.New("contains says nothing: every request holds an empty text; leave it out for the answer to whatever is asked")
	}

	if p := x.Request; p != nil {
		if d.attempt != x.Attempt {
			d.last, d.attempt = nil, x.Attempt
		}

		r := &model.Request{MaxOutput: p.MaxOutput, Temperature: p.Temperature, NoTools: p.NoTools}
		if d.last != nil {
			r.System, r.Tools = d.last.System, d.last.Tools
		}

		if p.System != nil {
			r.System = *p.System
		}

		if p.Tools != nil {
			r.Tools = nil
			for _, t := range *p.Tools {
				r.Tools = append(r.Tools, model.Tool(t))
			}
		}

		// A recording written by hand may refer to messages that do not exist.
		if p.Same < 0 || p.Same > 0 && (d.last == nil || p.Same > len(d.last.Messages)) {
			return fmt.Errorf("the request begins with %d messages of the one before it, which has fewer", p.Same)
		}
		if d.messages += p.Same + len(p.Messages); d.messages > maxMessages {
			return fmt.Errorf("the requests up to here have more than %d messages", maxMessages)
		}

		if p.Same > 0 {
			r.Messages = append(r.Messages, d.last.Messages[:p.Same]...)
		}

		r.Messages = append(r.Messages, p.Messages...)
		out.Request, d.last = r, r
	}

	d.out.Exchanges = append(d.out.Exchanges, out)
	return nil
}
