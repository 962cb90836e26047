package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
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
