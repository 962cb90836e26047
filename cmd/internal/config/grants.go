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

// Permits reports whether a tool is neither left out nor denied.
func (f toolFilter) Permits(s tool.Spec) bool { return tool.IsAllowed(f.Allow, f.Deny, s.Name) }

// Settle sets the workdir (OSA-40). An isolated agent works in own and may read its workdir.
func (a *Agent) Settle(own Path) {
	if a.Mode == plan.ModeIsolated && a.Workdir != "" && a.Workdir != own { // the same in a configuration that rouse has shown
		a.HostFolder = string(a.Workdir)
		a.Grants.Read = append(a.Grants.Read, ReadGrant{Path: a.Workdir, Private: a.Private.Workdir})
		a.Workdir = ""
	}
	if a.Workdir == "" {
		a.Workdir = own
	}
}

// LacksHostTool reports whether a tool is one of files or programs, of an agent that has neither.
func (a *Agent) LacksHostTool(name string) bool {
	return a.Mode == plan.ModeNone && agent.IsHostTool(name)
}

func (a *Agent) SecretNames() []string {
	var out []string
	for _, g := range a.Grants.Secrets {
		out = append(out, g.Name)
	}
	return out
}

// Commands are the programs that an agent may run unasked.
func (a *Agent) Commands() []shell.Grant {
	var out []shell.Grant
	for _, g := range a.Grants.Commands {
		out = append(out, shell.Grant{Argv: g.Argv, Network: g.Network == "host", Written: g.Written})
	}
	return out
}

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
		out = append(out, tool.SecretGrant{Name: g.Name, OnlyTo: g.OnlyTo, Value: g.Value, Public: !On(g.Private)})
	}
	return out
}

// Sends reports whether requests of a grant may do more than read from one named host.
func (g NetworkGrant) Sends() bool {
	return strings.Contains(g.Host, "*") || slices.ContainsFunc(g.Methods, func(m string) bool { return m != "GET" && m != "HEAD" })
}

// Writes are the folders in which an agent's tools write.
func (a *Agent) Writes() (out []string) {
	for _, p := range a.Grants.Write {
		out = append(out, string(p))
	}
	// grants.write narrows the workdir; without it all of it can be written.
	if len(out) == 0 && a.Workdir != "" {
		out = []string{string(a.Workdir)}
	}
	return out
}
