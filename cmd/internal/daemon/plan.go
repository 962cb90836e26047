package daemon

import (
	"fmt"
	"log/slog"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/internal/domain"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/schedule"
	"rouse/watcher"
)

// Plan is the configuration, translated into what each part works with.
type Plan struct {
	Plan agent.Plan
	Jobs []scheduler.Job
	// selfScheduling names the agents that may plan their own runs.
	selfScheduling []string
	followers      []ledger.Follower
	watches        []watcher.Watch
	channels       map[string]notify.Channel
	policies       map[string]dispatch.Policy
	quotas         map[string]int64
	// hosts are the nodes that jobs name, and agentHosts those of agents, where the ledger is shared.
	hosts, agentHosts map[string]string
}

// NewPlan translates a checked configuration.
func NewPlan(cfg *config.Config, log *slog.Logger) (*Plan, error) {
	p := &Plan{
		Plan: agent.Plan{Agents: map[string]agent.Agent{}, Jobs: map[string]agent.Job{}, Disabled: map[string]ledger.Obstacle{}, Zone: cfg.Zone(),
			Budget: newBudget(cfg.Limits.Budget())},
		policies: map[string]dispatch.Policy{}, quotas: map[string]int64{}, hosts: map[string]string{}, agentHosts: map[string]string{},
	}

	fillCalendars(cfg, time.Now())
	var err error
	if p.channels, err = newChannels(cfg); err != nil {
		return nil, err
	}

	p.Plan.Channels, p.Plan.DefaultChannels, p.Plan.Groups = channelNames(cfg), cfg.DefaultChannels(), channelGroups(cfg)
	p.Plan.Servers = cfg.Servers()
	p.Plan.Modules, p.Plan.ModuleSettings = cfg.Modules(), cfg.ModuleSettings()
	p.Plan.Secrets, p.Plan.Masks, p.Plan.Boundary = cfg.Secrets(), newMasks(cfg), newBoundary(cfg)
	p.Plan.UntrustedFolders, p.Plan.Clones = untrustedFolders(cfg), clonesFolder(cfg)
	models, err := NewModels(cfg, log)
	if err != nil {
		return nil, err
	}
	files := writables{}

	for i, a := range cfg.Agents {
		if cfg.Shared() {
			p.agentHosts[string(a.Name)] = cfg.HostOfAgent(&a)
		}
		// A disabled agent is unknown to the parts, which keeps its jobs from running too (see addJob).
		if !config.On(a.Enabled) {
			continue
		}

		built := newAgent(a, models)
		built.Where, built.Obstacles = cfg.Where(a.At), agentObstacles(cfg, i)
		built.Skills = agent.Skills{View: cfg.SkillView(&a), Style: a.SkillStyle, Allowing: a.SkillTools}
		built.Servers = cfg.ServersOf(&a)
		built.Untrusted = cfg.UntrustedSources(&a)
		built.Foreign = files.byOthers(a.At.File, a.TextFile, a.SoulText)
		built.Budget = newBudget(a.Budget)
		if limits, ok := cfg.SelfScheduling(&a); ok {
			built.SelfScheduling = &limits
			p.selfScheduling = append(p.selfScheduling, built.Name)
		}

		p.Plan.Agents[built.Name] = built
		p.quotas[built.Name] = int64(a.Database.Quota)
	}

	for i := range cfg.Jobs {
		if err := p.addJob(cfg, i, models, files); err != nil {
			return nil, err
		}
	}

	return p, nil
}

func newAgent(a config.Agent, models map[string]*agent.Model) agent.Agent {
	read, public := a.Reads()
	folders, database := a.PrivatePlaces()
	return agent.Agent{
		Name: string(a.Name), Instructions: a.Instructions, Soul: a.Soul, Mode: a.Mode, HostFolder: a.HostFolder, Workdir: string(a.Workdir), Database: config.On(a.Database.Enabled),
		Allow: a.Tools.Allow, Deny: a.Tools.Deny, OnDemand: a.Tools.OnDemand, Bounds: newBounds(a.Bounds), DefaultSteps: a.DefaultSteps, Read: read, Public: public, PrivateFolders: folders, PrivateDatabase: database, Write: paths(a.Grants.Write),
		Model: models[a.Model], Phased: a.Loop == "phased", OnDenied: a.OnDenied, MinTier: a.MinTier, Unconfined: a.Reason,
		Commands: a.Commands(), Network: a.Network(), Secrets: a.Secrets(), Channels: a.Channels, Executor: a.Executor.Settings(), Checkout: a.Checkout.Spec(),
	}
}

func newBudget(b config.Budget) agent.Budget {
	return agent.Budget{CostMicroUSD: config.MicroUSD(b.CostUSDPerDay), Tokens: b.TokensPerDay, MonthMicroUSD: config.MicroUSD(b.CostUSDPerMonth), MonthTokens: b.TokensPerMonth}
}

