package tabular

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// Encodings other than UTF-8 that Decode supports.
const (
	UTF16       = "UTF-16"
	Windows1252 = "Windows-1252" // a superset of Latin-1
)

// Decode returns the text of a file as UTF-8 without a byte order mark. It also returns the name of
// the encoding, or "" for UTF-8.
//
// UTF-16 needs a byte order mark, as in the "Unicode text" format of spreadsheets. If guess is
// true, a text without any valid UTF-8 sequence is decoded as Windows-1252, which many banks write.
// Decode returns a *SyntaxError for invalid UTF-8 and for NUL characters.
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
	// UTF-16 without a byte order mark has NUL characters.
	if at := strings.IndexByte(text, 0); at >= 0 {
		return "", "", &SyntaxError{lineOf(text, at), columnInLine(text, at, '\n'), "there is a NUL character, so this is no text in UTF-8; save the file as UTF-8 and import it again"}
	}
	if utf8.ValidString(text) {
		return text, encoding, nil
	}

	at := badUTF8(text)
	// A text with valid UTF-8 letters next to the invalid byte is damaged UTF-8. Bytes that
	// Windows-1252 does not define exclude that encoding.
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

// badUTF8 returns the offset of the first invalid UTF-8 byte.
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

// multibyte reports whether s contains a valid multi-byte UTF-8 sequence.
func multibyte(s string) bool {
	for _, r := range s {
		if r >= utf8.RuneSelf && r != utf8.RuneError {
			return true
		}
	}
	return false
}

// undefined reports whether s contains bytes that Windows-1252 does not define.
func undefined(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case 0x81, 0x8d, 0x8f, 0x90, 0x9d:
			return true
		}
	}
	return false
}
