package access

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/internal/owner"
)

var here = []Address{{Scheme: "http", Host: "127.0.0.1:7311"}, {Scheme: "http", Host: "localhost:7311"}}

func newAccess(t *testing.T, dir string, o Options) *Access {
	t.Helper()
	o.Dir = dir
	if o.Addresses == nil {
		o.Addresses = here
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask sends a request to a guarded handler that responds with "in".
func ask(a *Access, method, target string, change func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "127.0.0.1:40000"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	a.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })).ServeHTTP(w, r)
	return w.Result()
}

func with(cookies ...*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
}

// follow logs a browser in with a new link and returns its cookie.
func follow(t *testing.T, a *Access, path string) *http.Cookie {
	t.Helper()
	link, _ := a.Login(path)
	resp := ask(a, http.MethodGet, link, nil)
	if resp.StatusCode != http.StatusFound || len(resp.Cookies()) != 1 {
		t.Fatalf("%s, %v", resp.Status, resp.Cookies())
	}
	if to := resp.Header.Get("Location"); strings.Contains(to, "code") || to != path {
		t.Errorf("the link leads to %s", to)
	}
	return resp.Cookies()[0]
}

// A link works once, within ten minutes, and redirects to a page of this server, without the code.
func TestLoginLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAccess(t, t.TempDir(), Options{})
		link, expires := a.Login("/runs/12")
		if d := time.Until(expires); d != codeFor {
			t.Errorf("it holds for %s", d)
		}

		for _, fetch := range []struct {
			method string
			change func(*http.Request)
		}{{http.MethodHead, nil}, {http.MethodPost, nil}, {http.MethodGet, func(r *http.Request) { r.Header.Set("Sec-Purpose", "prefetch") }}} {
			if resp := ask(a, fetch.method, link, fetch.change); resp.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s: %s", fetch.method, resp.Status)
			}
		}
		first := ask(a, http.MethodGet, link, nil)
		if c := first.Cookies(); first.StatusCode != http.StatusFound || first.Header.Get("Location") != "/runs/12" || len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode || c[0].Secure {
			t.Errorf("%s %v %v", first.Status, first.Header, c)
		}
		if again := ask(a, http.MethodGet, link, nil); again.StatusCode != http.StatusUnauthorized || len(again.Cookies()) > 0 {
			t.Errorf("the second time: %s", again.Status)
		}

		for _, elsewhere := range []string{"//evil.example/", "https://evil.example", `/\evil.example`, "runs"} {
			link, _ := a.Login(elsewhere)
			if to := ask(a, http.MethodGet, link, nil).Header.Get("Location"); to != "/" {
				t.Errorf("%s leads to %s", elsewhere, to)
			}
		}

		late, _ := a.Login("/")
		time.Sleep(codeFor)
		if resp := ask(a, http.MethodGet, late, nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("after ten minutes: %s", resp.Status)
		}
	})
}

