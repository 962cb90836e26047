package daemon

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
	"rouse/agent/model/playbook"
	"rouse/agent/model/replay"
	"rouse/agent/model/wire"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/internal/domain"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/schedule"
	"rouse/watcher"
)

// Plan is the configuration in the terms of the parts.
type Plan struct {
	Plan agent.Plan
	Jobs []scheduler.Job
	// selfScheduling names the agents that may plan their own runs.
	selfScheduling []string
	watches        []watcher.Watch
	channels       map[string]notify.Channel
	policies       map[string]dispatch.Policy
	quotas         map[string]int64
}

// NewPlan maps a checked configuration to what each part takes.
func NewPlan(cfg *config.Config, log *slog.Logger) (*Plan, error) {
	p := &Plan{
		Plan: agent.Plan{Agents: map[string]agent.Agent{}, Jobs: map[string]agent.Job{}, Zone: cfg.Zone(),
			Budget: dailyBudget(cfg.Limits.CostUSDPerDay, cfg.Limits.TokensPerDay)},
		policies: map[string]dispatch.Policy{}, quotas: map[string]int64{},
	}

	var err error
	if p.channels, err = newChannels(cfg); err != nil {
		return nil, err
	}

	p.Plan.Channels = channelNames(cfg)
	p.Plan.Secrets, p.Plan.Masks = cfg.Secrets(), newMasks(cfg)
	models, err := NewModels(cfg, log)
	if err != nil {
		return nil, err
	}

	for _, a := range cfg.Agents {
		if !config.On(a.Enabled) {
			continue
		}

		built := newAgent(a, models)
		built.Skills = agent.Skills{View: cfg.SkillView(&a), Style: a.SkillStyle, Allowing: a.SkillTools}
		built.Foreign = definitionWritableByOthers(a.At.File, a.InstructionsFile)
		built.Budget = dailyBudget(a.Budget.CostUSDPerDay, a.Budget.TokensPerDay)
		if limits, ok := cfg.SelfScheduling(&a); ok {
			built.SelfScheduling = &limits
			p.selfScheduling = append(p.selfScheduling, built.Name)
		}

		p.Plan.Agents[built.Name] = built
		p.quotas[built.Name] = int64(a.Database.Quota)
	}

	for i := range cfg.Jobs {
		if err := p.addJob(cfg, &cfg.Jobs[i], models); err != nil {
			return nil, err
		}
	}

	return p, nil
}

// newChannels opens what is configured, and the channel that exists without being named.
func newChannels(cfg *config.Config) (map[string]notify.Channel, error) {
	standard, err := notify.Open(config.DefaultChannel)
	if err != nil {
		return nil, err
	}

	out := map[string]notify.Channel{config.DefaultChannel: standard}
	for _, n := range cfg.Notifications {
		if out[string(n.Name)], err = notify.Open(n.Kind); err != nil {
			return nil, fmt.Errorf("%s: notification channel %s: %w", n.At, n.Name, err)
		}
	}

	return out, nil
}

// channelNames are in the order in which models read them: the standard one, then as configured.
func channelNames(cfg *config.Config) []string {
	names := []string{config.DefaultChannel}
	for _, n := range cfg.Notifications {
		if !slices.Contains(names, string(n.Name)) {
			names = append(names, string(n.Name))
		}
	}

	return names
}

// NewModels opens what is configured.
func NewModels(cfg *config.Config, log *slog.Logger) (map[string]*agent.Model, error) {
	out := map[string]*agent.Model{}
	for _, m := range cfg.Models {
		provider, err := newProvider(m, log)
		if err != nil {
			return nil, fmt.Errorf("%s: model %s: %w", m.At, m.Name, err)
		}
		rate, _ := m.Rate() // where money is limited, it is known
		out[string(m.Name)] = &agent.Model{Name: string(m.Name), Provider: provider, MaxOutput: m.MaxOutput, Window: m.Window(), Temperature: m.Temperature, Price: rate}
	}

	for _, m := range cfg.Models {
		out[string(m.Name)].Fallback = out[m.Fallback]
	}

	return out, nil
}

func newProvider(m config.Model, log *slog.Logger) (model.Provider, error) {
	e := wire.Endpoint{
		BaseURL: m.BaseURL, APIKey: m.APIKey, Model: m.Model, Headers: m.Headers,
		Timeout: time.Duration(m.Timeout), Idle: time.Duration(m.Idle), Logger: log,
	}
	switch m.Provider {
	case "replay":
		return replay.Open(string(m.Recording))
	case "anthropic":
		return anthropic.New(e)
	case "gemini":
		return gemini.New(e)
	case "ollama":
		return ollama.New(ollama.Options{Endpoint: e, ContextWindow: m.ContextWindow})
	}

	if m.API == "responses" {
		return openai.NewResponses(e)
	}

	return openai.New(e)
}

func newAgent(a config.Agent, models map[string]*agent.Model) agent.Agent {
	read, public := a.Reads()
	return agent.Agent{
		Name: string(a.Name), Instructions: a.Instructions, Workdir: string(a.Workdir), Database: config.On(a.Database.Enabled),
		Allow: a.Tools.Allow, Deny: a.Tools.Deny, OnDemand: a.Tools.OnDemand, Bounds: newBounds(a.Bounds), Read: read, Public: public, Write: paths(a.Grants.Write),
		Model: models[a.Model], Phased: a.Loop == "phased", OnDenied: a.OnDenied, MinTier: a.MinTier, Unconfined: a.Reason,
		Commands: a.Commands(), Network: a.Network(), Secrets: a.Secrets(),
	}
}

