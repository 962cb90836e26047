package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestMarkdownGrowth checks that Markdown does not become much longer than its page.
func TestMarkdownGrowth(t *testing.T) {
	from := &url.URL{Scheme: "https", Host: "example.com", Path: "/"}
	for name, page := range map[string]string{
		"quotations":      strings.Repeat("<blockquote>", 400) + strings.Repeat("x<br>", 5000),
		"lines in them":   strings.Repeat("<blockquote>", 400) + "<pre>" + strings.Repeat("x\n", 20000),
		"lists":           strings.Repeat("<ul><li>", 200) + strings.Repeat("<p>x</p>", 5000),
		"numbered lists":  strings.Repeat("<ol start=999999999><li>", 200) + strings.Repeat("<p>x</p>", 5000),
		"a wide table":    "<table><tr>" + strings.Repeat("<td>x", 3000) + strings.Repeat("<tr><td>y", 3000) + "</table>",
		"a wide cell":     "<table><tr><td>" + strings.Repeat("x", 5000) + strings.Repeat("<tr><td>y", 5000) + "</table>",
		"spans":           "<table><tr><td colspan=100000000 rowspan=100000000>x<tr><td>y</table>",
		"nested tables":   strings.Repeat("<table><tr><td>", 100) + strings.Repeat("<td>x", 1000),
		"a picture":       "<img src='data:image/png;base64," + strings.Repeat("A", 5000) + "'>",
		"open emphasis":   strings.Repeat("<b><i>", 20000) + "x",
		"deep divisions":  strings.Repeat("<div>", 20000) + "x",
		"attributes":      "<p " + strings.Repeat("a=b ", 20000) + ">x",
		"links":           strings.Repeat("<a href=/x>", 5000) + "x",
		"headings":        strings.Repeat("<h1>", 5000) + "x",
		"brackets":        strings.Repeat("[", 200_000) + "x",
		"entities":        strings.Repeat("&amp;&#x1F600;&nosuch;", 5000),
		"tables of lists": "<table>" + strings.Repeat("<tr><td><ul><li>x<li>y</ul>", 2000) + "</table>",
	} {
		t.Run(name, func(t *testing.T) {
			_, out := markdown(page, from)
			if most := len(page)*growthFactor + growthFree; len(out) > most {
				t.Errorf("%d bytes became %d", len(page), len(out))
			}
			if !strings.Contains(out, "x") && name != "a picture" && name != "entities" {
				t.Errorf("its words are gone: %.200q", out)
			}
		})
	}
}

// FuzzRead checks that any response becomes text without the secret.
func FuzzRead(f *testing.F) {
	f.Add("text/html", "<title>x</title><table><tr><td>canary-value</table>", false)
	f.Add("text/html; charset=utf-16le", "<\x00p\x00>\x00", false)
	f.Add("application/json", `{"a":"canary-value"}`, true)
	f.Add("text/plain; charset=shift_jis", "\x82\xa0\xff", false)
	f.Add("", "\x00\x01", true)
	f.Fuzz(func(t *testing.T, kind, body string, cut bool) {
		w := &fetcher{redact: func(s string) string { return strings.ReplaceAll(s, "canary-value", "[secret]") }}
		a := answer{target: target{url: &url.URL{Scheme: "https", Host: "example.com", Path: "/"}}, header: http.Header{"Content-Type": {kind}}, body: []byte(body), truncated: cut}
		for _, source := range []bool{true, false} {
			got := w.read(a, source)
			if !utf8.ValidString(got.body) || strings.Contains(got.body, "canary-value") {
				t.Fatalf("%q of %q became %q", body, kind, got.body)
			}

			for offset, more := 0, true; more; {
				part, next := page(got.body, offset, 7)
				if more = next > 0; more && next <= offset || !utf8.ValidString(part) {
					t.Fatalf("the part at %d is %q, the next at %d", offset, part, next)
				}
				offset = next
			}
		}
	})
}
