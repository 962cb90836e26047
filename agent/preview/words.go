package preview

import (
	"strings"

	"github.com/ledongthuc/pdf"
)

// Limits of one page.
const (
	maxOperators = 500_000
	maxForms     = 8 // nesting of forms
)

// matrix is a transformation of coordinates: [a b c d e f] of the PDF standard.
type matrix [6]float64

var identity = matrix{1, 0, 0, 1, 0, 0}

// times returns the transformation m followed by n.
func (m matrix) times(n matrix) matrix {
	return matrix{
		m[0]*n[0] + m[1]*n[2], m[0]*n[1] + m[1]*n[3],
		m[2]*n[0] + m[3]*n[2], m[2]*n[1] + m[3]*n[3],
		m[4]*n[0] + m[5]*n[2] + n[4], m[4]*n[1] + m[5]*n[3] + n[5],
	}
}

// state holds the values set by a page's text operators.
type state struct {
	font                               *font
	size, leading, letter, word, scale float64
	place, line, page                  matrix // transformations of the next letter, of the beginning of its line, and of the page
}

// piece is a text drawn by one operation, in units of the page.
type piece struct {
	text              string
	x, y, width, size float64
}

// words reads the texts of a page, as far as they can be decoded.
type words struct {
	state
	saved  []state
	fonts  map[string]*font // by their names in the page or form
	pieces []piece
	done   int // number of operators
}

// read interprets the operators of a page or a form. It returns false if it could not process all
// of them.
func (w *words) read(content, resources pdf.Value, depth int) (ok bool) {
	defer func() {
		if recover() != nil { // the parser panics if a file is damaged
			ok = false
		}
	}()
	if k := content.Kind(); k != pdf.Stream && k != pdf.Array {
		return k == pdf.Null
	}

	ok = true
	pdf.Interpret(content, func(stack *pdf.Stack, op string) {
		args := make([]pdf.Value, stack.Len())
		for i := len(args) - 1; i >= 0; i-- {
			args[i] = stack.Pop()
		}

		if w.done++; w.done > maxOperators {
			ok = false
			return
		}

		if op == "Do" && len(args) == 1 && depth < maxForms {
			ok = w.form(resources.Key("XObject").Key(args[0].Name()), resources, depth) && ok
			return
		}

		w.operate(op, args, resources)
	})

	return ok
}

// form reads a form, a reusable part of a page such as a stamp.
func (w *words) form(x, resources pdf.Value, depth int) bool {
	if x.Key("Subtype").Name() != "Form" {
		return true // a picture
	}

	before, saved, fonts := w.state, w.saved, w.fonts
	if m, ok := matrixOf(x.Key("Matrix")); ok {
		w.page = m.times(w.page)
	}

	if own := x.Key("Resources"); own.Kind() == pdf.Dict {
		resources, w.fonts = own, map[string]*font{}
	}

	ok := w.read(x, resources, depth+1)
	w.state, w.saved, w.fonts = before, saved, fonts
	return ok
}

func matrixOf(v pdf.Value) (m matrix, ok bool) {
	if v.Len() != len(m) {
		return m, false
	}
	for i := range m {
		m[i] = v.Index(i).Float64()
	}
	return m, true
}

// operate executes one operator (PDF 32000-1, 9.3 and 9.4). It ignores operators that do not draw
// text.
func (w *words) operate(op string, args []pdf.Value, resources pdf.Value) {
	number := func(i int) float64 {
		if i < len(args) {
			return args[i].Float64()
		}
		return 0
	}

	six := func() matrix { return matrix{number(0), number(1), number(2), number(3), number(4), number(5)} }
	switch op {
	case "q":
		w.saved = append(w.saved, w.state)
	case "Q":
		if n := len(w.saved); n > 0 {
			w.state, w.saved = w.saved[n-1], w.saved[:n-1]
		}
	case "cm":
		w.page = six().times(w.page)
	case "BT":
		w.place, w.line = identity, identity
	case "Tm":
		w.line = six()
		w.place = w.line
	case "Td":
		w.move(number(0), number(1))
	case "TD":
		w.leading = -number(1)
		w.move(number(0), number(1))
	case "T*":
		w.move(0, -w.leading)
	case "TL":
		w.leading = number(0)
	case "Tc":
		w.letter = number(0)
	case "Tw":
		w.word = number(0)
	case "Tz":
		w.scale = number(0) / 100
	case "Tf":
		if len(args) == 2 {
			w.font, w.size = w.fontOf(args[0].Name(), resources), number(1)
		}
	case "Tj", "'", `"`:
		if op != "Tj" {
			w.move(0, -w.leading)
		}

		if op == `"` {
			w.word, w.letter = number(0), number(1)
		}

		if len(args) > 0 {
			w.show(args[len(args)-1].RawString())
		}
	case "TJ":
		if len(args) == 0 {
			return
		}
		for i := range args[0].Len() {
			if one := args[0].Index(i); one.Kind() == pdf.String {
				w.show(one.RawString())
			} else {
				w.place = matrix{1, 0, 0, 1, -one.Float64() / 1000 * w.size * w.scale, 0}.times(w.place)
			}
		}
	}
}

func (w *words) move(x, y float64) {
	w.line = matrix{1, 0, 0, 1, x, y}.times(w.line)
	w.place = w.line
}

// show draws a text.
func (w *words) show(raw string) {
	if w.font == nil {
		return
	}

	width, letters, spaces := w.font.width(raw)
	along := (width/1000*w.size + float64(letters)*w.letter + float64(spaces)*w.word) * w.scale
	at := w.place.times(w.page)
	w.place = matrix{1, 0, 0, 1, along, 0}.times(w.place)
	if text := strings.Map(printable, w.font.decode(raw)); text != "" {
		after := w.place.times(w.page)
		size := w.size * max(abs(at[3]), abs(at[2]))
		w.pieces = append(w.pieces, piece{text, at[4], at[5], after[4] - at[4], max(abs(size), 1)})
	}
}

// text joins the pieces. A PDF contains the position of each piece, but not which pieces belong
// together. A large vertical step starts a new line, a gap becomes a space, and a wide gap a tab.
// Pieces are joined in drawing order, which is the reading order in most files.
func (w *words) text() string {
	var out strings.Builder
	var last piece
	for i, p := range w.pieces {
		em, down, gap := max(p.size, last.size), abs(p.y-last.y), p.x-last.x-last.width
		switch {
		case i == 0:
		case down > 2.2*em:
			out.WriteString("\n\n")
		case down > em/2 || gap < -2*em:
			out.WriteString("\n")
		case gap > 2*em:
			out.WriteString("\t")
		case gap > 0.18*em && !strings.HasSuffix(last.text, " ") && !strings.HasPrefix(p.text, " "):
			out.WriteString(" ")
		}

		out.WriteString(p.text)
		last = p
	}

	return tidy(out.String())
}

// tidy removes spaces at the ends of lines, and merges consecutive empty lines.
func tidy(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t")
		if line != "" || len(out) > 0 && out[len(out)-1] != "" {
			out = append(out, line)
		}
	}

	return strings.TrimSpace(strings.Join(out, "\n"))
}
