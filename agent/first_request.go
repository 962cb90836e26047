package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/mcp"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// FirstRequest is the first request of a scheduled run of a job, as far as it is known before the run.
type FirstRequest struct {
	Agent, Model string
	Request      model.Request
	// Missing lists what the run adds when it starts: rows of views, earlier runs, workspaces, values of templates.
	Missing []string
}

// FirstRequestOf returns the first request of a job. It starts no program and asks no model. servers is the folder with the approved
// tools of MCP servers, and tables describes the agent's database.
func FirstRequestOf(p Plan, job, servers string, tables agentdb.Schema) (out FirstRequest, err error) {
	r, err := forPlan(p)
	if err != nil {
		return out, err
	}
	r.servers = mcp.NewBook(servers)
	run := ledger.Run{Job: job, Agent: p.Jobs[job].Agent, Trigger: domain.TriggerSchedule, StartedAt: time.Now(), ScheduledAt: time.Now()}
	planned, err := r.task(run)
	if err != nil {
		return out, err
	}
	t := newAttempt(planned, ledger.Attempt{})
	switch {
	case t.executes():
		return out, fmt.Errorf("job %s asks no model: an executor does its runs", job)
	case !t.needsModel():
		return out, fmt.Errorf("job %s asks no model: it has no prompt", job)
	case t.model == nil:
		return out, errors.New("agent " + t.agent.Name + " has no model; add one under models:")
	}

	folder, err := os.MkdirTemp("", "rouse-request-") // an agent that never ran has no workdir yet
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	t.baseDir = folder
	t.found = snapshot{Soul: t.soul(), Servers: r.givenServers(t)}
	s := &t.found
	if t.agent.Database {
		s.Tables = tables.Text(t.promptPart(maxTablesText))
	}
	if err := s.readSkills(t); err != nil {
		return out, err
	}
	t.loaded = loadedSkills(t)
	r.useServers(t, s.Servers)
	defer t.sessions.Close()

	registry, err := r.promptTools(t)
	if err != nil {
		return out, err
	}
	o := loop.Options{System: systemPrompt(t), Messages: []model.Message{{Role: model.RoleUser, Text: t.job.Prompt}}}
	s.tell(&o)
	out = FirstRequest{Agent: t.agent.Name, Model: t.model.Name}
	out.Request = model.Request{System: o.System, Messages: o.Messages, Tools: registry.ModelTools(), MaxOutput: t.model.MaxOutput, Temperature: t.model.Temperature}
	out.Missing = t.missingBefore()
	return out, nil
}

// promptTools returns the tools of a run that is only planned, and sets what its system prompt tells.
func (r *Runner) promptTools(t *attempt) (*tool.Registry, error) {
	t.reducer = newReducer(t)
	t.project = projectFolder(t.boundary, t.projectDir(), true, t.redactor().Replace, t.promptPart, nil)
	t.clock = clockPrompt(t)
	t.offers = r.offersOf(t, nil)
	return r.tools(t)
}

// missingBefore names the parts of the first request that only the run knows.
func (t *task) missingBefore() (out []string) {
	if len(t.job.ContextViews) > 0 {
		out = append(out, "the rows of context_views")
	}
	if t.job.KeepSession {
		out = append(out, "the results of earlier runs (session)")
	}
	if len(t.workspaceSkills()) > 0 {
		out = append(out, "the active workspaces")
	}
	if strings.Contains(t.job.Prompt, "{{") {
		out = append(out, "the values of templates in the prompt")
	}
	return out
}

// tell adds to the system prompt and the task what an attempt found when it began.
func (s snapshot) tell(o *loop.Options) {
	if s.Tables != "" {
		o.System += "\n" + s.Tables
		if o.Reducer != nil {
			o.Reducer.System += "\n" + s.Tables
		}
	}

	s.addSkills(&o.System, &o.Messages[0].Text)
	// Before the prompt, so that no row can pass for its continuation.
	for _, part := range []string{s.Session, s.Workspaces, s.Views} {
		if part != "" {
			o.Messages[0].Text = part + "\n" + o.Messages[0].Text
		}
	}
	if s.Soul != nil {
		o.Messages[0].Text = s.Soul.Text + "\n" + o.Messages[0].Text
	}
}
