package terminal

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// ErrNoScreen is returned if standard output is not a terminal that supports a screen.
var ErrNoScreen = errors.New("standard output is no terminal that can be drawn on")

// ctrlC is the byte a terminal in raw mode sends for Ctrl-C instead of a signal.
const ctrlC = 0x03

// Screen is a full-screen view that is redrawn until it is closed. Closing it restores the previous
// contents.
type Screen struct {
	in, out *os.File
	before  *term.State // state of the keyboard; nil if in is not a terminal
	quit    chan struct{}
	resized chan struct{}
	unwatch func()
	last    []string
}

// OpenScreen takes over a terminal. It reads keys from in if that is a terminal too.
func OpenScreen(in, out *os.File, getenv func(string) string) (*Screen, error) {
	if !term.IsTerminal(int(out.Fd())) || getenv("TERM") == "dumb" {
		return nil, ErrNoScreen
	}

	s := &Screen{in: in, out: out, quit: make(chan struct{}), resized: make(chan struct{}, 1)}
	if term.IsTerminal(int(in.Fd())) {
		before, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return nil, err
		}
		s.before = before
		go s.readKeys()
	}

	s.unwatch = watchSize(func() {
		select {
		case s.resized <- struct{}{}:
		default: // a redraw is already pending
		}
	})

	if _, err := io.WriteString(out, ansi.SetModeAltScreenSaveCursor+ansi.HideCursor+ansi.EraseEntireScreen); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// readKeys reads keys until a quit key or an error. Its last read may block until the process ends.
func (s *Screen) readKeys() {
	key := make([]byte, 64)
	for {
		n, err := s.in.Read(key)
		if err != nil || slices.ContainsFunc(key[:n], func(b byte) bool { return b == 'q' || b == 'Q' || b == ctrlC }) {
			close(s.quit)
			return
		}
	}
}

// Quit returns a channel that is closed when the user quits (q or Ctrl-C) or the terminal is gone.
func (s *Screen) Quit() <-chan struct{} { return s.quit }

// Resized returns a channel that receives a value when the terminal is resized.
func (s *Screen) Resized() <-chan struct{} { return s.resized }

// Size returns the size in columns and lines.
func (s *Screen) Size() (columns, lines int) { return size(s.out) }

// Draw shows lines from the top and cuts whatever does not fit. A wrapped line would move the lines
// below it.
func (s *Screen) Draw(lines []string) error {
	columns, most := s.Size()
	if len(lines) > most {
		lines = lines[:most]
	}
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], columns, "…")
	}
	if slices.Equal(lines, s.last) {
		return nil
	}
	s.last = slices.Clone(lines)

	// Write the frame at once and overwrite each line, to avoid flickering.
	var frame strings.Builder
	frame.WriteString(ansi.CursorHomePosition)
	for i, line := range lines {
		if i > 0 {
			frame.WriteString("\r\n") // raw mode does not add \r
		}
		frame.WriteString(line + ansi.EraseLineRight)
	}
	frame.WriteString(ansi.EraseScreenBelow)
	_, err := io.WriteString(s.out, frame.String())
	return err
}

// Forget makes the next Draw write everything. Call it after a resize, which can clear the
// terminal.
func (s *Screen) Forget() { s.last = nil }

// Close restores the terminal.
func (s *Screen) Close() error {
	s.unwatch()
	_, err := io.WriteString(s.out, ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor)
	if s.before != nil {
		err = errors.Join(err, term.Restore(int(s.in.Fd()), s.before))
	}
	return err
}
