package dial

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// GuardDefault makes http.DefaultTransport refuse redirects to other hosts. Libraries use this
// transport with configured addresses, such as those of notification channels, and follow
// redirects. Without the guard, a server could redirect them to this machine or its network.
// GuardDefault must be called before the transport is used.
func GuardDefault() {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t.Proxy = sameHost(t.Proxy)
	}
}

// sameHost returns a proxy function that fails for a redirect to another host. The proxy function
// is the only hook of a transport that gets the request.
func sameHost(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		if r.Response != nil && r.Response.Request != nil { // the redirect that led here
			if from := r.Response.Request.URL; !strings.EqualFold(from.Hostname(), r.URL.Hostname()) {
				return nil, fmt.Errorf("%s redirects to another server, which is not followed; configure the address that is meant", from.Host)
			}
		}
		if proxy == nil {
			return nil, nil //nolint:nilnil // no proxy
		}
		return proxy(r)
	}
}
