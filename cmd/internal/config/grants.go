package config

import (
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/agent/tool/web"
)

// Reads returns the paths beside the workdir that an agent may read, and which are not private.
func (a *Agent) Reads() (all, public []string) {
	for _, g := range a.Grants.Read {
		all = append(all, string(g.Path))
		if !On(g.Private) {
			public = append(public, string(g.Path))
		}
	}
	return all, public
}

// Network are the hosts that an agent may ask.
func (a *Agent) Network() []web.Grant {
	var out []web.Grant
	for _, g := range a.Grants.Network {
		out = append(out, web.Grant(g))
	}
	return out
}

// Secrets are those that an agent's calls may use.
func (a *Agent) Secrets() []tool.SecretGrant {
	var out []tool.SecretGrant
	for _, g := range a.Grants.Secrets {
		out = append(out, tool.SecretGrant{Name: g.Name, OnlyTo: g.OnlyTo, Value: g.value, Public: !On(g.Private)})
	}
	return out
}

func (c *checker) network(path string, a *Agent) {
	for at, g := range each(path+".grants.network", a.Network()) {
		if g.Host == "" || !c.hasNoProblem(at) {
			continue
		}

		if err := g.Check(); err != nil {
			c.bad(at+".host", "%s", err.Error()).Hint = "write a host like api.example.com, *.example.com or 192.168.1.5:8080"
		} else if strings.HasPrefix(g.Host, "*") && !strings.Contains(strings.TrimPrefix(g.Host, "*."), ".") {
			c.warn(at+".host", "lets the agent ask any host%s, also one that a page which it reads names to it", map[bool]string{true: " below " + strings.TrimPrefix(g.Host, "*.")}[len(g.Host) > 2])
		}
	}
}

// secretGrants looks the secrets of an agent up, and says which could never be used.
func (c *checker) secretGrants(path string, a *Agent) {
	seen := map[string]bool{}
	for at, g := range each(path+".grants.secrets", a.Grants.Secrets) {
		if g.Name == "" {
			continue
		}

		if !secretName.MatchString("secret:" + g.Name) {
			c.bad(at+".name", "%q is not the name of a secret; it is what rouse secrets set NAME took", short(g.Name))
			continue
		}

		if seen[g.Name] {
			c.bad(at+".name", "the secret %s is granted twice", g.Name)
			continue
		}

		seen[g.Name] = true
		var problem, hint string
		// The value is kept in the agent, so that a call needs no store.
		if g.value, problem, hint = c.d.lookup(c.d.place(at+".name"), at, g.Name); problem != "" {
			c.d.lacks(c.d.place(at+".name"), at, at+".name", g.Name, problem, hint)
		}
		if g.OnlyTo == "" {
			continue
		}

		only := web.Grant{Host: g.OnlyTo}
		if err := only.Check(); err != nil || strings.Contains(g.OnlyTo, "*") {
			c.bad(at+".only_to", "must be one host like api.example.com")
		} else if !web.CoversHost(a.Network(), only) {
			c.warn(at+".only_to", "no host under grants.network is %s, so that no request can send it", g.OnlyTo)
		}
	}
}

// references returns the places that ask for secrets, with what they are in.
func (d *decoder) references() []SecretRef {
	words := map[string]string{"models": "model", "agents": "agent", "mcp": "MCP server", "jobs": "job", "notifications": "channel"}
	for i := range d.refs {
		r := &d.refs[i]
		if m := listed.FindStringSubmatch(r.Path); m != nil {
			r.Of = strings.TrimSpace(words[m[2]] + " " + d.nameAt(r.Path))
		}
	}
	return d.refs
}

// sends reports whether requests of a grant may do more than read from one named host.
func (g networkGrant) sends() bool {
	return strings.Contains(g.Host, "*") || slices.ContainsFunc(g.Methods, func(m string) bool { return m != "GET" && m != "HEAD" })
}
