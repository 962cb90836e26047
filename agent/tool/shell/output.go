package shell

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// slack is how much more than is shown is kept at a cut, in bytes: a secret that is cut in two
// is still known there, and blacked out.
const slack = 4 << 10

// Output keeps the beginning and the end of what a program writes, and lets it go on writing.
type Output struct {
	most  int    // characters that are shown
	head  []byte // the first bytes
	tail  []byte // a ring of the last bytes, after the first
	at    int    // where the ring goes on
	total int64  // bytes that were written
	flood func() // is told once that this is too much; nil: nothing is
}

// maxWritten is how many bytes a program may write to one of its outputs: to read on would only
// keep the daemon busy, and a program that floods is never idle.
const maxWritten = 64 << 20

// NewOutput shows at most so many characters: two fifths from the beginning, and the rest from
// the end (OSA-37).
func NewOutput(most int) *Output { return &Output{most: most} }

func (o *Output) headBytes() int { return o.headChars()*utf8.UTFMax + slack }
func (o *Output) headChars() int { return o.most * 2 / 5 }
func (o *Output) tailBytes() int { return (o.most-o.headChars())*utf8.UTFMax + slack }

// Write implements io.Writer and never fails.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	if o.total += int64(n); o.total > maxWritten && o.flood != nil {
		o.flood()
		o.flood = nil
	}
	if room := o.headBytes() - len(o.head); room > 0 {
		took := min(room, len(p))
		o.head, p = append(o.head, p[:took]...), p[took:]
	}
	limit := o.tailBytes()
	if len(p) > limit {
		p = p[len(p)-limit:]
	}
	for len(p) > 0 {
		if len(o.tail) < limit {
			took := min(limit-len(o.tail), len(p))
			o.tail, p = append(o.tail, p[:took]...), p[took:]
			continue
		}
		took := copy(o.tail[o.at:], p)
		o.at, p = (o.at+took)%limit, p[took:]
	}
	return n, nil
}

// Raw is what was written, as it was; false when some of it was left out.
func (o *Output) Raw() ([]byte, bool) {
	all := append(append(append([]byte(nil), o.head...), o.tail[o.at:]...), o.tail[:o.at]...)
	return all, o.total == int64(len(all))
}

// Text is what is shown: valid text without what would move a cursor, redacted, and a line
// about what was left out.
func (o *Output) Text(redact func(string) string) string {
	all, whole := o.Raw()
	if whole {
		return o.cut(redact(Clean(string(all))))
	}
	head, tail := redact(Clean(string(all[:len(o.head)]))), redact(Clean(string(all[len(o.head):])))
	head, tail = first(head, o.headChars()), final(tail, o.most-o.headChars())
	return head + omitted(o.total-int64(len(head)+len(tail)), "bytes") + tail
}

// cut shows the ends of a text that is there as a whole.
func (o *Output) cut(text string) string {
	n := utf8.RuneCountInString(text)
	if n <= o.most {
		return text
	}
	return first(text, o.headChars()) + omitted(int64(n-o.most), "characters") + final(text, o.most-o.headChars())
}

func omitted(n int64, of string) string { return fmt.Sprintf("\n[… %d %s left out …]\n", n, of) }

// first are so many characters from the beginning.
func first(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// final are so many characters from the end.
func final(text string, n int) string {
	at := len(text)
	for ; n > 0 && at > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(text[:at])
		at -= size
	}
	return text[at:]
}

// escapes are the sequences that a terminal would obey: colours, titles, the place of a cursor.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[PX^_][^\x1b]*\x1b\\\\|[ -/]*[0-~])")

// Clean makes valid text of what a program wrote: without escape sequences, and with other
// control characters, and those that change the direction of a text, written out.
func Clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = escapes.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n") // a line that was written over
	return Visible(text)
}

// Visible writes out what could hide a part of a text from who reads it.
func Visible(text string) string {
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
	}
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case !hidden(r):
			out.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r > 0xFFFF:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
