package wire

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func read(reader func(*bufio.Reader, func(Frame) error) error, stream string) (out []string, err error) {
	err = reader(bufio.NewReader(strings.NewReader(stream)), func(f Frame) error {
		out = append(out, f.Event+"|"+string(f.Data))
		return nil
	})
	return out, err
}

func TestReadEvents(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct {
		stream string
		want   []string
	}{
		"plain":              {"data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		"named":              {"event: ping\ndata: {}\n\ndata: b\n\n", []string{"ping|{}", "|b"}},
		"CRLF, no space":     {"event:x\r\ndata:a\r\n\r\n", []string{"x|a"}},
		"several lines":      {"data: a\ndata: b\n\n", []string{"|a\nb"}},
		"comments":           {": wait\n\n: wait\ndata: a\n\n", []string{"|a"}},
		"other fields":       {"id: 7\nretry: 1\ndata: a\nfoo\n\n", []string{"|a"}},
		"no data":            {"event: x\n\ndata: a\n\ndata:\n\n", []string{"|a"}},
		"a long line":        {"data: " + long + "\n\ndata: b\n\n", []string{"|" + long, "|b"}},
		"cut before its end": {"data: a\n\ndata: b\n", []string{"|a"}},
		"cut in a line":      {"data: a\n\ndata: b", []string{"|a"}},
		"nothing":            {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := read(readEvents, c.stream); !slices.Equal(got, c.want) || !errors.Is(err, io.EOF) {
				t.Errorf("%.200q (%v), want %.200q", got, err, c.want)
			}
		})
	}
}

func TestReadLines(t *testing.T) {
	for stream, want := range map[string][]string{
		"{}\n{\"a\":1}\n":       {"|{}", `|{"a":1}`},
		"{}\r\n\r\n  \n[1]\r\n": {"|{}", "|[1]"},
		"{}\n{\"a\":":           {"|{}", `|{"a":`}, // not valid JSON, but decoded
		"":                      nil,
	} {
		if got, err := read(readLines, stream); !slices.Equal(got, want) || !errors.Is(err, io.EOF) {
			t.Errorf("%q: %q (%v), want %q", stream, got, err, want)
		}
	}
}
