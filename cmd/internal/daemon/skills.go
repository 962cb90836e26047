package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"rouse/agent"
	"rouse/agent/tool/host/signin"
	"rouse/agent/tool/mcp"
	"rouse/cmd/internal/api"
	"rouse/internal/noexec"
	"rouse/internal/text"
	"rouse/skills/install"
)

// Skills implements web.Backend.
func (d *Daemon) Skills(context.Context) (install.Inventory, error) {
	return install.Inspect(d.Current().Config.SkillCatalog())
}

// Skill implements web.Backend.
func (d *Daemon) Skill(_ context.Context, name string) (install.Detail, error) {
	all := d.Current().Config.SkillCatalog()
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

// MCPServers implements web.Backend.
func (d *Daemon) MCPServers(context.Context) ([]api.MCPServer, error) {
	out := []api.MCPServer{}
	for _, st := range d.runner.Servers() {
		out = append(out, d.mcpServer(st))
	}
	return out, nil
}

func (d *Daemon) mcpServer(st agent.ServerState) api.MCPServer {
	out := api.MCPServer{Name: st.Name, Where: d.runner.Redact(st.Where()), Agents: append([]string{}, st.Agents...), Says: st.Record.Says, SeenAt: api.At(st.Record.SeenAt),
		SignIn: string(d.runner.ServerSignInStatus(st)), Tools: []api.MCPTool{}}
	if st.Err != nil {
		out.Problem = st.Err.Error()
	}
	for _, t := range st.Tools {
		out.Tools = append(out.Tools, api.MCPTool{Name: mcp.ToolName(st.Name, t.Name), Tool: t.Name, Status: string(t.Status), Why: t.Why, Description: t.Description,
			Schema: t.Schema, Annotations: t.Annotations, Hash: t.Hash, Difference: t.Difference})
	}
	return out
}

// mcpNamed refuses the name of no server.
func (d *Daemon) mcpNamed(name string) (agent.ServerState, error) {
	var names []string
	for _, s := range d.runner.Servers() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return agent.ServerState{}, &api.Error{Status: http.StatusNotFound, Message: text.NoSuch("MCP server", name, names), Usage: true}
}

// mcpFailure is an error of something that an owner asked of a server.
func mcpFailure(err error) error {
	if err == nil {
		return nil
	}
	return &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
}

// LookAtMCPServer implements web.Backend.
func (d *Daemon) LookAtMCPServer(ctx context.Context, name string, how api.MCPLook) (api.MCPServer, error) {
	if _, err := d.mcpNamed(name); err != nil {
		return api.MCPServer{}, err
	}
	st, err := d.runner.LookAtServer(ctx, name, how.As)
	if err != nil {
		return api.MCPServer{}, mcpFailure(fmt.Errorf("the MCP server %s cannot be asked: %w", name, err))
	}
	out := d.mcpServer(st)
	out.Refused = d.runner.ServerTooWeak(ctx, st)
	return out, nil
}

// ApproveMCPTools implements web.Backend.
func (d *Daemon) ApproveMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error) {
	st, err := d.mcpNamed(name)
	if err != nil {
		return api.MCPApproved{}, err
	}
	approved, unusable, err := d.runner.ApproveServer(ctx, name, in.Tools, in.Shown)
	return api.MCPApproved{Tools: append([]string{}, approved...), Unusable: unusable, Refused: d.runner.ServerTooWeak(ctx, st)}, mcpFailure(err)
}

// RevokeMCPTools implements web.Backend.
func (d *Daemon) RevokeMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error) {
	if _, err := d.mcpNamed(name); err != nil {
		return api.MCPApproved{}, err
	}
	revoked, err := d.runner.RevokeServer(ctx, name, in.Tools)
	return api.MCPApproved{Tools: append([]string{}, revoked...), Unusable: map[string]string{}}, mcpFailure(err)
}

// SignInAtMCPServer implements web.Backend.
func (d *Daemon) SignInAtMCPServer(ctx context.Context, name string, in api.MCPReply) (api.MCPSignIn, error) {
	if _, err := d.mcpNamed(name); err != nil {
		return api.MCPSignIn{}, err
	}
	if in.Address != "" {
		return api.MCPSignIn{SignedIn: true}, mcpFailure(d.runner.AnswerServerSignIn(ctx, name, in.Address))
	}
	link, err := d.runner.ServerSignInLink(ctx, name)
	return api.MCPSignIn{Link: link}, mcpFailure(err)
}

// checkMCP starts or asks each MCP server of agents, or else reports the last result.
func (d *Daemon) checkMCP(ctx context.Context, offline bool) (out []api.Check) {
	for _, st := range d.runner.Servers() {
		out = append(out, d.checkMCPServer(ctx, st, offline))
	}
	return out
}

func (d *Daemon) checkMCPServer(ctx context.Context, st agent.ServerState, offline bool) api.Check {
	name, untried := "mcp "+st.Name, ""
	if len(st.Agents) == 0 {
		return passed(name, "no agent has it")
	}

	now, err := st, noexec.Err
	if !offline {
		now, err = d.runner.LookAtServer(ctx, st.Name, "")
	}
	switch {
	case err == nil:
		st = now
	case offline:
		untried = "whether it starts (--offline)"
	case errors.Is(err, noexec.Err):
		untried = "which tools it has now"
		if seen := st.Record.SeenAt; !seen.IsZero() {
			untried += " (they are as of " + api.LocalTime(seen, d.Zone()) + ")"
		}
		untried += "; look: rouse doctor"
	case errors.As(err, new(*agent.BareError)) && !st.Record.Since.IsZero():
		untried = "whether it starts: without folders and without a network it does not (" + text.OneLine(text.Truncate(errors.Unwrap(err).Error(), 200)) + "); a run tells"
	case d.runner.ServerSignInStatus(st) == signin.Unauthorized || strings.Contains(err.Error(), "sign-in"):
		return failed(name, err.Error(), "rouse mcp-servers sign-in "+st.Name)
	default:
		return failed(name, err.Error(), "see the message; calls of its tools fail until then")
	}

	c := mcpCheck(name, st)
	if weak := d.runner.ServerTooWeak(ctx, st); weak != "" {
		c = failed(name, weak, "install what is missing, or set min_tier; until then its calls are refused")
	}
	c.NotTried = untried
	return c
}

// mcpCheck reports the tools of a server.
func mcpCheck(name string, st agent.ServerState) api.Check {
	if st.Err != nil {
		return undone(name, st.Err)
	}

	by := map[mcp.Status][]string{}
	for _, t := range st.Tools {
		by[t.Status] = append(by[t.Status], text.OneLine(t.Name))
	}
	said := fmt.Sprintf("%d of %s approved", len(by[mcp.StatusApproved]), text.Plural(len(st.Tools), "tool"))
	for _, status := range slices.Sorted(maps.Keys(by)) {
		if status != mcp.StatusApproved {
			said += fmt.Sprintf("; %s: %s", status, text.List(by[status], maxLogged))
		}
	}
	if st.Record.Noise != "" {
		said += "; " + st.Record.Noise
	}
	if len(by[mcp.StatusChanged])+len(by[mcp.StatusNew])+len(by[mcp.StatusGone]) > 0 || st.Record.SeenAt.IsZero() {
		return failed(name, said, "what is not approved no agent has: rouse mcp-servers approve "+st.Name)
	}
	return passed(name, said)
}
