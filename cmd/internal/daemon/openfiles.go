package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"rouse/cmd/internal/api"
)

// enoughFiles is how many files and connections a daemon with some runs, databases and watches has open at
// a time, with room. With fewer, commands do not start and, at worst, its owner does not get through to it.
const enoughFiles = 256

// tooFewFiles says what to do where too few files may be open, "" where it is enough or not known.
func tooFewFiles() string {
	if limit, known := maxOpenFiles(); known && limit < enoughFiles {
		return fmt.Sprintf("this process may have %d files open at a time, and a daemon with some runs needs %d: commands, databases and connections of yours will fail with “too many open files”; "+
			"raise the limit where it is started (ulimit -n 1024, or LimitNOFILE=1024 in its unit)", limit, enoughFiles)
	}
	return ""
}

// spareCount is the number of file handles in reserve for the socket of the home: one for the connection, the others for reading the
// ledger.
const spareCount = 8

// spareFiles is a reserve of open file handles. They are closed when the process reaches its limit, so that it can answer commands.
type spareFiles struct {
	mu    sync.Mutex
	files []*os.File
}

// keep fills the reserve until the limit of open files. It does nothing if s is nil.
func (s *spareFiles) keep() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) < spareCount {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // try again after the next connection
		}
		s.files = append(s.files, f)
	}
}

// release closes the reserve and reports whether it had files. It returns false if s is nil.
func (s *spareFiles) release() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had := len(s.files) > 0
	for _, f := range s.files {
		_ = f.Close() // nothing was written to it
	}
	s.files = nil
	return had
}

// reservingListener accepts connections even at the limit of open files, by releasing the reserve.
type reservingListener struct {
	net.Listener
	spare *spareFiles
	log   *slog.Logger
	told  time.Time // time of the last log line
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
		if !l.spare.release() {
			return nil, err
		}
	}
}

// reserve keeps file handles in reserve for requests on the socket of the home.
func (s *server) reserve(log *slog.Logger) {
	s.spare = &spareFiles{}
	s.spare.keep()
	s.listener = &reservingListener{Listener: s.listener, spare: s.spare, log: log}
}

func checkOpenFiles() api.Check {
	c := api.Check{Name: "open files", OK: true, Detail: "enough may be open at a time"}
	if why := tooFewFiles(); why != "" {
		c.OK, c.Detail, c.Remedy = false, why, "ulimit -n 1024"
	}
	return c
}
