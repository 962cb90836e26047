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

// maxAnswer is the maximum size of one answer, in bytes as received.
const maxAnswer = 16 << 20

// Frame is a unit of an answer: the data of an event, a JSON line, or the whole document.
type Frame struct {
	Event    string // name of the event, if it has one
	Data     []byte // valid until the next frame
	Document bool   // Data is the whole answer, because the server does not stream
}

// readAnswer splits an answer into frames and decodes them.
func (c *Client) readAnswer(resp *http.Response, decode func(Frame) error) error {
	limited := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	r := bufio.NewReader(limited)
	first, err := firstRune(r)
	if err != nil {
		return c.brokenError(err, limited)
	}

	// After decode returns io.EOF the answer is complete, even if the connection fails.
	done := false
	err = c.readFrames(resp, r, limited, first, func(f Frame) error {
		err := decode(f)
		done = errors.Is(err, io.EOF)
		return err
	})

	// Errors of decode are final. If limited.N is 0, an error is only a consequence of the limit.
	var e *model.Error
	switch {
	case done, limited.N > 0 && (err == nil || errors.Is(err, io.EOF)):
		return nil
	case errors.Is(err, errStopped), limited.N > 0 && errors.As(err, &e) && !errors.As(err, new(*idleTimeout)):
		return err
	}

	return c.brokenError(err, limited)
}

// readFrames detects the format from the first bytes, because Content-Type is often wrong.
func (c *Client) readFrames(resp *http.Response, r *bufio.Reader, limited *io.LimitedReader, first rune, decode func(Frame) error) error {
	beginning, err := r.Peek(r.Buffered())
	if err != nil {
		return err
	}

	object := first == '{' || first == '[' // JSON lines, or a document from a server that does not stream
	switch {
	case c.dialect.JSONLines && object:
		return readLines(r, decode)
	case object:
		data, err := io.ReadAll(r)
		if err != nil || limited.N <= 0 {
			return err
		}
		return decode(Frame{Data: data, Document: true})
	case first != '<' && !c.dialect.JSONLines && isEventStream(beginning):
		return readEvents(r, decode)
	}

	// Probably a login page. It is not retried, because the same URL would return it again.
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "" {
		kind = "something"
	}
	return c.newError(model.KindInvalidResponse, false, "the model server %s answered with %s instead of a stream: %s; check base_url", c.shownURL, kind, c.parseError(beginning).Message)
}

// firstRune skips a byte order mark and white space, and returns the next character without
// consuming it.
func firstRune(r *bufio.Reader) (rune, error) {
	for {
		char, _, err := r.ReadRune()
		if err != nil {
			return 0, err
		}

		switch char {
		case '\uFEFF', ' ', '\t', '\r', '\n':
		default:
			return char, r.UnreadRune()
		}
	}
}

// isEventStream reports whether the answer may begin a stream of events.
func isEventStream(beginning []byte) bool {
	for _, field := range []string{":", "data:", "event:", "id:", "retry:"} {
		n := min(len(field), len(beginning)) // the rest of the field may not have arrived yet
		if string(beginning[:n]) == field[:n] {
			return true
		}
	}
	return false
}

// readLine returns a line without its line break. It returns the last line together with io.EOF.
// The line is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	// Most lines fit into the buffer and are not copied.
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

// readLines reads an answer in JSON lines. The last line may lack a line break.
func readLines(r *bufio.Reader, decode func(Frame) error) error {
	for {
		text, err := readLine(r)
		if len(bytes.TrimSpace(text)) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if err := decode(Frame{Data: text}); err != nil {
				return err
			}
		}

		if err != nil {
			return err
		}
	}
}

// readEvents reads server-sent events with data. It drops an incomplete event at the end.
func readEvents(r *bufio.Reader, decode func(Frame) error) error {
	var f Frame
	for {
		text, err := readLine(r)
		if err != nil {
			return err
		}

		// An empty line ends an event.
		if len(text) == 0 {
			if data := bytes.TrimSpace(f.Data); len(data) > 0 {
				if err := decode(Frame{Event: f.Event, Data: data}); err != nil {
					return err
				}
			}
			f.Event, f.Data = "", f.Data[:0] // reuses the buffer; see Frame.Data
			continue
		}

		name, value, _ := bytes.Cut(text, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		// A comment has an empty name. Other fields (id, retry) are for clients that reconnect.
		switch string(name) {
		case "event":
			f.Event = string(value)
		case "data":
			f.Data = append(append(f.Data, value...), '\n')
		}
	}
}

// brokenError returns the error for an answer that could not be read completely.
func (c *Client) brokenError(err error, limited *io.LimitedReader) error {
	var idle *idleTimeout
	switch {
	case errors.As(err, &idle):
		return idle.error
	case limited.N <= 0:
		return c.newError(model.KindInvalidResponse, false, "the answer of the model %s at %s is longer than %d MiB", c.endpoint.Model, c.shownURL, maxAnswer>>20)
	}

	e := c.newError(model.KindTruncated, true, "the answer of the model %s at %s broke off", c.endpoint.Model, c.shownURL)
	e.Err = c.redactError(err)
	return e
}