func paths(list []config.Path) []string {
	var out []string
	for _, p := range list {
		out = append(out, string(p))
	}
	return out
}

func newBounds(b config.Bounds) loop.Bounds {
	return loop.Bounds{Steps: b.Steps, Calls: b.Calls, Wall: time.Duration(b.Wall), Idle: time.Duration(b.Idle), Tokens: b.Tokens, Output: int64(b.Output),
		CostMicroUSD: config.MicroUSD(b.CostUSD)}
}

// addJob adds a job to the runner, and to the scheduler and the watcher if they trigger it.
func (p *Plan) addJob(cfg *config.Config, i int, models map[string]*agent.Model, files writables) error {
	j := &cfg.Jobs[i]
	name := string(j.Name)
	p.policies[name] = newPolicy(cfg, j) // for a disabled job as well: runs of it may still be unfinished
	if cfg.Shared() {
		p.hosts[name] = cfg.HostOf(j)
	}
	if !config.On(j.Enabled) {
		return nil
	}
	if _, ok := p.Plan.Agents[j.Agent]; !ok {
		p.Plan.Disabled[name] = disabledAgent(cfg, j)
		return nil
	}

	job := newJob(cfg, j, models)
	job.Foreign = files.byOthers(j.At.File, j.TextFile)
	job.Obstacles = secretObstacles(cfg, fmt.Sprintf("jobs[%d].executor.", i))
	p.Plan.Jobs[name] = job
	schedules, err := cfg.Schedules(j)
	if err != nil {
		return fmt.Errorf("%s: job %s: %w", j.At, j.Name, err)
	}

	if len(schedules) > 0 || j.RunOnStart {
		overlap := j.Overlap
		if job.AsksModel() && job.Model == nil && p.Plan.Agents[j.Agent].Model == nil && (overlap == domain.OverlapAllow || overlap == domain.OverlapQueueAll) {
			// Such runs stay queued until a model is configured; they must not pile up.
			overlap = domain.OverlapQueueOne
		}
		p.Jobs = append(p.Jobs, scheduler.Job{Name: name, Agent: j.Agent, Schedules: schedules, Overlap: overlap, RunOnStart: j.RunOnStart,
			Policy: schedule.Policy{OnMiss: j.OnMiss, CatchupWindow: time.Duration(j.CatchupWindow), MaxCatchup: j.MaxCatchup}})
	}

	for _, f := range j.Follows {
		p.followers = append(p.followers, ledger.Follower{Job: name, Agent: j.Agent, After: f.Job, Outcomes: f.On})
	}

	if j.Watch != nil {
		p.watches = append(p.watches, newWatch(j, p.Plan))
	}

	return nil
}

// newJob is a job in the terms of the runner.
func newJob(cfg *config.Config, j *config.Job, models map[string]*agent.Model) agent.Job {
	job := agent.Job{
		Name: string(j.Name), Agent: j.Agent, Prompt: j.Prompt, Model: models[j.Model], Record: j.Record, UndoOnFailure: j.UndoOnFail, ContextViews: j.ContextViews, KeepSession: j.Session == config.SessionKeep, Bounds: newBounds(j.Bounds), Budget: newBudget(j.Budget), Watched: watched(j), MinTier: j.MinTier,
		Notify: agent.Notify{On: j.Notify.On, Channels: j.Notify.Channels, Title: j.Notify.Title, Body: j.Notify.Body},
		Where:  cfg.Where(j.At),
		Zone:   cfg.ZoneOf(j), Checkout: j.Checkout.Spec(),
		Seldom: seldom(cfg, j),
	}

	if j.Prompts() {
		job.Executor = cfg.ExecutorOf(j).Settings()
	}
	if s, ok := cfg.ModuleOf(j); ok {
		job.Skill, job.Input, job.Workspace = s, j.Input, j.Workspace
	}

	// An empty playbook is still one: nil would make it a job of a model.
	if j.Playbook != nil {
		job.Playbook = []playbook.Call{}
	}

	for _, c := range j.Playbook {
		job.Playbook = append(job.Playbook, c.Step())
	}

	for _, g := range j.When {
		job.When = append(job.When, agent.Condition{SQL: g.SQL, Command: g.Command, HTTP: g.HTTP, File: string(g.File), That: g.That, Not: g.Not,
			Write: g.Write, Read: paths(g.Read), Network: g.Network == "host", Unconfined: g.Reason,
			Timeout: time.Duration(g.Timeout), Where: cfg.Where(g.At)})
	}

	for _, e := range j.Expect {
		job.Expect = append(job.Expect, agent.Expectation{File: string(e.File), SQL: e.SQL, Command: e.Command, Timeout: time.Duration(e.Timeout), Where: e.At.String()})
	}

	return job
}

func (p *Plan) quota(agent string) int64 { return p.quotas[agent] }
