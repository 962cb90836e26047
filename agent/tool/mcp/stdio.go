package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/sandbox"
	"rouse/internal/text"
)

// Bounds of what a server sends.
const (
	maxFrame    = 8 << 20 // bytes of one line
	maxUnasked  = 20_000  // lines in one call that are notifications, requests or no messages
	maxWaiting  = 16      // messages that were read and not looked at yet
	writeWithin = 10 * time.Second
)

// program is a server that is a program: what it writes are messages, a line each.
type program struct {
	stdin  *os.File
	frames chan []byte
	closed chan struct{} // the session is over
	ended  chan struct{} // the program is gone
	stop   context.CancelFunc
	once   sync.Once
	stderr tail
	// changed is told that the tools have changed, before any later message is read: the library hears of both at once.
	changed func()

	line []byte // the start of a line; only Write uses it

	mu     sync.Mutex
	result sandbox.Result
	err    error  // why it did not start
	fault  error  // what it did wrong
	asked  int    // messages that answer nothing and lines that are no messages, since the last call
	noise  int    // lines that are no messages
	first  string // the first of them, shortened
}

// launch starts a program: run gets its standard input, and where its outputs go, and returns when it has ended.
func launch(ctx context.Context, changed func(), run func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (sandbox.Result, error)) (*program, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("its standard input cannot be made: %w", err)
	}

	ctx, stop := context.WithCancel(ctx)
	p := &program{stdin: stdin, frames: make(chan []byte, maxWaiting), closed: make(chan struct{}), ended: make(chan struct{}), stop: stop, changed: changed}
	go func() {
		defer close(p.ended)
		res, err := run(ctx, in, p, &p.stderr)
		in.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.result, p.err = res, err
	}()
	return p, nil
}

// SessionID implements mcp.Connection.
func (p *program) SessionID() string { return "" }

// Write reads the standard output of the program. It blocks until the messages are read.
func (p *program) Write(b []byte) (int, error) {
	n := len(b)
	for {
		part, rest, whole := bytes.Cut(b, []byte("\n"))
		if len(p.line)+len(part) > maxFrame {
			p.fail(fmt.Errorf("it wrote a message of more than %s", text.Size(maxFrame)))
			return n, nil
		}
		if !whole {
			p.line = append(p.line, part...)
			return n, nil
		}

		line := bytes.TrimSpace(bytes.TrimPrefix(append(p.line, part...), byteOrderMark))
		p.line, b = nil, rest
		switch {
		case len(line) == 0:
		case isMessage(line):
			select {
			case p.frames <- line:
			case <-p.closed:
				return n, nil
			}
		default: // many servers log to standard output
			if err := p.skip(line); err != nil {
				p.fail(err)
				return n, nil
			}
		}
	}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// isMessage reports whether a line is an object with the key jsonrpc. Any other line is noise.
func isMessage(line []byte) bool {
	var head struct {
		Version json.RawMessage `json:"jsonrpc"`
	}
	return line[0] == '{' && json.Unmarshal(line, &head) == nil && head.Version != nil
}

// skip counts a line that is not a message. It returns an error if there are too many.
func (p *program) skip(line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noise++; p.noise == 1 {
		p.first = text.OneLine(text.Truncate(string(line), 4096)) // long enough to redact
	}
	return p.addUnasked()
}

// addUnasked counts a line that answers nothing. The caller holds p.mu.
func (p *program) addUnasked() error {
	if p.asked++; p.asked > maxUnasked {
		return fmt.Errorf("it wrote more than %d lines that answer nothing", maxUnasked)
	}
	return nil
}

// noiseReport returns the number of lines that are not messages and the first of them, or "" if there are none.
func (p *program) noiseReport(redact func(string) string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noise == 0 {
		return ""
	}
	return fmt.Sprintf("skipped lines of its standard output that are not messages: %d, the first is %q", p.noise, text.Truncate(redact(p.first), 120))
}

// Read implements mcp.Connection.
func (p *program) Read(ctx context.Context) (jsonrpc.Message, error) {
	var frame []byte
	select {
	case frame = <-p.frames:
	default:
		select {
		case frame = <-p.frames:
		case <-p.ended:
			select { // what it wrote before
			case frame = <-p.frames:
			default:
				return nil, io.EOF
			}
		case <-p.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	msg, err := decodeFrame(frame)
	if err == nil {
		err = p.count(msg)
	}
	if err != nil {
		p.fail(err)
		return nil, err
	}
	return msg, nil
}

// decodeFrame reads a message.
func decodeFrame(frame []byte) (jsonrpc.Message, error) {
	msg, err := jsonrpc.DecodeMessage(frame)
	if err != nil {
		return nil, fmt.Errorf("it wrote a message that is not understood: %q", text.Truncate(string(frame), 80))
	}
	return msg, nil
}

// count ends a server that talks without end.
func (p *program) count(msg jsonrpc.Message) error {
	r, ok := msg.(*jsonrpc.Request)
	if !ok {
		return nil
	}
	if r.Method == listChanged && p.changed != nil {
		p.changed()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addUnasked()
}

// begin begins to count for a call.
func (p *program) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = 0
}

// send is mcp.Connection's Write.
func (p *program) send(msg jsonrpc.Message) error {
	raw, err := jsonrpc.EncodeMessage(unalias(msg))
	if err != nil {
		return err
	}
	// Where pipes know no deadlines, one that is full holds up the call until its own time is over.
	if err := p.stdin.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return err
	}
	if _, err := p.stdin.Write(append(raw, '\n')); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it does not read what it is sent, for %s", writeWithin)
			p.fail(err)
		}
		return err
	}
	return nil
}

