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

// ErrNoScreen says that there is no terminal on which a screen can be drawn.
var ErrNoScreen = errors.New("standard output is no terminal that can be drawn on")

// ctrlC is what a terminal in raw mode sends for it, in place of a signal.
const ctrlC = 0x03

// Screen is a terminal that is drawn as a whole, again and again, until it is closed. What was on it before is there again then.
type Screen struct {
	in, out *os.File
	before  *term.State // of the keyboard; nil: it is none
	quit    chan struct{}
	resized chan struct{}
	unwatch func()
	last    []string
}

// OpenScreen takes a terminal over. Keys are read from in where that is a terminal, too.
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
		default: // it will be drawn once for both
		}
	})

	if _, err := io.WriteString(out, ansi.SetModeAltScreenSaveCursor+ansi.HideCursor+ansi.EraseEntireScreen); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// readKeys ends with the process, for nothing ends a read of a terminal before.
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

// Quit is closed when its user has had enough: q, Ctrl-C, or a terminal that is gone.
func (s *Screen) Quit() <-chan struct{} { return s.quit }

// Resized says that the terminal has another size.
func (s *Screen) Resized() <-chan struct{} { return s.resized }

// Size is in columns and lines.
func (s *Screen) Size() (columns, lines int) { return size(s.out) }

// Draw shows lines from the top. What does not fit is cut: a line that wraps would move all below it.
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

	// In one write, each line over the one before, so that nothing flickers.
	var frame strings.Builder
	frame.WriteString(ansi.CursorHomePosition)
	for i, line := range lines {
		if i > 0 {
			frame.WriteString("\r\n") // the terminal adds no \r in raw mode
		}
		frame.WriteString(line + ansi.EraseLineRight)
	}
	frame.WriteString(ansi.EraseScreenBelow)
	_, err := io.WriteString(s.out, frame.String())
	return err
}

// Forget has the next Draw write everything, for a terminal that has another size has forgotten it.
func (s *Screen) Forget() { s.last = nil }

// Close gives the terminal back as it was.
func (s *Screen) Close() error {
	s.unwatch()
	_, err := io.WriteString(s.out, ansi.ShowCursor+ansi.ResetModeAltScreenSaveCursor)
	if s.before != nil {
		err = errors.Join(err, term.Restore(int(s.in.Fd()), s.before))
	}
	return err
}
