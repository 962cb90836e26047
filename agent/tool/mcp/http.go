package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync"

	"rouse/internal/dial"
	"rouse/internal/text"
)

// maxAnswer limits the size of one response, in bytes.
const maxAnswer = 16 << 20

// unauthorizedError is returned if a server requires a sign-in.
type unauthorizedError struct{ server string }

func (e *unauthorizedError) Error() string {
	return fmt.Sprintf("the MCP server %s asks for a sign-in; its owner signs in with: rouse mcp-servers sign-in %[1]s", e.server)
}

// maxRequests limits the HTTP requests of one call. A server can make its client reconnect whenever
// a stream breaks off.
const maxRequests = 200

// transport sends requests to a server's URL and to no other host. It applies the network checks,
// the configured headers and the request limit.
type transport struct {
	server Server
	guard  http.RoundTripper
	tokens Tokens // nil if the server needs no sign-in
	to     string // host and port

	mu       sync.Mutex
	fault    error  // latest error
	requests int    // requests of this call
	asks     string // latest WWW-Authenticate header
}

// newTransport returns a transport for a server. It checks no grants of the agent, because the
// owner configured the URL.
func newTransport(s Server, tokens Tokens) (*transport, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("its url is not understood: %w", err)
	}
	return &transport{server: s, guard: dial.New(dial.Options{Own: s.own()}), tokens: tokens, to: u.Host}, nil
}

// own returns the configured addresses that may be on this machine or its network. With
// private_network these are the server and the issuer of its tokens. Otherwise it is the server, if
// its URL contains an IP address.
func (s Server) own() (out []string) {
	if u, err := url.Parse(s.URL); err == nil {
		if _, err := netip.ParseAddr(u.Hostname()); s.Near || err == nil {
			out = append(out, s.URL)
		}
	}
	if s.Near && s.OAuth != nil {
		out = append(out, s.OAuth.Issuer)
	}
	return out
}

// begin resets the request count and the error for a new call.
func (t *transport) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.fault = 0, nil
}

// why returns the latest error of the current call, or nil.
func (t *transport) why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fault
}

// RoundTrip implements http.RoundTripper. It stores its errors, because the library does not return
// all of them to the caller.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.send(r) //nolint:contextcheck // the request carries it
	if err != nil && r.Context().Err() == nil {
		t.fail(err)
	}
	return resp, err
}

func (t *transport) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = err
}

func (t *transport) send(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	t.requests++
	many := t.requests > maxRequests
	t.mu.Unlock()
	switch {
	case many:
		return nil, fmt.Errorf("it has had itself asked more than %d times in one call", maxRequests)
	case r.URL.Host != t.to:
		return nil, fmt.Errorf("a request to %s is not sent: the server is at %s", text.OneLine(r.URL.Host), t.to)
	}

	r, err := unaliasHTTP(r)
	if err != nil {
		return nil, err
	}
	token := ""
	if t.tokens != nil {
		if token, err = t.tokens(r.Context(), ""); err != nil {
			return nil, err
		}
	}
	resp, err := t.once(r, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}

	t.mu.Lock()
	t.asks = resp.Header.Get("WWW-Authenticate")
	t.mu.Unlock()
	resp.Body.Close()
	if token == "" || r.GetBody == nil {
		return nil, &unauthorizedError{t.server.Name}
	}

	// The token may have been revoked before it expired.
	if token, err = t.tokens(r.Context(), token); err != nil || token == "" {
		return nil, errors.Join(&unauthorizedError{t.server.Name}, err)
	}
	again := r.Clone(r.Context())
	if again.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	resp, err = t.once(again, token)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		resp.Body.Close()
		return nil, &unauthorizedError{t.server.Name}
	}
	return resp, err
}

// once sends one request, with the token if it is not empty.
func (t *transport) once(r *http.Request, token string) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range t.server.Headers {
		r.Header.Set(name, value)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}

	resp, err := t.guard.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		resp.Body.Close()
		return nil, fmt.Errorf("it answers %d and leads elsewhere, which is not followed; configure the address where it is", resp.StatusCode)
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxAnswer, over: t.fail}
	return resp, nil
}

// boundedBody fails when a response is longer than its limit.
type boundedBody struct {
	io.ReadCloser
	left int64
	over func(error)
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.over(errTooMuch)
		return 0, errTooMuch
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

var errTooMuch = errors.New("it answers with more than " + text.Size(maxAnswer))

// withoutRedirects returns a client that does not follow redirects.
func withoutRedirects(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Tokens returns the access token for a server, or "" if there is none. had is a token that the
// server has just rejected, or "" on the first request.
type Tokens func(ctx context.Context, had string) (string, error)
