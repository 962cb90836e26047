package web

import (
	"errors"
	"fmt"
	"net/http"

	"rouse/agent/tool"
)

// Transport is an http.RoundTripper for what the host of a module sends by itself: to hosts that its agent is granted, at addresses that
// these may have, over https but for the owner's own network. Its errors never quote a URL.
type Transport struct{ fetcher *fetcher }

// NewTransport may have no grant: then it sends nothing.
func NewTransport(o Options) (*Transport, error) {
	f, err := newFetcher(o)
	if err != nil {
		return nil, err
	}
	return &Transport{f}, nil
}

// Refuses says why nothing with these secrets would be sent to a URL, nil when it would. Where its name leads is known only then.
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

// WasRefused says why a request of a Transport was not sent, or not answered by whom it was for; "" when it was another reason.
func WasRefused(err error) string {
	var no *refusedError
	if errors.As(err, &no) {
		return no.why
	}
	return ""
}
