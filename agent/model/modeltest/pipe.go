package modeltest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Pipe starts a server that is reached only in memory, through the returned transport. In a bubble
// of testing/synctest, waiting for it takes no time.
func Pipe(t testing.TB, turns ...Turn) (*Server, http.RoundTripper) {
	t.Helper()
	s := &Server{script: turns, closing: make(chan struct{})}
	l := &pipeListener{waiting: make(chan net.Conn), closed: make(chan struct{})}
	s.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	s.Start()
	transport := &http.Transport{DialContext: l.dial}
	t.Cleanup(func() {
		close(s.closing)
		transport.CloseIdleConnections()
		s.Close()
	})

	return s, transport
}

// pipeListener accepts connections from within the process.
type pipeListener struct {
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.waiting <- server:
		return client, nil
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
