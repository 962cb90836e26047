package control

import (
	"context"
	"fmt"
	"net/http"

	"rouse/agent/servers"
	"rouse/agent/tool/mcp"
	"rouse/cmd/internal/api"
	"rouse/internal/text"
	"rouse/skills/install"
)

// Skills returns the loaded skills, and the reason for each skill that is not loaded.
func (x *Extensions) Skills(context.Context) (install.Inventory, error) {
	return install.Inspect(x.Setup().Config.FoundSkills().Catalog())
}

// Skill returns the permissions, instructions and documentation of a skill.
func (x *Extensions) Skill(_ context.Context, name string) (install.Detail, error) {
	all := x.Setup().Config.FoundSkills().Catalog()
	s, ok := all.Get(name)
	if !ok {
		var names []string
		for _, s := range all.Skills() {
			names = append(names, s.Name)
		}
		return install.Detail{}, &api.Error{Status: http.StatusNotFound, Message: text.NoSuch("skill", name, names), Usage: true}
	}
	return install.Describe(s, all.ProblemsOf(s))
}

// MCPServers returns the MCP servers with the tools they had last. It starts no server.
func (x *Extensions) MCPServers(context.Context) ([]api.MCPServer, error) {
	out := []api.MCPServer{}
	for _, st := range x.Runner.Servers.List() {
		out = append(out, x.mcpServer(st))
	}
	return out, nil
}

func (x *Extensions) mcpServer(st servers.State) api.MCPServer {
	out := api.MCPServer{Name: st.Name, Where: x.Runner.Plan.Redact(st.Where()), Agents: append([]string{}, st.Agents...), Says: st.Record.Says, SeenAt: api.At(st.Record.SeenAt),
		SignIn: string(x.Runner.SignIns.ServerStatus(st)), Tools: []api.MCPTool{}}
	if st.Err != nil {
		out.Problem = st.Err.Error()
	}
	for _, t := range st.Tools {
		out.Tools = append(out.Tools, api.MCPTool{Name: mcp.ToolName(st.Name, t.Name), Tool: t.Name, Status: string(t.Status), Why: t.Why, Description: t.Description,
			Schema: t.Schema, Annotations: t.Annotations, Hash: t.Hash, Difference: t.Difference})
	}
	return out
}

// mcpNamed returns the state of an MCP server. It returns an error with a suggestion if the server
// is not configured.
func (x *Extensions) mcpNamed(name string) (servers.State, error) {
	var names []string
	for _, s := range x.Runner.Servers.List() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return servers.State{}, &api.Error{Status: http.StatusNotFound, Message: text.NoSuch("MCP server", name, names), Usage: true}
}

// mcpFailure converts an error of a server operation to an API error.
func mcpFailure(err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
}

// LookAtMCPServer starts an MCP server, or connects to its address, to list its tools.
func (x *Extensions) LookAtMCPServer(ctx context.Context, name string, how api.MCPLook) (api.MCPServer, error) {
	if _, err := x.mcpNamed(name); err != nil {
		return api.MCPServer{}, err
	}
	st, err := x.Runner.Servers.Look(ctx, name, how.As)
	if err != nil {
		return api.MCPServer{}, mcpFailure(fmt.Errorf("the MCP server %s cannot be asked: %w", name, err))
	}
	out := x.mcpServer(st)
	out.Refused = x.Runner.Servers.TooWeak(ctx, st)
	return out, nil
}

// ApproveMCPTools approves the tools of an MCP server in the version that was last seen.
func (x *Extensions) ApproveMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error) {
	st, err := x.mcpNamed(name)
	if err != nil {
		return api.MCPApproved{}, err
	}
	approved, unusable, err := x.Runner.Servers.Approve(ctx, name, in.Tools, in.Shown)
	return api.MCPApproved{Tools: append([]string{}, approved...), Unusable: unusable, Refused: x.Runner.Servers.TooWeak(ctx, st)}, mcpFailure(err)
}

// RevokeMCPTools revokes approvals of tools of an MCP server.
func (x *Extensions) RevokeMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error) {
	if _, err := x.mcpNamed(name); err != nil {
		return api.MCPApproved{}, err
	}
	revoked, err := x.Runner.Servers.Revoke(ctx, name, in.Tools)
	return api.MCPApproved{Tools: append([]string{}, revoked...), Unusable: map[string]string{}}, mcpFailure(err)
}

// SignInAtMCPServer begins a sign-in at an MCP server. If in.Address is set, it completes the
// sign-in with the address that the browser was redirected to.
func (x *Extensions) SignInAtMCPServer(ctx context.Context, name string, in api.MCPReply) (api.MCPSignIn, error) {
	if _, err := x.mcpNamed(name); err != nil {
		return api.MCPSignIn{}, err
	}
	if in.Address != "" {
		return api.MCPSignIn{SignedIn: true}, mcpFailure(x.Runner.SignIns.AnswerServer(ctx, name, in.Address))
	}
	link, err := x.Runner.SignIns.ServerLink(ctx, name)
	return api.MCPSignIn{Link: link}, mcpFailure(err)
}
