package file

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzEdit checks that a successful edit replaces only the given text, and that a failed edit
// returns a reason.
func FuzzEdit(f *testing.F) {
	for _, s := range [][3]string{
		{"one\ntwo\n", "one", "1"}, {"one\r\ntwo\r\n", "one\ntwo", "1"}, {"a\n\nb", "a\nb", ""}, {"  x\n", "     1|  x\n", "y"}, {"aaa", "aa", "b"}, {"", "x", ""}, {"\xff\n", " ", "z"}, {"x\ny", "   1 | x\n   2 | z", ""},
	} {
		f.Add(s[0], s[1], s[2], false)
		f.Add(s[0], s[1], s[2], true)
	}
	f.Fuzz(func(t *testing.T, text, old, with string, all bool) {
		if old == "" {
			return
		}

		out, n, wrong := edit{old, with, all}.in(text, func(s string) string { return s })
		switch {
		case wrong != "":
			if strings.Count(text, old) == 1 || out != "" || n != 0 {
				t.Errorf("%q in %q: %s", old, text, wrong)
			}
		case !strings.Contains(text, "\r\n") && out != strings.ReplaceAll(text, old, with), n < 1 || n > 1 && !all:
			t.Errorf("%q in %q gave %q, %d times", old, text, out, n)
		}

		if d := diff("a", text, out); utf8.RuneCountInString(d) > maxDiffChars || strings.Count(d, "\n") > maxDiffLines+1 {
			t.Errorf("the difference has %d bytes", len(d))
		}
	})
}

// FuzzFind checks that the matching lines are those that contain the text.
func FuzzFind(f *testing.F) {
	for _, s := range [][2]string{{"one\nTwo\n", "TWO"}, {"\u017fun\nsun", "sun"}, {"x\r\nx", "x"}, {"a.b\nacb", "a.b"}, {"\xff", "\xff"}, {"20 \u212a", "k"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, text, pattern string) {
		if pattern == "" || strings.ContainsAny(pattern, "\n\r") || !utf8.ValidString(pattern) {
			return
		}

		find, err := newRegexpMatcher(regexp.QuoteMeta(pattern), false)
		if err != nil {
			t.Fatal(err)
		}

		slow := *find
		slow.literal = nil

		var fast, want []int
		find.each([]byte(text), func(n int, _ []byte) { fast = append(fast, n) })
		slow.each([]byte(text), func(n int, _ []byte) { want = append(want, n) })
		if len(fast) != len(want) {
			t.Fatalf("%q in %q: lines %v, want %v", pattern, text, fast, want)
		}

		for i := range fast {
			if fast[i] != want[i] {
				t.Fatalf("%q in %q: lines %v, want %v", pattern, text, fast, want)
			}
		}
	})
}
