package agent

import (
	"context"
	"errors"
	"strings"

	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/workspace"
	"rouse/skills"
)

// enterWorkspace puts the run of a module into the workspace that its job names. It creates the
// workspace if necessary, except in a dry run.
func (r *moduleRunner) enterWorkspace(ctx context.Context, t *attempt) error {
	m, run := t.module, t.Run
	name, err := workspaceName(t, t.data)
	switch {
	case t.Detail.Uninstall: // the last hooks are not called for a workspace
		return nil
	case err != nil:
		return plan.EndEarly(domain.OutcomeError, "%v", err)
	case run.Workspace == 0 && name == "" && m.skill.Manifest.NeedsWorkspace():
		return plan.EndEarly(domain.OutcomeError, "the skill %s works in a workspace, and the run names none (workspace: NAME)", m.skill.Name)
	case run.Workspace == 0 && name == "" || !moduleapi.KeepsWorkspace(m.skill.Manifest):
		return nil
	}

	var w workspace.Workspace
	switch by := (workspace.Author{Attempt: t.Try, Key: "workspace"}); {
	case run.Workspace != 0:
		w, err = r.ledger.Workspaces.Get(ctx, run.Workspace)
	case t.Detail.DryRun:
		w, err = r.ledger.Workspaces.Named(ctx, t.Agent.Name, m.skill.Name, name)
	default:
		w, err = r.workspaceNamed(ctx, by, t.Agent.Name, m.skill, name)
	}
	if err == nil && !t.Detail.DryRun {
		w, err = r.ledger.Workspaces.Enter(ctx, t.Try, w.ID)
	}
	switch {
	case refusedWorkspace(err):
		return plan.EndEarly(domain.OutcomeError, "%v", err)
	case errors.Is(err, ledger.ErrNotFound):
		return plan.EndEarly(domain.OutcomeError, "%v; a dry run makes none", err)
	}
	m.workspace = &w
	return err
}

// refusedWorkspace reports whether a run may not work in a workspace.
func refusedWorkspace(err error) bool {
	return errors.As(err, new(*workspace.Error)) || errors.As(err, new(*workspace.BlockedError))
}

func workspaceName(t *attempt, data map[string]any) (string, error) {
	if t.Detail.Workspace != "" {
		return t.Detail.Workspace, nil
	}
	name, err := playbook.Expand("workspace", t.Job.Workspace, data)
	return strings.TrimSpace(name), err
}

// workspaceNamed returns an agent's workspace of a skill by name. It creates the workspace if it
// does not exist.
func (r *moduleRunner) workspaceNamed(ctx context.Context, by workspace.Author, agent string, s *skills.Skill, name string) (workspace.Workspace, error) {
	w, err := r.ledger.Workspaces.Named(ctx, agent, s.Name, name)
	if !errors.Is(err, ledger.ErrNotFound) {
		return w, err
	}

	fresh := workspace.Workspace{Agent: agent, Skill: s.Name, Name: name}
	if v := s.Manifest.WorkspaceSchemaVersion; v != nil {
		fresh.SchemaVersion = *v
	}
	w, err = r.ledger.Workspaces.Create(ctx, by, fresh)
	if taken, found := r.ledger.Workspaces.Named(ctx, agent, s.Name, name); err != nil && found == nil {
		return taken, nil // another run has created it
	}
	return w, err
}

// defaultWorkspace is the name of the workspace that is created if a model calls a skill that needs
// a workspace and has no active one.
const defaultWorkspace = "default"

// workspaceFor returns the name of the workspace for the module of a call. This is the run's own
// workspace if it belongs to the skill, else the only active one. If the skill requires a workspace
// and has none, it is defaultWorkspace. Otherwise it is "". refused is the reason if the skill
// cannot be called.
func (c *moduleCalls) workspaceFor(ctx context.Context, s *skills.Skill) (name string, refused *tool.Envelope, err error) {
	if !moduleapi.KeepsWorkspace(s.Manifest) {
		return "", nil, nil
	}

	run, err := c.runner.ledger.Runs.Get(ctx, c.task.Run.ID) // an earlier call may have entered a workspace
	if err != nil {
		return "", nil, err
	}
	if run.Workspace != 0 {
		w, err := c.runner.ledger.Workspaces.Get(ctx, run.Workspace)
		if err != nil || w.Skill == s.Name {
			return w.Name, nil, err
		}
	}

	active, err := c.runner.ledger.Workspaces.List(ctx, workspace.Filter{Agent: c.task.Agent.Name, Skill: s.Name, Status: workspace.Active, Limit: 2})
	switch required := s.Manifest.NeedsWorkspace(); {
	case err != nil:
		return "", nil, err
	case len(active) == 1:
		return active[0].Name, nil, nil
	case required && len(active) == 0:
		return defaultWorkspace, nil, nil
	case required:
		e := tool.Failure(tool.KindRejected, "the skill %s has several workspaces; have this run work in one first, with workspace_manage (action set_phase)", s.Name)
		return "", &e, nil
	}
	return "", nil, nil
}

// enter puts the run into the workspace of a call's module and returns it. It returns nil if the
// module has no workspace or the call is refused.
func (c *moduleCalls) enter(ctx context.Context, in tool.Invocation, s *skills.Skill) (w *workspace.Workspace, refused *tool.Envelope, err error) {
	name, refused, err := c.workspaceFor(ctx, s)
	if name == "" || refused != nil || err != nil {
		return nil, refused, err
	}

	a := ledger.Attempt{Run: in.Run, Number: in.Attempt}
	found, err := c.runner.workspaceNamed(ctx, workspace.Author{Attempt: a, Key: loop.InnerKey(in.Key, "workspace")}, c.task.Agent.Name, s, name)
	if err == nil {
		found, err = c.runner.ledger.Workspaces.Enter(ctx, a, found.ID)
	}
	if refusedWorkspace(err) {
		e := tool.Failure(tool.KindRejected, "%v", err)
		return nil, &e, nil
	}
	return &found, nil, err
}
