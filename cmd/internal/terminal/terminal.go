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

// Tone is what a colour stands for. Whoever sees no colours reads the shape or the word that it is given to.
type Tone string

// The tones.
const (
	Plain  Tone = ""
	Good   Tone = "good"
	Grey   Tone = "grey"
	Amber  Tone = "amber"
	Bad    Tone = "bad"
	Accent Tone = "accent"
	Strong Tone = "strong" // a heading
)

// styles are of the sixteen colours that a person has chosen for their terminal, so that light and dark ones are both readable.
var styles = map[Tone]ansi.Style{
	Good:   ansi.Style{}.ForegroundColor(ansi.Green),
	Grey:   ansi.Style{}.ForegroundColor(ansi.BrightBlack),
	Amber:  ansi.Style{}.ForegroundColor(ansi.Yellow),
	Bad:    ansi.Style{}.ForegroundColor(ansi.Red),
	Accent: ansi.Style{}.ForegroundColor(ansi.Cyan),
	Strong: ansi.Style{}.Bold(),
}

// defaultWidth is taken for a terminal that does not say how wide it is.
const defaultWidth = 80

// Terminal is where something is written, and what can be done there.
type Terminal struct {
	w       io.Writer
	width   int // columns; 0: it is no terminal, and lines are as long as they are
	colours bool
}

// Of says what can be done with a writer. environ is that of the process.
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

// variable returns the value of a variable of an environment, in which the last one of a name counts.
func variable(environ []string, name string) string {
	for _, v := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Fixed is a terminal of a width, for what draws on its own.
func Fixed(w io.Writer, width int, colours bool) Terminal { return Terminal{w, width, colours} }

// Width is in columns, 0 where there is no terminal.
func (t Terminal) Width() int { return t.width }

// HasColours reports whether tones are shown.
func (t Terminal) HasColours() bool { return t.colours }

// Paint gives a text its tone, where there are colours.
func (t Terminal) Paint(tone Tone, text string) string {
	style, known := styles[tone]
	if !t.colours || !known || text == "" {
		return text
	}
	return style.Styled(text)
}

// size is how large a terminal is, in columns and lines.
func size(f *os.File) (columns, lines int) {
	columns, lines, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		columns, _ = strconv.Atoi(os.Getenv("COLUMNS"))
		lines, _ = strconv.Atoi(os.Getenv("LINES"))
	}
	return cmp.Or(columns, defaultWidth), cmp.Or(lines, 24)
}