// A session lasts until it is logged out, ended, expired, or the token is replaced. It survives a
// restart, and the stored data does not let anyone in.
func TestSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "dashboard")
		a := newAccess(t, dir, Options{})
		cookie := follow(t, a, "/")
		if resp := ask(a, http.MethodGet, a.URL("/v1/status"), with(cookie)); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}

		kept, err := os.ReadFile(a.sessionFile())
		if err != nil || strings.Contains(string(kept), cookie.Value) {
			t.Errorf("what lets a browser in is kept: %s, %v", kept, err)
		}
		for _, path := range []string{dir, a.sessionFile(), a.TokenFile()} {
			if info, err := os.Stat(path); err != nil || owner.HasModes && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}

		b := newAccess(t, dir, Options{}) // after a restart
		in := func(c *http.Cookie) int { return ask(b, http.MethodGet, b.URL("/"), with(c)).StatusCode }
		if in(cookie) != http.StatusOK {
			t.Error("a restart logs everybody out")
		}
		if out := ask(b, http.MethodPost, b.URL("/logout"), with(cookie)); out.StatusCode != http.StatusSeeOther || in(cookie) != http.StatusUnauthorized {
			t.Errorf("logged out: %s", out.Status)
		}

		ended := follow(t, b, "/")
		if err := b.End(b.Sessions()[0].ID); err != nil || in(ended) != http.StatusUnauthorized {
			t.Errorf("ended: %v", err)
		}
		if err := b.End("nobody"); err != ErrNoSession { //nolint:errorlint // End returns the error itself
			t.Error(err)
		}

		over := follow(t, b, "/")
		time.Sleep(sessionFor)
		if in(over) != http.StatusUnauthorized || len(b.Sessions()) != 0 {
			t.Errorf("after 30 days it holds: %+v", b.Sessions())
		}

		token := b.token
		last := follow(t, b, "/")
		link, _ := b.Login("/")
		if err := b.Rotate(); err != nil {
			t.Fatal(err)
		}
		bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
		if in(last) != http.StatusUnauthorized || ask(b, http.MethodGet, b.URL("/"), bearer).StatusCode != http.StatusUnauthorized || ask(b, http.MethodGet, link, nil).StatusCode != http.StatusUnauthorized {
			t.Error("the old token, its sessions or its links still let somebody in")
		}
	})
}

// An event stream ends when its permission ends.
func TestFollowersAreHungUpOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAccess(t, t.TempDir(), Options{})
		cookie := follow(t, a, "/")
		follows := func(change func(*http.Request)) (over chan struct{}) {
			over = make(chan struct{})
			r := httptest.NewRequest(http.MethodGet, a.URL("/v1/events"), nil)
			change(r)
			go a.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(over) })).ServeHTTP(httptest.NewRecorder(), r)
			synctest.Wait()
			return over
		}
		isOver := func(over chan struct{}) bool {
			synctest.Wait()
			select {
			case <-over:
				return true
			default:
				return false
			}
		}

		session, token := follows(with(cookie)), follows(func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+a.token) })
		if isOver(session) || isOver(token) {
			t.Fatal("they are over at once")
		}
		if err := a.End(a.Sessions()[0].ID); err != nil || !isOver(session) || isOver(token) {
			t.Errorf("after the end of the session: %v", err)
		}

		session = follows(with(follow(t, a, "/")))
		time.Sleep(sessionFor)
		if !isOver(session) {
			t.Error("a session that is over is followed on")
		}
		if err := a.Rotate(); err != nil || !isOver(token) {
			t.Errorf("after the token was replaced: %v", err)
		}
	})
}

// An address with a NUL character reaches no handler. Code that compares names or queries a
// database may treat NUL as the end of the text.
func TestNoNUL(t *testing.T) {
	t.Parallel()
	a := newAccess(t, t.TempDir(), Options{})
	for _, path := range []string{"/runs?job=a%00b", "/jobs/a%00b", "/v1/runs?%00=1"} {
		if resp := ask(a, http.MethodGet, a.URL(path), with(follow(t, a, "/"))); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// A caller with too many open requests does not affect other callers. It is served again when one
// of its requests ends.
func TestRequestsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAccess(t, t.TempDir(), Options{})
		byToken := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+a.token) }
		end := make(chan struct{})
		for range maxRequests {
			r := httptest.NewRequest(http.MethodGet, a.URL("/v1/events"), nil)
			byToken(r)
			go a.Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })).ServeHTTP(httptest.NewRecorder(), r)
		}
		synctest.Wait()
		if resp := ask(a, http.MethodGet, a.URL("/v1/status"), byToken); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
			t.Errorf("one more is answered %s", resp.Status)
		}
		if resp := ask(a, http.MethodGet, a.URL("/"), with(follow(t, a, "/"))); resp.StatusCode != http.StatusOK {
			t.Errorf("a browser is answered %s", resp.Status)
		}
		end <- struct{}{}
		synctest.Wait()
		if resp := ask(a, http.MethodGet, a.URL("/v1/status"), byToken); resp.StatusCode != http.StatusOK {
			t.Errorf("after one has ended: %s", resp.Status)
		}
		close(end)
	})
}

