package web

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"rouse/internal/dial"
)

// Grant allows an agent to send requests to a host.
type Grant struct {
	// Host is a name, *.example.com for all names below one, * for all names, or an IP address.
	// With :port only that port is granted, otherwise 443 and 80. An IP address named here may
	// belong to this machine or its network.
	Host    string   `json:"host"`
	Methods []string `json:"methods,omitempty"` // empty means GET and HEAD
	Private bool     `json:"private,omitempty"` // names may resolve to addresses of this machine or its network
}

// Methods are the supported request methods.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// rule is a parsed grant.
type rule struct {
	shown   string
	any     bool
	below   string // ".example.com"
	host    string
	port    uint16 // zero means the default ports of the schemes
	addr    netip.Addr
	methods []string
	private bool
}

// Check returns an error if a grant is invalid.
func (g Grant) Check() error {
	_, err := g.rule()
	return err
}

func (g Grant) rule() (rule, error) {
	r := rule{shown: g.Host, methods: g.Methods, private: g.Private}
	if len(r.methods) == 0 {
		r.methods = []string{"GET", "HEAD"}
	}

	for _, m := range r.methods {
		if !slices.Contains(Methods, m) {
			return r, fmt.Errorf("%q is none of the methods %s", m, strings.Join(Methods, ", "))
		}
	}

	name, port, err := splitPort(g.Host)
	if err != nil {
		return r, err
	}

	r.port = port
	if name == "*" {
		r.any = true
		return r, nil
	}

	base, wild := strings.CutPrefix(name, "*.")
	host, addr, err := parseHost(base)
	switch {
	case err != nil:
		return r, err
	case wild && addr.IsValid():
		return r, fmt.Errorf("nothing is below the address %s", host)
	case wild:
		r.below = "." + host
	default:
		r.host, r.addr = host, addr
	}

	return r, nil
}

// CoversHost reports whether any of the grants covers the host of one.
func CoversHost(grants []Grant, one Grant) bool {
	o, err := one.rule()
	if err != nil {
		return false
	}

	return slices.ContainsFunc(grants, func(g Grant) bool {
		r, err := g.rule()
		switch {
		case err != nil || r.port != o.port: // no port means 443 and 80, which differs from either port
			return false
		case r.below != "":
			return strings.HasSuffix(o.host, r.below)
		}

		return r.any || r.host == o.host
	})
}

// covers reports whether the rule applies to the server of t.
func (r rule) covers(t target) bool {
	if r.port != t.port && (r.port != 0 || t.port != schemes[t.url.Scheme]) {
		return false
	}

	switch {
	case r.any:
		return true
	case r.below != "":
		// 1.2.3.4 is not below "3.4", because addresses have no subdomains.
		return !t.addr.IsValid() && strings.HasSuffix(t.host, r.below)
	}
	return r.host == t.host
}

// access is the combined result of an agent's grants for a request. The addresses do not depend on
// its method.
type access struct {
	granted bool
	named   bool       // a grant names exactly this host
	private bool       // any address is allowed
	addr    netip.Addr // an allowed address in addition to public ones
}

// near reports whether the owner granted an address of this machine or its network. Requests to
// such an address may use plain http.
func (a access) near() bool {
	return a.private || a.addr.IsValid() && !dial.Public(a.addr)
}

// access combines all grants that cover a request.
func (f *fetcher) access(t target, method string) access {
	var a access
	for _, r := range f.rules {
		if !r.covers(t) {
			continue
		}

		granted := slices.Contains(r.methods, method)
		a.granted = a.granted || granted
		a.named = a.named || granted && !r.any && r.below == ""
		a.private = a.private || r.private
		if r.addr.IsValid() {
			a.addr = r.addr
		}
	}

	return a
}
