package shell_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"rouse/agent/redact"
	"rouse/agent/tool/shell"
)

func same(text string) string { return text }

// TestOutput: OSA-37, 10,000 characters of a stream: 40 % from the beginning, the rest from the end.
func TestOutput(t *testing.T) {
	for _, c := range []struct{ wrote, want string }{
		{"", ""},
		{"short\n", "short\n"},
		{strings.Repeat("ü", 10_000), strings.Repeat("ü", 10_000)},
		{strings.Repeat("a", 5_000) + strings.Repeat("z", 5_001), strings.Repeat("a", 4_000) + "\n[… 1 characters left out …]\n" + strings.Repeat("a", 999) + strings.Repeat("z", 5_001)},
		{strings.Repeat("a", 100_000) + "MIDDLE" + strings.Repeat("z", 100_000), strings.Repeat("a", 4_000) + "\n[… 190006 bytes left out …]\n" + strings.Repeat("z", 6_000)},
		{"a\x00b\xffc\x1b[31mred\x1b[0m\x1b]0;title\x07 \u202eback\r\nnext\rover\x07", "a\\x00b\uFFFDcred \\u202eback\nnext\nover\\x07"},
	} {
		o := shell.NewOutput(10_000)
		for piece := range strings.SplitAfterSeq(c.wrote, "a") { // in many writes
			if _, err := o.Write([]byte(piece)); err != nil {
				t.Fatal(err)
			}
		}

		if got := o.Text(same); got != c.want {
			t.Errorf("%.40q…: %d bytes, want %d: %.200q", c.wrote, len(got), len(c.want), got)
		}
	}
}

// TestOutputIsText checks that any output, in any pieces, is shown as valid text without control
// sequences, within its limit, and without secrets, even if a secret is cut in two.
func TestOutputIsText(t *testing.T) {
	const secret = "hunter2-hunter2"
	hide := func(text string) string { return strings.ReplaceAll(text, secret, "[secret]") }
	rapid.Check(t, func(rt *rapid.T) {
		o := shell.NewOutput(50)
		for range rapid.IntRange(0, 40).Draw(rt, "writes") {
			piece := rapid.SliceOfN(rapid.Byte(), 0, 700).Draw(rt, "piece")
			if rapid.Bool().Draw(rt, "telling") {
				piece = append(piece, secret...)
			}
			if _, err := o.Write(piece); err != nil {
				rt.Fatal(err)
			}
		}

		text := o.Text(hide)
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
			rt.Fatalf("%q", text)
		}
		if n := utf8.RuneCountInString(text); n > 50+60 {
			rt.Fatalf("%d characters", n)
		}
		if strings.Contains(text, "hunter2-h") {
			rt.Fatalf("a secret is left: %q", text)
		}
	})
}

// TestRaw checks that a reader of the raw output knows whether it is complete.
func TestRaw(t *testing.T) {
	o := shell.NewOutput(100)
	all := strings.Repeat("0123456789", 800)
	o.Write([]byte(all))
	if raw, whole := o.Raw(); !whole || string(raw) != all {
		t.Errorf("%d of %d bytes", len(raw), len(all))
	}

	o.Write([]byte(all))
	if _, whole := o.Raw(); whole {
		t.Error("what was left out is not missed")
	}
}

// TestOutputCutsAreRedacted checks that no cut reveals a part of a secret. Redactions before the
// cut move it, so outputs with many secrets are shown further.
func TestOutputCutsAreRedacted(t *testing.T) {
	t.Parallel()
	const secret = "open-SESAME-7f3e91c2-and-much-more-of-it-than-a-mark-has"
	hide := redact.New([]string{secret})
	for from := range len(secret) {
		o := shell.NewOutput(1000)
		all := strings.Repeat("x", from) + strings.Repeat(secret, 2000) + strings.Repeat("y", from)
		if _, err := o.Write([]byte(all)); err != nil {
			t.Fatal(err)
		}

		rest := strings.ReplaceAll(o.Text(hide.Replace), redact.Mark, "")
		for i := 0; i+5 <= len(secret); i++ {
			if strings.Contains(rest, secret[i:i+5]) {
				t.Fatalf("after %d characters %q is shown: %.200q", from, secret[i:i+5], rest)
			}
		}
	}
}
