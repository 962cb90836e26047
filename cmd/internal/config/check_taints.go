package config

import (
	"slices"
	"strings"

	"rouse/agent/tool"
)

// warnTaints warns of a job whose runs can come to hold untrusted content, private data and an effect
// beyond the host together, as far as its configuration tells (docs/security.md).
func (c *checker) warnTaints(path string, j *Job, a *Agent) {
	if a == nil || !On(a.Enabled) || !On(j.Enabled) {
		return
	}

	all, public := a.Reads()
	fetches := len(a.Grants.Network) > 0 && (c.tools == nil || len(c.toolsGiven(tool.RequiresNetwork).Where(a.Tools.permits)) > 0)
	connected := slices.ContainsFunc(a.Grants.Commands, func(g commandGrant) bool { return g.Network == "host" })
	beyond := c.toolsGiven(tool.RequiresNothing).Where(func(s tool.Spec) bool { return s.Scope == tool.ScopeOutside }).Where(a.Tools.permits)
	others := strings.Join(beyond.Names(), ", ")
	untrusted := reasons(map[string]bool{"a watch": j.Watch != nil, "a webhook": j.Webhook != nil, "web pages": fetches, "commands with network": connected, others: others != ""})
	private := reasons(map[string]bool{"grants.read": len(all) > len(public), "grants.secrets": slices.ContainsFunc(a.Secrets(), func(s tool.SecretGrant) bool { return !s.Public })})
	outward := reasons(map[string]bool{"grants.network": fetches, "commands with network": connected, "commands without a sandbox": a.Sandbox == "off" && len(a.Grants.Commands) > 0, others: others != ""})
	if untrusted == "" || private == "" || outward == "" {
		return
	}

	c.warn(path, "a run can come to hold untrusted content (%s), private data (%s) and an effect beyond the host (%s) together; the call that would bring the third waits for your approval", untrusted, private, outward).
		Hint = "let one job read what is untrusted and write it down as data, and another one act on that"
}

// reasons are the names that hold, in order.
func reasons(of map[string]bool) string {
	var out []string
	for name, holds := range of {
		if holds {
			out = append(out, name)
		}
	}

	slices.Sort(out)
	return strings.Join(out, ", ")
}
