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
	"unicode"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func TestReplace(t *testing.T) {
	for _, c := range []struct {
		secrets    []string
		text, want string
	}{
		{nil, "text", "text"},
		{[]string{"abc"}, "abc", "abc"}, // too short to distinguish it from other text
		{[]string{"sesame"}, "open sesame, sesame!", "open [secret], [secret]!"},
		{[]string{"sesame", "sesame-street"}, "sesame-street", "[secret]"},
		{[]string{`a"b\c<d>`}, `a"b\c<d> a\"b\\c<d> a\"b\\c\u003cd\u003e a\\\"b\\\\c<d> a&#34;b\c&lt;d&gt; a%22b%5Cc%3Cd%3E a%22b%5cc%3cd%3e`, "[secret] [secret] [secret] [secret] [secret] [secret] [secret]"},
		{[]string{"pass\u00e9\u2019word"}, "pass\u00c3\u00a9\u00e2\u0080\u0099word pass\u00c3\u00a9\u00e2\u20ac\u2122word pass%C3%83%C2%A9%C3%A2%C2%80%C2%99word", "[secret] [secret] [secret]"},
		{[]string{"correct horse battery"}, "a correct\n   horse  battery b", "a [secret]\n b"},
		{[]string{"correct\n horse\tbattery\n"}, "correct horse battery, correct%20horse\\n battery", "[secret], [secret]"},
		{[]string{"key with space"}, "key+with+space key%20with%20space", "[secret] [secret]"},
		{[]string{"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END KEY-----"}, "-----BEGIN KEY-----\n   MIIEvQIBADANBgkqhkiG9w0\n   -----END KEY-----", "-----BEGIN KEY-----\n   [secret]\n   -----END KEY-----"},
	} {
		if got := New(c.secrets).Replace(c.text); got != c.want {
			t.Errorf("%q without %q is %q, want %q", c.text, c.secrets, got, c.want)
		}
	}
}

// TestNamed checks that the mark has the name of the secret, and that short secrets are replaced
// too.
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

// TestJSON checks that a redacted document is valid.
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

// encodings are the ways in which programs encode a text within others.
var encodings = map[string]func(string) string{
	"plain": func(s string) string { return s }, "query": url.QueryEscape, "path": url.PathEscape,
	"query, lower case":  func(s string) string { return percented(s, "%%%02x", "-_.~", true) },
	"component":          func(s string) string { return percented(s, "%%%02X", "-_.~!*'()", false) },
	"address as a whole": func(s string) string { return percented(s, "%%%02X", "-_.~!*'();/?:@&=+$,#", false) },
	"every byte":         func(s string) string { return percentAll(s) },
	"json":               inQuotes, "json in json": func(s string) string { return inQuotes(inQuotes(s)) },
	"json of ascii":        func(s string) string { return ascii(inQuotes(s), `\u%04x`) },
	"JSON of ascii":        func(s string) string { return ascii(inQuotes(s), `\u%04X`) },
	"json of ascii, twice": func(s string) string { return ascii(inQuotes(ascii(inQuotes(s), `\u%04x`)), `\u%04x`) },
	"json in an address":   func(s string) string { return url.QueryEscape(inQuotes(s)) },
	"an address in json":   func(s string) string { return inQuotes(url.QueryEscape(s)) },
	"json in html":         func(s string) string { return html.EscapeString(inQuotes(s)) },
	"html":                 html.EscapeString,
	"html by names": func(s string) string {
		return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;", "é", "&eacute;", "€", "&euro;", "(", "&lpar;").Replace(s)
	},
	"html in decimal":      func(s string) string { return each(s, "&#%d;") },
	"html in hexadecimal":  func(s string) string { return each(s, "&#x%X;") },
	"hex":                  func(s string) string { return hex.EncodeToString([]byte(s)) },
	"HEX":                  func(s string) string { return fmt.Sprintf("%X", s) },
	"base64":               func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64url":            func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"base64 in an address": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
}

func inQuotes(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// percented escapes each byte except letters, digits and the bytes in kept.
func percented(s, format, kept string, plus bool) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c == ' ' && plus:
			out.WriteByte('+')
		case c < 0x80 && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c))), strings.IndexByte(kept, c) >= 0:
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, format, c)
		}
	}
	return out.String()
}

func percentAll(s string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&out, "%%%02x", c)
	}
	return out.String()
}

// ascii escapes the characters beyond ASCII as in JSON.
func ascii(s, format string) string {
	var out strings.Builder
	for _, c := range s {
		if c < 0x80 {
			out.WriteRune(c)
			continue
		}
		for _, unit := range utf16.Encode([]rune{c}) {
			fmt.Fprintf(&out, format, unit)
		}
	}
	return out.String()
}

func each(s, format string) string {
	var out strings.Builder
	for _, c := range s {
		fmt.Fprintf(&out, format, c)
	}
	return out.String()
}

// TestEncodings checks for each encoding that the decoded result does not contain the secret.
func TestEncodings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[ -~éñ€漢😀]{12,40}`).Draw(t, "secret")
		before, after := rapid.StringMatching(`[a-z%&\\"]{0,5}`).Draw(t, "before"), rapid.StringMatching(`[a-z%&;\\"]{0,5}`).Draw(t, "after")
		r := New([]string{secret})
		for name, encode := range encodings {
			encoded := encode(before + secret + after)
			clean := r.Replace(encoded)
			if !strings.Contains(clean, Mark) {
				t.Fatalf("%s: %q is left of %q", name, clean, encoded)
			}

			// Base64 may leave a character at each end. Other encodings leave nothing.
			rest := strings.ReplaceAll(clean, Mark, "")
			if most := len(encode(before)) + len(encode(after)) + 8; len(rest) > most {
				t.Fatalf("%s: %q is left of %q", name, rest, encoded)
			}
		}
	})
}

// TestLines checks that a text keeps its number of lines, so that line numbers stay valid.
func TestLines(t *testing.T) {
	t.Parallel()
	if got := New([]string{"open\nsesame\nnow"}).Replace("a\nopen\nsesame\nnow\nb"); got != "a\n[secret]\n\n\nb" {
		t.Errorf("%q", got)
	}
}

// TestOverlap checks that overlapping secrets are replaced by one mark.
func TestOverlap(t *testing.T) {
	t.Parallel()
	if got := New([]string{"abcd1234", "1234wxyz"}).Replace("-abcd1234wxyz-"); got != "-[secret]-" {
		t.Errorf("%q", got)
	}
}

// BenchmarkReplace redacts 256 KiB with all kinds of escapes and fifty secrets.
func BenchmarkReplace(b *testing.B) {
	var secrets []string
	for i := range 50 {
		secrets = append(secrets, fmt.Sprintf("secret-%d-%x", i, i*7919))
	}

	r := New(secrets)
	for name, unit := range map[string]string{"plain": "a line of plain words, as a program says it\n", "escaped": `{"a":"x\ny %2f &amp; \u00e9"}` + "\n"} {
		text := strings.Repeat(unit, 256<<10/len(unit))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for range b.N {
				r.Replace(text)
			}
		})
	}
}

// TestAdd checks that an added secret is found in each form, in addition to the previous secrets.
func TestAdd(t *testing.T) {
	t.Parallel()
	r := New([]string{"first-secret"})
	r.Add("second-secret")
	if got := r.Replace("first-secret, second-secret, " + base64.StdEncoding.EncodeToString([]byte("second-secret"))); strings.Contains(got, "second") || strings.Count(got, Mark) != 3 {
		t.Error(got)
	}
}
