package redact

import (
	"encoding/json"
	"html"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestBegun checks that Begun shows no part of a secret. It tests all positions of the end of the
// text and all encodings of the secret.
func TestBegun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secrets := rapid.SliceOfN(rapid.StringMatching(`[a-c%&\\é]{4,12}(\n[a-c]{1,20})?`), 1, 4).Draw(t, "secrets")
		var text strings.Builder
		for range rapid.IntRange(1, 8).Draw(t, "pieces") {
			piece := rapid.SampledFrom(secrets).Draw(t, "secret")
			switch rapid.IntRange(0, 5).Draw(t, "written") {
			case 0:
				piece = rapid.StringMatching(`[a-c%&;\\ ]{0,8}`).Draw(t, "other")
			case 1:
				piece = url.QueryEscape(piece)
			case 2:
				piece = html.EscapeString(piece)
			case 3, 4:
				quoted, err := json.Marshal(piece)
				if err != nil {
					t.Fatal(err)
				}
				if piece = string(quoted); rapid.Bool().Draw(t, "twice") {
					piece = url.QueryEscape(piece)
				}
			}
			text.WriteString(piece)
		}

		r, whole := New(secrets), text.String()
		clean := r.Replace(whole)
		for end := range len(whole) + 1 {
			if begun := r.Begun(whole[:end]); !strings.HasPrefix(clean, begun) {
				t.Fatalf("of %q it shows %q, and of the whole %q it is %q", whole[:end], begun, whole, clean)
			}
		}
	})
}

// TestBegunShowsTheRest checks that text is shown at once if a secret cannot begin in it.
func TestBegunShowsTheRest(t *testing.T) {
	t.Parallel()
	r := New([]string{"sk-canary-1234567"})
	for text, want := range map[string]string{
		"":                             "",
		"All is well.":                 "All is well.",
		"The key is sk-can":            "The key is ",
		"The key is sk-cab":            "The key is sk-cab",
		"It is sk-canary-1234567 now.": "It is [secret] now.",
		"a%73":                         "a",
		"a%7":                          "a",
		"100% of it all":               "100% of it all",
	} {
		if got := r.Begun(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := New(nil).Begun("a%7"); got != "a%7" {
		t.Errorf("without a secret: %q", got)
	}
}