// fail ends the program for what it did.
func (p *program) fail(err error) {
	p.mu.Lock()
	if p.fault == nil {
		p.fault = err
	}
	p.mu.Unlock()
	p.stop()
	p.over()
}

func (p *program) over() { p.once.Do(func() { close(p.closed) }) }

// endsWithin is how long a program has to end by itself when its input is closed.
const endsWithin = time.Second

// Close implements mcp.Connection: the program sees the end of its input, and is ended where that does not end it.
func (p *program) Close() error {
	p.over()
	err := p.stdin.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}

	select {
	case <-p.ended:
	case <-time.After(endsWithin):
		p.stop()
		<-p.ended // which the sandbox sees to
	}
	p.stop()
	return err
}

// why is what the program did wrong; nil where nothing is known against it.
func (p *program) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// end says how the program has ended, once it has.
func (p *program) end() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}

	how := fmt.Sprintf("it ended with exit code %d", p.result.Exit)
	switch {
	case p.result.KilledBy != "":
		how = "it was ended (" + p.result.KilledBy + ")"
	case p.result.Signal != "":
		how = "it was ended by " + p.result.Signal
	}
	if last := p.stderr.text(); last != "" {
		how += ", and said: " + last
	}
	return errors.New(how)
}

// connection is a program as the protocol's library uses it.
type connection struct{ *program }

// Connect implements mcp.Transport.
func (c connection) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// Write implements mcp.Connection.
func (c connection) Write(ctx context.Context, msg jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.send(msg)
}

// tail keeps the end of what a program says of itself, however much that is.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const maxTail = 2000 // bytes

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if len(b) > maxTail {
		b = b[len(b)-maxTail:]
	}
	t.b = append(t.b, b...)
	if len(t.b) > maxTail {
		t.b = append([]byte(nil), t.b[len(t.b)-maxTail:]...)
	}
	return n, nil
}

// text is the last of it, for a message.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return text.OneLine(text.Tail(string(t.b), 400))
}

// isOver says whether the program was let go.
func (p *program) isOver() bool {
	select {
	case <-p.closed:
		return true
	case <-p.ended:
		return true
	default:
		return false
	}
}
