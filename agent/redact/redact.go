// Package redact removes secrets from texts that are shown, stored or sent.
//
// # Design
//
// A secret is found in plain form, in hexadecimal, and in Base64 at any position of the encoded
// data. Secrets beyond ASCII are also found if their UTF-8 was read as Latin-1 or Windows-1252, as
// some servers do with headers. Escapes of URLs (%2F), JSON (\u00e9) and HTML (&amp;) are decoded
// before the search, up to several levels. The number of escaped characters does not matter. Line
// breaks in a secret that contains blanks are handled like escapes.
//
// Redaction is best effort: a program can encode a secret in another way, for example reversed or
// letter by letter. Secrets are protected by giving each of them only to its own host or command.
//
// A text must be redacted before it is truncated, because half a secret cannot be found.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/text/encoding/charmap"
)

// Mark replaces a secret.
const Mark = "[secret]"

const (
	// minLength is the minimum length of a secret in bytes. A shorter one would be found
	// everywhere.
	minLength = 4
	// minPart is the minimum length of a line of a secret. It also applies to an encoding that
	// depends on the surrounding data at its ends.
	minPart = 8
)

// Redactor removes secrets from texts. It is safe for concurrent use.
type Redactor struct {
	finder atomic.Pointer[finder]

	mu    sync.Mutex
	all   []found
	added []string
}

type found struct{ text, mark string }

// New returns a redactor of secrets.
func New(secrets []string) *Redactor { return Masked(Mark, secrets) }

// Masked is like New, with another mark.
func Masked(mark string, secrets []string) *Redactor {
	var all []found
	for _, s := range secrets {
		all = append(all, traces(s, mark)...)
	}

	return newRedactor(all)
}

func newRedactor(all []found) *Redactor {
	r := &Redactor{all: all}
	r.finder.Store(newFinder(slices.Clone(all)))
	return r
}

// Add adds a secret. Add affects all replacements that start after it returns.
func (r *Redactor) Add(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.added, secret) {
		return
	}
	r.added, r.all = append(r.added, secret), append(r.all, traces(secret, Mark)...)
	r.finder.Store(newFinder(slices.Clone(r.all)))
}

// Named returns a redactor of values by the names of their secrets. The name is part of the mark:
// "[secret bank-pin]". It is meant for the output of a program that was given such a value. It
// therefore also replaces values that are too short for New, but only in plain form.
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

// traces returns all forms of a secret and of its lines.
func traces(secret, mark string) []found {
	var texts []string
	if len(secret) >= minLength {
		texts = append(texts, forms(secret)...)
		for _, text := range misread(secret) {
			texts = append(texts, forms(text)...)
		}
	}
	if text := strings.Join(strings.FieldsFunc(secret, func(c rune) bool { return strings.ContainsRune(whitespace, c) }), " "); text != secret && len(text) >= minLength && !strings.HasPrefix(text, "-----") {
		texts = append(texts, text) // the secret with its line breaks in other places
	}
	for line := range strings.Lines(secret) { // certificates are often shown with indented lines
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

// Replace returns a text without the secrets. It keeps the number of lines.
func (r *Redactor) Replace(text string) string {
	places := r.finder.Load().find(text)
	if len(places) == 0 {
		return text
	}

	var out strings.Builder
	done := 0
	for _, p := range places {
		out.WriteString(text[done:p.from])
		out.WriteString(p.mark)
		out.WriteString(strings.Repeat("\n", strings.Count(text[p.from:p.to], "\n")))
		done = p.to
	}

	out.WriteString(text[done:])
	return out.String()
}

// JSON returns a JSON document without the secrets. The result is valid if raw is. A number that
// contains a secret becomes a string.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	clean := json.RawMessage(r.Replace(string(raw)))
	if bytes.Equal(clean, raw) || json.Valid(clean) {
		return clean
	}
	return r.JSONExcept(raw, "")
}

// Document returns a JSON document without the secrets, or nil if it is empty. Invalid JSON becomes
// a string.
func (r *Redactor) Document(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}

	out := r.JSON(raw)
	if json.Valid(out) {
		return out
	}
	quoted, err := json.Marshal(string(out))
	if err != nil {
		return nil
	}
	return quoted
}

// JSONExcept is like JSON, but keeps the values of a key.
func (r *Redactor) JSONExcept(raw json.RawMessage, key string) json.RawMessage {
	clean := json.RawMessage(r.Replace(string(raw)))
	if bytes.Equal(clean, raw) {
		return raw
	}

	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return clean // not JSON
	}

	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(r.value(v, key)) != nil {
		return clean
	}

	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func (r *Redactor) value(v any, except string) any {
	switch v := v.(type) {
	case string:
		return r.Replace(v)
	case json.Number:
		if text := r.Replace(v.String()); text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = r.value(v[i], except)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			if key == except && key != "" {
				out[key] = inner
				continue
			}
			out[r.Replace(key)] = r.value(inner, except)
		}
		return out
	}
	return v
}

// forms returns the encodings in which a text is found. Escapes are decoded instead.
func forms(s string) []string {
	out := []string{s}
	if strings.Contains(s, " ") { // as in an HTML form
		out = append(out, strings.ReplaceAll(s, " ", "+"))
	}
	if len(s) >= minLength {
		h := hex.EncodeToString([]byte(s))
		out = append(out, h, strings.ToUpper(h))
	}

	return append(out, inBase64(s)...)
}

// misread returns the results of decoding the UTF-8 of a text with other character sets. There are
// none if the text is ASCII.
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

// inBase64 returns the parts of a text's Base64 encodings that do not depend on the surrounding
// data. It covers zero, one and two preceding bytes of a group.
func inBase64(s string) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), s...))
			first := (before*8 + 5) / 6 // the first character that depends only on the text
			last := (before + len(s)) * 8 / 6
			if last-first >= minPart {
				out = append(out, text[first:last])
			}
		}
	}

	return out
}
