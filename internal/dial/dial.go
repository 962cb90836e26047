package dial

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// timeout bounds one attempt to connect.
const timeout = 10 * time.Second

// internet accepts public addresses. It denies addresses of this machine and its network in every form, and addresses
// where clouds serve the keys of their machines. The added prefix is Azure's, which looks like a public address.
var internet = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

// Public reports whether an address belongs to the public internet.
func Public(addr netip.Addr) bool {
	return addr.Zone() == "" && internet.SafeAddr(addr.Unmap()) == nil // ::ffff:127.0.0.1 is 127.0.0.1
}

// AddrError is the refusal of an address that is not public and not allowed.
type AddrError struct{ Addr netip.Addr }

func (e *AddrError) Error() string {
	return fmt.Sprintf("%s is an address of this machine, of its network, or of nobody; only the configuration can name such an address, with its port", e.Addr)
}

// Dialer connects to public addresses, and to other addresses if allows accepts them. A nil allows accepts none, and a
// nil resolver is the system's.
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
