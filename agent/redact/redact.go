// Package redact blacks secrets out of texts that are shown, stored or sent.
//
// # Design
//
// A secret is looked for as it is, in hexadecimal and in Base64, there wherever it stands in what was encoded;
// and, beyond ASCII, as it reads when its UTF-8 was taken for Latin-1 or Windows-1252, as servers do with headers.
// What is escaped, in an address (%2F), in JSON (\u00e9) or in HTML (&amp;), is read as what it stands for, as often as
// it is escaped within another escape; and so is a line break in a secret with blanks: an encoder may escape as little or as much as it wants. A program that hides a
// secret in another way, letter by letter or reversed, is not held off by this: what keeps a secret from going anywhere is
// that it is given to its one host or command alone.
//
// A text is redacted before it is cut. Half a secret is none that could be found.
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
type Redactor struct {
	finder atomic.Pointer[finder]

	mu    sync.Mutex
	all   []found
	added []string
}

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

func newRedactor(all []found) *Redactor {
	r := &Redactor{all: all}
	r.finder.Store(newFinder(slices.Clone(all)))
	return r
}

// Add has another secret blacked out from now on, in all that is replaced after it has returned.
func (r *Redactor) Add(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.added, secret) {
		return
	}
	r.added, r.all = append(r.added, secret), append(r.all, traces(secret, Mark)...)
	r.finder.Store(newFinder(slices.Clone(r.all)))
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
	if text := strings.Join(strings.FieldsFunc(secret, func(c rune) bool { return strings.ContainsRune(whitespace, c) }), " "); text != secret && len(text) >= minLength && !strings.HasPrefix(text, "-----") {
		texts = append(texts, text) // as it reads where lines are broken in other places
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

// Replace is a text without the secrets. It has as many lines as before.
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

// JSON is a document without the secrets, and still a document: a number that holds one becomes
// a text.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	clean := json.RawMessage(r.Replace(string(raw)))
	if bytes.Equal(clean, raw) || json.Valid(clean) {
		return clean
	}
	return r.JSONExcept(raw, "")
}

// Document returns a JSON document without secrets, or nil if it is empty. Invalid JSON becomes a string.
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

// JSONExcept is JSON, but keeps the values of a key.
func (r *Redactor) JSONExcept(raw json.RawMessage, key string) json.RawMessage {
	clean := json.RawMessage(r.Replace(string(raw)))
	if bytes.Equal(clean, raw) {
		return raw
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

// forms are the ways in which a text is written within others, apart from escapes, which are read.
func forms(s string) []string {
	out := []string{s}
	if strings.Contains(s, " ") { // of a form
		out = append(out, strings.ReplaceAll(s, " ", "+"))
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
