package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rouse/agent/tool"
	"rouse/internal/domain"
)

// site is a server that a test grants, with a log of its requests.
type site struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // "METHOD /path?query Header=… body"
}

func newSite(t *testing.T, secure bool, pages map[string]http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := r.Method + " " + r.URL.RequestURI()
		for _, name := range []string{"Authorization", "Cookie", "X-Key", "Content-Type", "Accept", "Referer"} {
			if v := r.Header.Get(name); v != "" {
				line += " " + name + "=" + v
			}
		}

		s.mu.Lock()
		s.asked = append(s.asked, strings.TrimSpace(line+" "+string(body)))
		s.mu.Unlock()
		if page := pages[r.URL.Path]; page != nil {
			page(w, r)
			return
		}

		http.NotFound(w, r)
	})

	if secure {
		s.Server = httptest.NewTLSServer(handler)
	} else {
		s.Server = httptest.NewServer(handler)
	}

	t.Cleanup(s.Close)
	return s
}

func (s *site) host(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// log returns the requests since the last call.
func (s *site) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.asked
	s.asked = nil
	return out
}

func says(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}
}

func goes(status int, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	}
}

func resultOf(t *testing.T, e tool.Envelope) result {
	t.Helper()
	if !e.OK {
		t.Fatalf("the call failed: %s %s", e.Kind, e.Message)
	}

	var r result
	if err := json.Unmarshal(e.Result, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFetch(t *testing.T) {
	s := newSite(t, false, map[string]http.HandlerFunc{
		"/page": says("text/html; charset=iso-8859-1", "<html><head><title> A \n page </title><script>alert('x')</script><style>p{}</style></head><body><h1>Caf\xe9</h1><p>Go <a href=\"../next?a=1\">on</a>, <b>now</b>: 1 &lt; 2 &amp; [x_y].</p><table><tr><th>k</th></tr><tr><td>v</td></tr></table></body></html>"),
		"/json": says("application/json", `{"a": "<b>"}`),
		"/text": says("text/plain", "plain <b>text</b>"),
		"/none": func(http.ResponseWriter, *http.Request) {},
		"/pdf":  says("application/pdf", "%PDF-1.4"),
		"/lies": says("text/plain", "\x7fELF\x00\x00"),
		"/wide": says("text/plain", "\xff\xfeh\x00i\x00"),
		"/br": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			says("text/plain", "xyz")(w, nil)
		},
		"/fail": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(503)
			fmt.Fprint(w, "try later")
		},
	})

	fetch := tools(t, Options{Grants: []Grant{{Host: s.host(t), Methods: []string{"GET", "HEAD", "POST"}}}})
	get := func(path string) (result, tool.Envelope) {
		e := call(t, fetch, map[string]any{"url": s.URL + path})
		return resultOf(t, e), e
	}
	r, _ := get("/page")
	if r.Title != "A page" || r.ContentType != "text/html" || r.Status != 200 || r.URL != s.URL+"/page" {
		t.Errorf("of the page: %+v", r)
	}

	for _, want := range []string{"# Café", "[on](" + s.URL + "/next?a=1)", "**now**: 1 < 2 & [x_y].", "| v"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the page lacks %q:\n%s", want, r.Text)
		}
	}

	if strings.Contains(r.Text, "alert") || strings.Contains(r.Text, "p{}") {
		t.Errorf("the page has its scripts:\n%s", r.Text)
	}
	if r := resultOf(t, call(t, fetch, map[string]any{"url": s.URL + "/page", "format": "source"})); !strings.Contains(r.Text, "<h1>Café</h1>") {
		t.Errorf("its source is %s", r.Text)
	}

	for path, want := range map[string]string{"/json": `{"a": "<b>"}`, "/text": "plain <b>text</b>", "/none": "", "/wide": "hi"} {
		if r, e := get(path); r.Text != want || len(e.Warnings) != 0 {
			t.Errorf("%s: %q %v", path, r.Text, e.Warnings)
		}
	}

	for path, want := range map[string]string{"/pdf": "not text", "/lies": "binary", "/br": "compressed"} {
		if r, e := get(path); r.Text != "" || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], want) {
			t.Errorf("%s: %q %v", path, r.Text, e.Warnings)
		}
	}

	if r, e := get("/fail"); r.Status != 503 || r.Text != "try later" || r.Headers["retry-after"] != "7" || len(e.Warnings) != 1 {
		t.Errorf("of a failure: %+v %v", r, e.Warnings)
	}

	for path, kind := range map[string]tool.Kind{"/fail": tool.KindUnavailable, "/gone": tool.KindNotFound} {
		if e := call(t, fetch, map[string]any{"url": s.URL + path, "must_succeed": true}); e.OK || e.Kind != kind {
			t.Errorf("%s that must succeed: %+v", path, e)
		}
	}

	// Without the argument, the default of the caller applies.
	all, err := tool.NewRegistry(fetch...)
	if err != nil {
		t.Fatal(err)
	}
	for args, ok := range map[string]bool{`{"url":"` + s.URL + `/fail"}`: false, `{"url":"` + s.URL + `/fail","must_succeed":false}`: true, `{"url":"` + s.URL + `/text"}`: true} {
		if e, err := all.Call(t.Context(), tool.Invocation{MustSucceed: true}, "web_fetch", json.RawMessage(args)); e.OK != ok || err != nil {
			t.Errorf("%s: %+v %v", args, e, err)
		}
	}

	s.log()
	call(t, fetch, map[string]any{"url": s.URL + "/x", "method": "post", "json": map[string]any{"n": 12345678901234567}, "headers": map[string]string{"x-key": "k"}})
	if got := s.log(); len(got) != 1 || got[0] != `POST /x X-Key=k Content-Type=application/json {"n":12345678901234567}` {
		t.Errorf("a POST of JSON arrived as %q", got)
	}

	// Nothing listens on port 1. Another test could take a port that this test has freed.
	nobody := tools(t, Options{Grants: []Grant{{Host: "127.0.0.1:1"}}})
	if e := call(t, nobody, map[string]any{"url": "http://127.0.0.1:1/page"}); e.Kind != tool.KindUnavailable || !strings.Contains(e.Message, "refused") {
		t.Errorf("of a server that is gone: %+v", e)
	}
}

