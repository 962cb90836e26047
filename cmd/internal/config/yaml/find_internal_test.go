package yaml

import (
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// For any file, the home that is read ahead equals the home of the complete file.
func TestReadAheadIsWhatTheFileSays(t *testing.T) {
	lines := []string{
		"version: 1", "# home: ./comment", "", "  # more", "timezone: UTC", "---", "...", "home: ./a", "home: './b' # why", "home:", "  ./deeper", "home : ./spaced", "homes: x",
		`"home": ./quoted`, "'home': ./single", "? home", ": ./explicit", "&h home: ./anchored", "*h : ./alias", "x: &h home", "home: *h", "<<: {home: ./merged}", "<<: *m", "m: &m {home: ./later}",
		"jobs:", "- {name: a}", "  - {name: b}", "  - prompt: |", "      home: ./text", "x: |", "  home: ./block", "x: \"begun", "home: ./inside", "ended\"", "x: 'begun", "ended'",
		"x: {a: 1,", "x: [a,", "]", "}", "home: {", "home: [", "home: |", "home: \"begun", "home: !!int 5", "\thome: ./tab", "x: a\rhome: ./return", "x: a\u2028home: ./separator", "home: ./crlf\r", "\ufeffversion: 1",
	}

	rapid.Check(t, func(t *rapid.T) {
		text := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(lines), 1, 8).Draw(t, "lines"), "\n"))
		home := func(root *node) string {
			if root == nil || root.child("home") == nil {
				return ""
			}
			return root.child("home").String()
		}

		ahead := &node{kind: mapping}
		if n := newDecoder(os.Getenv).findHome("rouse.yaml", text); n != nil {
			ahead.entries = []entry{{key: "home", value: n}}
		}
		whole := newDecoder(os.Getenv).parse("rouse.yaml", text)
		if whole != nil && home(ahead) != home(whole) {
			t.Fatalf("%s read ahead, and %s is there", home(ahead), home(whole))
		}
	})
}

// The text after the home is not read.
func TestReadAheadStopsAtTheHome(t *testing.T) {
	n := newDecoder(os.Getenv).findHome("rouse.yaml", []byte("# mine\nversion: 1\nhome: ./h\njobs:\n  - {name: \"x"))
	if n == nil || n.text != "./h" {
		t.Error(n)
	}
}
