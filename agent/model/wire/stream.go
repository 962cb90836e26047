package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"

	"rouse/agent/model"
)

// maxAnswer bounds one answer, in bytes on the wire.
const maxAnswer = 16 << 20

// Frame is a piece of an answer: the data of an event, a line, or the whole of it.
type Frame struct {
	Event    string // its name, when events have one
	Data     []byte // is valid until the next frame
	Document bool   // the server does not stream
}

// readCloser is a response's body of which the beginning was looked at.
type readCloser struct {
	io.Reader
	io.Closer
}

// readAnswer takes an answer apart.
func (s *Client) readAnswer(resp *http.Response, take func(Frame) error) error {
	limited := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	r, ok := s.readers.Get().(*bufio.Reader)
	if !ok {
		r = &bufio.Reader{}
	}

	r.Reset(limited)
	defer func() {
		r.Reset(nil)
		s.readers.Put(r)
	}()

	first, err := firstRune(r)
	if err != nil {
		return s.brokenError(err, limited)
	}

	beginning, err := r.Peek(r.Buffered())
	if err != nil {
		return s.brokenError(err, limited)
	}

	over := false // the server said so
	each := func(f Frame) error {
		err := take(f)
		over = errors.Is(err, io.EOF)
		return err
	}

	object := first == '{' || first == '['
	switch {
	case s.dialect.JSONLines && object:
		err = readLines(r, each)
	case object:
		var data []byte
		if data, err = io.ReadAll(r); err == nil && limited.N > 0 {
			err = each(Frame{Data: data, Document: true})
		}
	case first == '<' || s.dialect.JSONLines || !isEventStream(beginning):
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		return s.newError(model.KindNonsense, false, "the model server %s answered with %s instead of a stream: %s; check base_url", s.shownURL, named(kind), s.parseError(beginning).Message)
	default:
		err = readEvents(r, each)
	}

	var e *model.Error
	switch {
	case over, limited.N > 0 && (err == nil || errors.Is(err, io.EOF)):
		return nil
	case errors.Is(err, errStopped), limited.N > 0 && errors.As(err, &e) && !errors.As(err, new(*idleTimeout)):
		return err
	}

	return s.brokenError(err, limited)
}

// firstRune looks at what an answer begins with, after a byte order mark and empty lines.
func firstRune(r *bufio.Reader) (rune, error) {
	for {
		c, _, err := r.ReadRune()
		if err != nil {
			return 0, err
		}

		switch c {
		case '\uFEFF', ' ', '\t', '\r', '\n':
		default:
			return c, r.UnreadRune()
		}
	}
}

// isEventStream says whether bytes begin like a stream of events.
func isEventStream(beginning []byte) bool {
	for _, field := range []string{":", "data:", "event:", "id:", "retry:"} {
		n := min(len(field), len(beginning)) // the rest may still be on its way
		if string(beginning[:n]) == field[:n] {
			return true
		}
	}
	return false
}

func named(kind string) string {
	if kind == "" {
		return "something"
	}
	return kind
}

// readLine reads one line without its end; what io.EOF cuts off is given with it. The result
// is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(text)
		for errors.Is(err, bufio.ErrBufferFull) {
			text, err = r.ReadSlice('\n')
			long = append(long, text...)
		}
		text = long
	}

	return bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r")), err
}

// readLines gives the lines of an answer. A last one without an end is given, too: if it is
// cut off, it is no JSON.
func readLines(r *bufio.Reader, take func(Frame) error) error {
	for {
		text, err := readLine(r)
		if len(bytes.TrimSpace(text)) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if err := take(Frame{Data: text}); err != nil {
				return err
			}
		}

		if err != nil {
			return err
		}
	}
}

// readEvents gives the events of a stream that have data. One that the end of the stream cuts
// off is lost, as the standard wants it.
func readEvents(r *bufio.Reader, take func(Frame) error) error {
	var f Frame
	for {
		text, err := readLine(r)
		if err != nil {
			return err
		}

		if len(text) == 0 {
			if data := bytes.TrimSpace(f.Data); len(data) > 0 {
				if err := take(Frame{Event: f.Event, Data: data}); err != nil {
					return err
				}
			}
			f.Event, f.Data = "", f.Data[:0]
			continue
		}

		name, value, _ := bytes.Cut(text, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			f.Event = string(value)
		case "data":
			f.Data = append(append(f.Data, value...), '\n')
		}
	}
}

// brokenError words an answer that could not be read to its end.
func (s *Client) brokenError(err error, limited *io.LimitedReader) error {
	var silent *idleTimeout
	switch {
	case errors.As(err, &silent):
		return silent.error
	case limited.N <= 0:
		return s.newError(model.KindNonsense, false, "the answer of the model %s at %s is longer than %d MiB", s.endpoint.Model, s.shownURL, maxAnswer>>20)
	}

	e := s.newError(model.KindTruncated, true, "the answer of the model %s at %s broke off", s.endpoint.Model, s.shownURL)
	e.Err = s.redactError(err)
	return e
}
