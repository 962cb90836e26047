package access

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// policy is what a page may load and send: its own files, and nothing that stands within it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; form-action 'self'; manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'"

// headers are those of every answer, refusals included.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Cache-Control":                "no-store",
}

// refusal is why a request is not answered.
type refusal struct {
	status  int
	message string
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// Signed passes requests that next verifies. It checks only the address, and that a proxy sent them.
func (a *Access) Signed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prepare(w, r)
		if at, no := a.addressOf(r); no != nil && (!at.Proxied || !a.fromProxy(r)) {
			a.sayNo(w, r, no)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// prepare sets what each answer has, and bounds how slowly a body may come.
func prepare(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	r.Body = newTimedBody(w, r.Body)
}

// Guard lets only those in to next who may be. It answers /login and /logout itself.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		prepare(w, r)

		at, no := a.addressOf(r)
		if no == nil {
			no = at.checkOrigin(r)
		}
		if no == nil && (strings.Contains(r.URL.Path, "\x00") || strings.Contains(r.URL.RawQuery, "%00")) {
			no = refuse(http.StatusBadRequest, "the address has a NUL character (%%00), which no name and no value has")
		}
		if no != nil {
			a.sayNo(w, r, no)
			return
		}
		if r.URL.Path == "/login" {
			a.login(w, r, at)
			return
		}

		live, s := a.identify(r, at)
		if live == nil {
			a.sayNo(w, r, refuse(http.StatusUnauthorized, "nobody is logged in here: follow the link of `rouse dashboard`, or send the token as Authorization: Bearer"))
			return
		}
		if r.URL.Path == "/logout" {
			a.logout(w, r, at, s)
			return
		}

		caller := callerOf(s)
		leave, ok := a.enter(caller)
		if !ok {
			w.Header().Set("Retry-After", "5")
			a.sayNo(w, r, refuse(http.StatusTooManyRequests, "%d requests of yours are open, which is the most: close pages or programs that follow events", maxRequests))
			return
		}
		defer leave()

		// What is followed ends with the permission to follow it.
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), callerKey{}, caller))
		defer cancel()
		defer context.AfterFunc(live, cancel)() //nolint:contextcheck // it is the session that ends, not the request
		if s != nil {
			until, stop := context.WithDeadline(ctx, s.ExpiresAt)
			defer stop()
			ctx = until
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// addressOf is the address that a request is sent to.
func (a *Access) addressOf(r *http.Request) (Address, *refusal) {
	at, ok := a.addresses[strings.ToLower(r.Host)]
	if !ok {
		return at, refuse(http.StatusMisdirectedRequest, "rouse is not known as %q; it is at %s, and at what dashboard: {hosts: …} names", r.Host, a.URL("/"))
	}
	if !at.Proxied {
		return at, nil
	}

	if !a.fromProxy(r) || r.Header.Get(a.proxy.Header) == "" {
		return at, refuse(http.StatusForbidden, "requests for %s come by the proxy at %s, with the header %s", r.Host, a.proxy.From, a.proxy.Header)
	}
	return at, nil
}

// fromProxy reports whether the proxy sent a request.
func (a *Access) fromProxy(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap() == a.proxy.From.Unmap()
}

// checkOrigin refuses what a page of somebody else sends, or has a browser send.
func (at Address) checkOrigin(r *http.Request) *refusal {
	const why = "only pages of rouse itself may ask it, and this request came from another"

	site := r.Header.Get("Sec-Fetch-Site") // a browser says it, and no page can change it
	switch site {
	case "", "same-origin", "none":
	default:
		// A link that a person follows shows a page, and sends no cookie: that is SameSite=Strict.
		if !isNavigation(r) {
			return refuse(http.StatusForbidden, why)
		}
	}

	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
		// Browsers say one of the two with what changes anything; a program that says neither has no cookie of theirs.
		if site == "" && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get("Cookie") != "" {
			return refuse(http.StatusForbidden, "a request with a cookie that changes something must say its Origin")
		}
		return nil
	case len(origins) == 1 && strings.EqualFold(origins[0], at.Scheme+"://"+at.Host):
		return nil
	case len(origins) == 1 && origins[0] == "null" && site == "same-origin":
		return nil // what browsers say of the forms of pages with Referrer-Policy: no-referrer
	}
	return refuse(http.StatusForbidden, why)
}

// isNavigation reports whether a browser follows a link to a page.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && r.Header.Get("Origin") == "" && !machine(r)
}

// identify is what a request is allowed by, as long as that holds; nil: nothing.
func (a *Access) identify(r *http.Request, at Address) (context.Context, *session) {
	// A wrong token is wrong, whatever else is sent.
	if header := r.Header.Get("Authorization"); header != "" {
		token, ok := strings.CutPrefix(header, "Bearer ")
		if !ok {
			return nil, nil
		}
		return a.byToken(token), nil
	}

	cookie, err := r.Cookie(at.cookieName())
	if err != nil {
		return nil, nil
	}
	s := a.bySession(cookie.Value)
	if s == nil {
		return nil, nil
	}
	return s.live, s
}

