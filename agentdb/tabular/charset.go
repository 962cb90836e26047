package tabular

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// The encodings that Decode reads beside UTF-8.
const (
	UTF16       = "UTF-16"
	Windows1252 = "Windows-1252" // Latin-1 is a part of it
)

// Decode returns the text of a file as UTF-8 without a byte order mark, and the name of
// its encoding, which is empty for UTF-8. Spreadsheets also save "Unicode text", which is
// UTF-16 with a byte order mark, and many banks write Windows-1252. If guess is set, a
// text that has no UTF-8 at all is read as Windows-1252. Decode returns a *SyntaxError for
// damaged UTF-8 and for a NUL character.
func Decode(data string, guess bool) (text, encoding string, err error) {
	switch {
	case strings.HasPrefix(data, "\xff\xfe"):
		encoding = UTF16
		text, err = fromUTF16(data[2:], binary.LittleEndian)
	case strings.HasPrefix(data, "\xfe\xff"):
		encoding = UTF16
		text, err = fromUTF16(data[2:], binary.BigEndian)
	default:
		text = strings.TrimPrefix(data, "\ufeff")
	}
	if err != nil {
		return "", "", err
	}
	// UTF-16 without a byte order mark looks like this.
	if at := strings.IndexByte(text, 0); at >= 0 {
		return "", "", &SyntaxError{lineOf(text, at), columnInLine(text, at, '\n'), "there is a NUL character, so this is no text in UTF-8; save the file as UTF-8 and import it again"}
	}
	if utf8.ValidString(text) {
		return text, encoding, nil
	}

	at := badUTF8(text)
	// A file with proper UTF-8 letters beside the bad byte is damaged UTF-8, and bytes that
	// Windows-1252 does not define rule that encoding out.
	if !guess || multibyte(text) || undefined(text) {
		return "", "", &SyntaxError{lineOf(text, at), columnInLine(text, at, '\n'), "the text is not UTF-8; save the file as UTF-8 and import it again"}
	}
	if text, err = charmap.Windows1252.NewDecoder().String(text); err != nil {
		return "", "", err
	}

	return text, Windows1252, nil
}

func fromUTF16(data string, order binary.ByteOrder) (string, error) {
	if len(data)%2 != 0 {
		return "", &SyntaxError{1, 0, "the file says it is UTF-16 but ends in the middle of a character; save it as UTF-8"}
	}

	units := make([]uint16, len(data)/2)
	for i := range units {
		units[i] = order.Uint16([]byte{data[2*i], data[2*i+1]})
	}
	return string(utf16.Decode(units)), nil
}

// badUTF8 is where the first byte is that is not UTF-8.
func badUTF8(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return len(s)
}

// multibyte says whether some letter of s is written as UTF-8 writes it.
func multibyte(s string) bool {
	for _, r := range s {
		if r >= utf8.RuneSelf && r != utf8.RuneError {
			return true
		}
	}
	return false
}

// undefined says whether s has bytes that Windows-1252 has no letter for.
func undefined(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case 0x81, 0x8d, 0x8f, 0x90, 0x9d:
			return true
		}
	}
	return false
}
