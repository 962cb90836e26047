package modeltest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Pipe starts a server that is reached in memory alone, by the transport: within a bubble of
// testing/synctest its silences and the pauses that it asks for take no time.
func Pipe(t testing.TB, turns ...Turn) (*Server, http.RoundTripper) {
	t.Helper()
	s := &Server{script: turns, closing: make(chan struct{})}
	l := &pipeListener{waiting: make(chan net.Conn), closed: make(chan struct{})}
	s.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	s.Start()
	way := &http.Transport{DialContext: l.dial}
	t.Cleanup(func() {
		close(s.closing)
		way.CloseIdleConnections()
		s.Close()
	})

	return s, way
}

// pipeListener is a listener of connections within the process.
type pipeListener struct {
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.waiting <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.waiting:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipeListener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "model.invalid" }
