package host

import (
	"fmt"
	"slices"

	"rouse/skills"
)

// lackedPermissions are those for methods that this version does not have.
var lackedPermissions = []skills.PermissionKind{skills.PermissionConversation, skills.PermissionBrowser}

// Missing lists the parts of a skill that this version does not have. Such a skill is not run.
// Optional parts are left out.
func Missing(m *skills.Manifest) (out []string) {
	add := func(missing bool, format string, args ...any) {
		if missing {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}

	for _, p := range m.Permissions {
		add(slices.Contains(lackedPermissions, p.Kind), "the permission %s", p.Kind)
	}
	for _, f := range m.Lacks() {
		add(true, "%s (%s)", f.Name, f.What)
	}
	return slices.Compact(out)
}

// Ungranted lists what a manifest asks for that an agent is not granted: what it needs, and what it
// can do without.
func Ungranted(m *skills.Manifest, c Capabilities, secrets []string) (needed, wanted []string) {
	add := func(missing, required bool, what string) {
		switch {
		case missing && required:
			needed = append(needed, what)
		case missing:
			wanted = append(wanted, what)
		}
	}

	add(UsesNetwork(m) && !c.Network, false, "the network, and the agent may ask no host (grants: network)")
	add(AsksModel(m) && !c.Model, false, "a model, and the agent has none")
	add(UsesCommands(m) && !c.Commands, m.BridgeRequirement == skills.BridgeRequired, "programs, and the agent may run none (grants: commands)")
	add(writesFiles(m) && !c.Writing, false, "to write files, and the agent's tools leave that out")
	for _, server := range RequiredServers(m) {
		add(!slices.Contains(c.Servers, server), true, fmt.Sprintf("the MCP server %s, and the agent does not have it (agents: mcp)", server))
	}
	for _, b := range m.RequiredBindings {
		if standsForToken(m, b) { // its owner signs in when it is needed
			continue
		}
		add(!slices.Contains(secrets, b.Name), b.Required, fmt.Sprintf("the secret %s, and the agent is not granted it (grants: secrets)", b.Name))
	}
	return needed, wanted
}

// RequiredServers lists the MCP servers that a program cannot do without, each once.
func RequiredServers(m *skills.Manifest) (out []string) {
	for _, s := range m.RequiredMCPServers {
		out = append(out, s.Name)
	}
	for _, t := range m.RequiredMCPTools {
		if !slices.Contains(out, t.ServerName) {
			out = append(out, t.ServerName)
		}
	}
	return out
}
