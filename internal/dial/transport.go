package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
)

// maxHeader is the maximum size of a response header, in bytes.
const maxHeader = 64 << 10

// Options configures a Transport.
type Options struct {
	// Own lists URLs from the configuration. Requests to their hosts and ports are always allowed,
	// also on this machine.
	Own   []string
	Proxy bool // use the environment's proxy for requests to Own
	HTTP  bool // allow HTTP without TLS for other addresses

	Resolver *net.Resolver  // nil means the system's
	RootCAs  *x509.CertPool // nil means the system's
}

// Transport is an http.RoundTripper for addresses from untrusted sources. Its errors do not contain
// the URL.
type Transport struct {
	own             map[string]bool // origins
	http            bool
	inside, outside *http.Transport
}

// New returns a Transport. It does not reuse connections.
func New(o Options) *Transport {
	t := &Transport{own: map[string]bool{}, http: o.HTTP}
	for _, address := range o.Own {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			t.own[origin(u)] = true
		}
	}

	t.outside = Pool(Dialer(o.Resolver, nil).DialContext, o.RootCAs)
	t.inside = Pool(Dialer(o.Resolver, func(netip.Addr) bool { return true }).DialContext, o.RootCAs)
	if o.Proxy {
		t.inside.Proxy = http.ProxyFromEnvironment
	}
	return t
}

// Pool returns an http.Transport that uses connect for its connections. It has no proxy, because a
// proxy would bypass connect.
func Pool(connect func(ctx context.Context, network, address string) (net.Conn, error), rootCAs *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy: nil, DialContext: connect, DisableKeepAlives: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHeader,
		TLSHandshakeTimeout: timeout, TLSClientConfig: &tls.Config{RootCAs: rootCAs, MinVersion: tls.VersionTLS12},
	}
}

// origin identifies a server: scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// Refuses returns an error if a URL cannot be requested, regardless of its address.
func (t *Transport) Refuses(u *url.URL) error {
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the address does not begin with https:// and a host")
	}
	if t.own[origin(u)] {
		return nil
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && !Public(addr) {
		return &AddrError{addr}
	}
	if u.Scheme != "https" && !t.http {
		return fmt.Errorf("%s is not asked without https", u.Host)
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.Refuses(r.URL); err != nil {
		return nil, err
	}
	through := t.outside
	if t.own[origin(r.URL)] {
		through = t.inside
	}
	resp, err := through.RoundTrip(r)
	if err != nil {
		return nil, Describe(r.URL.Host, err)
	}
	return resp, nil
}

// Describe returns a readable error for a failed connection to host. The result wraps err.
func Describe(host string, err error) error {
	var addr *AddrError
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var errno syscall.Errno
	words := ""
	switch {
	case errors.As(err, &addr):
		words = fmt.Sprintf("%s leads to %s", host, addr)
	case errors.As(err, &dns) && dns.IsNotFound:
		words = "there is no host " + host
	case errors.As(err, &dns):
		words = fmt.Sprintf("the address of %s cannot be found now: %s", host, dns.Err)
	case errors.As(err, &cert):
		words = fmt.Sprintf("%s does not prove that it is %[1]s: %v", host, cert.Err)
	case errors.As(err, &errno):
		words = fmt.Sprintf("%s cannot be reached: %s", host, errno)
	default:
		return err
	}
	return &describedError{words, err}
}

type describedError struct {
	words string
	cause error
}

func (e *describedError) Error() string { return e.words }
func (e *describedError) Unwrap() error { return e.cause }
