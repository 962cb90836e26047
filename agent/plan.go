package agent

import (
	"fmt"
	"slices"
	"strings"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agentdb/ledger"
)

// Agent is a named worker.
type Agent struct {
	Name         string
	Instructions string
	Workdir      string // absolute; created when the first run starts
	Model        *Model // nil: the agent has none, and its prompts are held
	Database     bool
	Allow, Deny  []string // globs of tool names; no Allow means every tool
	Read, Write  []string // absolute roots beside the workdir; Write narrows it when given
	Bounds       loop.Bounds
}

// Model is a configured way to reach a language model.
type Model struct {
	Name        string
	Provider    model.Provider
	MaxOutput   int // tokens, 0: the provider's own
	Temperature *float64
}

// Job is what a run does: exactly one of Prompt and Playbook is set.
type Job struct {
	Name, Agent string
	Prompt      string
	Playbook    []playbook.Call
	Model       *Model // nil: the agent's
	Bounds      loop.Bounds
	Expect      []Expect
	Notify      Notify
}

// Expect is a condition that the host checks after a run; exactly one of File and SQL is set.
type Expect struct {
	File  string // absolute path: exists and changed since the run started
	SQL   string // one value on the agent's database that must be true
	Where string // file:line of the configuration
}

// Notify says which outcomes tell whom what.
type Notify struct {
	On          []string // outcomes
	Channels    []string
	Title, Body string // templates; "" uses the built-in text
}

// Plan is everybody that is configured. Names are unique regardless of case.
type Plan struct {
	Agents map[string]Agent
	Jobs   map[string]Job
}

// task is one run's orders: the agent, and the job or what stands in its place.
type task struct {
	agent  Agent
	job    Job
	detail ledger.Detail
	model  *Model
}

// find resolves what a run asks for. The error is for the run's owner.
func (p Plan) find(run ledger.Run, d ledger.Detail) (task, error) {
	t := task{detail: d, job: Job{Name: run.Job, Agent: run.Agent, Prompt: d.Prompt}}
	if run.Job != "" {
		job, ok := p.Jobs[run.Job]
		if !ok {
			return t, fmt.Errorf("the job %q is no longer in the configuration, or is disabled", run.Job)
		}
		t.job = job
	}
	a, ok := p.Agents[t.job.Agent]
	if !ok {
		return t, fmt.Errorf("the agent %q is no longer in the configuration, or is disabled", t.job.Agent)
	}
	t.agent = a
	t.model = a.Model
	if t.job.Model != nil {
		t.model = t.job.Model
	}
	return t, nil
}

// needsModel says whether the run cannot go on without a language model.
func (t task) needsModel() bool { return t.detail.Tool == "" && t.job.Playbook == nil }

// wants says whether an outcome is one that the job tells about.
func (n Notify) wants(o ledger.Outcome) bool {
	return slices.ContainsFunc(n.On, func(s string) bool { return strings.EqualFold(s, string(o)) })
}
