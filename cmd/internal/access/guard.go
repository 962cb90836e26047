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

// policy is the Content-Security-Policy: pages load only files of this server and cannot be framed.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; form-action 'self'; manifest-src 'self'; base-uri 'none'; frame-ancestors 'none'"

// headers holds the headers of every response, including errors.
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

// refusal is the response to a rejected request.
type refusal struct {
	status  int
	message string
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// Signed wraps a handler that verifies its own requests. It checks only the address, and that
// requests for a proxied address come from the proxy.
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

// prepare sets the common response headers and limits how slowly the body may arrive.
func prepare(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	r.Body = newTimedBody(w, r.Body)
}

// Guard passes only authenticated requests to next. It handles /login and /logout itself.
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

		// End the request when its permission ends: event streams stay open for long.
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), callerKey{}, caller))
		defer cancel()
		defer context.AfterFunc(live, cancel)() //nolint:contextcheck // the session ends the request, not the other way round
		if s != nil {
			until, stop := context.WithDeadline(ctx, s.ExpiresAt)
			defer stop()
			ctx = until
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// addressOf returns the address a request was sent to. It returns a refusal if the address is
// unknown, or if the request did not come through the address's proxy.
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

// fromProxy reports whether a request comes from the proxy.
func (a *Access) fromProxy(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap() == a.proxy.From.Unmap()
}

// checkOrigin returns a refusal if another site caused the request.
func (at Address) checkOrigin(r *http.Request) *refusal {
	const why = "only pages of rouse itself may ask it, and this request came from another"

	site := r.Header.Get("Sec-Fetch-Site") // set by the browser; pages cannot change it
	switch site {
	case "", "same-origin", "none":
	default:
		// Links on other sites may open a page. The browser then sends no cookie, because of
		// SameSite=Strict.
		if !isNavigation(r) {
			return refuse(http.StatusForbidden, why)
		}
	}

	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
		// For requests that change something, browsers send one of the two headers. Programs that
		// send neither have no cookie.
		if site == "" && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get("Cookie") != "" {
			return refuse(http.StatusForbidden, "a request with a cookie that changes something must say its Origin")
		}
		return nil
	case len(origins) == 1 && strings.EqualFold(origins[0], at.Scheme+"://"+at.Host):
		return nil
	case len(origins) == 1 && origins[0] == "null" && site == "same-origin":
		return nil // browsers send this for forms of pages with Referrer-Policy: no-referrer
	}
	return refuse(http.StatusForbidden, why)
}

// isNavigation reports whether a browser follows a link to a page.
func isNavigation(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && r.Header.Get("Origin") == "" && !machine(r)
}

// identify returns the context that limits the request, and its session if it has one. The context
// is nil if the request is not authenticated.
func (a *Access) identify(r *http.Request, at Address) (context.Context, *session) {
	// A wrong token is an error even if there is a valid cookie.
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

// cookieName returns the name of the session cookie. It contains the port because cookies do not
// distinguish ports, and several daemons can run on one machine.
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

// login exchanges a login code for a session cookie and redirects, so that the code leaves the
// address bar.
func (a *Access) login(w http.ResponseWriter, r *http.Request, at Address) {
	// A prefetch must not use up the link.
	if r.Method != http.MethodGet || r.Header.Get("Sec-Purpose") != "" {
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
		// ErrNoSession means that another page has already logged out.
		if err := a.End(s.ID); err != nil && err != ErrNoSession { //nolint:errorlint // it is returned as it is
			a.log.Error("a logout could not be kept", "error", err)
			a.sayNo(w, r, refuse(http.StatusInternalServerError, "%v", err))
			return
		}
	}
	http.SetCookie(w, at.cookie("", time.Unix(0, 0)))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// machine reports whether a request comes from a program rather than from a person's browser.
func machine(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasPrefix(r.URL.Path, "/hooks/") || r.URL.Path == "/metrics" || r.URL.Path == "/mcp"
}

// sayNo sends the response for a rejected request.
func (a *Access) sayNo(w http.ResponseWriter, r *http.Request, no *refusal) {
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="rouse"`)
	}
	// The body is not read, so the connection cannot be reused.
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}

	if machine(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(no.status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": no.message}) // the client may have disconnected
		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(no.status)
	again := ""
	if path := r.URL.EscapedPath(); no.status == http.StatusUnauthorized && r.Method == http.MethodGet && path != "/login" && local(path) {
		// Browsers withhold the cookie if another site links here. They send it when the user
		// follows a link on this page.
		again = fmt.Sprintf("<p><a href=\"%s\">Open this page again</a>, if you came from another one and are logged in.</p>\n", html.EscapeString(path))
	}
	fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>rouse</title>\n<main>\n<h1>rouse</h1>\n<p>%s</p>\n%s</main>\n</html>\n", html.EscapeString(no.message), again)
}

const (
	// bodyBegins is the time before a client must have reached the rate bodyRate.
	bodyBegins = 20 * time.Second
	// bodyRate is the minimum rate of a request body, in bytes per second. It stops slow clients
	// from holding connections forever.
	bodyRate = 16 << 10
)

// timedBody is a request body with a deadline. net/http removes the deadline at the end of the
// body.
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
	// Set the deadline before the first Read: net/http itself reads the part that a handler left,
	// before the next request.
	_ = b.deadline.SetReadDeadline(b.began.Add(bodyBegins)) // Read reports the error
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

// callerOf returns the name of a caller: its session, or "token".
func callerOf(s *session) string {
	if s != nil {
		return "session " + s.ID
	}
	return "token"
}

// enter counts a request of a caller until leave is called. It reports false if the caller has too
// many already.
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

// Caller returns the caller that Guard authenticated: "token" or "session ID". It returns "" if the
// request did not pass through Guard.
func Caller(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}
