package web

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"rouse/agent/tool"
)

// TestRequests: OSL-09, each request of a module and each redirect must satisfy the rules of its
// manifest and the grants of its agent. The response is returned unchanged.
func TestRequests(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		mu.Unlock()
		switch r.URL.Path {
		case "/api/near":
			http.Redirect(w, r, "/api/there", http.StatusFound)
		case "/api/away":
			http.Redirect(w, r, "/other", http.StatusFound)
		case "/api/gone":
			w.Header().Set("Set-Cookie", "a=b")
			w.Header().Set("X-Rate", "3")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<p>gone</p>")
		case "/api/picture":
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("\x89PNG\x00"))
		case "/api/long":
			_, _ = io.WriteString(w, strings.Repeat("x", maxAnswer+margin+1))
		}
	}))
	defer server.Close()

	r, err := NewRequests(Options{Grants: []Grant{{Host: strings.TrimPrefix(server.URL, "http://")}}}, func(method, url string) string {
		if MatchesPattern(server.URL+"/api/*", url) {
			return ""
		}
		return method + " " + url + " is covered by no rule"
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ path, says, asked string }{
		{"/api/near", "", "GET /api/near GET /api/there"},
		{"/api/away", "was not followed: GET " + server.URL + "/other is covered by no rule", "GET /api/away"},
		{"/other", "/other is covered by no rule", ""},
		{"/api/../other", "/other is covered by no rule", ""},
		{"/api/%2e%2e/other", "/api/%2e%2e/other is covered by no rule", ""},
		{"/api/gone", "", "GET /api/gone"},
		{"/api/picture", "which is not text", "GET /api/picture"},
		{"/api/long", "longer than 2 MiB", "GET /api/long"},
	} {
		a := RequestArgs{URL: server.URL + c.path}
		need, err := tool.RefusedAccess(r.Need(t.Context(), tool.Invocation{}, a))
		if err != nil || (need.Refused != nil) != (c.asked == "") || need.MissingGrant != "" {
			t.Errorf("%s: %+v (%v)", c.path, need, err)
		}
		e, err := tool.Answered(r.Send(t.Context(), a))
		mu.Lock()
		if err != nil || e.OK != (c.says == "") || !strings.Contains(e.Message, c.says) || strings.Join(asked, " ") != c.asked {
			t.Errorf("%s: %+v (%v), asked %s", c.path, e, err, asked)
		}
		asked = nil
		mu.Unlock()

		var got Response
		if c.path == "/api/gone" && (json.Unmarshal(e.Result, &got) != nil || got.OK || got.Status != 404 || got.StatusText != "Not Found" || got.Body != "<p>gone</p>" || got.Headers["x-rate"] != "3" || got.Headers["set-cookie"] != "") {
			t.Errorf("%+v", got)
		}
	}
}

// TestMatchesPattern: OSL-09, a rule covers what its author wrote, and no other host by a similar
// path.
func TestMatchesPattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"*", "https://a.example/x", true},
		{"https://api.example.com/*", "https://api.example.com/v1?q=1", true},
		{"https://api.example.com/*", "https://api.example.com/", true},
		{"https://api.example.com/*", "http://api.example.com/v1", false},
		{"https://api.example.com/*", "https://api.example.com.evil.example/v1", false},
		{"https://api.example.com/*", "https://evil.example/https://api.example.com/v1", false},
		{"https://*.example.com/*", "https://a.b.example.com/x", true},
		{"https://*.example.com/*", "https://evil.example/x.example.com/", false},
		{"https://*.example.com/*", "https://example.com/", false},
		{"*://Example.com/*", "http://example.com/x", true},
		{"https://*", "https://a.example/x/y", true},
		{"https://a.example", "https://a.example/", true},
		{"https://a.example", "https://a.example/x", false},
		{"https://a.example/*/items", "https://a.example/1/2/items", true},
		{"https://a.example/*/items", "https://a.example/items", false},
		{"https://a.example/a*a", "https://a.example/a", false},
		{"a.example/*", "https://a.example/x", false},
		{"", "https://a.example/x", false},
		{"https://a.example/pub/*", "https://a.example/pub/%2e%2e/secret", false},
		{"https://a.example/pub/*", "https://a.example/pub/..%2Fsecret", false},
		{"https://a.example/pub/*", "https://a.example/pub/%252e%252e/secret", false},
		{"https://a.example/pub/*", "https://a.example/pub/..;/secret", false},
		{"https://a.example/pub/*", "https://a.example/pub/..%5csecret", false},
		{"https://a.example/*/pub", "https://a.example/secret?x=/pub", false},
		{"https://a.example/*/pub", "https://a.example/x/pub?x=1", false},
		{"https://a.example/find?q=*", "https://a.example/find?q=a%2Fb", true},
		{"https://a.example/find?q=*", "https://a.example/find?p=1", false},
		{"https://a.example/find", "https://a.example/find?p=1", false},
		{"https://a.example/pub/*", "https://a.example/pub/x?q=%2e%2e/", true},
		{"https://a.example/*", "https://a.example/projects/group%2Fapp", true},
		{"https://*", "https://a.example/projects/group%2Fapp", true},
	} {
		if got := MatchesPattern(c.pattern, c.url); got != c.want {
			t.Errorf("%s covers %s: %v", c.pattern, c.url, got)
		}
	}
}

// TestNamesHost checks that a pattern names a host if it identifies a specific one.
func TestNamesHost(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{
		"https://api.example.com/*": true, "https://*.example.com/*": true, "https://example.com": true, "http://127.0.0.1:80/x": true, "*://example.com/": true,
		"*": false, "https://*": false, "https://*/api": false, "https://*.com/": false, "https://api.*/": false, "https:///": false, "example.com": false, "https://*com/": false, "https://*example.com/": false,
	} {
		if NamesHost(pattern) != want {
			t.Errorf("%s: %t", pattern, !want)
		}
	}
}