func TestArguments(t *testing.T) {
	fetch := tools(t, Options{Grants: []Grant{{Host: "example.com"}}})
	for name, a := range map[string]map[string]any{
		"url": {"url": "example.com"}, "method": {"url": "https://example.com/", "method": "CONNECT"},
		"headers": {"url": "https://example.com/", "headers": map[string]string{"host": "evil.example"}},
		"body":    {"url": "https://example.com/", "body": "x"},
		"json":    {"url": "https://example.com/", "method": "POST", "body": "x", "json": 1},
		"offset":  {"url": "https://example.com/", "method": "POST", "offset": 3},
	} {
		if e := call(t, fetch, a); e.Kind != tool.KindInvalidArgs || e.Field != name || e.Expected == "" {
			t.Errorf("%v: %+v", a, e)
		}
	}

	for _, h := range []map[string]string{{"a\r\nb": "c"}, {"a": "b\r\nc: d"}, {"": "x"}, {"Transfer-Encoding": "chunked"}, {"proxy-authorization": "x"}, {"A": "1", "a": "2"}} {
		if e := call(t, fetch, map[string]any{"url": "https://example.com/", "headers": h}); e.Kind != tool.KindInvalidArgs {
			t.Errorf("%q: %+v", h, e)
		}
	}

	if got, err := Tools(Options{}); err != nil || got != nil {
		t.Errorf("without grants there are %d tools (%v)", len(got), err)
	}
}

