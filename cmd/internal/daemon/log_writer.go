package daemon

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// maxUnread is how much is kept of what nobody has read yet, in bytes; what is being written comes on top of it.
	maxUnread = 1 << 20
	// closeFor is how long Close waits for a reader.
	closeFor = 2 * time.Second
)

// LogWriter writes what a daemon says, to a reader that may stop reading: the pipe to it fills up, and whoever writes waits. That is a
// goroutine here, and nobody else. What does not fit into the buffer meanwhile is dropped, and its lines are counted: the reader is told
// as soon as it goes on. A panic that ends the process is printed by Go itself, and does not pass here.
type LogWriter struct {
	to   io.Writer
	wake chan struct{} // capacity 1
	over chan struct{} // closed when all was written after Close

	mu     sync.Mutex
	unread []byte
	lost   int            // lines since the last that fit
	tell   func(lost int) // writes to the reader that they are
	closed bool
}

// NewLogWriter starts the goroutine that writes to w, until Close.
func NewLogWriter(to io.Writer) *LogWriter {
	w := &LogWriter{to: to, wake: make(chan struct{}, 1), over: make(chan struct{})}
	w.tell = func(lost int) { fmt.Fprintln(to, "rouse:", lostText(lost)) }
	go w.run()
	return w
}

func lostText(lines int) string {
	if lines == 1 {
		return "1 line of the log was lost because nobody read it"
	}
	return fmt.Sprintf("%d lines of the log were lost because nobody read them", lines)
}

// tellBy has the reader told of lost lines in another form.
func (w *LogWriter) tellBy(tell func(lost int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = tell
}

// Write keeps a line, or drops it; it never waits for the reader, and never fails.
func (w *LogWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	// Once a line was lost, those behind it are too, so that the reader is told where.
	if w.closed || w.lost > 0 || len(w.unread)+len(line) > maxUnread {
		w.lost++
	} else {
		w.unread = append(w.unread, line...)
	}
	w.notify()
	return len(line), nil
}

// Close has the rest written, and waits for that until the reader has had two seconds for it.
func (w *LogWriter) Close() {
	w.mu.Lock()
	w.closed = true
	w.notify()
	w.mu.Unlock()

	select {
	case <-w.over:
	case <-time.After(closeFor):
	}
}

func (w *LogWriter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes all that there is at once, in the order in which it came.
func (w *LogWriter) run() {
	defer close(w.over)
	var spare []byte // what was written before, whose room is used again
	for {
		w.mu.Lock()
		unread, lost, tell, closed := w.unread, w.lost, w.tell, w.closed
		w.unread, w.lost = spare[:0], 0
		w.mu.Unlock()

		// Errors have nobody to be told: this is where they would be.
		if len(unread) > 0 {
			_, _ = w.to.Write(unread)
		}
		if lost > 0 {
			tell(lost)
		}
		spare = unread

		switch {
		case len(unread) > 0 || lost > 0:
		case closed:
			return
		default:
			<-w.wake
		}
	}
}
