package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Dashboard says at which address browsers and programs reach the daemon, beside its socket.
type Dashboard struct {
	Listen string          `key:"listen" default:"127.0.0.1:7311" env:"yes" say:"an address of this machine with a port, or off; another than a loopback address needs tls or proxy"`
	Hosts  []string        `key:"hosts" say:"by which other names browsers know it, as in their address bar: box.example.net, or with a port that is not that of the scheme" eg:"[box.example.net]"`
	TLS    *dashboardTLS   `key:"tls" say:"a certificate of your own"`
	Proxy  *dashboardProxy `key:"proxy" say:"a proxy that speaks TLS with browsers, as tailscale serve does; what is sent to one of hosts must come from it"`
}

type dashboardTLS struct {
	Cert Path `key:"cert" need:"yes" say:"a file with the certificates, PEM" eg:"./tls/cert.pem"`
	Key  Path `key:"key" need:"yes" say:"a file with the private key, PEM" eg:"./tls/key.pem"`
}

type dashboardProxy struct {
	UserHeader string `key:"user_header" need:"yes" say:"in which the proxy names who asks: Tailscale-User-Login; whoever asks logs in all the same" eg:"Tailscale-User-Login"`
	From       string `key:"from" need:"yes" say:"the address that it asks from: 127.0.0.1" eg:"127.0.0.1"`
}

// DashboardOff is a listen address that nobody listens on.
const DashboardOff = "off"

// Off says whether nobody listens.
func (d Dashboard) Off() bool { return d.Listen == DashboardOff || d.Listen == "" }

// checkDashboard refuses an address at which strangers could listen in, or that no browser could be at.
func (c *checker) checkDashboard(d Dashboard) {
	if d.Off() {
		return
	}

	const form = "write an address with a port, like 127.0.0.1:7311, or off"
	host, port, err := net.SplitHostPort(d.Listen)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strconv.FormatUint(n, 10) != port {
		c.bad("dashboard.listen", "%q is no address to listen on", d.Listen).Hint = form
		return
	}
	address, err := netip.ParseAddr(host)
	if host == "localhost" {
		address, err = netip.MustParseAddr("127.0.0.1"), nil
	}
	if err != nil {
		c.bad("dashboard.listen", "%q is no IP address: a name may mean another one tomorrow", host).Hint = form
		return
	}

	c.checkDashboardHosts(d)
	if !address.IsLoopback() {
		c.checkExposed(d, address)
	}
	if d.Proxy != nil {
		if _, err := netip.ParseAddr(d.Proxy.From); err != nil {
			c.bad("dashboard.proxy.from", "%q is no IP address", d.Proxy.From)
		}
		if len(d.Hosts) == 0 {
			c.bad("dashboard.proxy", "say under hosts by which name browsers reach the proxy").Hint = "hosts: [box.example.net]"
		}
		if d.TLS != nil {
			c.bad("dashboard.proxy", "give tls or proxy, not both: one of them speaks with browsers")
		}
	}
}

// checkExposed is for an address that other machines reach.
func (c *checker) checkExposed(d Dashboard, address netip.Addr) {
	switch {
	case d.TLS == nil && d.Proxy == nil:
		c.bad("dashboard.listen", "%s can be reached by other machines, and whoever is between would read the token and could use it", d.Listen).
			Hint = "listen on 127.0.0.1:7311, or give tls: {cert: FILE, key: FILE}, or proxy: {user_header: Tailscale-User-Login, from: 127.0.0.1} where a proxy on this machine speaks TLS for it"
	case address.IsUnspecified() && len(d.Hosts) == 0:
		c.bad("dashboard.listen", "%s is every address of this machine; say under hosts by which of them, or by which name, browsers reach it", d.Listen).Hint = "hosts: [box.example.net:7311]"
	}
}

// checkDashboardHosts refuses what no browser has in its address bar.
func (c *checker) checkDashboardHosts(d Dashboard) {
	for i, host := range d.Hosts {
		if host == "" || strings.ContainsAny(host, "/*@ ?#") {
			c.bad(fmt.Sprintf("dashboard.hosts[%d]", i), "%q is no name of a host, with or without a port", host).Hint = "box.example.net, or box.example.net:7311"
		}
	}
}
