package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"rouse/agent/checkout"
	"rouse/agent/redact"
	"rouse/agent/tool/moduleapi"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/skills"
)

// Task holds everything that a run needs. Resolve creates it from the plan once, and it does not
// change.
type Task struct {
	Plan            *Active // plan from which the task was resolved
	Run             ledger.Run
	Agent           Agent
	Job             Job
	Origin          *Job                 // job that began the chain of a run without a job, or nil
	Detail          ledger.TriggerDetail // trigger of the run, in the form that the job expects
	Model           *Model
	Models          []*Model // the model and its fallbacks; empty without a model
	Notify          Notify   // outcomes and channels of notices
	Channels        []string // notice channels of the job or the agent, or else the default channels
	DefaultChannels []string // notice channels if neither job nor agent names one
	// Unattended reports whether the run was started by a trigger, so that no user sees its
	// failure.
	Unattended bool
	// IgnorePause reports whether a user started or retried the run. Such a run also uses a paused
	// model.
	IgnorePause    bool
	ModuleSettings ModuleSettings // settings of the module that the run executes
}

// NotConfiguredError means that the plan has no such job, agent or skill.
type NotConfiguredError struct{ Kind, Name string }

func (e *NotConfiguredError) Error() string {
	return fmt.Sprintf("the %s %q is no longer in the configuration, or is disabled", e.Kind, e.Name)
}

// Resolve returns the task of a run. The error is a *NotConfiguredError unless the record is
// damaged. Even then, the task can be used for notices.
func (p *Active) Resolve(run ledger.Run) (*Task, error) {
	d, damaged := ParseDetail(run)
	t := &Task{
		Plan: p, Run: run, Detail: d, Unattended: run.Trigger != domain.TriggerManual, IgnorePause: run.Trigger == domain.TriggerManual || d.Retried,
		Origin: p.originJob(run, d), Job: Job{Name: run.Job, Agent: run.Agent, Prompt: d.Prompt},
	}

	t.DefaultChannels = p.ChannelsOr()
	t.Channels = p.ChannelsOr(t.GoverningJob().Notify.Channels, p.Agents[run.Agent].Channels)
	if run.Job != "" {
		job, ok := p.Jobs[run.Job]
		if !ok {
			return t, cmp.Or[error](damaged, &NotConfiguredError{Kind: "job", Name: run.Job})
		}
		t.Channels = p.ChannelsOr(job.Notify.Channels, p.Agents[job.Agent].Channels)
		t.Job, t.Detail, t.Notify = job, job.TriggeredBy(d), job.Notify
		t.Notify.Channels = t.Channels
	} else if d.Skill != "" {
		if t.Job.Skill = p.Modules[d.Skill]; t.Job.Skill == nil {
			return t, cmp.Or[error](damaged, &NotConfiguredError{Kind: "skill", Name: d.Skill})
		}
	}
	if run.Job == "" && (run.Trigger == domain.TriggerSelf || d.StartedBy != nil) { // no user waits for it
		t.Notify = wakeNotify(t.Origin, t.Channels)
	}

	if t.Job.Skill != nil {
		t.ModuleSettings = p.ModuleSettings[t.Job.Skill.Name]
	}

	a, ok := p.Agents[t.Job.Agent]
	if !ok {
		return t, cmp.Or[error](damaged, &NotConfiguredError{Kind: "agent", Name: t.Job.Agent})
	}

	t.Agent, t.Model = a, a.Model
	if t.Job.Executor == nil && t.Job.Prompts() {
		t.Job.Executor = a.Executor
	}
	switch {
	case t.Job.Model != nil:
		t.Model = t.Job.Model
	case t.Origin != nil && t.Origin.Model != nil:
		t.Model = t.Origin.Model
	}

	t.Models = modelChain(t.Model)
	return t, damaged
}

// ParseDetail returns the trigger of a run. It returns an empty detail and an error if the record
// is damaged.
func ParseDetail(run ledger.Run) (ledger.TriggerDetail, error) {
	var d ledger.TriggerDetail
	if len(run.Detail) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(run.Detail, &d); err != nil {
		return ledger.TriggerDetail{}, fmt.Errorf("the record of what triggered run %d is damaged: %w", run.ID, err)
	}
	return d, nil
}

// originJob returns the job that began the chain of a run without a job, or nil.
func (p *Active) originJob(run ledger.Run, d ledger.TriggerDetail) *Job {
	if run.Job != "" {
		return nil
	}

	job, ok := p.Jobs[d.Chain()]
	if !ok || job.Agent != run.Agent {
		return nil
	}
	return &job
}