// Requests caused by pages of other sites are rejected. A link from another site shows only the
// page that asks for a login.
func TestOrigins(t *testing.T) {
	t.Parallel()
	a := newAccess(t, t.TempDir(), Options{})
	cookie := follow(t, a, "/")
	type headers map[string]string
	for _, c := range []struct {
		what, method, target string
		headers              headers
		want                 int
	}{
		{"our page", "GET", "/v1/runs", headers{"Sec-Fetch-Site": "same-origin"}, 200},
		{"our form", "POST", "/v1/runs", headers{"Sec-Fetch-Site": "same-origin", "Origin": "null"}, 200},
		{"our script", "POST", "/v1/runs", headers{"Origin": "http://127.0.0.1:7311"}, 200},
		{"the address bar", "GET", "/runs/1", headers{"Sec-Fetch-Site": "none"}, 200},
		{"another scheme", "POST", "/v1/runs", headers{"Origin": "https://127.0.0.1:7311"}, 403},
		{"another of our names", "POST", "/v1/runs", headers{"Origin": "http://localhost:7311"}, 403},
		{"two origins", "POST", "/v1/runs", headers{"Origin": "http://127.0.0.1:7311, http://evil.example"}, 403},
		{"a frame without an origin", "POST", "/v1/runs", headers{"Origin": "null"}, 403},
		{"a form of another site", "POST", "/v1/runs", headers{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}, 403},
		{"an image of another site", "GET", "/v1/runs", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403},
		{"a stream of another site", "GET", "/v1/events", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403},
		{"a link to the API", "GET", "/v1/runs", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{"a frame of another site", "GET", "/", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"an old browser that changes something", "POST", "/v1/runs", headers{}, 403},
	} {
		resp := ask(a, c.method, a.URL(c.target), func(r *http.Request) {
			r.AddCookie(cookie)
			for name, value := range c.headers {
				r.Header.Set(name, value)
			}
		})
		if resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.what, resp.Status, c.want)
		}
	}

	// After following a link in a mail, the browser sends no cookie, and the page offers to be
	// opened again.
	resp := ask(a, http.MethodGet, a.URL("/runs/%3Cb%3E"), func(r *http.Request) {
		for name, value := range (headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}) {
			r.Header.Set(name, value)
		}
	})
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(text), `href="/runs/%3Cb%3E"`) {
		t.Errorf("%s: %s, %v", resp.Status, text, err)
	}
	if resp := ask(a, http.MethodGet, "http://127.0.0.1:7311//evil.example/", nil); resp.StatusCode == http.StatusUnauthorized {
		if text, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(text), "href") {
			t.Errorf("it leads elsewhere: %s, %v", text, err)
		}
	}
}