// TestRedirects checks that redirects stay within the grants, and that data for one host is not
// sent to the next.
func TestRedirects(t *testing.T) {
	other := newSite(t, false, map[string]http.HandlerFunc{"/": says("text/plain", "other")})
	pages := map[string]http.HandlerFunc{
		"/same": goes(302, "/there?q=1#f"), "/there": says("text/plain", "there"), "/other": goes(307, other.URL+"/"), "/see": goes(303, "/there"), "/keep": goes(308, "/there"),
		"/loop": goes(302, "/loop"), "/away": goes(302, "https://elsewhere.example/"), "/file": goes(302, "file:///etc/passwd"), "/user": goes(302, "http://a:b@127.0.0.1/"), "/inward": goes(302, "http://169.254.169.254/latest"),
	}
	s := newSite(t, false, pages)
	fetch := tools(t, Options{Grants: []Grant{{Host: s.host(t), Methods: []string{"GET", "POST"}}, {Host: other.host(t)}}})
	do := func(method, path string) (result, string) {
		a := map[string]any{"url": s.URL + path, "method": method, "headers": map[string]string{"Authorization": "Bearer a", "Cookie": "b", "X-Key": "c", "Accept": "text/plain"}}
		if method == "POST" {
			a["body"] = "text"
		}
		e := call(t, fetch, a)
		return resultOf(t, e), strings.Join(e.Warnings, "\n")
	}

	// A redirect that was not followed is a failure with must_succeed.
	if e := call(t, fetch, map[string]any{"url": s.URL + "/away", "must_succeed": true}); e.OK || !strings.Contains(e.Message, "answered 302 Found, and the redirect was not followed: GET https://elsewhere.example/") {
		t.Errorf("a redirect that must be followed: %+v", e)
	}
	s.log()

	const told = " Authorization=Bearer a Cookie=b X-Key=c"
	for _, c := range []struct {
		method, path, url, text, warning string
		asked, askedOther                []string
	}{
		{"GET", "/same", s.URL + "/there?q=1", "there", "", []string{"GET /same" + told + " Accept=text/plain", "GET /there?q=1" + told + " Accept=text/plain"}, nil},
		{"POST", "/same", s.URL + "/there?q=1", "there", "", []string{"POST /same" + told + " Accept=text/plain text", "GET /there?q=1" + told + " Accept=text/plain"}, nil},
		{"POST", "/see", s.URL + "/there", "there", "", []string{"POST /see" + told + " Accept=text/plain text", "GET /there" + told + " Accept=text/plain"}, nil},
		{"POST", "/keep", s.URL + "/there", "there", "", []string{"POST /keep" + told + " Accept=text/plain text", "POST /there" + told + " Accept=text/plain text"}, nil},
		{"GET", "/other", other.URL + "/", "other", "", []string{"GET /other" + told + " Accept=text/plain"}, []string{"GET / Accept=text/plain"}},
		{"POST", "/other", s.URL + "/other", "", "POST " + other.URL + "/ is not granted", []string{"POST /other" + told + " Accept=text/plain text"}, nil},
		{"GET", "/away", s.URL + "/away", "", "GET https://elsewhere.example/ is not granted", []string{"GET /away" + told + " Accept=text/plain"}, nil},
		{"GET", "/inward", s.URL + "/inward", "", "169.254.169.254 is an address of this machine", []string{"GET /inward" + told + " Accept=text/plain"}, nil},
		{"GET", "/file", s.URL + "/file", "", "must begin with", []string{"GET /file" + told + " Accept=text/plain"}, nil},
		{"GET", "/user", s.URL + "/user", "", "a user", []string{"GET /user" + told + " Accept=text/plain"}, nil},
	} {
		r, warning := do(c.method, c.path)
		if r.URL != c.url || r.Text != c.text || !strings.Contains(warning, c.warning) || (c.warning == "") != (warning == "") {
			t.Errorf("%s %s: %+v, %s", c.method, c.path, r, warning)
		}
		if got := s.log(); fmt.Sprint(got) != fmt.Sprint(c.asked) {
			t.Errorf("%s %s: the server was asked %q, want %q", c.method, c.path, got, c.asked)
		}
		if got := other.log(); fmt.Sprint(got) != fmt.Sprint(c.askedOther) {
			t.Errorf("%s %s: the other server was asked %q, want %q", c.method, c.path, got, c.askedOther)
		}
	}

	if _, warning := do("GET", "/loop"); !strings.Contains(warning, "more than 5") || len(s.log()) != 6 {
		t.Errorf("of a loop: %s", warning)
	}
}

