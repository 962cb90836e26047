package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"rouse/internal/dial"
)

// privateAddrError says that a host leads to an address that was not granted.
type privateAddrError struct {
	to   target
	addr netip.Addr
}

func (e *privateAddrError) Error() string {
	if e.to.addr.IsValid() {
		return fmt.Sprintf("%s is an address of this machine, of its network, or of nobody; its owner can allow it by naming it under grants.network", e.to.url.Host)
	}
	if !e.addr.IsValid() {
		return fmt.Sprintf("%s leads to this machine, its network, or nobody, which no approval allows; its owner can allow it with private: true for this host under grants.network", e.to.url.Host)
	}
	return fmt.Sprintf("%s leads to %s, an address of this machine, of its network, or of nobody; its owner can allow that with private: true for this host under grants.network", e.to.url.Host, e.addr)
}

// allows reports whether a connection to an address is allowed.
func (a access) allows(addr netip.Addr) bool {
	return a.private || a.addr.IsValid() && a.addr == addr.Unmap() || dial.Public(addr)
}

// resolveTimeout bounds the look-up of a host before its owner is asked.
const resolveTimeout = 5 * time.Second

// hostsFile knows only the names of this machine.
var hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no name server is asked here")
}}

// leadsInwards reports whether a request could never be made, because no address of the host is
// allowed. A name that the owner has not granted is not sent to a name server: it could carry data
// of the run.
func (f *fetcher) leadsInwards(ctx context.Context, t target, a access) bool {
	if t.addr.IsValid() || a.private {
		return false // judged already, or allowed
	}

	resolver := hostsFile
	if slices.ContainsFunc(f.rules, func(r rule) bool { return r.host != "" && r.covers(t) }) {
		if resolver = f.resolver; resolver == nil {
			resolver = net.DefaultResolver
		}
	}

	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := resolver.LookupNetIP(ctx, "ip", t.host)
	return err == nil && len(addrs) > 0 && !slices.ContainsFunc(addrs, a.allows) // an unknown name may be known later
}

// dial connects to the host of t. The address is judged when the connection is made.
func (f *fetcher) dial(t target, a access) func(context.Context, string, string) (net.Conn, error) {
	d := dial.Dialer(f.resolver, a.allows)
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, net.JoinHostPort(t.host, fmt.Sprint(t.port)))
	}
}
