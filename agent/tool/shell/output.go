package shell

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"rouse/internal/text"
)

// slack is the number of bytes beyond a cut in which a secret across it is recognized.
const slack = 4 << 10

// Output keeps the beginning and the end of what a program writes, and never blocks it.
type Output struct {
	maxChars int    // characters to show
	head     []byte // the first bytes
	tail     []byte // a ring buffer of the last bytes after head
	next     int    // where the next byte goes in the ring
	total    int64  // bytes that were written
	breaks   int64  // line breaks among them
	open     bool   // the last line has no end yet
	onFlood  func() // called once when it is too much; may be nil
	// Tee is given everything as it comes, by one goroutine; nil: nobody is.
	Tee io.Writer
}

// maxWritten is the number of bytes that a program may write to one output.
const maxWritten = 64 << 20

// NewOutput shows at most so many characters: two fifths from the beginning, the rest from the end
// (OSA-37).
func NewOutput(maxChars int) *Output { return &Output{maxChars: maxChars} }

func (o *Output) headBytes() int { return o.headChars()*utf8.UTFMax + slack }
func (o *Output) headChars() int { return o.maxChars * 2 / 5 }
func (o *Output) tailBytes() int { return (o.maxChars-o.headChars())*utf8.UTFMax + slack }

// Write implements io.Writer and never fails.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	if o.Tee != nil {
		_, _ = o.Tee.Write(p) // who reads along says by itself what it could not use
	}
	if o.total += int64(n); o.total > maxWritten && o.onFlood != nil {
		o.onFlood()
		o.onFlood = nil
	}

	if n > 0 {
		o.breaks += int64(bytes.Count(p, []byte("\n")))
		o.open = p[n-1] != '\n'
	}

	if room := o.headBytes() - len(o.head); room > 0 {
		took := min(room, len(p))
		o.head, p = append(o.head, p[:took]...), p[took:]
	}

	// Of one large write, only the end can survive in the ring.
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
		took := copy(o.tail[o.next:], p)
		o.next, p = (o.next+took)%limit, p[took:]
	}

	return n, nil
}

// Lines is how many lines were written.
func (o *Output) Lines() int64 {
	if o.open {
		return o.breaks + 1
	}
	return o.breaks
}

// Raw is what was written, unchanged; false when some of it was left out.
func (o *Output) Raw() ([]byte, bool) {
	all := append(append(append([]byte(nil), o.head...), o.tail[o.next:]...), o.tail[:o.next]...)
	return all, o.total == int64(len(all))
}

// Text returns the output to show: valid text without terminal control sequences, redacted, with a
// line about what was left out.
func (o *Output) Text(redact func(string) string) string {
	all, whole := o.Raw()
	if whole {
		return o.cut(redact(text.Clean(string(all))))
	}
	clean := func(said string) string { return redact(text.Clean(said)) }
	head, tail := text.RedactedHead(string(all[:len(o.head)]), slack, clean), text.RedactedTail(string(all[len(o.head):]), slack, clean)
	head, tail = text.Head(head, o.headChars()), text.Tail(tail, o.maxChars-o.headChars())
	return head + omitted(o.total-int64(len(head)+len(tail)), "bytes") + tail
}

// cut shortens a text that was kept as a whole.
func (o *Output) cut(all string) string {
	n := utf8.RuneCountInString(all)
	if n <= o.maxChars {
		return all
	}
	return text.Head(all, o.headChars()) + omitted(int64(n-o.maxChars), "characters") + text.Tail(all, o.maxChars-o.headChars())
}

func omitted(n int64, of string) string { return fmt.Sprintf("\n[… %d %s left out …]\n", n, of) }
