package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"rouse/agent/model"
)

// maxAnswer bounds one answer, in bytes on the wire.
const maxAnswer = 16 << 20

// body is a response's body of which the beginning was looked at.
type body struct {
	*bufio.Reader
	io.Closer
}

// read takes an answer in, and hands its text on as it comes.
func (p *Provider) read(resp *http.Response, emit func(model.Event) bool) (*answer, error) {
	limited := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	b := body{bufio.NewReader(limited), resp.Body}
	first, err := firstRune(b.Reader)
	if err != nil {
		return nil, p.broken(err, limited)
	}
	beginning, err := b.Peek(b.Buffered())
	if err != nil {
		return nil, p.broken(err, limited)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case first == '{' || first == '[':
		return p.readWhole(b, limited, emit)
	case first == '<' || !isStream(beginning):
		return nil, p.fault(model.KindNonsense, false, "the model server %s answered with %s instead of a stream: %s; check base_url", p.place, named(kind), p.understand(beginning).text)
	}
	return p.readStream(&http.Response{Header: resp.Header, Body: b}, limited, emit)
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

// isStream says whether bytes begin like a stream of events.
func isStream(beginning []byte) bool {
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

func (p *Provider) readStream(resp *http.Response, limited *io.LimitedReader, emit func(model.Event) bool) (*answer, error) {
	a := &answer{}
	events := ssestream.NewDecoder(resp)
	for events.Next() {
		data := bytes.TrimSpace(events.Event().Data)
		if len(data) == 0 {
			continue
		}
		if bytes.HasPrefix(data, []byte("[DONE]")) {
			return a, nil
		}
		if err := p.take(a, data, events.Event().Type == "error", emit); err != nil {
			return nil, err
		}
	}
	if err := events.Err(); err != nil || limited.N <= 0 {
		return nil, p.broken(err, limited)
	}
	return a, nil
}

// readWhole takes in the answer of a server that does not stream.
func (p *Provider) readWhole(r io.Reader, limited *io.LimitedReader, emit func(model.Event) bool) (*answer, error) {
	data, err := io.ReadAll(r)
	if err != nil || limited.N <= 0 {
		return nil, p.broken(err, limited)
	}
	a := &answer{}
	if err := p.take(a, data, data[0] == '[', emit); err != nil {
		return nil, err
	}
	if !a.any {
		return nil, p.fault(model.KindNonsense, true, "the model server %s answered without a choice: %s", p.place, p.understand(data).text)
	}
	return a, nil
}

// take adds one chunk to the answer and hands its text on.
func (p *Provider) take(a *answer, data []byte, isError bool, emit func(model.Event) bool) error {
	var c chunk
	err := json.Unmarshal(data, &c)
	if isError || c.failed() {
		return p.failure(data)
	}
	if err != nil {
		return p.fault(model.KindNonsense, true, "the model %s at %s sent a chunk that cannot be read (%v)", p.o.Model, p.place, err)
	}
	if text := a.add(c); text != "" && !emit(model.Event{Text: text}) {
		return errLeft
	}
	return nil
}

// broken words an answer that could not be read to its end.
func (p *Provider) broken(err error, limited *io.LimitedReader) error {
	var s *silence
	switch {
	case errors.As(err, &s):
		return s.error
	case limited.N <= 0:
		return p.fault(model.KindNonsense, false, "the answer of the model %s at %s is longer than %d MiB", p.o.Model, p.place, maxAnswer>>20)
	}
	e := p.fault(model.KindTruncated, true, "the answer of the model %s at %s broke off", p.o.Model, p.place)
	e.Err = p.clean(err)
	return e
}

func (p *Provider) fault(kind model.ErrorKind, retryable bool, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Retryable: retryable, Message: fmt.Sprintf(format, args...)}
}
