package config

import (
	"slices"
	"strings"

	"rouse/agent"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
)

// Permits reports whether the filter allows a tool.
func (f toolFilter) Permits(s tool.Spec) bool { return tool.IsAllowed(f.Allow, f.Deny, s.Name) }

// Settle sets the workdir. An isolated agent works in own and may read its configured workdir.
func (a *Agent) Settle(own Path) {
	if a.Mode == plan.ModeIsolated && a.Workdir != "" && a.Workdir != own { // workdir equals own in the output of `config show`
		a.HostFolder = string(a.Workdir)
		a.Grants.Read = append(a.Grants.Read, ReadGrant{Path: a.Workdir, Private: a.Private.Workdir})
		a.Workdir = ""
	}
	if a.Workdir == "" {
		a.Workdir = own
	}
}

// LacksHostTool reports whether the agent's mode excludes file and program tools and name is one
// of them.
func (a *Agent) LacksHostTool(name string) bool {
	return a.Mode == plan.ModeNone && agent.IsHostTool(name)
}

// SecretNames returns the names of the granted secrets.
func (a *Agent) SecretNames() []string {
	var out []string
	for _, g := range a.Grants.Secrets {
		out = append(out, g.Name)
	}
	return out
}

// Commands returns the programs that the agent may run without approval.
func (a *Agent) Commands() []shell.Grant {
	var out []shell.Grant
	for _, g := range a.Grants.Commands {
		out = append(out, shell.Grant{Argv: g.Argv, Network: g.Network == "host", Written: g.Written})
	}
	return out
}

// Reads returns the paths outside the workdir that the agent may read, and the public ones of
// them.
func (a *Agent) Reads() (all, public []string) {
	for _, g := range a.Grants.Read {
		all = append(all, string(g.Path))
		if !On(g.Private) {
			public = append(public, string(g.Path))
		}
	}
	return all, public
}

// Network returns the hosts to which the agent may send requests.
func (a *Agent) Network() []web.Grant {
	var out []web.Grant
	for _, g := range a.Grants.Network {
		out = append(out, web.Grant(g))
	}
	return out
}

// Secrets returns the secrets that calls of the agent may use.
func (a *Agent) Secrets() []tool.SecretGrant {
	var out []tool.SecretGrant
	for _, g := range a.Grants.Secrets {
		out = append(out, tool.SecretGrant{Name: g.Name, OnlyTo: g.OnlyTo, Value: g.Value, Public: !On(g.Private)})
	}
	return out
}

// Sends reports whether a grant allows more than reading from one named host.
func (g NetworkGrant) Sends() bool {
	return strings.Contains(g.Host, "*") || slices.ContainsFunc(g.Methods, func(m string) bool { return m != "GET" && m != "HEAD" })
}

// Writes returns the folders in which the agent's tools may write.
func (a *Agent) Writes() (out []string) {
	for _, p := range a.Grants.Write {
		out = append(out, string(p))
	}
	// grants.write narrows the workdir. Without it the whole workdir is writable.
	if len(out) == 0 && a.Workdir != "" {
		out = []string{string(a.Workdir)}
	}
	return out
}
