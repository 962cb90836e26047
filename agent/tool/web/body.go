package web

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/html/charset"

	"rouse/internal/text"
)

// readable is a response body as a model reads it.
type readable struct {
	title, body string
	kind        string // content type
	warnings    []string
}

// textual lists the subtypes of application/ that are text.
var textual = []string{"json", "xml", "javascript", "ecmascript", "yaml", "toml", "x-ndjson", "jsonl", "x-www-form-urlencoded", "graphql", "sql", "csv"}

func isText(kind string) bool {
	family, sub, _ := strings.Cut(kind, "/")
	if family == "text" {
		return true
	}

	// A structured suffix, as in application/activity+json.
	if i := strings.LastIndexByte(sub, '+'); i >= 0 {
		sub = sub[i+1:]
	}

	return family == "application" && slices.ContainsFunc(textual, func(t string) bool { return sub == t || sub == "x-"+t })
}

// read converts a response to UTF-8 text with secrets redacted. HTML becomes Markdown unless source
// is set. A body that is not text is left out with a warning.
func (f *fetcher) read(a answer, source bool) readable {
	given := a.header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(given)
	if err != nil || kind == "" {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(a.body))
	}

	out := readable{kind: kind, warnings: a.warnings}
	leaveOut := func(format string, args ...any) readable {
		out.warnings = append(out.warnings, fmt.Sprintf(format, args...))
		return out
	}
	switch coding := strings.ToLower(a.header.Get("Content-Encoding")); {
	case len(a.body) == 0:
		return out
	case coding != "" && coding != "identity":
		return leaveOut("the answer is compressed in a way that was not asked for (%s), and is left out", coding)
	case !isText(kind):
		return leaveOut("the answer is %s, which is not text, and is left out", kind)
	// Servers label downloads as text. UTF-16 text also contains zero bytes.
	case bytes.IndexByte(a.body[:min(len(a.body), 8<<10)], 0) >= 0 && !isUTF16(a.body):
		return leaveOut("the answer calls itself %s and is binary; it is left out", kind)
	}

	plain := f.redact(decoded(a.body, given))
	if a.broken {
		plain = f.dropPartialSecret(plain)
	}

	if a.truncated {
		// The cut may split a secret, so drop as many bytes as a secret may have.
		plain = plain[:max(len(plain)-margin, 0)]
		plain = strings.ToValidUTF8(plain, "")
		out.warnings = append(out.warnings, fmt.Sprintf("the answer is longer than %d MiB; what comes after them was not read", maxAnswer>>20))
	}

	out.body = plain
	if page := kind == "text/html" || kind == "application/xhtml+xml"; page && !source {
		out.title, out.body = markdown(plain, a.target.url)
		out.body = f.redact(out.body) // redact again: entities and tags may have split a secret in the source
	}

	return out
}

// dropPartialSecret removes the last word of an incomplete text, because it may be the beginning of
// a secret.
func (f *fetcher) dropPartialSecret(text string) string {
	text = strings.TrimRight(text[:strings.LastIndexAny(text, " \t\r\n")+1], " \t\r\n")
	for _, s := range f.secrets { // a secret may contain blanks and so span several words
		for n := len(s.Value) - 1; n > 0; n-- {
			if rest, ends := strings.CutSuffix(text, s.Value[:n]); ends && strings.ContainsAny(s.Value[n:n+1], " \t\r\n") {
				return rest
			}
		}
	}

	return text
}

// isUTF16 reports whether b starts with a UTF-16 byte order mark.
func isUTF16(b []byte) bool {
	return bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff"))
}

// decoded converts a body to UTF-8 from its declared or detected character set.
func decoded(body []byte, contentType string) string {
	if r, err := charset.NewReader(bytes.NewReader(body), contentType); err == nil {
		if all, err := io.ReadAll(r); err == nil {
			body = all
		}
	}
	return strings.ToValidUTF8(strings.TrimPrefix(string(body), "\ufeff"), "\ufffd")
}

// page returns at most count characters of body, starting at offset. next is the offset of the
// following page, or 0 at the end.
func page(body string, offset, count int) (part string, next int) {
	body = body[len(text.Head(body, offset)):]
	part = text.Head(body, count)
	if len(part) < len(body) {
		next = offset + count
	}
	return part, next
}
