// Package redact blacks secrets out of texts that are shown, stored or sent.
//
// # Design
//
// A secret is looked for as it is and in the forms that programs write it in: within JSON, and
// within JSON that is a text in JSON, in an address, in HTML, in hexadecimal and in Base64,
// there wherever it stands in what was encoded; and, beyond ASCII, as it reads when its UTF-8 was
// taken for Latin-1 or Windows-1252, as servers do with headers. A program that hides it in another way, letter
// by letter or reversed, is not held off by this: what keeps a secret from going anywhere is that
// it is given to its one host or command alone.
package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/text/encoding/charmap"
)

// Mark stands where a secret was.
const Mark = "[secret]"

const (
	// minLength is that of a secret which is looked for, in bytes: a shorter one would be found
	// everywhere.
	minLength = 4
	// minPart is that of a line of a secret, and of an encoding whose ends depend on what is
	// around it.
	minPart = 8
)

// Redactor blacks out secrets. It may be used by many at a time.
type Redactor struct{ replacer *strings.Replacer }

// found is a text that gives a secret away, and what stands in its place.
type found struct{ text, mark string }

// New is a redactor of secrets.
func New(secrets []string) *Redactor { return Masked(Mark, secrets) }

// Masked is New with another mark.
func Masked(mark string, secrets []string) *Redactor {
	var all []found
	for _, s := range secrets {
		all = append(all, traces(s, mark)...)
	}

	return newRedactor(all)
}

// Named is a redactor of values by the names of their secrets, which stand in the mark:
// "[secret bank-pin]". It is for what was given such a value, and may say it: one that is too short
// to be told from other text is looked for too, as it is.
func Named(values map[string]string) *Redactor {
	var all []found
	for name, value := range values {
		mark := "[secret " + name + "]"
		if all = append(all, traces(value, mark)...); value != "" && len(value) < minLength {
			all = append(all, found{value, mark})
		}
	}

	return newRedactor(all)
}

// traces are all forms of a secret and of its lines.
func traces(secret, mark string) []found {
	var texts []string
	if len(secret) >= minLength {
		texts = append(texts, forms(secret)...)
		for _, text := range misread(secret) {
			texts = append(texts, forms(text)...)
		}
	}
	for line := range strings.Lines(secret) { // a certificate is shown with its lines indented
		if line = strings.TrimSpace(line); line != secret && len(line) > 2*minPart && !strings.HasPrefix(line, "-----") {
			texts = append(texts, forms(line)...)
		}
	}

	out := make([]found, len(texts))
	for i, text := range texts {
		out[i] = found{text, mark}
	}

	return out
}

func newRedactor(all []found) *Redactor {
	// The longest first: one that begins another would leave the rest of it readable.
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), strings.Compare(a.text, b.text), strings.Compare(a.mark, b.mark))
	})

	var pairs []string
	for _, f := range slices.CompactFunc(all, func(a, b found) bool { return a.text == b.text }) {
		pairs = append(pairs, f.text, f.mark)
	}

	return &Redactor{strings.NewReplacer(pairs...)}
}

// Replace is a text without the secrets.
func (r *Redactor) Replace(text string) string { return r.replacer.Replace(text) }

// JSON is a document without the secrets, and still a document: a number that holds one becomes
// a text.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	clean := json.RawMessage(r.Replace(string(raw)))
	if bytes.Equal(clean, raw) || json.Valid(clean) {
		return clean
	}

	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return clean // it was none
	}

	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(r.value(v)) != nil {
		return clean
	}

	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func (r *Redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.Replace(v)
	case json.Number:
		if text := r.Replace(v.String()); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			out[r.Replace(key)] = r.value(inner)
		}
		return out
	}
	return v
}

// forms are the ways in which a text is written within others.
func forms(s string) []string {
	out := []string{s, html.EscapeString(s)}
	once := inJSON(s)
	out = append(out, once...)
	for _, text := range once {
		out = append(out, inJSON(text)...)
	}

	for _, text := range []string{url.QueryEscape(s), url.PathEscape(s)} {
		out = append(out, text, lowerPercents(text))
	}

	if len(s) >= minLength {
		h := hex.EncodeToString([]byte(s))
		out = append(out, h, strings.ToUpper(h))
	}

	return append(out, inBase64(s)...)
}

// misread is a text whose UTF-8 was taken for another set of characters; nothing in ASCII.
func misread(s string) []string {
	var out []string
	for _, set := range []*charmap.Charmap{charmap.ISO8859_1, charmap.Windows1252} {
		var b strings.Builder
		for _, c := range []byte(s) {
			b.WriteRune(set.DecodeByte(c))
		}
		if text := b.String(); text != s {
			out = append(out, text)
		}
	}

	return out
}

// inJSON is a text as it stands between the quotes of a JSON string: as most write it, and
// as Go does, which escapes what HTML minds.
func inJSON(s string) []string {
	var forms []string
	for _, html := range []bool{false, true} {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(html)
		if e.Encode(s) == nil { // it always is: a string can be written
			text := strings.TrimSuffix(out.String(), "\n")
			forms = append(forms, text[1:len(text)-1])
		}
	}

	return forms
}

// lowerPercents writes %2F as %2f.
func lowerPercents(text string) string {
	out := []byte(text)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:i+3], bytes.ToLower(out[i+1:i+3]))
		}
	}
	return string(out)
}

// inBase64 is what of a text stands in any Base64 that it is in: with zero, one or two bytes
// of a group before it, and without the characters that depend on what is around it.
func inBase64(s string) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), s...))
			first := (before*8 + 5) / 6 // the first character that is the text's alone
			last := (before + len(s)) * 8 / 6
			if last-first >= minPart {
				out = append(out, text[first:last])
			}
		}
	}

	return out
}
