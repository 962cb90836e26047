package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"rouse/agent/preflight"
	"rouse/agent/tool/executor"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/shell"
	"rouse/agentdb/ledger"
)

// executorObstacles are an installed agent program that does the run, and that cannot be started.
func (r *Runner) executorObstacles(_ context.Context, t *task) []ledger.Obstacle {
	if !t.executes() {
		return nil
	}

	name := t.job.Executor.Argv[0]
	why := r.prober.Look("executor/"+t.agent.Name+"/"+name, func() string {
		located, err := executor.Locate(name)
		if err == nil {
			err = t.ledProgram(*t.job.Executor, located)
		}
		if err != nil {
			return "the executor cannot be started: " + err.Error()
		}
		return ""
	})
	if why == "" {
		return nil
	}
	return []ledger.Obstacle{{Kind: obstacleProgram, Source: "executor/" + name, Text: why, Where: t.job.Where}}
}

// serverObstacles are MCP servers of the agent whose program is not there, or of which a fixed list of calls names a tool that is not
// approved. None is started to find out.
func (r *Runner) serverObstacles(_ context.Context, t *task) (out []ledger.Obstacle) {
	if !t.usesServers() {
		return nil
	}

	called := t.calledTools()
	for _, s := range t.agent.Servers {
		if why := r.serverProgram(t, s); why != "" {
			out = append(out, ledger.Obstacle{Kind: obstacleServer, Source: "mcp/" + s.Name, Text: why, Where: t.agent.Where})
			continue
		}

		for _, name := range called {
			if server, its, ok := mcp.SplitName(name); ok && server == s.Name {
				if why := r.unapproved(s, its); why != "" {
					out = append(out, ledger.Obstacle{Kind: obstacleServer, Source: "mcp/" + name, Text: why, Where: t.job.Where})
				}
			}
		}
	}
	return out
}

// unapproved says why a tool of a server cannot be called, "" when its owner has approved it.
func (r *Runner) unapproved(s mcp.Server, name string) string {
	return r.prober.Look("mcp/"+mcp.ToolName(s.Name, name), func() string {
		rec, err := r.servers.Of(s)
		if err != nil {
			return err.Error()
		}
		if slices.ContainsFunc(rec.ApprovedTools(s), func(d mcp.Definition) bool { return d.Name == name }) {
			return ""
		}
		return fmt.Sprintf("the tool %s of the MCP server %s is not approved; look: rouse mcp-servers show %[2]s; then: rouse mcp-servers approve %[2]s", name, s.Name)
	})
}

// serverProgram says what keeps the program of a server from being started, "" when nothing does.
func (r *Runner) serverProgram(t *task, s mcp.Server) string {
	if len(s.Argv) == 0 || filepath.IsAbs(s.Argv[0]) && t.boundary.Covers(s.Argv[0]) {
		return ""
	}

	name := s.Argv[0]
	return r.prober.Look("mcp/"+s.Name+"/"+name, func() string {
		switch {
		case filepath.IsAbs(name):
			if why := preflight.Program(name); why != "" {
				return fmt.Sprintf("of the MCP server %s: %s", s.Name, why)
			}
		case !strings.ContainsAny(name, `/\`) && !shell.HasProgram(name):
			return fmt.Sprintf("the program %s of the MCP server %s is not installed; install it, or write its path under argv", name, s.Name)
		}
		return ""
	})
}
