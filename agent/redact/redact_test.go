package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestReplace(t *testing.T) {
	for _, c := range []struct {
		secrets    []string
		text, want string
	}{
		{nil, "text", "text"},
		{[]string{"abc"}, "abc", "abc"}, // too short to tell it from other text
		{[]string{"sesame"}, "open sesame, sesame!", "open [secret], [secret]!"},
		{[]string{"sesame", "sesame-street"}, "sesame-street", "[secret]"},
		{[]string{`a"b\c<d>`}, `a"b\c<d> a\"b\\c<d> a\"b\\c\u003cd\u003e a\\\"b\\\\c<d> a&#34;b\c&lt;d&gt; a%22b%5Cc%3Cd%3E a%22b%5cc%3cd%3e`, "[secret] [secret] [secret] [secret] [secret] [secret] [secret]"},
		{[]string{"pass\u00e9\u2019word"}, "pass\u00c3\u00a9\u00e2\u0080\u0099word pass\u00c3\u00a9\u00e2\u20ac\u2122word pass%C3%83%C2%A9%C3%A2%C2%80%C2%99word", "[secret] [secret] [secret]"},
		{[]string{"key with space"}, "key+with+space key%20with%20space", "[secret] [secret]"},
		{[]string{"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END KEY-----"}, "-----BEGIN KEY-----\n   MIIEvQIBADANBgkqhkiG9w0\n   -----END KEY-----", "-----BEGIN KEY-----\n   [secret]\n   -----END KEY-----"},
	} {
		if got := New(c.secrets).Replace(c.text); got != c.want {
			t.Errorf("%q without %q is %q, want %q", c.text, c.secrets, got, c.want)
		}
	}
}

// What was given a secret by its name is told by that name, however short the secret is.
func TestNamed(t *testing.T) {
	r := Named(map[string]string{"pin": "12", "bank": "sesame", "none": "", "street": "sesame-street"})
	if got := r.Replace("12 sesame 3132 sesame-street"); got != "[secret pin] [secret bank] 3132 [secret street]" {
		t.Errorf("%q", got)
	}
	if got := Named(map[string]string{"key": "open-sesame"}).Replace("b3Blbi1zZXNhbWU= open-sesame%21"); strings.Count(got, "[secret key]") != 2 {
		t.Errorf("%q", got)
	}
	if got := Masked("***", []string{"a&b=c"}).Replace("a&b=c a%26b%3Dc"); got != "*** ***" {
		t.Errorf("%q", got)
	}
}

// A document stays one, whatever is blacked out in it.
func TestJSON(t *testing.T) {
	r := New([]string{"483920", "true", `"a":`, "sesame"})
	for text, want := range map[string]string{
		`{"a":1}`: `{"a":1}`,
		`{"pin":483920,"n":12345678901234567890}`: `{"n":12345678901234567890,"pin":"[secret]"}`,
		`[14839201.5,"483920"]`:                   `["1[secret]1.5","[secret]"]`,
		`{"sesame":{"x":"open sesame <b>"}}`:      `{"[secret]":{"x":"open [secret] <b>"}}`,
		`no 483920`:                               `no [secret]`,
	} {
		if got := string(r.JSON(json.RawMessage(text))); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}

	for _, text := range []string{`{"a":true,"b":[483920]}`, `{"x":{"a":"sesame"}}`} {
		if got := r.JSON(json.RawMessage(text)); !json.Valid(got) || strings.Contains(string(got), "483920") {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// Whatever the secret and wherever it stands, no encoding of it is left from which it could be
// read: what is decoded again lacks it.
func TestEncodings(t *testing.T) {
	inQuotes := func(s string) string {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	encodings := map[string]func(string) string{
		"plain": func(s string) string { return s }, "query": url.QueryEscape, "path": url.PathEscape, "json": inQuotes, "json in json": func(s string) string { return inQuotes(inQuotes(s)) },
		"html": html.EscapeString, "hex": func(s string) string { return hex.EncodeToString([]byte(s)) }, "HEX": func(s string) string { return fmt.Sprintf("%X", s) },
		"base64": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }, "base64url": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	}

	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[ -~]{12,40}`).Draw(t, "secret")
		before, after := rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "before"), rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "after")
		r := New([]string{secret})
		for name, encode := range encodings {
			clean := r.Replace(encode(before + secret + after))
			if !strings.Contains(clean, Mark) {
				t.Fatalf("%s: %q is left", name, clean)
			}

			// Of Base64 a character can be left at each end, of the others nothing.
			rest := strings.ReplaceAll(clean, Mark, "")
			if most := 3 * (len(before) + len(after) + 4); len(rest) > most {
				t.Fatalf("%s: %q is left", name, rest)
			}
		}
	})
}
