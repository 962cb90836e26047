package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

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
