package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rouse/agent/servers"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/moduleapi/signin"
	"rouse/cmd/internal/api"
	"rouse/internal/noexec"
	"rouse/internal/text"
)

// checkMCP checks each MCP server of agents by starting or asking it. If that is not possible, it
// reports the last result.
func (d *Checker) checkMCP(ctx context.Context, offline bool) (out []api.Check) {
	for _, st := range d.Runner.Servers.List() {
		out = append(out, d.checkMCPServer(ctx, st, offline))
	}
	return out
}

func (d *Checker) checkMCPServer(ctx context.Context, st servers.State, offline bool) api.Check {
	name, untried := "mcp "+st.Name, ""
	if len(st.Agents) == 0 {
		return Passed(name, "no agent has it")
	}

	now, err := st, noexec.Err
	if !offline {
		now, err = d.Runner.Servers.Look(ctx, st.Name, "")
	}
	switch {
	case err == nil:
		st = now
	case offline:
		untried = "whether it starts (--offline)"
	case errors.Is(err, noexec.Err):
		untried = "which tools it has now"
		if seen := st.Record.SeenAt; !seen.IsZero() {
			untried += " (they are as of " + api.LocalTime(seen, d.zone()) + ")"
		}
		untried += "; look: rouse doctor"
	case errors.As(err, new(*servers.BareError)) && !st.Record.Since.IsZero():
		untried = "whether it starts: without folders and without a network it does not (" + text.OneLine(text.Truncate(errors.Unwrap(err).Error(), 200)) + "); a run tells"
	case d.Runner.SignIns.ServerStatus(st) == signin.Unauthorized || strings.Contains(err.Error(), "sign-in"):
		return Failed(name, err.Error(), "rouse mcp-servers sign-in "+st.Name)
	default:
		return Failed(name, err.Error(), "see the message; calls of its tools fail until then")
	}

	c := mcpCheck(name, st)
	if weak := d.Runner.Servers.TooWeak(ctx, st); weak != "" {
		c = Failed(name, weak, "install what is missing, or set min_tier; until then its calls are refused")
	}
	c.NotTried = untried
	return c
}

// mcpCheck reports the tools of a server.
func mcpCheck(name string, st servers.State) api.Check {
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
			said += fmt.Sprintf("; %s: %s", status, text.List(by[status], maxListed))
		}
	}
	if st.Record.Noise != "" {
		said += "; " + st.Record.Noise
	}
	if len(by[mcp.StatusChanged])+len(by[mcp.StatusNew])+len(by[mcp.StatusGone]) > 0 || st.Record.SeenAt.IsZero() {
		return Failed(name, said, "what is not approved no agent has: rouse mcp-servers approve "+st.Name)
	}
	return Passed(name, said)
}