func dailyBudget(usd float64, tokens int64) agent.Budget {
	return agent.Budget{CostMicroUSD: config.MicroUSD(usd), Tokens: tokens}
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

func (p *Plan) addJob(cfg *config.Config, j *config.Job, models map[string]*agent.Model) error {
	name := string(j.Name)
	p.policies[name] = newPolicy(j)
	if _, ok := p.Plan.Agents[j.Agent]; !ok || !config.On(j.Enabled) {
		return nil
	}

	job := agent.Job{
		Name: name, Agent: j.Agent, Prompt: j.Prompt, Model: models[j.Model], Record: j.Record, UndoOnFailure: j.UndoOnFail, ContextViews: j.ContextViews, Bounds: newBounds(j.Bounds), Watched: watched(j), MinTier: j.MinTier,
		Foreign: definitionWritableByOthers(j.At.File, j.PromptFile),
		Notify:  agent.Notify{On: j.Notify.On, Channels: j.Notify.Channels, Title: j.Notify.Title, Body: j.Notify.Body},
	}

	if j.Playbook != nil {
		job.Playbook = []playbook.Call{}
	}

	for _, c := range j.Playbook {
		job.Playbook = append(job.Playbook, c.Step())
	}

	for _, g := range j.When {
		job.When = append(job.When, agent.Condition{SQL: g.SQL, Command: g.Command, HTTP: g.HTTP, File: string(g.File), Not: g.Not,
			Timeout: time.Duration(g.Timeout), Where: cfg.Where(g.At)})
	}

	for _, e := range j.Expect {
		job.Expect = append(job.Expect, agent.Expectation{File: string(e.File), SQL: e.SQL, Where: e.At.String()})
	}

	job.Budget = dailyBudget(j.Budget.CostUSDPerDay, j.Budget.TokensPerDay)
	p.Plan.Jobs[name] = job
	schedules, err := cfg.Schedules(j)
	if err != nil {
		return fmt.Errorf("%s: job %s: %w", j.At, j.Name, err)
	}

	if len(schedules) > 0 || j.RunOnStart {
		overlap := j.Overlap
		if j.Playbook == nil && job.Model == nil && p.Plan.Agents[j.Agent].Model == nil && (overlap == "allow" || overlap == "queue_all") {
			overlap = "queue_one" // of runs that wait for a model there is one
		}
		p.Jobs = append(p.Jobs, scheduler.Job{Name: name, Agent: j.Agent, Schedules: schedules, Overlap: overlap, RunOnStart: j.RunOnStart,
			Policy: schedule.Policy{OnMiss: j.OnMiss, CatchupWindow: time.Duration(j.CatchupWindow), MaxCatchup: j.MaxCatchup}})
	}

	if j.Watch != nil {
		p.watches = append(p.watches, newWatch(j))
	}

	return nil
}

// watched is what the runs of a job know of its watch.
func watched(j *config.Job) agent.Watched {
	w := j.Watch
	if w == nil {
		return agent.Watched{}
	}
	// Links can make a watch take what lies deeper.
	return agent.Watched{Folder: string(w.Path), Recursive: w.Recursive || w.FollowSymlinks, Batch: w.Mode == watcher.ModeBatch}
}

func newWatch(j *config.Job) watcher.Watch {
	settle := map[string]time.Duration{"fast": 200 * time.Millisecond, "": time.Second, "balanced": time.Second, "patient": 3 * time.Second}
	w := j.Watch
	return watcher.Watch{
		Job: string(j.Name), Agent: j.Agent, Path: string(w.Path), Include: w.Include, Exclude: w.Exclude, Recursive: w.Recursive,
		FollowSymlinks: w.FollowSymlinks, Mode: w.Mode, MaxWait: time.Duration(w.MaxWait), MaxFiles: w.MaxFiles,
		Settle: settle[w.Responsiveness], Existing: w.Existing,
		OnSuccess: watcher.After(w.OnSuccess), OnFailure: watcher.After(w.OnFailure),
	}
}

func newPolicy(j *config.Job) dispatch.Policy {
	p := dispatch.Policy{
		Attempts: j.Retry.Attempts, Backoff: time.Duration(j.Retry.Backoff), MaxBackoff: time.Duration(j.Retry.MaxBackoff),
		On: j.Retry.On, Resume: config.On(j.Resume), StartDeadline: time.Duration(j.StartDeadline), PauseAfter: j.PauseAfter,
	}
	if j.Overlap == domain.OverlapAllow {
		p.Concurrency = -1
	}

	return p
}

// Policy is what a job wants of its runs; an ad-hoc run is resumed and not retried.
func (p *Plan) Policy(job string) dispatch.Policy {
	if policy, ok := p.policies[job]; ok {
		return policy
	}
	return dispatch.Policy{Resume: true}
}

func (p *Plan) quota(agent string) int64 { return p.quotas[agent] }
