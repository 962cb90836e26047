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

// maxLog is how large a log gets before another is begun, in bytes.
const maxLog = 10 << 20

// Log is a file that is kept small: at maxLog it becomes FILE.1, whose place an older one had.
type Log struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

// OpenLog goes on with a log, for a daemon whose manager keeps none. What the runtime says when the process dies goes there, too.
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
	// Windows renames no file that is open.
	err := errors.Join(debug.SetCrashOutput(nil, debug.CrashOptions{}), l.file.Close())
	if err == nil {
		err = os.Rename(l.path, l.path+".1")
	}
	return errors.Join(err, l.open())
}

// Close ends the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(debug.SetCrashOutput(nil, debug.CrashOptions{}), l.file.Close())
}

const (
	// lookEvery is how often a log that is followed is looked at.
	lookEvery = 300 * time.Millisecond
	// page is how much of a log is read at a time, from its end, in bytes.
	page = 64 << 10
)

// tail shows the last lines of a log, and what comes after.
func tail(ctx context.Context, path string, o LogOptions) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log at %s: the service has not been started yet", path)
	}
	if err != nil {
		return err
	}
	defer func() { f.Close() }() //nolint:gosec // it was only read; another one by then, where the log was rotated

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

		// Behind the end of one that was rotated comes the new one.
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

// seekLines goes to where the last n lines begin.
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
				continue // the end of the last line
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
