package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/sandbox"
	"rouse/agent/tool/shell"
	"rouse/internal/text"
)

// Limits of a server's tool list.
const (
	maxTools = 512
	maxPages = 64
)

// Options configures a session with a server.
type Options struct {
	// Launch starts the programs of servers. Optional for servers with a URL.
	Launch *shell.Launcher
	Tokens Tokens // nil if the server needs no sign-in
	// Declined is called for each kind of server request that was declined, once per kind.
	// Optional.
	Declined func(method string)
	// Ended is called when a program ends, with the files it left for its agent. Optional.
	Ended   func(shell.Ended)
	Version string              // of rouse
	Redact  func(string) string // removes secrets from text of the server
}

// session is a connection to a server.
type session struct {
	server  Server
	o       Options
	client  *mcp.ClientSession
	channel interface {
		begin()
		why() error
	}
	close func()

	mu       sync.Mutex
	stale    bool // the server reports that its tools have changed
	declined map[string]bool
}

// open starts the program or connects to the URL, and negotiates a protocol version.
func open(ctx context.Context, s Server, o Options) (*session, error) {
	one := &session{server: s, o: o, declined: map[string]bool{}}
	over, err := one.dial() //nolint:contextcheck // a server lives as long as its session, not as long as the call that needs it first
	if err != nil {
		return nil, err
	}

	client := mcp.NewClient(&mcp.Implementation{Name: "rouse", Version: cmp.Or(o.Version, "unknown")}, &mcp.ClientOptions{
		Logger: slog.New(slog.DiscardHandler), Capabilities: &mcp.ClientCapabilities{}, MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	client.AddReceivingMiddleware(one.receive)
	for _, method := range customMethods {
		if err := mcp.AddSendingCustomMethod[*customParams, *customResult](client, method); err != nil {
			one.hangUp()
			return nil, err
		}
	}

	// The library keeps the connection's context, so the start timeout must not cancel it after a
	// successful start.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	starting, started := context.WithTimeoutCause(ctx, s.start(), fmt.Errorf("it did not answer within %s", s.start()))
	defer started()
	stop := context.AfterFunc(starting, end)
	one.client, err = client.Connect(life, over, nil)
	if !stop() && err == nil {
		_ = one.client.Close()
		err = context.Cause(starting)
	}
	if err != nil {
		err = one.reason(starting, err)
		end()
		one.hangUp()
		return nil, err
	}
	one.close = func() {
		// Closing the client must not take longer than closing a program.
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = one.client.Close()
		}()
		select {
		case <-done:
		case <-time.After(endsWithin):
		}
		end()
		one.hangUp()
	}
	return one, nil
}

func (s Server) start() time.Duration {
	if s.Start > 0 {
		return s.Start
	}
	return DefaultStart
}

func (s Server) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return DefaultTimeout
}

// dial returns the transport to a server, and starts its program if it has one.
func (s *session) dial() (mcp.Transport, error) {
	if s.server.URL != "" {
		t, err := newTransport(s.server, s.o.Tokens)
		if err != nil {
			return nil, err
		}
		s.channel = t
		return &mcp.StreamableClientTransport{Endpoint: s.server.URL, HTTPClient: withoutRedirects(t), MaxRetries: 3, DisableStandaloneSSE: true, MaxEventSize: maxFrame}, nil
	}

	switch {
	case s.o.Launch == nil:
		return nil, errors.New("no programs are started here")
	case len(s.server.Argv) == 0:
		return nil, errors.New("its address is a secret that is not set: rouse config check says which")
	}
	p, err := launch(context.Background(), s.setStale, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (sandbox.Result, error) {
		ended, err := s.o.Launch.Serve(ctx, shell.Service{Argv: s.server.Argv, Env: s.server.Env, Read: s.server.Read, Files: s.server.Files, Network: s.server.Network, Stdin: stdin, Stdout: stdout, Stderr: stderr})
		if err == nil && s.o.Ended != nil {
			s.o.Ended(ended)
		}
		return ended.Result, err
	})
	if err != nil {
		return nil, err
	}
	s.channel = p
	return connection{p}, nil
}

// hangUp stops the program of the server, if it has one.
func (s *session) hangUp() {
	if p, ok := s.channel.(*program); ok {
		_ = p.Close()
	}
}

// declines lists the requests of the protocol that rouse declines.
var declines = map[string]string{
	"sampling/createMessage": "a completion by a model", "elicitation/create": "an answer of a person", "roots/list": "the folders of the agent",
}

