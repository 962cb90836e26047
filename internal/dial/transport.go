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

// maxHeader bounds the header of a response, in bytes.
const maxHeader = 64 << 10

// Options configure a Transport.
type Options struct {
	// Own are addresses from the configuration. Their hosts and ports may be anywhere, also on this machine.
	Own   []string
	Proxy bool // requests to Own go through the proxy of the environment
	HTTP  bool // other addresses may be asked without TLS

	Resolver *net.Resolver  // nil means the system's
	RootCAs  *x509.CertPool // nil means the system's
}

// Transport is an http.RoundTripper for addresses that others name. Its errors do not quote the URL.
type Transport struct {
	own             map[string]bool // origins
	http            bool
	inside, outside *http.Transport
}

// New returns a Transport. Connections are not kept for later requests.
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

// Pool returns an http.Transport whose connections connect makes. It has no proxy, which would connect past the dialer.
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

// Refuses returns an error if a URL could not be requested, whatever its name resolves to.
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

// Describe words the error of a connection to host. The result wraps err.
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
