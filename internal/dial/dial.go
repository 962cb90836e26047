package dial

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// timeout limits one attempt to connect, and one TLS handshake.
const timeout = 10 * time.Second

// internet accepts public addresses. It denies addresses of this machine and its network in every
// form, and the metadata addresses of cloud providers. The extra prefix is Azure's, which looks
// public.
var internet = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

// Public reports whether an address belongs to the public internet.
func Public(addr netip.Addr) bool {
	return addr.Zone() == "" && internet.SafeAddr(addr.Unmap()) == nil // ::ffff:127.0.0.1 is 127.0.0.1
}

// AddrError reports an address that is neither public nor allowed.
type AddrError struct{ Addr netip.Addr }

func (e *AddrError) Error() string {
	return fmt.Sprintf("%s is an address of this machine, of its network, or of nobody; only the configuration can name such an address, with its port", e.Addr)
}

// Dialer returns a dialer for public addresses, and for other addresses that allows accepts. allows
// is optional. A nil resolver means the system's.
func Dialer(resolver *net.Resolver, allows func(netip.Addr) bool) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Resolver: resolver, Control: func(network, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("a connection to %s %s is refused", network, address)
		}
		addr := to.Addr().Unmap()
		if Public(to.Addr()) || to.Addr().Zone() == "" && allows != nil && allows(addr) {
			return nil
		}
		return &AddrError{addr}
	}}
}
