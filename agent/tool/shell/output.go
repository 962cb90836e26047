package shell

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"rouse/internal/text"
)

// slack is the number of bytes beyond a cut that are kept to recognize a secret across the cut.
const slack = 4 << 10

// Output keeps the beginning and the end of what a program writes, and never blocks it.
type Output struct {
	maxChars int    // characters to show
	head     []byte // first bytes
	tail     []byte // ring buffer of the last bytes after head
	next     int    // position of the next byte in the ring
	total    int64  // bytes written
	breaks   int64  // line breaks written
	open     bool   // the last line has no line break yet
	onFlood  func() // called once if there is too much output; optional
	// Tee receives all output as it arrives, from one goroutine. Optional.
	Tee io.Writer
}

// maxWritten limits the bytes that a program may write to one output.
const maxWritten = 64 << 20

// NewOutput returns an Output that shows at most maxChars characters: two fifths from the beginning
// and the rest from the end.
func NewOutput(maxChars int) *Output { return &Output{maxChars: maxChars} }

func (o *Output) headBytes() int { return o.headChars()*utf8.UTFMax + slack }
func (o *Output) headChars() int { return o.maxChars * 2 / 5 }
func (o *Output) tailBytes() int { return (o.maxChars-o.headChars())*utf8.UTFMax + slack }

// Write implements io.Writer and never fails.
func (o *Output) Write(p []byte) (int, error) {
	n := len(p)
	if o.Tee != nil {
		_, _ = o.Tee.Write(p) // Tee reports its own errors
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

	// Only the end of a large write fits into the ring.
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

// Lines returns the number of lines written.
func (o *Output) Lines() int64 {
	if o.open {
		return o.breaks + 1
	}
	return o.breaks
}

// Raw returns the output unchanged. It returns false if a part of it was dropped.
func (o *Output) Raw() ([]byte, bool) {
	all := append(append(append([]byte(nil), o.head...), o.tail[o.next:]...), o.tail[:o.next]...)
	return all, o.total == int64(len(all))
}

// Text returns the output to show: redacted valid text without terminal control sequences. A line
// marks the part that was left out.
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
