package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"rouse/agent/blocker"
	"rouse/agent/failover"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agent/prompt"
	"rouse/agent/servers"
	"rouse/agent/tool"
	"rouse/agent/tool/skill"
	"rouse/agentdb/schema"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// FirstRequest is the first model request of a scheduled run of a job, as far as it is known before
// the run starts.
type FirstRequest struct {
	Agent, Model string
	Request      model.Request
	// Missing lists the parts that the run adds when it starts: rows of views, earlier runs,
	// workspaces, template values.
	Missing []string
}

// FirstRequestOf returns the first request of a job without starting a program or asking a model.
// servers is the folder of approved MCP tools. It returns an error if the job does not ask a model.
func FirstRequestOf(p plan.Plan, job, servers string, tables schema.Schema) (out FirstRequest, err error) {
	r, err := forPlan(p, servers)
	if err != nil {
		return out, err
	}
	run := ledger.Run{Job: job, Agent: p.Jobs[job].Agent, Trigger: domain.TriggerSchedule, StartedAt: time.Now(), ScheduledAt: time.Now()}
	planned, err := r.Plan.Resolve(run)
	if err != nil {
		return out, err
	}
	t := newAttempt(planned, ledger.Attempt{})
	switch {
	case t.Executes():
		return out, fmt.Errorf("job %s asks no model: an executor does its runs", job)
	case !t.NeedsModel():
		return out, fmt.Errorf("job %s asks no model: it has no prompt", job)
	case t.Model == nil:
		return out, errors.New("agent " + t.Agent.Name + " has no model; add one under models:")
	}

	folder, err := os.MkdirTemp("", "rouse-request-") // an agent that never ran has no workdir yet
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	t.BaseDir = folder
	t.found = snapshot{Snapshot: prompt.Snapshot{Soul: prompt.NewSoul(&t.Task)}, Servers: r.Servers.Given(&t.Task)}
	s := &t.found
	if t.Agent.Database {
		s.Tables = tables.Text(prompt.Part(&t.Task, prompt.MaxTablesText))
	}
	if err := s.ReadSkills(&t.Task); err != nil {
		return out, err
	}
	t.loaded = loadedSkills(t)
	t.servers = r.Servers.Connect(&t.Attempt, nil, s.Servers)
	defer t.servers.Close()

	registry, err := r.promptTools(t)
	if err != nil {
		return out, err
	}
	o := loop.Options{System: prompt.System(&t.Attempt, t.found.Snapshot), Messages: []model.Message{{Role: model.RoleUser, Text: t.Job.Prompt}}}
	addSnapshot(&o, s.Snapshot)
	out = FirstRequest{Agent: t.Agent.Name, Model: t.Model.Name}
	out.Request = model.Request{System: o.System, Messages: o.Messages, Tools: registry.ModelTools(), MaxOutput: t.Model.MaxOutput, Temperature: t.Model.Temperature}
	out.Missing = missingBefore(&t.Task)
	return out, nil
}

// promptTools returns the tools of a planned run and sets the parts of its system prompt.
func (r *Runner) promptTools(t *attempt) (*tool.Registry, error) {
	t.reducer = newReducer(t)
	t.found.Folder = prompt.ProjectFolder(t.Plan.Boundary, prompt.ProjectDir(&t.Task), true, t.Redactor().Replace, func(most int) int { return prompt.Part(&t.Task, most) }, nil)
	t.found.Clock = prompt.Clock(&t.Task)
	t.offers = r.modules.offersOf(t, nil)
	return r.loop.tools.registry(t)
}

// missingBefore returns the names of the parts of the first request that are known only once the
// run starts.
func missingBefore(t *plan.Task) (out []string) {
	if len(t.Job.ContextViews) > 0 {
		out = append(out, "the rows of context_views")
	}
	if t.Job.KeepSession {
		out = append(out, "the results of earlier runs (session)")
	}
	if len(t.WorkspaceSkills()) > 0 {
		out = append(out, "the active workspaces")
	}
	if strings.Contains(t.Job.Prompt, "{{") {
		out = append(out, "the values of templates in the prompt")
	}
	return out
}

// leastHistory is the minimum number of tokens that a run needs for its history.
const leastHistory = 512

// ContextNeed is an estimate, in tokens, of the context that the prompt and the tools of a run use.
// It does not include rows, tables and files, which are known only once the run starts.
type ContextNeed struct {
	Agent, Job string // Job is "" for a run without a job
	Model      string
	Window     int // size of the model's context
	Prompt     int // system prompt and task
	Tools      int // tool descriptions, shortened if the window is narrow
	ToolCount  int
	Left       int // room for the history, after one answer; negative if the prompt is too large
	Least      int // smallest window that leaves enough room for the history
}

