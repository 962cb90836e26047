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

// privateAddrError is returned if a host resolves to an address that is not granted.
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

// resolveTimeout limits the lookup of a host before the approval.
const resolveTimeout = 5 * time.Second

// hostsFile resolves only the names in this machine's hosts file.
var hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no name server is asked here")
}}

// leadsInwards reports whether no address of the host is allowed, so that the request can only
// fail. Names that are not granted are not sent to a name server, because a name can carry data of
// the run.
func (f *fetcher) leadsInwards(ctx context.Context, t target, a access) bool {
	if t.addr.IsValid() || a.private {
		return false // already checked, or allowed
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
	return err == nil && len(addrs) > 0 && !slices.ContainsFunc(addrs, a.allows) // an unknown name may resolve later
}

// dial returns a function that connects to the host of t. It checks the address when it connects.
func (f *fetcher) dial(t target, a access) func(context.Context, string, string) (net.Conn, error) {
	d := dial.Dialer(f.resolver, a.allows)
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, net.JoinHostPort(t.host, fmt.Sprint(t.port)))
	}
}
