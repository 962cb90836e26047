package web

import (
	"errors"
	"fmt"
	"net/http"

	"rouse/agent/tool"
)

// Transport is an http.RoundTripper for a module's host. It sends requests only to granted hosts
// and allowed addresses. It requires https except within the owner's own network. Its errors never
// quote a URL.
type Transport struct{ fetcher *fetcher }

// NewTransport returns a Transport. Without grants, the transport refuses every request.
func NewTransport(o Options) (*Transport, error) {
	f, err := newFetcher(o)
	if err != nil {
		return nil, err
	}
	return &Transport{f}, nil
}

// Refuses returns an error if a request with these secrets must not be sent. The addresses of a
// name are checked only when the request is sent.
func (t *Transport) Refuses(method, url string, secrets ...tool.SecretGrant) error {
	to, err := parseURL(url)
	if err != nil {
		return fmt.Errorf("the address %s cannot be used: %w", url, err)
	}

	a := t.fetcher.access(to, method)
	switch {
	case !a.granted:
		return fmt.Errorf("%s %s is not among the grants of this agent; its owner can grant it (grants: network)", method, to.url.Host)
	case to.addr.IsValid() && !a.allows(to.addr):
		return &privateAddrError{to, to.addr}
	case to.url.Scheme != "https" && !a.near():
		return fmt.Errorf("%s is not asked without https", to.url.Host)
	}
	return t.fetcher.checkSecrets(to, a, secrets)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.Refuses(r.Method, r.URL.String()); err != nil {
		return nil, &refusedError{err.Error()}
	}
	to, err := parseURL(r.URL.String())
	if err != nil {
		return nil, &refusedError{err.Error()}
	}

	ctx := r.Context()
	r = r.Clone(ctx)
	r.URL, r.Host = to.url, ""
	r.Header.Set("User-Agent", "rouse")
	resp, err := t.fetcher.transport(to, t.fetcher.access(to, r.Method)).RoundTrip(r)
	if err != nil {
		return nil, t.fetcher.describe(ctx, to, err)
	}
	return resp, nil
}

// WasRefused returns the reason a Transport refused a request, or "" if err has another cause.
func WasRefused(err error) string {
	if no, ok := errors.AsType[*refusedError](err); ok {
		return no.why
	}
	return ""
}
