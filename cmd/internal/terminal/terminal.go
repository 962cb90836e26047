package terminal

import (
	"cmp"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// Tone is the meaning of a color. A shape or word must carry the same meaning for readers without
// colors.
type Tone string

// The tones.
const (
	Plain  Tone = ""
	Good   Tone = "good"
	Grey   Tone = "grey"
	Amber  Tone = "amber"
	Bad    Tone = "bad"
	Accent Tone = "accent"
	Strong Tone = "strong" // headings
)

// styles maps tones to the terminal's sixteen standard colors, which users choose to be readable on
// their background.
var styles = map[Tone]ansi.Style{
	Good:   ansi.Style{}.ForegroundColor(ansi.Green),
	Grey:   ansi.Style{}.ForegroundColor(ansi.BrightBlack),
	Amber:  ansi.Style{}.ForegroundColor(ansi.Yellow),
	Bad:    ansi.Style{}.ForegroundColor(ansi.Red),
	Accent: ansi.Style{}.ForegroundColor(ansi.Cyan),
	Strong: ansi.Style{}.Bold(),
}

// defaultWidth is the width of a terminal that does not report one.
const defaultWidth = 80

// Terminal writes to a terminal or to a file.
type Terminal struct {
	w       io.Writer
	width   int // in columns; 0 if w is not a terminal, which means no limit
	colours bool
}

// Of returns a Terminal for a writer. environ is the environment of the process.
func Of(w io.Writer, environ []string) Terminal {
	t := Terminal{w: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return t
	}

	t.width, _, _ = term.GetSize(int(f.Fd()))
	t.width = cmp.Or(t.width, defaultWidth)
	kind := variable(environ, "TERM")
	t.colours = variable(environ, "NO_COLOR") == "" && kind != "dumb" && (kind != "" || runtime.GOOS == "windows")
	return t
}

// variable returns the value of an environment variable. If the name occurs more than once, the
// last value counts.
func variable(environ []string, name string) string {
	for _, v := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Fixed returns a terminal with the given properties, for callers that draw on their own.
func Fixed(w io.Writer, width int, colours bool) Terminal { return Terminal{w, width, colours} }

// Width returns the width in columns, or 0 if the output is not a terminal.
func (t Terminal) Width() int { return t.width }

// HasColours reports whether tones are shown as colors.
func (t Terminal) HasColours() bool { return t.colours }

// Paint colors a text with a tone, if the terminal has colors.
func (t Terminal) Paint(tone Tone, text string) string {
	style, known := styles[tone]
	if !t.colours || !known || text == "" {
		return text
	}
	return style.Styled(text)
}

// size returns the size of a terminal in columns and lines.
func size(f *os.File) (columns, lines int) {
	columns, lines, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		columns, _ = strconv.Atoi(os.Getenv("COLUMNS"))
		lines, _ = strconv.Atoi(os.Getenv("LINES"))
	}
	return cmp.Or(columns, defaultWidth), cmp.Or(lines, 24)
}
