package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/notify"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
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

// newPolicy is what the dispatcher needs to know of a job.
func newPolicy(cfg *config.Config, j *config.Job) dispatch.Policy {
	p := dispatch.Policy{
		Attempts: j.Retry.Attempts, Backoff: time.Duration(j.Retry.Backoff), MaxBackoff: time.Duration(j.Retry.MaxBackoff),
		On: j.Retry.On, Resume: config.On(j.Resume), StartDeadline: time.Duration(j.StartDeadline), OnMiss: j.OnMiss, CatchupWindow: time.Duration(j.CatchupWindow), PauseAfter: j.PauseAfter,
	}
	// The scheduler applies the other overlap policies when an occurrence is due.
	if j.Overlap == domain.OverlapAllow {
		p.Concurrency = -1
	}

	if cfg.Shared() {
		p.Node = cfg.HostOf(j)
	}
	return p
}

// Policy is how the runs of a job are handled; an ad-hoc run is resumed and not retried.
func (p *Plan) Policy(job string) dispatch.Policy {
	if policy, ok := p.policies[job]; ok {
		return policy
	}
	return dispatch.Policy{Resume: true}
}

// newBoundary ends the owner's own folders where others make names: agents in their workdirs and write grants, strangers in the
// watched folders, and both in the folders that their files are moved to. Disabled agents and jobs count too.
func newBoundary(cfg *config.Config) nofollow.Boundary {
	places := slices.Concat(cfg.ExecutorPlaces(), []string{clonesFolder(cfg)}, untrustedFolders(cfg))
	for _, a := range cfg.Agents {
		places = append(append(places, string(a.Workdir)), paths(a.Grants.Write)...)
	}
	return nofollow.NewBoundary(places...)
}

// clonesFolder holds the private clones of runs, in which agents write.
func clonesFolder(cfg *config.Config) string {
	return filepath.Join(string(cfg.Home), "checkouts", "runs")
}

// untrustedFolders are those that strangers' files come to: the watched ones, and those that their files are moved to.
func untrustedFolders(cfg *config.Config) (out []string) {
	for _, j := range cfg.Jobs {
		if j.Watch != nil {
			out = append(append(out, string(j.Watch.Path)), j.Watch.MovedTo()...)
		}
	}
	return out
}

// newMasks returns the places that later runs trust, so no agent may change them (docs/security.md).
func newMasks(cfg *config.Config) tool.Masks {
	m := tool.Masks{ReadOnly: slices.Concat(cfg.Files, cfg.Included()), Hidden: []string{string(cfg.Home)}}
	for _, r := range cfg.SkillRoots(os.Getenv) {
		if r.Trusted {
			m.ReadOnly = append(m.ReadOnly, r.Path)
		}
	}
	return m
}

// writables is what was found of files, each of which is looked at once: thousands of jobs stand in the same.
type writables map[string]string

// byOthers reports how another user could change a file that defines an agent or a job (OSL-19), or "".
func (w writables) byOthers(files ...string) string {
	for _, path := range files {
		why, known := w[path]
		if !known && path != "" {
			why = definitionWritableByOthers(path)
			w[path] = why
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func definitionWritableByOthers(path string) string {
	if actual, err := filepath.EvalSymlinks(path); err == nil {
		path = actual
	}
	if why := owner.WritableByOthers(path); why != "" {
		return fmt.Sprintf("%s %s", path, why)
	}
	return ""
}

// newChannels opens the configured channels, and the default one that exists without being configured.
func newChannels(cfg *config.Config) (map[string]notify.Channel, error) {
	standard, err := notify.Open(notify.Settings{Kind: config.DefaultChannel})
	if err != nil {
		return nil, err
	}

	// A configured channel of the same name replaces the default one below.
	out := map[string]notify.Channel{config.DefaultChannel: standard}
	for i, n := range cfg.Notifications {
		// A channel that cannot be used keeps its notices, and keeps no run from starting.
		if held := secretObstacles(cfg, fmt.Sprintf("notifications[%d].", i)); len(held) > 0 {
			out[string(n.Name)] = notify.Unusable(held[0].Text)
			continue
		}
		if out[string(n.Name)], err = notify.Open(notify.Settings{Kind: n.Kind, URL: n.URL, Secret: n.Secret}); err != nil {
			return nil, fmt.Errorf("%s: notification channel %s: %w", n.At, n.Name, err)
		}
	}

	return out, nil
}

// channelRules are what is configured of when channels are used.
func channelRules(cfg *config.Config, session *notify.Session) map[string]notify.Rules {
	out := map[string]notify.Rules{}
	for _, n := range cfg.Notifications {
		r := notify.Rules{Zone: cfg.Zone(), Fallback: string(n.Fallback), Digest: digestOf(cfg, string(n.Name))}
		if n.QuietHours != "" {
			r.Quiet, _ = schedule.ParseQuiet(n.QuietHours) // a wrong one was refused
		}
		out[string(n.Name)] = r
	}
	// The channel that exists without being configured.
	if _, configured := out[config.DefaultChannel]; !configured {
		if digest := digestOf(cfg, config.DefaultChannel); digest != nil {
			out[config.DefaultChannel] = notify.Rules{Zone: cfg.Zone(), Digest: digest, Session: session}
		}
	}
	return out
}

// digestOf is when a channel sends a summary, nil for never.
func digestOf(cfg *config.Config, channel string) *schedule.Daily {
	digest, err := schedule.ParseDaily(cfg.DigestOf(channel)) // a wrong one was refused
	if err != nil {
		return nil
	}
	return &digest
}

// channelGroups are how channels gather failures.
func channelGroups(cfg *config.Config) map[string]agent.Group {
	out := map[string]agent.Group{}
	for _, n := range cfg.Notifications {
		out[string(n.Name)] = agent.Group{Every: n.Group.Every, Recovery: config.On(n.Group.Recovery)}
	}
	return out
}

// channelNames are in the order in which models read them: the default one, then as configured.
func channelNames(cfg *config.Config) []string {
	names := []string{config.DefaultChannel}
	for _, n := range cfg.Notifications {
		if !slices.Contains(names, string(n.Name)) {
			names = append(names, string(n.Name))
		}
	}

	return names
}
