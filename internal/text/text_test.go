package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"rouse/internal/text"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"abc", 1, "…"}, {"abc", 0, ""}, {"abc", -1, ""},
		{"größer", 4, "grö…"}, {"漢字漢字", 3, "漢字…"}, {"a\xffb", 3, "a\uFFFDb"}, {"a\xff\xfebc", 4, "a\uFFFD…"},
	} {
		if got := text.Truncate(c.in, c.n); got != c.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// TestTruncateProperties: the result is valid, not too long, a prefix of the text, and has a mark
// if something is missing.
func TestTruncateProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		n := rapid.IntRange(-1, 40).Draw(t, "n")
		got := text.Truncate(in, n)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > max(n, 0) {
			t.Fatalf("%q is no text of at most %d characters", got, n)
		}

		whole := strings.ToValidUTF8(in, "\uFFFD")
		if short, cut := strings.CutSuffix(got, "…"); got != whole && (n > 0) != cut || !strings.HasPrefix(whole, short) && utf8.ValidString(in) {
			t.Fatalf("%q does not stand for %q", got, in)
		}
	})
}

// TestHeadTail: a head and the remaining tail make the whole text. HeadBytes returns the longest
// prefix that fits.
func TestHeadTail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in, n := rapid.String().Draw(t, "text"), rapid.IntRange(-1, 40).Draw(t, "n")
		size := utf8.RuneCountInString(in)
		head, tail := text.Head(in, n), text.Tail(in, size-max(n, 0))
		if utf8.RuneCountInString(head) != min(max(n, 0), size) || head+tail != in {
			t.Fatalf("%q is %q and %q", in, head, tail)
		}

		short := text.HeadBytes(in, n)
		if len(short) > max(n, 0) || !utf8.ValidString(short) || !strings.HasPrefix(in, short) {
			t.Fatalf("%q begins with %q in %d bytes", in, short, n)
		}
		if _, next := utf8.DecodeRuneInString(in[len(short):]); next > 0 && len(short)+next <= n {
			t.Fatalf("%q: there is room for more than %q in %d bytes", in, short, n)
		}
	})
}

const hostile = "a\x00b\xffc\x1b[31mred\x1b[0m\x1b]0;title\x07 \u202eback\u2066\u00a0\tx\u200d\u3000y\u009b1m"

