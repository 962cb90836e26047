package agentdb

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decode gives a file's text as UTF-8 without a byte order mark. Spreadsheets also save
// "Unicode text", which is UTF-16 with one.
func decode(data []byte) (string, error) {
	switch {
	case len(data) >= 2 && data[0] == 0xff && data[1] == 0xfe:
		return fromUTF16(data[2:], binary.LittleEndian)
	case len(data) >= 2 && data[0] == 0xfe && data[1] == 0xff:
		return fromUTF16(data[2:], binary.BigEndian)
	}
	s := strings.TrimPrefix(string(data), "\ufeff")
	if !utf8.ValidString(s) {
		return "", badText(s)
	}
	return s, nil
}

func fromUTF16(data []byte, order binary.ByteOrder) (string, error) {
	if len(data)%2 != 0 {
		return "", &lineError{1, "the file says it is UTF-16 but ends in the middle of a character; save it as UTF-8"}
	}
	units := make([]uint16, len(data)/2)
	for i := range units {
		units[i] = order.Uint16(data[2*i:])
	}
	return string(utf16.Decode(units)), nil
}

// badText names the first line that is not UTF-8.
func badText(s string) error {
	line := 1
	for i, r := range s {
		if r == '\n' {
			line++
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return &lineError{line, "the text is not UTF-8; save the file as UTF-8 and import it again"}
			}
		}
	}
	return nil
}
