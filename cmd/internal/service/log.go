package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"
)

// maxLog is the maximum size of a log before it is rotated, in bytes.
const maxLog = 10 << 20

// Log is a log file of limited size. At maxLog, it is renamed to FILE.1, replacing an older one.
type Log struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

// OpenLog opens a log for appending. It is for daemons that run under a service manager without a
// log. Crash output of the Go runtime goes to the same file.
func OpenLog(path string) (*Log, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	l := &Log{path: path}
	return l, l.open()
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the log cannot be written: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		err = debug.SetCrashOutput(f, debug.CrashOptions{})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the log cannot be written: %w", err), f.Close())
	}

	l.file, l.size = f, info.Size()
	return nil
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+int64(len(p)) > maxLog && l.size > 0 {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}

	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *Log) rotate() error {
	// Windows cannot rename an open file.
	err := errors.Join(debug.SetCrashOutput(nil, debug.CrashOptions{}), l.file.Close())
	if err == nil {
		err = os.Rename(l.path, l.path+".1")
	}
	return errors.Join(err, l.open())
}

// Close closes the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(debug.SetCrashOutput(nil, debug.CrashOptions{}), l.file.Close())
}

const (
	// lookEvery is the interval at which a followed log is checked.
	lookEvery = 300 * time.Millisecond
	// page is the block size for reading a log from its end, in bytes.
	page = 64 << 10
)

// tail prints the last lines of a log and, if o.Follow is set, the lines added later.
func tail(ctx context.Context, path string, o LogOptions) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log at %s: the service has not been started yet", path)
	}
	if err != nil {
		return err
	}
	defer func() { f.Close() }() //nolint:gosec // it was only read; after a rotation, f is the new file

	if err := seekLines(f, o.Lines); err != nil {
		return err
	}
	for {
		if _, err := io.Copy(o.Out, f); err != nil || !o.Follow {
			return err
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}

		// If the log was rotated, read the old file to its end and continue with the new one.
		is, err := os.Stat(path)
		was, err2 := f.Stat()
		if err != nil || err2 != nil || os.SameFile(is, was) {
			continue
		}
		if _, err := io.Copy(o.Out, f); err != nil {
			return err
		}
		if next, err := os.Open(path); err == nil {
			f.Close()
			f = next
		}
	}
}

// seekLines moves to the start of the last n lines.
func seekLines(f *os.File, n int) error {
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil || n <= 0 {
		return err
	}

	end := at
	block := make([]byte, page)
	for at > 0 {
		size := min(at, page)
		at -= size
		if _, err := f.ReadAt(block[:size], at); err != nil {
			return err
		}
		for i := bytes.LastIndexByte(block[:size], '\n'); i >= 0; i = bytes.LastIndexByte(block[:i], '\n') {
			if at+int64(i) == end-1 {
				continue // end of the last line
			}
			if n--; n == 0 {
				_, err := f.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}
