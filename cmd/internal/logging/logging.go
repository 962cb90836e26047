// Package logging creates the logger of a process. A reload can change its settings, secrets are
// redacted, and a blocked reader does not block the process.
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agent/redact"
	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

// Var holds the settings of a logger that a reload can change.
type Var struct {
	level slog.LevelVar
	zone  atomic.Pointer[time.Location]
	hide  atomic.Pointer[redact.Redactor] // redacts all secrets configured since the start
}

// Zone returns the time zone of the timestamps.
func (v *Var) Zone() *time.Location { return v.zone.Load() }

// Set applies the settings of a configuration and adds its secrets to the redacted ones.
func (v *Var) Set(cfg *config.Config) {
	v.level.Set(logLevel(cfg.Log))
	v.zone.Store(cfg.Zone())
	v.hide.CompareAndSwap(nil, redact.New(nil))
	for _, secret := range cfg.Secrets.Values {
		v.hide.Load().Add(secret)
	}
}

// New returns a logger. Unless log.format is set, it writes text to a terminal and JSON otherwise.
func New(cfg *config.Config, v *Var, w io.Writer) *slog.Logger {
	v.Set(cfg)
	behind, ok := w.(*Writer)
	if !ok {
		return newLogger(cfg.Log, v, w, w)
	}

	reader := newLogger(cfg.Log, v, behind.to, behind.to)
	behind.tellBy(func(lost int) { reader.Error(lostText(lost), "lines", lost) })
	return newLogger(cfg.Log, v, w, behind.to)
}

// newLogger returns a logger that writes to w. The default format depends on whether reader is a
// terminal.
func newLogger(c config.Log, v *Var, w, reader io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: &v.level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 && a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().In(v.zone.Load()))
		}
		return v.redact(a)
	}}
	if c.Format == "json" || (c.Format != "text" && !text.IsTerminal(reader)) {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// redact returns an attribute without secrets.
func (v *Var) redact(a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		text = fmt.Sprint(a.Value.Any())
	default:
		return a
	}
	if clean := v.hide.Load().Replace(text); clean != text {
		a.Value = slog.StringValue(clean)
	}
	return a
}

func logLevel(c config.Log) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return slog.LevelInfo // the level was checked, but may be empty
	}
	return level
}

// Quiet returns the logger of commands, which logs only errors.
func Quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

const (
	// maxUnread is the size of the buffer, in bytes. The lines being written do not count.
	maxUnread = 1 << 20
	// closeFor is how long Close waits for the reader.
	closeFor = 2 * time.Second
)

// Writer writes lines to a reader that may block, such as a full pipe. Only its own goroutine waits
// for the reader. Lines that do not fit into the buffer are dropped and counted. Their number is
// written when the reader continues.
type Writer struct {
	to   io.Writer
	wake chan struct{} // capacity 1
	over chan struct{} // closed after Close, when all lines are written

	mu     sync.Mutex
	unread []byte
	lost   int            // number of dropped lines since the last report
	tell   func(lost int) // writes the number of dropped lines to the reader
	closed bool
}

// NewWriter returns a Writer and starts its goroutine. The caller must close it.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: to, wake: make(chan struct{}, 1), over: make(chan struct{})}
	w.tell = func(lost int) { fmt.Fprintln(to, "rouse:", lostText(lost)) }
	go w.run()
	return w
}

func lostText(lines int) string {
	return fmt.Sprintf("lost %s of the log, because the reader did not read", text.Plural(lines, "line"))
}

// tellBy replaces the function that reports dropped lines.
func (w *Writer) tellBy(tell func(lost int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = tell
}

// wakeUp makes the goroutine check the buffer.
func (w *Writer) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // already pending
	}
}

// Write buffers or drops a line. It does not block and does not return an error.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	// After a dropped line, drop the following lines, too. The report then appears at the right
	// place.
	if w.closed || w.lost > 0 || len(w.unread)+len(line) > maxUnread {
		w.lost++
	} else {
		w.unread = append(w.unread, line...)
	}
	w.wakeUp()
	return len(line), nil
}

// Close writes the remaining lines and waits for the reader for at most closeFor.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	w.wakeUp()
	w.mu.Unlock()

	select {
	case <-w.over:
	case <-time.After(closeFor):
	}
}

// run writes the buffered lines in order. It ignores write errors, because there is no place to
// report them.
func (w *Writer) run() {
	defer close(w.over)
	for {
		w.mu.Lock()
		unread, lost, tell, closed := w.unread, w.lost, w.tell, w.closed
		w.unread, w.lost = nil, 0
		w.mu.Unlock()

		if len(unread) > 0 {
			_, _ = w.to.Write(unread)
		}
		if lost > 0 {
			tell(lost)
		}
		switch {
		case len(unread) > 0 || lost > 0:
		case closed:
			return
		default:
			<-w.wake
		}
	}
}