// TestLastOf: the end of each output, limited in lines and characters.
func TestLastOf(t *testing.T) {
	if got := text.LastOf("", " \n\n"); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	if got, want := text.LastOf("a\n\nb\n", "c"), "; the last of them:\na\nb\nc"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := text.LastOf(strings.Repeat("line\n", 99)+"end\n", strings.Repeat("ü", 999)); strings.Count(got, "line") != 9 || !strings.HasSuffix(got, "\nend\n…"+strings.Repeat("ü", 800)) {
		t.Errorf("%q", got)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f        func(string) string
		in, want string
	}{
		"one line":            {text.OneLine, hostile, "a\uFFFDb\uFFFDcred \uFFFDback\uFFFD\u00a0 x\u200d\u3000y\uFFFD1m"},
		"one line of many":    {text.OneLine, "\na\r\nb\u2028c\vd  e\t", "a  b c d  e"},
		"no end":              {text.OneLine, "a\x1b]0;b\x1bz", "a\uFFFD]0;b\uFFFDz"},
		"one within another":  {text.OneLine, "a\x1b\x1b[31m[2Jb", "a\uFFFD[2Jb"},
		"lines":               {text.Lines, "a\x1b[2J\nb\tc\u202e\n", "a\nb c\uFFFD\n"},
		"cleaned":             {text.Clean, hostile, "a\\x00b\uFFFDcred \\u202eback\\u2066\u00a0\tx\\u200d\u3000y\\u009b1m"},
		"cleaned lines":       {text.Clean, "a\r\nb\rc\x07", "a\nb\nc\\x07"},
		"visible":             {text.Visible, hostile, `a\x00b\xffc\x1b[31mred\x1b[0m\x1b]0;title\x07 \u202eback\u2066\u00a0\x09x\u200d\u3000y\u009b1m`},
		"visible lines":       {text.Visible, "rm a\nb \U000e0041", "rm a\nb \\U000e0041"},
		"nothing to write":    {text.Visible, "größer \uFFFD 漢", "größer \uFFFD 漢"},
		"collapsed":           {text.Collapse, " a\n\tb  c\u2028", "a b c"},
		"nothing to collapse": {text.Collapse, " \n", ""},
	} {
		if got := c.f(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSanitizeProperties: no control sequence remains, and a second call does not change the
// result.
func TestSanitizeProperties(t *testing.T) {
	t.Parallel()
	word := rapid.SampledFrom([]string{"\x1b", "[", "]", "31m", "\x07", "\\", "\u202e", "\u2066", "\u009b", "\r", "\n", "\t", "a", " ", "P", "\xff", "\x00"})
	rapid.Check(t, func(t *rapid.T) {
		in := strings.Join(rapid.SliceOf(word).Draw(t, "text"), "")
		for name, f := range map[string]func(string) string{"OneLine": text.OneLine, "Lines": text.Lines, "Clean": text.Clean, "Visible": text.Visible} {
			got := f(in)
			if !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x07\x1b\u009b\r\u202e\u2066") || name == "OneLine" && strings.ContainsAny(got, "\n\t") {
				t.Fatalf("%s of %q is %q", name, in, got)
			}
			if again := f(got); again != got {
				t.Fatalf("%s of %q is %q, and that becomes %q", name, in, got, again)
			}
		}
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wrong, want string
		known       string
	}{
		{"expense", "expenses", "expenses invoices customers"}, {"Invoice", "invoices", "expenses invoices"}, {"custmers", "customers", "expenses customers"},
		{"zzz", "", "expenses"}, {"x", "", "a"}, {"X", "x", "a x"}, {"ab", "ac", "ac ad"}, {"abc", "", "xyc"}, {"größe", "große", "klein große"},
		{"reconciliation", "", "authentication"}, {strings.Repeat("a", 127), "", strings.Repeat("a", 127)}, {"a", "", ""}, {"modle", "model", "mode model"}, {"modl", "mode", "mode model"},
	} {
		if got := text.Nearest(c.wrong, strings.Fields(c.known)); got != c.want {
			t.Errorf("%s among %s: %q, want %q", c.wrong, c.known, got, c.want)
		}
	}

	for want, got := range map[string]string{
		`there is no job "houly"; did you mean "hourly"?`:   text.NoSuch("job", "houly", []string{"daily", "hourly"}),
		`there is no job "x\n"; there are daily, hourly`:    text.NoSuch("job", "x\n", []string{"daily", "hourly"}),
		`there is no agent "clerk"; no agent is configured`: text.NoSuch("agent", "clerk", nil),
		`did you mean "hourly"?`:                            text.DidYouMean("houly", []string{"hourly"}),
		"":                                                  text.DidYouMean("weekly", []string{"hourly"}),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	if got := text.NoSuch("skill", "zzzzz", make([]string, 201)); !strings.HasSuffix(got, " and 1 more") {
		t.Errorf("of very many: %q", got)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		text.Size(21): "21 B", text.Size(-1): "0 B", text.Size(3 << 19): "1.5 MiB", text.Size(100 << 20): "100 MiB",
		text.Plural(0, "entry"): "0 entries", text.Plural(1, "entry"): "1 entry", text.Plural(int64(2), "day"): "2 days", text.Plural(12, "more file"): "12 more files",
		text.Noun(1, "row"): "row", text.Noun(3, "row"): "rows",
		text.List([]string{"a", "b"}, 2): "a, b", text.List([]string{"a", "b", "c"}, 2): "a, b and 1 more", text.List(nil, 2): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
