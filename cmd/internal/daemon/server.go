package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/doctor"
	"rouse/cmd/internal/homedir"
	"rouse/internal/noexec"
	"rouse/internal/owner"
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
	reserves      bool               // it keeps files in reserve

	mu     sync.Mutex
	closed bool                        // no new connection is accepted
	conns  map[net.Conn]http.ConnState // open connections
	spare  []*os.File                  // open file handles, which are closed at the limit of the process
}

// openServer opens the socket; from then on requests are accepted, and answered once run is called.
func (d *Daemon) openServer(ctx context.Context) (*server, error) {
	listener, err := listen(homedir.SocketPath(d.home.Dir), d.home.Dir, d.Supervised(), d.log)
	if err != nil {
		return nil, err
	}

	s := d.newServer(ctx, listener, noexec.Gets(d.Handler))
	s.reserve(d.log)
	return s, nil
}

// newServer answers what comes through a listener.
func (d *Daemon) newServer(ctx context.Context, listener net.Listener, handler http.Handler) *server {
	s := &server{listener: listener, stopFollowing: d.stopFollowing, conns: map[net.Conn]http.ConnState{}}
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

// linger refuses new connections, and waits for clients that may ask again to leave.
func (s *server) linger() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.listener.Close() // it is closed again by stop
	s.stopFollowing()

	for began := time.Now(); s.open() > 0 && time.Since(began) < lingerFor; {
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// stop ends event streams, and waits for other requests. An error means that an answer was cut off.
func (s *server) stop(ctx context.Context) error {
	s.stopFollowing()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerFor)
	defer cancel()

	if err := s.http.Shutdown(closing); err != nil && closing.Err() != nil {
		return errors.Join(fmt.Errorf("what was asked took longer than %s: %w", answerFor, err), s.http.Close())
	}
	return nil
}

// noteState keeps track of the connections. The reserve is free while a request is answered; refilling it earlier would take
// handles away from other requests.
func (s *server) noteState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c] = state; state == http.StateClosed || state == http.StateHijacked {
		delete(s.conns, c)
	} else {
		s.makeRoom()
	}

	if state == http.StateActive {
		s.releaseSpare()
	}
	for _, other := range s.conns {
		if other == http.StateNew || other == http.StateActive {
			return
		}
	}
	s.fillSpare()
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

// closeSilent closes connections without a request, for which Shutdown would wait five seconds.
func (s *server) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, state := range s.conns {
		if state == http.StateNew {
			_ = c.Close()
		}
	}
}

// listen opens the socket for its owner alone. It replaces the socket of an ended process: this process holds the lock of the home, so
// no other process serves it. The socket file outlives this process if stays is set, see Connect.
func listen(path, home string, stays bool, log *slog.Logger) (net.Listener, error) {
	// The home was checked when it was opened; beside it is a place where others can make names.
	if folder := filepath.Dir(path); folder != home {
		if err := owner.Private(folder); err != nil {
			return nil, fmt.Errorf("the folder of the socket cannot be used: %w; mend its mode with rouse doctor --fix, or set XDG_RUNTIME_DIR to a folder of yours, or take a shorter path for --home", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot replace the old socket: %w", err)
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on the socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}

	if unix, ok := l.(*net.UnixListener); ok && stays {
		unix.SetUnlinkOnClose(false)
	}
	return owner.Listener{Listener: l, Refused: func(err error) { log.Warn("somebody was hung up on at the socket", "socket", path, "error", err) }}, nil
}

// enoughFiles is the number of open files and connections of a busy daemon, with room.
const enoughFiles = 256

// tooFewFiles says what to do where too few files may be open, "" where it is enough or not known.
func tooFewFiles() string {
	if limit, known := maxOpenFiles(); known && limit < enoughFiles {
		return fmt.Sprintf("this process may have %d files open at a time, and a daemon with some runs needs %d: commands, databases and connections of yours will fail with “too many open files”; "+
			"raise the limit where it is started (ulimit -n 1024, or LimitNOFILE=1024 in its unit)", limit, enoughFiles)
	}
	return ""
}

// spareCount is the number of file handles in reserve: one connection, and reading the ledger.
const spareCount = 8

// reserve keeps file handles in reserve for requests on the socket of the home.
func (s *server) reserve(log *slog.Logger) {
	s.reserves = true
	s.fillSpare()
	s.listener = &reservingListener{Listener: s.listener, server: s, log: log}
}

// fillSpare fills the reserve until the limit of open files. s.mu is held.
func (s *server) fillSpare() {
	for s.reserves && len(s.spare) < spareCount {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // try again after the next connection
		}
		s.spare = append(s.spare, f)
	}
}

// releaseSpare closes the reserve and reports whether it had files. s.mu is held.
func (s *server) releaseSpare() bool {
	had := len(s.spare) > 0
	for _, f := range s.spare {
		_ = f.Close() // nothing was written to it
	}
	s.spare = nil
	return had
}

// reservingListener accepts connections even at the limit of open files, by releasing the reserve.
type reservingListener struct {
	net.Listener
	server *server
	log    *slog.Logger
	told   time.Time // time of the last log line
}

// Accept implements net.Listener.
func (l *reservingListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return c, err
		}
		if now := time.Now(); now.Sub(l.told) > time.Minute {
			l.told = now
			limit, _ := maxOpenFiles()
			l.log.Error("too many open files: commands, databases and connections fail; raise the limit where the daemon is started (ulimit -n 1024, or LimitNOFILE=1024 in its unit)", "limit", limit)
		}
		l.server.mu.Lock()
		released := l.server.releaseSpare()
		l.server.mu.Unlock()
		if !released {
			return nil, err
		}
	}
}

func checkOpenFiles() api.Check {
	if why := tooFewFiles(); why != "" {
		return doctor.Failed("open files", why, "ulimit -n 1024")
	}
	return doctor.Passed("open files", "enough may be open at a time")
}
