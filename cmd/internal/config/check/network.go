package check

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/replicate/target"
)

// connections checks addresses and other settings of network connections.
type connections struct{ report }

// address parses an http or https URL. It reports any other text and returns nil.
func (c connections) address(path, text, example string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		c.bad(path, "must be a URL like %s", example)
		return nil
	}
	return u
}

// encrypted refuses http to another machine. It returns true if the address is accepted.
func (c connections) encrypted(path string, u *url.URL, what string) bool {
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		c.bad(path, "must be https: whoever is between could read %s", what).Hint = "write https://" + u.Host + ", or use an address of this machine"
		return false
	}
	return true
}

// loopback reports whether a host is this machine. It does not use DNS.
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// headers reports invalid headers.
func (c connections) headers(path string, headers map[string]string) {
	for name, value := range headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			c.bad(path+"."+name, "is no header that a request could carry")
		}
	}
}

// checkTelemetry refuses an endpoint to which data would be sent unencrypted.
func (c connections) checkTelemetry(t config.Telemetry) {
	const at = "telemetry.otlp.endpoint"
	if t.OTLP == nil || !c.hasNoProblem(at) || t.OTLP.Endpoint == "" {
		return
	}
	if u := c.address(at, t.OTLP.Endpoint, "https://otel.example.net"); u != nil && c.encrypted(at, u, "what is sent, headers included") &&
		(u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		c.bad(at, "must have neither a user, nor a query, nor a fragment").Hint = "headers: {Authorization: \"Bearer ${secret:otlp}\"}"
	}
	c.headers("telemetry.otlp.headers", t.OTLP.Headers)
}

// checkHeartbeat refuses an address that others could read in transit and use.
func (c connections) checkHeartbeat(address string) {
	const at = "heartbeat_url"
	if address == "" { // also if it could not be read, which was reported
		return
	}
	if u := c.address(at, address, "https://hc-ping.com/…"); u != nil && c.encrypted(at, u, "it, and ping in the daemon's name") && (u.User != nil || u.Fragment != "") {
		c.bad(at, "must have neither a user nor a fragment")
	}
}

// minKeep is the minimum retention of copies. Old copies are removed once an hour.
const minKeep = time.Hour

func (c connections) checkReplicate(r *config.Replicate) {
	if r == nil {
		return
	}
	if r.Keep > 0 && time.Duration(r.Keep) < minKeep {
		c.bad("replicate.keep", "must be 1h at least: what is older is looked for once in an hour")
	}
	if c.cfg.Engine.Shared() {
		c.bad("replicate", "copies a home whose ledger is a file of it; with engine.postgres leave it out, and have PostgreSQL archive its log (pg_basebackup, archive_command)")
		return
	}
	if r.To != "" && c.hasNoProblem("replicate.to") {
		c.target("replicate", "to", r.To, r.AccessKey, r.SecretKey, "what is copied; name a place on another disk")
	}
}

// target checks the address of a folder or bucket, and its access keys.
func (c connections) target(path, key, text, access, secret, home string) {
	t, err := target.Parse(text)
	if err != nil {
		c.bad(path+"."+key, "%v", err)
		return
	}
	switch {
	case t.Folder != "" && (access != "" || secret != ""):
		c.bad(path+".access_key", "is of s3, and a folder needs none")
	case (access == "") != (secret == ""):
		c.bad(path+".secret_key", "must be given together with access_key, or neither")
	}
	if c.inHome(t.Folder) {
		c.bad(path+"."+key, "lies in the home, which is %s", home)
	}
}

// checkDashboard refuses an address that is unencrypted on the network or that browsers cannot
// use.
func (c connections) checkDashboard(d config.Dashboard) {
	if d.Off() {
		return
	}

	const form = "write an address with a port, like 127.0.0.1:7311, or off"
	host, port, err := net.SplitHostPort(d.Listen)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strconv.FormatUint(n, 10) != port {
		c.bad("dashboard.listen", "%q is no address to listen on", d.Listen).Hint = form
		return
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		c.bad("dashboard.listen", "%q is no IP address: a name may mean another one tomorrow", host).Hint = form
		return
	}

	for at, host := range config.Each("dashboard.hosts", d.Hosts) { // as displayed in the address bar of a browser
		if *host == "" || strings.ContainsAny(*host, "/*@ ?#") {
			c.bad(at, "%q is no name of a host, with or without a port", *host).Hint = "box.example.net, or box.example.net:7311"
		}
	}
	switch {
	case address.IsLoopback():
	case d.TLS == nil && d.Proxy == nil:
		c.bad("dashboard.listen", "%s can be reached by other machines, and whoever is between would read the token and could use it", d.Listen).
			Hint = "listen on 127.0.0.1:7311, or give tls: {cert: FILE, key: FILE}, or proxy: {user_header: Tailscale-User-Login, from: 127.0.0.1} where a proxy on this machine speaks TLS for it"
	case address.IsUnspecified() && len(d.Hosts) == 0:
		c.bad("dashboard.listen", "%s is every address of this machine; say under hosts by which of them, or by which name, browsers reach it", d.Listen).Hint = "hosts: [box.example.net:7311]"
	}
	if d.Proxy == nil {
		return
	}
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
