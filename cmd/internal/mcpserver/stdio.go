package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeStream answers one client, which writes a message a line, until it ends its stream or ctx ends. A line that is not a message
// gets an error as its answer, and the next one is read.
func (s *Server) ServeStream(ctx context.Context, in io.Reader, out io.Writer) error {
	answers := &sharedWriter{w: out}
	lines := &messageLines{in: bufio.NewReader(in), out: answers}
	err := s.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(lines), Writer: answers})
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) { // its client has gone
		return nil
	}
	return err
}

// sharedWriter writes the messages of several goroutines, each as a whole.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (w *sharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// Close leaves the writer open: it is not the transport's.
func (w *sharedWriter) Close() error { return nil }

// messageLines passes on the lines of a reader that are messages. The transport would end at any other line.
type messageLines struct {
	in   *bufio.Reader
	out  io.Writer
	next []byte // of what is passed on
}

// Read implements io.Reader.
func (l *messageLines) Read(p []byte) (int, error) {
	for len(l.next) == 0 {
		line, tooLong, err := l.line()
		if tooLong {
			line, err = nil, errors.Join(err, l.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("the line is longer than %d bytes", mcp.DefaultMaxLineLength)))
		}
		if len(line) > 0 {
			err = errors.Join(err, l.pass(line))
		}
		if err != nil && len(l.next) == 0 {
			if errors.Is(err, io.EOF) {
				err = io.EOF
			}
			return 0, err
		}
	}

	n := copy(p, l.next)
	l.next = l.next[n:]
	return n, nil
}

// line reads a line, without the blanks around it.
func (l *messageLines) line() (line []byte, tooLong bool, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) >= mcp.DefaultMaxLineLength; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), tooLong, err
		}
	}
}

// pass passes on a line, or answers why it is not.
func (l *messageLines) pass(line []byte) error {
	messages := []json.RawMessage{line}
	switch {
	case !json.Valid(line):
		return l.refuse(jsonrpc.CodeParseError, "the line is not JSON; write each message as one line")
	case line[0] == '[': // a batch, which only old revisions of the protocol know
		if err := json.Unmarshal(line, &messages); err != nil {
			return l.refuse(jsonrpc.CodeParseError, err.Error())
		}
	}

	var all []byte
	for _, m := range messages {
		if _, err := jsonrpc.DecodeMessage(m); err != nil {
			return l.refuse(jsonrpc.CodeInvalidRequest, err.Error())
		}
		all = append(append(all, m...), '\n')
	}
	if len(all) == 0 {
		return l.refuse(jsonrpc.CodeInvalidRequest, "the batch is empty")
	}
	l.next = all
	return nil
}

// refuse answers a line that is not a message. Whose request it was cannot be told, so the id is null.
func (l *messageLines) refuse(code int, why string) error {
	answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}})
	if err != nil {
		return err
	}
	_, err = l.out.Write(append(answer, '\n'))
	return err
}