// Fits reports whether the context leaves enough room for the history.
func (n ContextNeed) Fits() bool { return n.Left >= leastHistory }

// Starts reports whether the context has room for a first request.
func (n ContextNeed) Starts() bool { return n.Left > 0 }

// ContextNeeds returns the context needs of each agent, and of each job that asks a model, sorted
// by name. It omits models with an unknown context size.
func ContextNeeds(p plan.Plan) ([]ContextNeed, error) {
	r, err := forPlan(p, "")
	if err != nil {
		return nil, err
	}
	// An agent that never ran has no workdir yet.
	folder, err := os.MkdirTemp("", "rouse-context-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()

	now := time.Now()
	runs := map[string][]ledger.Run{} // by agent: a run without a job, and a run of each job
	for name := range p.Agents {
		runs[name] = []ledger.Run{{Agent: name, Trigger: domain.TriggerSchedule, StartedAt: now, ScheduledAt: now}}
	}
	for _, job := range slices.Sorted(maps.Keys(p.Jobs)) {
		name := p.Jobs[job].Agent
		runs[name] = append(runs[name], ledger.Run{Agent: name, Job: job, Trigger: domain.TriggerSchedule, StartedAt: now, ScheduledAt: now})
	}

	var out []ContextNeed
	for _, name := range slices.Sorted(maps.Keys(p.Agents)) {
		for _, run := range runs[name] {
			t, err := r.Plan.Resolve(run)
			if err != nil || !t.NeedsModel() || t.Model == nil || t.Model.ContextSize() <= 0 {
				continue //nolint:nilerr // the configuration check reports the error
			}

			at := newAttempt(t, ledger.Attempt{})
			at.BaseDir = folder
			n, err := r.contextNeed(at)
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
	}

	return out, nil
}

// forPlan returns a runner that can only answer questions about a plan. approved is the folder of
// approved MCP tools, or "". It has no ledger, so it cannot execute runs.
func forPlan(p plan.Plan, approved string) (*Runner, error) {
	programs, err := programs.New(nil, slog.New(slog.DiscardHandler), "")
	if err != nil {
		return nil, err
	}
	r := &Runner{Plan: plan.NewCurrent(nil), log: slog.New(slog.DiscardHandler), programs: programs, specs: Specs()}
	r.Models = failover.NewHealth(nil, r.log, r.Plan, nil)
	if r.Servers, r.SignIns, err = servers.New(servers.Options{Log: r.log, Plan: r.Plan, Programs: programs, Approved: approved}); err != nil {
		return nil, err
	}
	r.modules = &moduleRunner{log: r.log, plan: r.Plan, programs: programs, signIns: r.SignIns.Book()}
	r.assemble()
	r.Blockers = blocker.New(blocker.Options{Plan: r.Plan, Programs: programs, Models: r.Models, Servers: r.Servers})
	r.Set(p)
	return r, nil
}

func (r *Runner) contextNeed(t *attempt) (ContextNeed, error) {
	registry, err := r.promptTools(t)
	if err != nil {
		return ContextNeed{}, err
	}

	told := registry.ModelTools()
	n := ContextNeed{Agent: t.Agent.Name, Job: t.Job.Name, Model: t.Model.Name, Window: t.Model.ContextSize(), Tools: loop.ToolTokens(told), ToolCount: len(told)}
	system, task := loop.TextTokens(prompt.System(&t.Attempt, t.found.Snapshot)), loop.TextTokens(t.Job.Prompt)
	if s := prompt.NewSoul(&t.Task); s != nil {
		task += loop.TextTokens(s.Text)
	}
	skills, err := t.Agent.Skills.Prompt(t.Agent.Skills.Style)
	if err == nil { // an unreadable skill ends the run with its own error
		system += loop.TextTokens(skills)
	}

	n.Prompt = system + task
	n.Left = loop.HistoryRoom(n.Window, t.Model.MaxOutput, n.Prompt+n.Tools)

	granted, m := registry.Filter(nil, skill.Specs().Names()), &plan.Model{MaxOutput: t.Model.MaxOutput}
	t.Model = m
	for m.Window = windowStep; ; m.Window += windowStep { // the listing depends on the window
		tools := loop.ToolTokens(listingOf(t, granted).apply(registry).ModelTools())
		if loop.HistoryRoom(m.Window, m.MaxOutput, n.Prompt+tools) >= leastHistory {
			n.Least = m.Window
			return n, nil
		}
	}
}

// windowStep is the granularity of suggested windows, in tokens.
const windowStep = 512
