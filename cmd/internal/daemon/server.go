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
	// answerFor is the timeout for requests in progress when their server stops.
	answerFor = 2 * time.Second
	// lingerFor is how long an ending command waits for clients with an open connection.
	lingerFor = 500 * time.Millisecond
)

// server serves requests on the socket of the home, or those of a daemon on the network.
type server struct {
	http          *http.Server
	listener      net.Listener
	stopFollowing context.CancelFunc // ends followed event streams
	most          int                // maximum number of connections; 0 means no limit
	reserves      bool               // keeps file handles in reserve

	mu     sync.Mutex
	closed bool                        // new connections are refused
	conns  map[net.Conn]http.ConnState // open connections
	spare  []*os.File                  // reserved file handles, closed at the limit of open files
}

// openServer opens the socket. Connections are accepted at once, and served when run is called.
func (d *Daemon) openServer(ctx context.Context) (*server, error) {
	listener, err := listen(homedir.SocketPath(d.home.Dir), d.home.Dir, d.Supervised(), d.log)
	if err != nil {
		return nil, err
	}

	s := d.newServer(ctx, listener, noexec.Gets(d.Handler))
	s.reserve(d.log)
	return s, nil
}

// newServer returns a server for a listener.
func (d *Daemon) newServer(ctx context.Context, listener net.Listener, handler http.Handler) *server {
	s := &server{listener: listener, stopFollowing: d.stopFollowing, conns: map[net.Conn]http.ConnState{}}
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ConnState: s.noteState,
		// A request outlives ctx, so that requests in progress are completed while the parts
		// drain.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	s.http.RegisterOnShutdown(s.closeSilent)
	return s
}

// run serves requests until stop is called.
func (s *server) run() error {
	err := s.http.Serve(s.listener)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, http.ErrServerClosed) || s.closed {
		return nil // normal shutdown
	}
	return err
}

// linger refuses new connections, and waits for clients that may send another request.
func (s *server) linger() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.listener.Close() // stop closes it again
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

// stop ends event streams and waits for other requests. It returns an error if a response was cut
// off.
func (s *server) stop(ctx context.Context) error {
	s.stopFollowing()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerFor)
	defer cancel()

	if err := s.http.Shutdown(closing); err != nil && closing.Err() != nil {
		return errors.Join(fmt.Errorf("what was asked took longer than %s: %w", answerFor, err), s.http.Close())
	}
	return nil
}

// noteState keeps track of the connections. The reserve stays released during a request. Refilling
// it earlier would take handles away from other requests.
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

// makeRoom closes an idle connection if the limit is reached. The caller must hold mu.
func (s *server) makeRoom() {
	if s.most == 0 || len(s.conns) < s.most {
		return
	}
	for c, state := range s.conns {
		if state == http.StateIdle {
			go c.Close() // it may wait for the peer
			return
		}
	}
}

// closeSilent closes connections without a request. Shutdown would wait five seconds for them.
func (s *server) closeSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, state := range s.conns {
		if state == http.StateNew {
			_ = c.Close()
		}
	}
}

// listen opens the socket for the current user only. It replaces the socket of an ended process.
// That is safe because this process holds the lock of the home. If stays is true, the socket file
// outlives this process, see Connect.
func listen(path, home string, stays bool, log *slog.Logger) (net.Listener, error) {
	// The home was checked when it was opened. Another folder may be writable by others.
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

// enoughFiles is the number of open files and connections that a busy daemon needs, with a margin.
const enoughFiles = 256

// tooFewFiles returns a remedy if the limit of open files is too low. It returns "" if the limit
// is high enough or unknown.
func tooFewFiles() string {
	if limit, known := maxOpenFiles(); known && limit < enoughFiles {
		return fmt.Sprintf("this process may have %d files open at a time, and a daemon with some runs needs %d: commands, databases and connections of yours will fail with “too many open files”; "+
			"raise the limit where it is started (ulimit -n 1024, or LimitNOFILE=1024 in its unit)", limit, enoughFiles)
	}
	return ""
}

// spareCount is the number of reserved file handles: one connection, and reading the ledger.
const spareCount = 8

// reserve reserves file handles for requests on the socket of the home.
func (s *server) reserve(log *slog.Logger) {
	s.reserves = true
	s.fillSpare()
	s.listener = &reservingListener{Listener: s.listener, server: s, log: log}
}

// fillSpare fills the reserve up to the limit of open files. The caller must hold mu.
func (s *server) fillSpare() {
	for s.reserves && len(s.spare) < spareCount {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // retry after the next connection
		}
		s.spare = append(s.spare, f)
	}
}

// releaseSpare closes the reserve. It reports whether the reserve had files. The caller must hold
// mu.
func (s *server) releaseSpare() bool {
	had := len(s.spare) > 0
	for _, f := range s.spare {
		_ = f.Close() // they were only open for reading
	}
	s.spare = nil
	return had
}

// reservingListener accepts connections even at the limit of open files, by releasing the reserve.
type reservingListener struct {
	net.Listener
	server *server
	log    *slog.Logger
	told   time.Time // with a read-only ledger no runs start, so the databases need no check
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
