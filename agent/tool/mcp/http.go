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

// maxAnswer is how much a server may send for one request, in bytes.
const maxAnswer = 16 << 20

// unauthorizedError says that a server wants to know who asks.
type unauthorizedError struct{ server string }

func (e *unauthorizedError) Error() string {
	return fmt.Sprintf("the MCP server %s asks for a sign-in; its owner signs in with: rouse mcp-servers sign-in %[1]s", e.server)
}

// maxRequests is how many requests one call may lead to: a server can have its client ask again where a stream broke off.
const maxRequests = 200

// transport sends the requests to a server at its address: over the guard of the network, with the headers that its owner gave, to
// nowhere else, and with an end.
type transport struct {
	server Server
	guard  http.RoundTripper
	tokens Tokens // nil: nobody signs in
	to     string // host and port

	mu       sync.Mutex
	fault    error  // the latest
	requests int    // of this call
	asks     string // with which words the server asked who asks (WWW-Authenticate)
}

// newTransport needs no grant of an agent: its owner named the address.
func newTransport(s Server, tokens Tokens) (*transport, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("its url is not understood: %w", err)
	}
	return &transport{server: s, guard: dial.New(dial.Options{Own: s.own()}), tokens: tokens, to: u.Host}, nil
}

// own are the addresses from the configuration that may be on this machine or its network: with private_network those of the
// server and of the issuer of its tokens, else an IP address that the owner wrote.
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

// begin begins to count for a call.
func (t *transport) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.fault = 0, nil
}

// why is what went wrong last; nil where nothing did.
func (t *transport) why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fault
}

// RoundTrip implements http.RoundTripper. Its errors are kept, for not all of them reach who asked.
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

	// The token may have been revoked before its time.
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

// once sends a request, with the token if there is one.
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

// boundedBody ends an answer that does not.
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

// withoutRedirects is a client that is not sent on.
func withoutRedirects(t http.RoundTripper) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Tokens give the token with which a server is asked that had its owner sign in; "" where there is none. had is one that the server
// did not take, "" at first.
type Tokens func(ctx context.Context, had string) (string, error)
