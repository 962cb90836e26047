// Package plan translates the configuration into values for the runner, the scheduler, the watcher,
// the dispatcher and the notifier. It also loads the configuration with the secrets, tools and
// local Ollama of this machine. It starts nothing.
package plan

import (
	"log/slog"
	"time"

	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/internal/ledger"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/watcher"
)

// Plan is a checked configuration, translated for the other packages.
type Plan struct {
	Runner agentplan.Plan // agents, jobs and models
	Jobs   []scheduler.Job
	// SelfScheduling holds the names of agents that may plan their own runs.
	SelfScheduling []string
	Followers      []ledger.Successor
	Watches        []watcher.Watch
	Channels       map[string]notify.Channel
	policies       map[string]dispatch.Policy
	quotas         map[string]int64
	// Hosts and agentHosts hold the configured nodes of jobs and agents. They are empty if the
	// ledger is not shared.
	Hosts, agentHosts map[string]string
}

// New translates a checked configuration.
func New(cfg *config.Config, log *slog.Logger) (*Plan, error) {
	p := &Plan{
		Runner: agentplan.Plan{Agents: map[string]agentplan.Agent{}, Jobs: map[string]agentplan.Job{}, Disabled: map[string]ledger.Obstacle{}, Zone: cfg.Zone(),
			Budget: NewBudget(cfg.Limits.Budget())},
		policies: map[string]dispatch.Policy{}, quotas: map[string]int64{}, Hosts: map[string]string{}, agentHosts: map[string]string{},
	}

	fillCalendars(cfg, time.Now())
	var err error
	if p.Channels, err = newChannels(cfg); err != nil {
		return nil, err
	}

	p.Runner.Channels, p.Runner.DefaultChannels, p.Runner.Groups = channelNames(cfg), cfg.DefaultChannels(), channelGroups(cfg)
	p.Runner.Servers = config.AllServers(cfg.MCP)
	p.Runner.Modules, p.Runner.ModuleSettings = cfg.Modules(), cfg.ModuleSettings()
	p.Runner.Secrets, p.Runner.Masks, p.Runner.Boundary = cfg.Secrets.Values, newMasks(cfg), newBoundary(cfg)
	p.Runner.UntrustedFolders, p.Runner.Clones = untrustedFolders(cfg), clonesFolder(cfg)
	models, err := NewModels(cfg, log)
	if err != nil {
		return nil, err
	}
	files := writables{}

	for i, a := range cfg.Agents {
		if cfg.Engine.Shared() {
			p.agentHosts[string(a.Name)] = cfg.HostOfAgent(&a)
		}
		// Leave out a disabled agent. This keeps its jobs from running, too; see addJob.
		if !config.On(a.Enabled) {
			continue
		}

		built := newAgent(a, models)
		built.Where, built.Obstacles = cfg.Where(a.At), agentObstacles(cfg, i)
		built.Skills = agentplan.Skills{View: cfg.FoundSkills().View(&a), Style: a.SkillStyle, Allowing: a.SkillTools}
		built.Servers = config.ServersOf(cfg.MCP, &a)
		built.Untrusted = a.Untrusted
		built.Foreign = files.byOthers(a.At.File, a.TextFile, a.SoulText)
		built.Budget = NewBudget(a.Budget)
		if limits, ok := cfg.SelfScheduling(&a); ok {
			built.SelfScheduling = &limits
			p.SelfScheduling = append(p.SelfScheduling, built.Name)
		}

		p.Runner.Agents[built.Name] = built
		p.quotas[built.Name] = int64(a.Database.Quota)
	}

	for i := range cfg.Jobs {
		if err := p.addJob(cfg, i, models, files); err != nil {
			return nil, err
		}
	}

	return p, nil
}

// NewBudget translates daily and monthly limits.
func NewBudget(b config.Budget) agentplan.Budget {
	return agentplan.Budget{CostMicroUSD: config.MicroUSD(b.CostUSDPerDay), Tokens: b.TokensPerDay, MonthMicroUSD: config.MicroUSD(b.CostUSDPerMonth), MonthTokens: b.TokensPerMonth}
}

func paths(list []config.Path) []string {
	var out []string
	for _, p := range list {
		out = append(out, string(p))
	}
	return out
}

// Quota returns the maximum size of an agent's database, in bytes.
func (p *Plan) Quota(agent string) int64 { return p.quotas[agent] }

// Policy returns how the dispatcher handles the runs of a job. A run without a job is resumed and
// not retried.
func (p *Plan) Policy(job string) dispatch.Policy {
	if policy, ok := p.policies[job]; ok {
		return policy
	}
	return dispatch.Policy{Resume: true}
}

// NodeOf returns the only node that may execute a run. It returns an empty string if any node may.
func (p *Plan) NodeOf(r ledger.Run) string {
	if host := p.policies[r.Job].Node; host != "" {
		return host
	}
	return p.agentHosts[r.Agent]
}

// NodeOfAgent returns the only node that may hold the database of an agent. It returns an empty
// string if any node may.
func (p *Plan) NodeOfAgent(agent string) string { return p.agentHosts[agent] }
