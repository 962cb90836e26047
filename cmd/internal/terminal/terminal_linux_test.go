package terminal

import (
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"rouse/cmd/internal/cmdtest"
)

// A terminal has its reported width and colors. NO_COLOR and TERM=dumb turn colors off.
func TestOfTerminal(t *testing.T) {
	ours, its := cmdtest.Terminal(t)
	defer ours.Close()
	defer its.Close()
	cmdtest.Resize(t, its, 24, 61)

	for environ, colours := range map[string]bool{"TERM=xterm-256color": true, "TERM=xterm NO_COLOR=1": false, "TERM=dumb": false} {
		if is := Of(its, strings.Fields(environ)); is.Width() != 61 || is.HasColours() != colours {
			t.Errorf("%s: %d columns, colours %v", environ, is.Width(), is.HasColours())
		}
	}
}

// A screen shows its lines, truncated to the terminal's width. A key ends it, and closing it
// restores the terminal.
func TestScreen(t *testing.T) {
	ours, its := cmdtest.Terminal(t)
	defer ours.Close()
	cmdtest.Resize(t, its, 3, 10)
	if _, err := OpenScreen(its, its, func(string) string { return "dumb" }); err == nil {
		t.Error("a dumb terminal is drawn on")
	}

	s, err := OpenScreen(its, its, func(string) string { return "xterm" })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Draw([]string{"one", "a line that is too long", "three", "four"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Draw([]string{"one", "a line that is too long", "three", "four"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte("xq")); err != nil {
		t.Fatal(err)
	}
	<-s.Quit()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// The other side was closed: reading a terminal without writers returns an error instead of
	// EOF.
	its.Close()
	shown, _ := io.ReadAll(ours)
	want := ansi.SetModeAltScreenSaveCursor + ansi.HideCursor + "\x1b[2J" + "\x1b[H" + "one\x1b[K\r\na line th…\x1b[K\r\nthree\x1b[K\x1b[J" + ansi.ShowCursor + ansi.ResetModeAltScreenSaveCursor
	if string(shown) != want {
		t.Errorf("%q\nwant\n%q", shown, want)
	}
}
