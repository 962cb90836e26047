package web

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"rouse/agent/tool"
)

const value = `se"same/+ &открой`

// TestSecrets checks that a secret goes only to its host, encoded for its place in the request
// (OSL-22).
func TestSecrets(t *testing.T) {
	other := newSite(t, true, map[string]http.HandlerFunc{"/": says("text/plain", "other")})
	s := newSite(t, true, map[string]http.HandlerFunc{
		"/echo": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprint(w, "header "+r.Header.Get("X-Key")+" query "+r.URL.Query().Get("k")+" body "+string(body))
		},
		"/out":   goes(302, other.URL+"/?k=__OSL_SECRET[api]__"),
		"/again": goes(307, "/echo?k=__OSL_SECRET[api]__"),
		"/carry": goes(307, other.URL+"/"),
	})

	pool := roots(s)
	pool.AddCert(other.Certificate())
	fetch := tools(t, Options{RootCAs: pool, Grants: []Grant{{Host: s.host(t), Methods: []string{"GET", "POST"}}, {Host: other.host(t), Methods: []string{"GET", "POST"}}},
		Secrets: []tool.SecretGrant{{Name: "api", OnlyTo: s.host(t), Value: value}, {Name: "cmd", Value: "for-commands"}, {Name: "line", OnlyTo: s.host(t), Value: "a\r\nb: c"}},
		Redact:  func(text string) string { return strings.ReplaceAll(text, value, "[secret]") },
	})
	const p = "__OSL_SECRET[api]__"
	do := func(path string, a map[string]any) tool.Envelope {
		a["url"] = s.URL + path
		return call(t, fetch, a)
	}
	for _, c := range []struct {
		path string
		a    map[string]any
		want string
	}{
		{"/echo", map[string]any{"headers": map[string]string{"X-Key": p}}, "GET /echo X-Key=" + value},
		{"/echo?k=" + p + "&l=1", map[string]any{}, "GET /echo?k=se%22same%2F%2B+%26%D0%BE%D1%82%D0%BA%D1%80%D0%BE%D0%B9&l=1"},
		{"/a" + p + "/b", map[string]any{}, "GET /ase%22same%2F+%20&%D0%BE%D1%82%D0%BA%D1%80%D0%BE%D0%B9/b"},
		{"/echo", map[string]any{"method": "POST", "body": "raw " + p}, "POST /echo raw " + value},
		{"/echo", map[string]any{"method": "POST", "json": map[string]any{"k": p}}, `POST /echo Content-Type=application/json {"k":"se\"same/+ \u0026открой"}`},
		{"/echo", map[string]any{"method": "POST", "body": "k=" + p, "headers": map[string]string{"Content-Type": "application/x-www-form-urlencoded"}}, "POST /echo Content-Type=application/x-www-form-urlencoded k=se%22same%2F%2B+%26%D0%BE%D1%82%D0%BA%D1%80%D0%BE%D0%B9"},
	} {
		e := do(c.path, c.a)
		if got := s.log(); len(got) != 1 || got[0] != c.want {
			t.Errorf("%v arrived as %q, want %q", c.a, got, c.want)
		}
		if strings.Contains(string(e.Result), "same/+") {
			t.Errorf("the answer has it: %s", e.Result)
		}
	}

	for what, c := range map[string]map[string]any{
		"another host": {"url": other.URL + "/?k=" + p}, "an unknown secret": {"url": s.URL + "/?k=__OSL_SECRET[none]__"}, "one for commands": {"url": s.URL + "/?k=__OSL_SECRET[cmd]__"},
		"a line break": {"url": s.URL, "headers": map[string]string{"X": "__OSL_SECRET[line]__"}},
	} {
		if e := call(t, fetch, c); e.OK || strings.Contains(e.Message, "a\r") {
			t.Errorf("with %s: %+v", what, e)
		}
	}

	if got := append(s.log(), other.log()...); len(got) != 0 {
		t.Errorf("servers were asked %q", got)
	}

	// Redirects: secrets are not filled into a URL from a server, and those of the call go to their
	// host only.
	do("/out", map[string]any{"headers": map[string]string{"X-Key": p}})
	if got := other.log(); len(got) != 1 || got[0] != "GET /?k="+p {
		t.Errorf("the other server was asked %q", got)
	}

	s.log()
	do("/again", map[string]any{"headers": map[string]string{"X-Key": p}})
	if got := s.log(); len(got) != 2 || got[1] != "GET /echo?k="+p+" X-Key="+value {
		t.Errorf("the same server was asked %q", got)
	}
	if e := do("/carry", map[string]any{"method": "POST", "body": p}); !strings.Contains(strings.Join(e.Warnings, " "), "may be sent to") || len(other.log()) != 0 {
		t.Errorf("a body with a secret was carried on: %+v", e)
	}
}

// TestSecretsAtTheCut checks that no part of a secret remains at the cut or in the Markdown.
func TestSecretsAtTheCut(t *testing.T) {
	const long = "canary_value_that_is_long_enough"
	redact := func(text string) string { return strings.ReplaceAll(text, long, "[secret]") }
	for shift := 0; shift < len(long)+2; shift += 7 {
		body := strings.Repeat("a", maxAnswer+margin-shift) + long + strings.Repeat("b", 100)
		s := newSite(t, false, map[string]http.HandlerFunc{"/": says("text/plain", body), "/page": says("text/html", "<p>"+long+"</p>")})
		fetch := tools(t, Options{Grants: []Grant{{Host: s.host(t)}}, Redact: redact})
		call(t, fetch, map[string]any{"url": s.URL})
		if r := resultOf(t, call(t, fetch, map[string]any{"url": s.URL, "offset": maxAnswer - 1000})); strings.Contains(r.Text, long[:1]+"n") {
			t.Fatalf("%d characters of a secret are left", shift)
		}
		if r := resultOf(t, call(t, fetch, map[string]any{"url": s.URL + "/page"})); !strings.Contains(r.Text, "secret") || strings.Contains(r.Text, "value") {
			t.Fatalf("the page says %s", r.Text)
		}
	}
}
