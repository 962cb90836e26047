package plan

import (
	"fmt"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	agentplan "rouse/agent/plan"
	"rouse/cmd/internal/config"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/scheduler"
	"rouse/scheduler/dispatch"
	"rouse/scheduler/schedule"
)

func newBounds(b config.Bounds) loop.Bounds {
	return loop.Bounds{Steps: b.Steps, Calls: b.Calls, Wall: time.Duration(b.Wall), Idle: time.Duration(b.Idle), Tokens: b.Tokens, Output: int64(b.Output),
		CostMicroUSD: config.MicroUSD(b.CostUSD)}
}

// addJob adds a job to the runner, and to the scheduler and the watcher if they trigger it.
func (p *Plan) addJob(cfg *config.Config, i int, models map[string]*agentplan.Model, files writables) error {
	j := &cfg.Jobs[i]
	name := string(j.Name)
	p.policies[name] = newPolicy(cfg, j) // also for a disabled job, which may still have unfinished runs
	if cfg.Engine.Shared() {
		p.Hosts[name] = cfg.HostOf(j)
	}
	if !config.On(j.Enabled) {
		return nil
	}
	if _, ok := p.Runner.Agents[j.Agent]; !ok {
		p.Runner.Disabled[name] = disabledAgent(cfg, j)
		return nil
	}

	job := newJob(cfg, j, models)
	job.Foreign = files.byOthers(j.At.File, j.TextFile)
	job.Obstacles = SecretObstacles(cfg, fmt.Sprintf("jobs[%d].executor.", i))
	p.Runner.Jobs[name] = job
	schedules, err := cfg.Schedules(j)
	if err != nil {
		return fmt.Errorf("%s: job %s: %w", j.At, j.Name, err)
	}

	if len(schedules) > 0 || j.RunOnStart {
		overlap := j.Overlap
		if job.AsksModel() && job.Model == nil && p.Runner.Agents[j.Agent].Model == nil && (overlap == domain.OverlapAllow || overlap == domain.OverlapQueueAll) {
			// Such runs stay queued until a model is configured. Keep them from piling up.
			overlap = domain.OverlapQueueOne
		}
		p.Jobs = append(p.Jobs, scheduler.Job{Name: name, Agent: j.Agent, Schedules: schedules, Overlap: overlap, RunOnStart: j.RunOnStart,
			Policy: schedule.Policy{OnMiss: j.OnMiss, CatchupWindow: time.Duration(j.CatchupWindow), MaxCatchup: j.MaxCatchup}})
	}

	for _, f := range j.Follows {
		p.Followers = append(p.Followers, ledger.Successor{Job: name, Agent: j.Agent, After: f.Job, Outcomes: f.On})
	}

	if j.Watch != nil {
		p.Watches = append(p.Watches, newWatch(j, p.Runner))
	}

	return nil
}

// newJob translates a job for the runner.
func newJob(cfg *config.Config, j *config.Job, models map[string]*agentplan.Model) agentplan.Job {
	job := agentplan.Job{
		Name: string(j.Name), Agent: j.Agent, Prompt: j.Prompt, Model: models[j.Model], Record: j.Record, UndoOnFailure: j.UndoOnFail, ContextViews: j.ContextViews, KeepSession: j.Session == config.SessionKeep, Bounds: newBounds(j.Bounds), Budget: NewBudget(j.Budget), Watched: watched(j), MinTier: j.MinTier,
		Notify: agentplan.Notify{On: j.Notify.On, Channels: j.Notify.Channels, Title: j.Notify.Title, Body: j.Notify.Body},
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

	// Keep an empty playbook as such, because nil would make it a job with a model.
	if j.Playbook != nil {
		job.Playbook = []playbook.Call{}
	}

	for _, c := range j.Playbook {
		job.Playbook = append(job.Playbook, c.Step())
	}

	for _, g := range j.When {
		job.When = append(job.When, agentplan.Condition{SQL: g.SQL, Command: g.Command, HTTP: g.HTTP, File: string(g.File), That: g.That, Not: g.Not,
			Write: g.Write, Read: paths(g.Read), Network: g.Network == "host", Unconfined: g.Reason,
			Timeout: time.Duration(g.Timeout), Where: cfg.Where(g.At)})
	}

	for _, e := range j.Expect {
		job.Expect = append(job.Expect, agentplan.Expectation{File: string(e.File), SQL: e.SQL, Command: e.Command, Timeout: time.Duration(e.Timeout), Where: e.At.String()})
	}

	return job
}

// newPolicy translates a job for the dispatcher.
func newPolicy(cfg *config.Config, j *config.Job) dispatch.Policy {
	p := dispatch.Policy{
		Attempts: j.Retry.Attempts, Backoff: time.Duration(j.Retry.Backoff), MaxBackoff: time.Duration(j.Retry.MaxBackoff),
		On: j.Retry.On, Resume: config.On(j.Resume), StartDeadline: time.Duration(j.StartDeadline), OnMiss: j.OnMiss, CatchupWindow: time.Duration(j.CatchupWindow), PauseAfter: j.PauseAfter,
	}
	// The scheduler applies the other overlap policies when an occurrence is due.
	if j.Overlap == domain.OverlapAllow {
		p.Concurrency = -1
	}

	if cfg.Engine.Shared() {
		p.Node = cfg.HostOf(j)
	}
	return p
}

// seldom reports whether a job has a single schedule that fires at most once a day.
func seldom(cfg *config.Config, j *config.Job) bool {
	if j.Watch != nil || j.Webhook != nil || len(j.Follows) > 0 {
		return false
	}
	all, err := cfg.Schedules(j)
	return err == nil && len(all) == 1 && all[0].DailyAtMost()
}