// Requests to the proxy's name must come from the proxy with its header, and still need a login.
// With TLS, cookies are marked secure.
func TestProxy(t *testing.T) {
	t.Parallel()
	addresses := append([]Address{{Scheme: "https", Host: "box.example.net", Proxied: true}}, here...)
	a := newAccess(t, t.TempDir(), Options{Addresses: addresses, Proxy: Proxy{From: netip.MustParseAddr("100.64.0.1"), Header: "Tailscale-User-Login"}})
	by := func(from, user, host string) int {
		return ask(a, http.MethodGet, "http://"+host+"/", func(r *http.Request) {
			r.RemoteAddr = from
			if user != "" {
				r.Header.Set("Tailscale-User-Login", user)
			}
			r.Header.Set("Authorization", "Bearer "+a.token)
		}).StatusCode
	}

	for _, c := range []struct {
		from, user, host string
		want             int
	}{
		{"100.64.0.1:1234", "ann@example.net", "box.example.net", 200},
		{"100.64.0.2:1234", "ann@example.net", "box.example.net", 403},
		{"100.64.0.1:1234", "", "box.example.net", 403},
		{"127.0.0.1:1234", "", "127.0.0.1:7311", 200},
		{"100.64.0.1:1234", "ann@example.net", "box.example.net:7311", 421},
	} {
		if got := by(c.from, c.user, c.host); got != c.want {
			t.Errorf("from %s as %q for %s: %d, want %d", c.from, c.user, c.host, got, c.want)
		}
	}

	proxied := func(r *http.Request) {
		r.RemoteAddr = "100.64.0.1:1"
		r.Header.Set("Tailscale-User-Login", "ann@example.net")
	}
	if resp := ask(a, http.MethodGet, "http://box.example.net/", proxied); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the proxy alone lets in: %s", resp.Status)
	}
	link, _ := a.Login("/")
	at, err := url.Parse(link)
	if err != nil || at.Scheme+"://"+at.Host != "https://box.example.net" {
		t.Fatalf("%s, %v", link, err)
	}
	if c := ask(a, http.MethodGet, "http://box.example.net"+at.RequestURI(), proxied).Cookies(); len(c) != 1 || !c[0].Secure || !strings.HasPrefix(c[0].Name, "__Host-") {
		t.Errorf("%v", c)
	}
}

// A body that arrives too slowly is aborted. After a completed body, the deadline does not affect
// the next request.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	read := make(chan error, 2)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := newTimedBody(w, r.Body)
		if timed, ok := body.(*timedBody); ok {
			timed.began = time.Now().Add(-bodyBegins + 100*time.Millisecond) // close to the deadline
		}
		_, err := io.ReadAll(body)
		read <- err
		if err == nil {
			select {
			case <-r.Context().Done():
			case <-time.After(200 * time.Millisecond):
			}
			read <- r.Context().Err()
		}
	}))
	t.Cleanup(s.Close)

	slow, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := io.WriteString(slow, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err == nil || !os.IsTimeout(err) {
		t.Errorf("a body that does not come: %v", err)
	}

	resp, err := http.Post(s.URL, "text/plain", strings.NewReader("all of it")) //nolint:noctx // it ends with its server
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for range 2 {
		if err := <-read; err != nil {
			t.Errorf("a body that came: %v", err)
		}
	}
}

// An invalid token file or sessions file is an error and is not replaced, because the owner may
// have edited it.
func TestDamagedSecrets(t *testing.T) {
	t.Parallel()
	for file, text := range map[string]string{"token": "secret\n", "sessions.json": "{"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Options{Dir: dir, Addresses: here}); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v", file, err)
		}
	}

	// The number of login codes and sessions is limited.
	a := newAccess(t, t.TempDir(), Options{})
	for range maxCodes + maxSessions + 5 {
		follow(t, a, "/")
		a.Login("/")
	}
	var kept []json.RawMessage
	text, err := os.ReadFile(a.sessionFile())
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil || len(kept) != maxSessions || len(a.codes) > maxCodes {
		t.Errorf("%d sessions, %d links, %v", len(kept), len(a.codes), err)
	}
	if a.byToken("") != nil || context.Cause(a.byToken(a.token)) != nil {
		t.Error("the token")
	}
}

// deadlined records the deadline set on it.
type deadlined struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.until = t
	return nil
}

// The deadline also applies to a body that no handler reads: net/http reads it before the next
// request.
func TestUnreadBodies(t *testing.T) {
	t.Parallel()
	a := newAccess(t, t.TempDir(), Options{})
	for _, guard := range []func(http.Handler) http.Handler{a.Guard, a.Signed} {
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		before := time.Now()
		guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://x/", strings.NewReader("{}")))
		if w.until.Before(before) || w.until.After(time.Now().Add(bodyBegins)) {
			t.Errorf("it may take until %s", w.until)
		}
	}
}
