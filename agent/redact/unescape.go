package redact

import (
	"html"
	"sort"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reading describes the decoding of a text: the positions of its escapes and their values.
type reading []escape

// escape holds the offset of a decoded value, the offset of its escape, and their lengths, in
// bytes.
type escape struct {
	read, written       int
	readLen, writtenLen int32
}

// source converts an offset in the decoded text to an offset in the text. For an offset within an
// escape it returns the beginning of the escape, or its end if end is set.
func (r reading) source(at int, end bool) int {
	i := sort.Search(len(r), func(i int) bool { return r[i].read > at })
	if i == 0 {
		return at
	}

	e := r[i-1]
	inside := at - e.read
	switch {
	case inside >= int(e.readLen):
		return e.written + int(e.writtenLen) + inside - int(e.readLen)
	case inside == 0 || !end:
		return e.written
	}
	return e.written + int(e.writtenLen)
}

// escapes are the kinds of escapes by their first characters: of URLs, JSON and HTML.
const escapes = `%\&`

const whitespace = " \t\r\n"

// blanks is the kind for a line break or several blanks, which are decoded as one blank, because
// programs break lines.
const blanks = "\n"

// unescape decodes all escapes of a kind once. It returns false if there are none.
func unescape(text string, kind rune) (read string, r reading, changed bool) {
	var out strings.Builder
	done := 0
	for at := 0; ; {
		i := strings.IndexByte(text[at:], byte(kind))
		if kind == '\n' {
			i = strings.IndexAny(text[at:], whitespace)
		}
		if i < 0 {
			break
		}

		at += i
		means, n := escaped(text[at:])
		if n == 0 {
			at++
			continue
		}

		if r == nil {
			out.Grow(len(text))
		}
		out.WriteString(text[done:at])
		r = append(r, escape{out.Len(), at, int32(len(means)), int32(n)})
		out.WriteString(means)
		at += n
		done = at
	}
	if r == nil {
		return text, nil, false
	}

	out.WriteString(text[done:])
	return out.String(), r, true
}

// escaped returns the value of the escape at the beginning of a text, and its length. The length is
// 0 if there is no escape.
func escaped(text string) (means string, n int) {
	switch text[0] {
	case ' ', '\t', '\r', '\n':
		if n = len(text) - len(strings.TrimLeft(text, whitespace)); n == 1 && text[0] == ' ' {
			return "", 0
		}
		return " ", n
	case '%':
		if c, ok := hexadecimal(text[1:], 2); ok {
			return string([]byte{byte(c)}), 3
		}
	case '\\':
		return escapedInJSON(text)
	case '&':
		// The longest name of a character has 32 letters.
		end := strings.IndexByte(text[:min(len(text), 34)], ';')
		if end < 0 {
			return "", 0
		}
		if means = html.UnescapeString(text[:end+1]); means != text[:end+1] {
			return means, end + 1
		}
	}
	return "", 0
}

func escapedInJSON(text string) (means string, n int) {
	if len(text) < 2 {
		return "", 0
	}
	if i := strings.IndexByte(`"\/bfnrt`, text[1]); i >= 0 {
		return "\"\\/\b\f\n\r\t"[i : i+1], 2
	}

	first, ok := hexadecimal(text[2:], 4)
	if text[1] != 'u' || !ok {
		return "", 0
	}

	if utf16.IsSurrogate(first) && strings.HasPrefix(text[6:], `\u`) {
		if second, ok := hexadecimal(text[8:], 4); ok {
			if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
				return string(pair), 12
			}
		}
	}
	return string(first), 6
}

// hexadecimal parses a number of hexadecimal digits.
func hexadecimal(text string, digits int) (n rune, ok bool) {
	if len(text) < digits {
		return 0, false
	}

	for _, c := range []byte(text[:digits]) {
		switch {
		case '0' <= c && c <= '9':
			n = n<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}