// receive handles requests and notifications of the server. Requests are declined. The only
// notification with an effect is a changed tool list.
func (s *session) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if _, ok := declines[method]; ok {
			s.decline(method)
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "rouse does not do that for servers"}
		}
		if method == listChanged {
			s.setStale()
		}
		return next(ctx, method, req)
	}
}

// listChanged is the notification that the server's tools have changed.
const listChanged = "notifications/tools/list_changed"

func (s *session) setStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

func (s *session) decline(method string) {
	s.mu.Lock()
	known := s.declined[method]
	s.declined[method] = true
	s.mu.Unlock()
	if !known && s.o.Declined != nil {
		s.o.Declined(method)
	}
}

// takeStale reports whether the tool list has changed since it was last read, and resets that
// state.
func (s *session) takeStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := s.stale
	s.stale = false
	return stale
}

// says returns the name and version that the server reports.
func (s *session) says() string {
	init := s.client.InitializeResult()
	if init == nil || init.ServerInfo == nil {
		return ""
	}
	return text.OneLine(text.Truncate(strings.TrimSpace(init.ServerInfo.Name+" "+init.ServerInfo.Version), 100))
}

// list returns the tools of the server. It returns an error if the list exceeds the limits.
func (s *session) list(ctx context.Context) (out []Definition, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.server.start(), fmt.Errorf("it did not say within %s which tools it has", s.server.start()))
	defer cancel()

	seen, size := map[string]bool{}, 0
	cursor := ""
	for page := 0; ; page++ {
		if page == maxPages {
			return nil, fmt.Errorf("it lists its tools on more than %d pages", maxPages)
		}
		var tools []*toldTool
		if tools, cursor, err = s.page(ctx, cursor); err != nil {
			return nil, err
		}

		for _, t := range tools {
			if t == nil {
				continue
			}
			d, err := define(&t.Tool, t.support())
			switch size += len(d.Said); {
			case err != nil:
				return nil, err
			case seen[d.Name]:
				return nil, fmt.Errorf("it has two tools of the name %q", text.Truncate(d.Name, 100))
			case len(out) == maxTools || size > maxFrame:
				return nil, fmt.Errorf("it has more than %d tools, or says more than %s of them", maxTools, text.Size(maxFrame))
			}
			seen[d.Name] = true
			out = append(out, d)
		}
		if cursor == "" {
			return out, nil
		}
	}
}

// call calls a tool.
func (s *session) call(ctx context.Context, d Definition, args json.RawMessage) (*mcp.CallToolResult, error) {
	if d.needsTask() {
		return s.callTask(ctx, d.Name, args)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.server.timeout(), fmt.Errorf("it did not answer within %s", s.server.timeout()))
	defer cancel()
	s.channel.begin()

	res, err := s.client.CallTool(ctx, &mcp.CallToolParams{Name: d.Name, Arguments: args})
	if err != nil {
		return nil, s.reason(ctx, err)
	}
	return res, nil
}

// answeredError is an error response of a server.
type answeredError struct{ said string }

func (e *answeredError) Error() string { return "it answers: " + e.said }

// reason returns the most specific error for a failed request.
func (s *session) reason(ctx context.Context, err error) error {
	// The library replaces errors of the channel with its own.
	if fault := s.channel.why(); fault != nil {
		return fault
	}
	if ctx.Err() != nil {
		if noise := s.noise(); noise != "" { // the response may be among these lines
			return fmt.Errorf("%w; %s", context.Cause(ctx), noise)
		}
		return context.Cause(ctx)
	}

	var said *jsonrpc.Error
	if errors.As(err, &said) {
		return &answeredError{text.OneLine(text.Truncate(fmt.Sprintf("error %d: %s", said.Code, said.Message), 1000))}
	}

	// The library may notice the end of a program before the process has exited.
	p, ok := s.channel.(*program)
	if ok && (errors.Is(err, mcp.ErrConnectionClosed) || errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE)) {
		select {
		case <-p.ended:
			return p.end()
		case <-time.After(endsWithin):
		}
	}
	return errors.New(text.OneLine(text.Truncate(err.Error(), 1000)))
}

// noise describes the lines of a program's standard output that are not messages. It returns "" if
// there are no such lines.
func (s *session) noise() string {
	if p, ok := s.channel.(*program); ok {
		return p.noiseReport(s.o.Redact)
	}
	return ""
}

// broken reports whether the server can no longer be used.
func (s *session) broken() bool {
	p, ok := s.channel.(*program)
	return ok && p.isOver()
}
