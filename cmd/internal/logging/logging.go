// Package logging makes the logger of a process: the settings of the configuration, which a reload changes; secrets are
// redacted; and a reader that stops reading does not stop the process.
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
	hide  atomic.Pointer[redact.Redactor] // of all secrets that were configured since the start
}

// Zone returns the time zone of the timestamps.
func (v *Var) Zone() *time.Location { return v.zone.Load() }

// Set applies the settings of a configuration, and redacts its secrets from now on.
func (v *Var) Set(cfg *config.Config) {
	v.level.Set(logLevel(cfg.Log))
	v.zone.Store(cfg.Zone())
	v.hide.CompareAndSwap(nil, redact.New(nil))
	for _, secret := range cfg.Secrets.Values {
		v.hide.Load().Add(secret)
	}
}

// New returns a logger that writes text to a terminal, else JSON, unless log.format is set.
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

// newLogger writes to w in the form that suits its reader.
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
		return slog.LevelInfo // the configuration was checked; an empty one has no level
	}
	return level
}

// Quiet is the logger of commands: errors only.
func Quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

const (
	// maxUnread is how much is kept of what nobody has read yet, in bytes; what is being written comes on top of it.
	maxUnread = 1 << 20
	// closeFor is how long Close waits for a reader.
	closeFor = 2 * time.Second
)

// Writer writes lines to a reader that may stop reading, such as a full pipe. Only its own goroutine waits for the reader.
// Lines that do not fit into the buffer are dropped and counted; the reader gets their number when it reads again.
type Writer struct {
	to   io.Writer
	wake chan struct{} // capacity 1
	over chan struct{} // closed when all was written after Close

	mu     sync.Mutex
	unread []byte
	lost   int            // lines since the last that fit
	tell   func(lost int) // writes their number to the reader
	closed bool
}

// NewWriter starts the goroutine that writes to w, until Close.
func NewWriter(to io.Writer) *Writer {
	w := &Writer{to: to, wake: make(chan struct{}, 1), over: make(chan struct{})}
	w.tell = func(lost int) { fmt.Fprintln(to, "rouse:", lostText(lost)) }
	go w.run()
	return w
}

func lostText(lines int) string {
	return fmt.Sprintf("lost %s of the log, because the reader did not read", text.Plural(lines, "line"))
}

// tellBy replaces the function that reports lost lines.
func (w *Writer) tellBy(tell func(lost int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = tell
}

// wakeUp has the goroutine look at the buffer.
func (w *Writer) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is about to look
	}
}

// Write keeps a line, or drops it; it never waits for the reader, and never fails.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	// Once a line was lost, those behind it are too, so that the reader is told where.
	if w.closed || w.lost > 0 || len(w.unread)+len(line) > maxUnread {
		w.lost++
	} else {
		w.unread = append(w.unread, line...)
	}
	w.wakeUp()
	return len(line), nil
}

// Close has the rest written, and waits for that until the reader has had two seconds for it.
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

// run writes the buffer as a whole, in the order of its lines. Write errors have no place to be reported.
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