// cookieName has the port in it: cookies do not tell ports apart, and several rouse may be on one machine.
func (at Address) cookieName() string {
	name := "rouse_session"
	if _, port, err := net.SplitHostPort(at.Host); err == nil {
		name += "_" + port
	}
	if at.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

func (at Address) cookie(value string, until time.Time) *http.Cookie {
	c := &http.Cookie{Name: at.cookieName(), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: at.Scheme == "https", Expires: until}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// login begins a session by a code, and leaves the address of the code.
func (a *Access) login(w http.ResponseWriter, r *http.Request, at Address) {
	if r.Method != http.MethodGet || r.Header.Get("Sec-Purpose") != "" { // what is fetched ahead of time must not use it up
		w.Header().Set("Allow", http.MethodGet)
		a.sayNo(w, r, refuse(http.StatusMethodNotAllowed, "a login link is followed by a person"))
		return
	}

	cookie, path, ok, err := a.begin(r.URL.Query().Get("code"), r.UserAgent())
	switch {
	case err != nil:
		a.log.Error("a login failed", "error", err)
		a.sayNo(w, r, refuse(http.StatusInternalServerError, "%v", err))
		return
	case !ok:
		a.sayNo(w, r, refuse(http.StatusUnauthorized, "this link was followed before, or is older than %s; get another: rouse dashboard", codeFor))
		return
	}

	http.SetCookie(w, at.cookie(cookie, time.Now().Add(sessionFor)))
	http.Redirect(w, r, path, http.StatusFound)
}

func (a *Access) logout(w http.ResponseWriter, r *http.Request, at Address, s *session) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		a.sayNo(w, r, refuse(http.StatusMethodNotAllowed, "log out with POST /logout"))
		return
	}

	if s != nil {
		// ErrNoSession: another page was faster.
		if err := a.End(s.ID); err != nil && err != ErrNoSession { //nolint:errorlint // it is returned as it is
			a.log.Error("a logout could not be kept", "error", err)
			a.sayNo(w, r, refuse(http.StatusInternalServerError, "%v", err))
			return
		}
	}
	http.SetCookie(w, at.cookie("", time.Unix(0, 0)))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// machine reports whether a request is one of a program rather than of a person who looks.
func machine(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasPrefix(r.URL.Path, "/hooks/") || r.URL.Path == "/metrics" || r.URL.Path == "/mcp"
}

// sayNo answers a request that is refused.
func (a *Access) sayNo(w http.ResponseWriter, r *http.Request, no *refusal) {
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="rouse"`)
	}
	// What was sent is not read: the connection is of no use any more.
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}

	if machine(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(no.status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": no.message}) // a client that is gone needs no answer
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(no.status)
	again := ""
	if path := r.URL.EscapedPath(); no.status == http.StatusUnauthorized && r.Method == http.MethodGet && path != "/login" && local(path) {
		// The cookie is not sent where a link of another page leads here; it is where this one does.
		again = fmt.Sprintf("<p><a href=\"%s\">Open this page again</a>, if you came from another one and are logged in.</p>\n", html.EscapeString(path))
	}
	fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>rouse</title>\n<main>\n<h1>rouse</h1>\n<p>%s</p>\n%s</main>\n</html>\n", html.EscapeString(no.message), again)
}

const (
	// bodyBegins is how long a client may take before it must have sent as much as bodyRate asks for.
	bodyBegins = 20 * time.Second
	// bodyRate is how fast a body must come, in bytes a second: whoever sends a byte a minute keeps a connection for ever.
	bodyRate = 16 << 10
)

// timedBody is a body that must come in time. net/http removes the deadline at its end.
type timedBody struct {
	io.ReadCloser
	deadline *http.ResponseController
	began    time.Time
	read     int64
}

func newTimedBody(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	if body == nil || body == http.NoBody {
		return body
	}
	b := &timedBody{ReadCloser: body, deadline: http.NewResponseController(w), began: time.Now()}
	// From the beginning: net/http itself reads what a handler has left, so that the next request can be read.
	_ = b.deadline.SetReadDeadline(b.began.Add(bodyBegins)) // Read says what is wrong with it
	return b
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	until := b.began.Add(bodyBegins + time.Duration(b.read/bodyRate)*time.Second)
	if err := b.deadline.SetReadDeadline(until); err != nil {
		return 0, err
	}

	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}

type callerKey struct{}

// callerOf names who was let in: by a session, or without one by the token.
func callerOf(s *session) string {
	if s != nil {
		return "session " + s.ID
	}
	return "token"
}

// enter counts a request of a caller until leave is called. It reports false if the caller has too many already.
func (a *Access) enter(caller string) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[caller] >= maxRequests {
		return nil, false
	}
	if a.open == nil {
		a.open = map[string]int{}
	}
	a.open[caller]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.open[caller]--; a.open[caller] == 0 {
			delete(a.open, caller)
		}
	}, true
}

// Caller is who Guard let in, "token" or "session ID"; "" where a request did not come by it.
func Caller(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}