// TestSize checks that endless and compressed bodies end at the limit.
func TestSize(t *testing.T) {
	s := newSite(t, false, map[string]http.HandlerFunc{
		"/bomb": func(w http.ResponseWriter, _ *http.Request) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(bytes.Repeat([]byte("a"), 8<<20))
			z.Close()
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write(b.Bytes())
		},
		"/endless": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("b"), 1<<16)); err != nil {
					return
				}
			}
		},
		"/header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("h", 1<<17)) },
		"/broken": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "first line\nand half of canary one two thr")
		},
	})

	fetch := tools(t, Options{Grants: []Grant{{Host: s.host(t)}}, Secrets: []tool.SecretGrant{{Name: "a", Value: "canary one two three"}}})
	for _, path := range []string{"/bomb", "/endless"} {
		e := call(t, fetch, map[string]any{"url": s.URL + path, "max_chars": 10, "offset": 0})
		if r := resultOf(t, e); len(r.Text) != 10 || !r.Truncated || r.NextOffset != 10 || !strings.Contains(strings.Join(e.Warnings, " "), "longer than 2 MiB") {
			t.Errorf("%s: %+v %v", path, r, e.Warnings)
		}

		last := call(t, fetch, map[string]any{"url": s.URL + path, "max_chars": 10, "offset": maxAnswer - 5})
		if r := resultOf(t, last); len(r.Text) != 5 || r.Truncated {
			t.Errorf("the end of %s: %+v", path, r)
		}
	}

	if e := call(t, fetch, map[string]any{"url": s.URL + "/header"}); e.OK {
		t.Error("a header of 128 KiB was read")
	}

	e := call(t, fetch, map[string]any{"url": s.URL + "/broken"})
	if r := resultOf(t, e); r.Text != "first line\nand half of " || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "broke off") {
		t.Errorf("an answer that breaks off, in a secret: %q %v", r.Text, e.Warnings)
	}

	past := call(t, fetch, map[string]any{"url": s.URL + "/bomb", "offset": maxAnswer + 1})
	if r := resultOf(t, past); r.Text != "" || !strings.Contains(strings.Join(past.Warnings, " "), fmt.Sprintf("it has %d characters", maxAnswer)) {
		t.Errorf("behind the end: %q %v", r.Text, past.Warnings)
	}
}

// TestPages checks that a long text is read on without another request, and that every character
// appears once.
func TestPages(t *testing.T) {
	whole := strings.Repeat("aä€𝄞\n", 1000)
	s := newSite(t, false, map[string]http.HandlerFunc{"/": says("text/plain; charset=utf-8", whole)})
	fetch := tools(t, Options{Grants: []Grant{{Host: s.host(t)}}})
	var got strings.Builder
	for offset, more := 0, true; more; {
		r := resultOf(t, call(t, fetch, map[string]any{"url": s.URL, "offset": offset, "max_chars": 777}))
		got.WriteString(r.Text)
		offset, more = r.NextOffset, r.Truncated
	}

	if got.String() != whole || len(s.log()) != 1 {
		t.Error("the parts are not the whole, or it was asked for more than once")
	}
	if r := resultOf(t, call(t, fetch, map[string]any{"url": s.URL, "offset": 99999})); r.Text != "" || r.Truncated {
		t.Errorf("behind the end: %+v", r)
	}
}

// TestSlow checks that a server without a response times out after 30 seconds.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{redact: func(s string) string { return s }}
		ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errTooSlow)
		defer cancel()

		time.Sleep(limit + time.Second)
		q, err := newRequest(args{URL: "https://example.com/"})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.describe(ctx, q.target, ctx.Err()); !strings.Contains(got.Error(), "no answer within 30s") {
			t.Errorf("it says %v", got)
		}
	})
}

