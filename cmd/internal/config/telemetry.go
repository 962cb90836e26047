package config

import (
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Telemetry says where numbers and traces are sent. Nothing is, unless its owner says so.
type Telemetry struct {
	OTLP *OTLP `key:"otlp" say:"sends what runs did, step by step and without what was said or read in them, as traces" unset:"nothing is sent"`
}

// OTLP is a receiver of the OpenTelemetry protocol over HTTP.
type OTLP struct {
	Endpoint string            `key:"endpoint" need:"yes" say:"https://otel.example.net, to which /v1/traces is added; http on this machine alone" eg:"https://otel.example.net"`
	Headers  map[string]string `key:"headers" say:"sent with each request, as {Authorization: \"Bearer ${secret:otlp}\"}" eg:"{Authorization: 'Bearer ${secret:otlp}'}"`
}

// TracesURL is where traces are sent.
func (o OTLP) TracesURL() string {
	const signal = "/v1/traces"
	return strings.TrimSuffix(strings.TrimRight(o.Endpoint, "/"), signal) + signal
}

// checkTelemetry refuses an address to which jobs and headers would travel readable to others.
func (c *checker) checkTelemetry(t Telemetry) {
	if t.OTLP == nil || !c.hasNoProblem("telemetry.otlp.endpoint") || t.OTLP.Endpoint == "" {
		return
	}

	u, err := url.Parse(t.OTLP.Endpoint)
	switch {
	case err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		c.bad("telemetry.otlp.endpoint", "must be a URL like https://otel.example.net")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		c.bad("telemetry.otlp.endpoint", "must have neither a user, nor a query, nor a fragment").Hint = "headers: {Authorization: \"Bearer ${secret:otlp}\"}"
	case u.Scheme == "http" && !loopback(u.Hostname()):
		c.bad("telemetry.otlp.endpoint", "must be https: whoever is between could read what is sent, headers included").Hint = "https://" + u.Host + ", or a collector on this machine"
	}

	for name, value := range t.OTLP.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			c.bad("telemetry.otlp.headers."+name, "is no header that a request could carry")
		}
	}
}

// checkHeartbeat refuses an address that others could read on the way: whoever knows it can ping in the daemon's name.
func (c *checker) checkHeartbeat(address string) {
	if address == "" { // also where it could not be read, which is said already
		return
	}

	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		c.bad("heartbeat_url", "must be a URL like https://hc-ping.com/…")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		c.bad("heartbeat_url", "must be https: whoever is between could read it, and ping in the daemon's name")
	case u.User != nil || u.Fragment != "":
		c.bad("heartbeat_url", "must have neither a user nor a fragment")
	}
}

// loopback says whether a host is this machine, whatever a name server says of it.
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}
