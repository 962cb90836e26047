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

// Limits of a server's output.
const (
	maxFrame    = 8 << 20 // bytes of one line
	maxUnasked  = 20_000  // lines in one call that are notifications, requests or not messages
	maxWaiting  = 16      // messages read but not yet processed
	writeWithin = 10 * time.Second
)

// program is a server that runs as a program. It writes one message per line to its standard
// output.
type program struct {
	stdin  *os.File
	frames chan []byte
	closed chan struct{} // closed when the session is over
	ended  chan struct{} // closed when the program has ended
	stop   context.CancelFunc
	once   sync.Once
	stderr tail
	// changed is called when the tools have changed, before a later message is read. The library
	// delivers both at the same time.
	changed func()

	line []byte // start of an incomplete line; used only by Write

	mu     sync.Mutex
	result sandbox.Result
	err    error  // error of starting the program
	fault  error  // violation of the protocol or a limit
	asked  int    // lines since the last call that are not responses
	noise  int    // lines that are not messages
	first  string // first of these lines, shortened
}

// launch starts a program in a goroutine. run gets the program's standard input and outputs, and
// returns when the program has ended.
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

// Write receives the standard output of the program. It blocks until the messages are read.
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

// isMessage reports whether a line is an object with the key jsonrpc. Other lines are noise.
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

// addUnasked counts a line that is not a response. The caller must hold p.mu.
func (p *program) addUnasked() error {
	if p.asked++; p.asked > maxUnasked {
		return fmt.Errorf("it wrote more than %d lines that answer nothing", maxUnasked)
	}
	return nil
}

// noiseReport describes the lines that are not messages: their number and the first line. It
// returns "" if there are no such lines.
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
			select { // messages written before the program ended
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

// decodeFrame decodes a message.
func decodeFrame(frame []byte) (jsonrpc.Message, error) {
	msg, err := jsonrpc.DecodeMessage(frame)
	if err != nil {
		return nil, fmt.Errorf("it wrote a message that is not understood: %q", text.Truncate(string(frame), 80))
	}
	return msg, nil
}

// count counts a request or notification of the server. It returns an error if there are too many.
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

// begin resets the count for a new call.
func (p *program) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = 0
}

// send implements the Write method of mcp.Connection.
func (p *program) send(msg jsonrpc.Message) error {
	raw, err := jsonrpc.EncodeMessage(unalias(msg))
	if err != nil {
		return err
	}
	// If pipes do not support deadlines, a full pipe blocks until the call times out.
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

// fail records the first violation and stops the program.
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

// endsWithin is the time a program has to exit after its input is closed.
const endsWithin = time.Second

// Close implements mcp.Connection. It closes the program's input, and kills the program if it does
// not exit in time.
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
		<-p.ended // the sandbox ensures that the program ends
	}
	p.stop()
	return err
}

// why returns the program's violation, or nil.
func (p *program) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// end describes how the program ended. It must have ended.
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

// connection adapts program to the library's interfaces.
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

// tail keeps the last bytes of a program's standard error.
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

// text returns the end of the output as one line, for an error message.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return text.OneLine(text.Tail(string(t.b), 400))
}

// isOver reports whether the session was closed or the program has ended.
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
