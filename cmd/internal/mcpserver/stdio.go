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

// ServeStream serves one client until the stream or ctx ends. Each line is a message; any other
// line gets an error response.
func (s *Server) ServeStream(ctx context.Context, in io.Reader, out io.Writer) error {
	answers := &sharedWriter{w: out}
	lines := &messageLines{in: bufio.NewReader(in), out: answers}
	err := s.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(lines), Writer: answers})
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) { // the client has disconnected
		return nil
	}
	return err
}

// sharedWriter serializes the writes of several goroutines.
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

// Close implements io.Closer. It does not close the writer, which the caller owns.
func (w *sharedWriter) Close() error { return nil }

// messageLines passes on only lines that are messages, because the transport ends at any other
// line.
type messageLines struct {
	in   *bufio.Reader
	out  io.Writer
	next []byte // lines to pass on
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

// line reads a line and trims white space.
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

// pass passes on a line, or answers with an error if it is not a message.
func (l *messageLines) pass(line []byte) error {
	messages := []json.RawMessage{line}
	switch {
	case !json.Valid(line):
		return l.refuse(jsonrpc.CodeParseError, "the line is not JSON; write each message as one line")
	case line[0] == '[': // a batch, as in old revisions of the protocol
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

// refuse sends an error response for a line that is not a message. The ID is null because it is
// unknown.
func (l *messageLines) refuse(code int, why string) error {
	answer, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}})
	if err != nil {
		return err
	}
	_, err = l.out.Write(append(answer, '\n'))
	return err
}
