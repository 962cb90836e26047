package redact

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzReplace checks that the result does not contain the secret, and that a document stays valid.
func FuzzReplace(f *testing.F) {
	f.Add("open-sesame", "the word is ", ", he said")
	f.Add(`a"b\c<d>`, `{"x":"`, `"}`)
	f.Add("pass\u00e9\u2019word", "%C3%", "\u00c3")
	f.Add("AAAAAAAA", "AAAA", "AAAA")
	f.Add("secret secret", "[secret", "secret]")
	f.Add("0000000\n1111111", "\xff\xfe", "\x00")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		if len(secret) < 8 || len(secret)+len(before)+len(after) > 4096 || strings.Contains(Mark, secret) {
			t.Skip()
		}
		r := New([]string{secret})
		if got := r.Replace(before + secret + after); strings.Contains(strings.ReplaceAll(got, Mark, "\x00"), secret) {
			t.Errorf("%q is still in %q", secret, got)
		}

		if !utf8.ValidString(secret) || !utf8.ValidString(before) {
			return // a document cannot contain it
		}
		document, err := json.Marshal(map[string]any{before: before + secret, "list": []any{secret, after, 1}})
		if err != nil {
			t.Fatal(err)
		}
		got := r.JSON(document)
		var v map[string]any
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatalf("%s became %s: %v", document, got, err)
		}
		for key, value := range v {
			if key == "list" {
				value = value.([]any)[0]
			}
			if text, ok := value.(string); ok && strings.Contains(strings.ReplaceAll(text, Mark, "\x00"), secret) {
				t.Errorf("%q is still in %s", secret, got)
			}
		}
	})
}
