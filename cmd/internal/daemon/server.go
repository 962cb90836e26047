package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"rouse/internal/noexec"
)

const (
	// answerFor is how long a request that is under way may go on when its server stops.
	answerFor = 2 * time.Second
	// lingerFor is how long a command that ends lets others finish which have begun to ask.
	lingerFor = 500 * time.Millisecond
)

// server answers requests: on the socket of the home, for a daemon or for a command that executes a run; and a daemon's on the network.
type server struct {
	http          *http.Server
	listener      net.Listener
	stopFollowing context.CancelFunc // ends the event streams that are followed
	most          int                // connections that its listener lets in; 0: any number
	spare         *spareFiles        // files in reserve; nil for a listener on the network

	mu     sync.Mutex
	closed bool                        // nobody new is let in
	conns  map[net.Conn]http.ConnState // those that are open
	left   chan struct{}               // capacity 1: one was closed
}

// openServer opens the socket; from then on requests are accepted, and answered once run is called.
func (d *Daemon) openServer(ctx context.Context) (*server, error) {
	listener, err := listen(SocketPath(d.home.Dir), d.home.Dir, d.Supervised(), d.log)
	if err != nil {
		return nil, err
	}

	s := d.newServer(ctx, listener, noexec.Gets(d.Handler))
	s.reserve(d.log)
	return s, nil
}

// newServer answers what comes through a listener.
func (d *Daemon) newServer(ctx context.Context, listener net.Listener, handler http.Handler) *server {
	s := &server{listener: listener, stopFollowing: d.stopFollowing, conns: map[net.Conn]http.ConnState{}, left: make(chan struct{}, 1)}
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ConnState: s.noteState,
		// A request outlives ctx, so that what is under way gets its answer while the parts drain.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.http.RegisterOnShutdown(s.closeSilent)
	return s
}

// run answers until stop is called.
func (s *server) run() error {
	err := s.http.Serve(s.listener)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, http.ErrServerClosed) || s.closed {
		return nil // how every orderly shutdown ends
	}
	return err
}

// linger lets nobody new in, and waits for those who are in to leave: a command that has asked one thing
// may be about to ask the next.
func (s *server) linger() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.listener.Close() // it is closed again by stop
	s.stopFollowing()

	enough := time.NewTimer(lingerFor)
	defer enough.Stop()
	for s.open() > 0 {
		select {
		case <-s.left:
		case <-enough.C:
			return
		}
	}
}

func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// stop lets requests that are under way get their answers, and ends those who only wait: who follows
// events would do so for ever. An error says that an answer was cut off.
func (s *server) stop(ctx context.Context) error {
	s.stopFollowing()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerFor)
	defer cancel()

	if err := s.http.Shutdown(closing); err != nil && closing.Err() != nil {
		return errors.Join(fmt.Errorf("what was asked took longer than %s: %w", answerFor, err), s.http.Close())
	}
	return nil
}

// noteState keeps track of the connections.
func (s *server) noteState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateClosed && state != http.StateHijacked {
		s.conns[c] = state
		s.makeRoom()
		s.useSpare(state)
		return
	}

	delete(s.conns, c)
	s.useSpare(state)
	select {
	case s.left <- struct{}{}:
	default:
	}
}

// useSpare releases the reserve when a request starts and refills it after the last one. Refilling it earlier would take handles away
// from other requests. The caller holds mu.
func (s *server) useSpare(state http.ConnState) {
	if state == http.StateActive {
		s.spare.release()
	}
	for _, other := range s.conns {
		if other == http.StateNew || other == http.StateActive {
			return
		}
	}
	s.spare.keep()
}

// makeRoom closes a connection that is only kept for a next request, where it keeps somebody else from coming in. The caller holds mu.
func (s *server) makeRoom() {
	if s.most == 0 || len(s.conns) < s.most {
		return
	}
	for c, state := range s.conns {
		if state == http.StateIdle {
			go c.Close() // which may wait for its peer
			return
		}
	}
}

// closeSilent closes the connections that have not asked anything yet. Shutdown would wait five seconds
// for each to do so.
func (s *server) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, state := range s.conns {
		if state == http.StateNew {
			_ = c.Close()
		}
	}
}