// wakeNotify returns the notice settings of a wake. They are those of the job that began its chain,
// or else notices of failures. The job's title is omitted, because it describes other work.
func wakeNotify(origin *Job, told []string) Notify {
	if origin != nil {
		n := origin.Notify
		n.Title, n.Channels = "", told
		return n
	}

	return Notify{On: []string{domain.Failure, string(domain.StateWaiting)}, Channels: told}
}

// GoverningJob returns the job whose bounds, budget and sandbox settings apply to the run. For a
// wake, it is the job that began the chain.
func (t *Task) GoverningJob() Job {
	if t.Origin != nil {
		return *t.Origin
	}
	return t.Job
}

func (t *Task) Asker() string { return cmp.Or(t.Job.Name, t.Agent.Name) }

// MinTier returns the weakest sandbox tier for the programs of the run, or "" for the default.
func (t *Task) MinTier() string {
	least := cmp.Or(t.GoverningJob().MinTier, t.Agent.MinTier)
	if least == "" && t.Agent.Unconfined != "" {
		return "D"
	}
	if t.Agent.Mode == ModeIsolated && least > "B" { // a job must not weaken the mode of its agent
		return "B"
	}
	return least
}

func (t *Task) NeedsModel() bool {
	return t.Detail.Tool == "" && t.Job.Prompts() && !t.Executes()
}

// AsksModel reports whether the run needs a language model.
func (t *Task) AsksModel() bool {
	return t.Detail.Tool == "" && t.Job.AsksModel() || !t.Executes() && t.callsAskingModule()
}

// Phased reports whether the run has phases. Playbooks do not.
func (t *Task) Phased() bool { return t.Agent.Phased && t.NeedsModel() }

// Executes reports whether an installed agent program executes the run instead of the loop.
func (t *Task) Executes() bool {
	return t.Job.Executor != nil && t.Job.Prompts() && t.Detail.Tool == ""
}

// Checkout returns the checkout of a run, or nil if it works in the agent's workdir. Manual calls
// do.
func (t *Task) Checkout() *checkout.Options {
	if t.Detail.Tool != "" {
		return nil
	}
	return cmp.Or(t.GoverningJob().Checkout, t.Agent.Checkout)
}

// UsesServers reports whether the run can call tools of MCP servers.
func (t *Task) UsesServers() bool {
	return t.Job.Skill == nil || len(t.ModuleSettings.Tools) > 0 || len(t.Job.Skill.Manifest.RequiredMCPTools) > 0
}

func (t *Task) CalledTools() (out []string) {
	if t.Detail.Tool != "" {
		out = append(out, t.Detail.Tool)
	}
	for _, c := range t.Job.Playbook {
		if !slices.Contains(out, c.Name) {
			out = append(out, c.Name)
		}
	}
	return out
}

// callsAskingModule reports whether the manual call or the playbook calls a skill tool that uses a
// model.
func (t *Task) callsAskingModule() bool {
	names := []string{t.Detail.Tool}
	for _, c := range t.Job.Playbook {
		names = append(names, c.Name)
	}

	return slices.ContainsFunc(t.Agent.Skills.All(), func(s *skills.Skill) bool {
		return s.Manifest != nil && moduleapi.AsksModel(s.Manifest) && slices.ContainsFunc(names, func(name string) bool { return moduleapi.IsOffer(s, name) })
	})
}

// ClockZone returns the time zone of the job, or that of the configuration.
func (t *Task) ClockZone() *time.Location {
	return cmp.Or(t.Job.Zone, t.GoverningJob().Zone, t.Plan.Zone)
}

// modelChain returns a model and its fallbacks. It skips fallbacks with an obstacle.
func modelChain(m *Model) (out []*Model) {
	for seen := map[*Model]bool{}; m != nil && !seen[m]; m = m.Fallback {
		if seen[m] = true; len(out) == 0 || len(m.Obstacles) == 0 {
			out = append(out, m)
		}
	}
	return out
}

// OwnerChannels returns the channels for notices about budgets, quotas and similar events.
func (t *Task) OwnerChannels() []string {
	if len(t.Channels) == 0 {
		return t.DefaultChannels
	}
	return t.Channels
}

// Redactor returns the redactor of the plan, which all runs share.
func (t *Task) Redactor() *redact.Redactor { return t.Plan.Redactor }
