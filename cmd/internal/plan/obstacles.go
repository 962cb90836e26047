package plan

import (
	"fmt"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/internal/ledger"
)

// SecretObstacles returns the missing secrets below a path of the configuration, as obstacles.
func SecretObstacles(cfg *config.Config, below string) (out []ledger.Obstacle) {
	for _, h := range cfg.Secrets.Held {
		if strings.HasPrefix(h.Path, below) {
			out = append(out, ledger.Obstacle{Kind: "secret", Source: "secret/" + h.Name, Text: h.Text, Where: cfg.Where(h.At)})
		}
	}
	return out
}

// agentObstacles returns the missing secrets of an agent and of its MCP servers, as obstacles.
func agentObstacles(cfg *config.Config, i int) []ledger.Obstacle {
	out := SecretObstacles(cfg, fmt.Sprintf("agents[%d].", i))
	for k, s := range cfg.MCP {
		if slices.Contains(cfg.Agents[i].MCP, string(s.Name)) {
			out = append(out, SecretObstacles(cfg, fmt.Sprintf("mcp[%d].", k))...)
		}
	}
	return out
}

// disabledAgent returns the obstacle of a job's runs if its agent is disabled.
func disabledAgent(cfg *config.Config, j *config.Job) ledger.Obstacle {
	o := ledger.Obstacle{Kind: "agent", Source: "agent/" + j.Agent, Text: fmt.Sprintf("the agent %s is disabled (enabled: false)", j.Agent), Quiet: true}
	if i := slices.IndexFunc(cfg.Agents, func(a config.Agent) bool { return string(a.Name) == j.Agent }); i >= 0 {
		o.Where = cfg.Where(cfg.Agents[i].At)
	}
	return o
}