func TestNeed(t *testing.T) {
	fetch := tools(t, Options{Grants: []Grant{{Host: "example.com"}}, Secrets: []tool.SecretGrant{{Name: "api", OnlyTo: "example.com", Value: "sesame-sesame"}, {Name: "open", OnlyTo: "example.com", Value: "weather-key", Public: true}}})[0]
	need := func(a string) tool.Access {
		n, err := fetch.Access(t.Context(), tool.Invocation{}, json.RawMessage(a))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := need(`{"url": "https://example.com/a"}`); n.MissingGrant != "" || n.Refused != nil || n.AddsTaint != tool.Untrusted || n.Labels(0) != tool.Untrusted || n.Labels(tool.Private) != tool.Untrusted|tool.Outward {
		t.Errorf("of a granted GET: %+v", n)
	}

	n := need(`{"url": "https://EXAMPLE.com./a", "method": "POST", "headers": {"b": "2", "A": "1"}, "body": "text"}`)
	if want := "POST https://example.com/a\nA: 1\nB: 2\n\ntext\n"; n.Shown != want || n.MissingGrant == "" {
		t.Errorf("a POST is shown as %q, missing %q", n.Shown, n.MissingGrant)
	}
	if same := need(`{"url": "https://example.com/a", "method": "post", "headers": {"a": "1", "B": "2"}, "body": "text"}`); same.Action != n.Action {
		t.Errorf("the same request is another action: %s, %s", n.Action, same.Action)
	}

	for _, other := range []string{`"body": "text2"`, `"body": "text", "json": null, "headers": {"A": "1", "B": "3"}`, `"body": "text", "headers": {"A": "1"}`} {
		if m := need(`{"url": "https://example.com/a", "method": "POST", ` + other + `}`); m.Action == n.Action {
			t.Errorf("%s is the same action", other)
		}
	}

	if n := need(`{"url": "https://example.com/", "headers": {"X": "__OSL_SECRET[api]__"}}`); n.Labels(0) != tool.AllTaints || strings.Contains(n.Action+n.Shown, "sesame") {
		t.Errorf("with a secret: %+v", n)
	}
	if n := need(`{"url": "https://example.com/", "headers": {"X": "__OSL_SECRET[open]__"}}`); n.Labels(0) != tool.Untrusted || !n.OnlyAddress {
		t.Errorf("with a secret that opens nothing private: %+v", n)
	}

	for _, a := range []string{`{"url": "http://127.0.0.1/"}`, `{"url": "http://169.254.169.254/latest/meta-data/"}`, `{"url": "https://other.example/?k=__OSL_SECRET[api]__"}`, `{"url": "http://example.com/?k=__OSL_SECRET[api]__"}`, `{"url": "https://example.com/?k=__OSL_SECRET[none]__"}`} {
		if n := need(a); n.Refused == nil {
			t.Errorf("%s could be approved: %+v", a, n)
		}
	}

	if fetch.EffectOf(json.RawMessage(`{"url": "x"}`)) != domain.EffectRead || fetch.EffectOf(json.RawMessage(`{"method": "post"}`)) != domain.EffectExternal || fetch.EffectOf(json.RawMessage(`"{}"`)) != domain.EffectExternal {
		t.Error("a GET reads, and everything else may change something")
	}
}

// TestAskedInVain checks that a request that can only fail is refused before an approval is
// requested. Only a name with its own grant is resolved for that, because a name chosen by the
// agent could carry data to a name server.
func TestAskedInVain(t *testing.T) {
	names := map[string][]string{"inward.example.": {"127.0.0.1"}, "outward.example.": {"1.1.1.1"}}
	var asked atomic.Int64
	dns := resolver(t, names)
	dial := dns.Dial
	dns.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		asked.Add(1)
		return dial(ctx, network, address)
	}

	fetch := tools(t, Options{Resolver: dns, Grants: []Grant{{Host: "inward.example"}, {Host: "outward.example"}, {Host: "own.example", Private: true}, {Host: "*.wild.example"}}})[0]
	for url, want := range map[string]struct{ refused, looksUp bool }{
		"https://inward.example/":  {true, true},
		"https://outward.example/": {false, true},
		"https://own.example/":     {false, false},
		"https://a.wild.example/":  {false, false},
		"https://other.example/":   {false, false},
		"https://localhost/":       {true, false},
	} {
		before := asked.Load()
		n, err := fetch.Access(t.Context(), tool.Invocation{}, json.RawMessage(fmt.Sprintf(`{"url":%q,"method":"POST"}`, url)))
		if err == nil {
			n, err = tool.RefusedAccess(n.Bind(n))
		}
		if err != nil || (n.Refused != nil) != want.refused || asked.Load() > before != want.looksUp {
			t.Errorf("%s: %+v (%v), %d questions", url, n.Refused, err, asked.Load()-before)
		}
	}
}

// roots returns a pool that trusts a test's server.
func roots(s *site) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}
