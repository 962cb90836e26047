package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
)

// Limits of lists.
const (
	maxWorkspaces      = 1000
	shownWorkspaceRuns = 20
	shownEvents        = 20
)

// Workspaces lists and changes workspaces.
type Workspaces struct {
	*responder
	ledger *ledger.Ledger
	runs   *Runs
}

func (s *Workspaces) routes() []Route {
	act := func(action string) http.Handler {
		return s.answer(withWorkspace(func(ctx context.Context, n int64) (any, error) { return s.Change(ctx, n, action) }))
	}
	return []Route{
		get[[]api.Workspace]("/v1/workspaces", "Workspaces, those written last first.", s.answer(s.list),
			Param{Name: "agent", Kind: ParamText, Description: "of one agent"}, Param{Name: "skill", Kind: ParamText, Description: "of one skill"}, Param{Name: "status", Kind: ParamText, Description: "active, paused or archived"},
			Param{Name: "n", Kind: ParamCount, Most: maxWorkspaces, Description: "how many, at most 1000"}, Param{Name: "before", Kind: ParamCursor, Description: "those written before the workspace of this id"}),
		get[api.WorkspaceDetail]("/v1/workspaces/{id}", "A workspace with its runs, artifacts and events.", s.answer(withWorkspace(s.Workspace))),
		post[api.Nothing, api.Workspace]("/v1/workspaces/{id}/pause", "Has no run work in a workspace until it is resumed.", act("pause")),
		post[api.Nothing, api.Workspace]("/v1/workspaces/{id}/resume", "Has runs work in a workspace again.", act("resume")),
		post[api.Nothing, api.Workspace]("/v1/workspaces/{id}/archive", "Puts a workspace away.", act("archive")),
		post[api.Nothing, api.Workspace]("/v1/workspaces/{id}/acknowledge", "Takes a workspace as a run left it.", act("acknowledge")),
		post[api.Nothing, api.Workspace]("/v1/workspaces/{id}/discard", "Puts a workspace back to the last checkpoint of the run that left it half changed.", act("discard")),
		post[api.Nothing, api.RetriedWorkspace]("/v1/workspaces/{id}/retry", "Puts a workspace back to before the run that left it half changed, and tries that again.", act("retry")),
		post[api.Nothing, api.WorkspaceArtifact]("/v1/workspaces/{id}/artifacts/{artifact}/approve", "Approves an artifact of a workspace.", s.decideArtifact("approve")),
		post[api.Nothing, api.WorkspaceArtifact]("/v1/workspaces/{id}/artifacts/{artifact}/reject", "Rejects an artifact of a workspace.", s.decideArtifact("reject")),
	}
}

func newWorkspace(w workspace.Workspace) api.Workspace {
	return api.Workspace{ID: api.ID(w.ID), Agent: w.Agent, Skill: w.Skill, Name: w.Name, Status: w.Status, StatusBy: w.StatusBy, Phase: w.Phase, Role: w.Role,
		SchemaVersion: w.SchemaVersion, LockVersion: w.LockVersion, Review: api.OptionalID(w.Review), CreatedAt: api.At(w.CreatedAt), UpdatedAt: api.At(w.UpdatedAt)}
}

// withRun adds the newest unfinished run of a workspace.
func (s *Workspaces) withRun(ctx context.Context, w workspace.Workspace) (api.Workspace, error) {
	out := newWorkspace(w)
	runs, err := s.ledger.Workspaces.Runs(ctx, w.ID, shownWorkspaceRuns)
	for _, r := range runs {
		if r.State != domain.StateFinished {
			out.Run, out.WaitingFor = api.ID(r.ID), r.WaitingFor
			break
		}
	}
	return out, err
}

func (s *Workspaces) list(r *http.Request) (any, error) {
	q := r.URL.Query()
	f := workspace.Filter{Agent: q.Get("agent"), Skill: q.Get("skill"), Status: workspace.Status(q.Get("status")),
		Limit: int(number(r, "n", maxWorkspaces)), Before: number(r, "before", 0)}
	if f.Status != "" && f.Status != workspace.Active && f.Status != workspace.Paused && f.Status != workspace.Archived {
		return nil, usage("a workspace is active, paused or archived, not %q", f.Status)
	}
	return s.List(r.Context(), f)
}

// List returns workspaces.
func (s *Workspaces) List(ctx context.Context, f workspace.Filter) ([]api.Workspace, error) {
	found, err := s.ledger.Workspaces.List(ctx, f)
	if err != nil {
		return nil, err
	}

	out := make([]api.Workspace, len(found))
	for i, w := range found {
		if out[i], err = s.withRun(ctx, w); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// withWorkspace passes the number of the workspace in a request to answer.
func withWorkspace[T any](answer func(ctx context.Context, workspace int64) (T, error)) func(*http.Request) (any, error) {
	return withID("a workspace", "rouse workspaces", answer)
}

// Workspace returns a workspace with its content and its runs.
func (s *Workspaces) Workspace(ctx context.Context, n int64) (api.WorkspaceDetail, error) {
	w, err := s.ledger.Workspaces.Get(ctx, n)
	if err != nil {
		return api.WorkspaceDetail{}, err
	}

	out := api.WorkspaceDetail{State: w.State, Active: []api.WorkspaceRun{}, Artifacts: []api.WorkspaceArtifact{}, Runs: []api.Run{}, Events: []api.WorkspaceEvent{}}
	if out.Workspace, err = s.withRun(ctx, w); err != nil {
		return out, err
	}
	if err := s.addRuns(ctx, n, &out); err != nil {
		return out, err
	}

	artifacts, err := s.ledger.Workspaces.Artifacts(ctx, n, false)
	if err != nil {
		return out, err
	}
	out.Artifacts = convert(artifacts, newWorkspaceArtifact)

	events, err := s.ledger.Workspaces.Events(ctx, n, shownEvents)
	out.Events = convert(events, func(e workspace.Event) api.WorkspaceEvent {
		return api.WorkspaceEvent{At: api.At(e.At), Kind: e.Kind, Run: api.OptionalID(e.Run), LockVersion: e.LockVersion, Data: rawJSON(string(e.Data))}
	})
	return out, err
}

// addRuns adds the active and the finished runs of a workspace.
func (s *Workspaces) addRuns(ctx context.Context, workspace int64, out *api.WorkspaceDetail) error {
	runs, err := s.ledger.Workspaces.Runs(ctx, workspace, shownWorkspaceRuns)
	if err != nil {
		return err
	}

	for _, run := range runs {
		one, err := s.runs.oneWithArtifacts(ctx, run, nil)
		if err != nil {
			return err
		}
		if run.State == domain.StateFinished {
			out.Runs = append(out.Runs, one)
			continue
		}

		active, err := s.workspaceRun(ctx, run, one)
		if err != nil {
			return err
		}
		out.Active = append(out.Active, active)
	}
	return nil
}

// workspaceRun returns the progress of a run in its workspace, and its open inbox items.
func (s *Workspaces) workspaceRun(ctx context.Context, run ledger.Run, shown api.Run) (api.WorkspaceRun, error) {
	out := api.WorkspaceRun{Run: shown, Progress: json.RawMessage("null"), Inbox: []api.Item{}}
	last, err := s.ledger.Workspaces.LastCheckpoint(ctx, run.ID)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return out, err
	}
	out.Step = last.Step

	if e, ok, err := s.ledger.Events.Last(ctx, run.ID, event.Progress); err != nil {
		return out, err
	} else if ok && json.Valid(e.Data) {
		out.Progress = e.Data
	}

	items, err := s.ledger.Inbox.OfRun(ctx, run.ID)
	for _, i := range items {
		if i.State == inbox.ItemOpen {
			out.Inbox = append(out.Inbox, newItem(i))
		}
	}
	return out, err
}

func newWorkspaceArtifact(a artifact.Artifact) api.WorkspaceArtifact {
	return api.WorkspaceArtifact{Artifact: newArtifacts([]artifact.Artifact{a})[0], Title: a.Title, Type: a.Type, Status: a.Status,
		Approval: a.Approval, ApprovalRef: a.ApprovalRef, Role: a.Role, Run: api.ID(a.Run)}
}

// Change applies an action to a workspace: pause, resume, archive, acknowledge, discard or retry.
func (s *Workspaces) Change(ctx context.Context, n int64, action string) (_ any, err error) {
	statuses := map[string]workspace.Status{"pause": workspace.Paused, "resume": workspace.Active, "archive": workspace.Archived}
	var w workspace.Workspace
	switch status, ok := statuses[action]; {
	case ok:
		w, err = s.ledger.Workspaces.Change(ctx, workspace.Author{}, n, workspace.Change{Status: status})
	case action == "acknowledge":
		w, err = s.ledger.Workspaces.AcknowledgeReview(ctx, n)
	case action == "discard":
		w, err = s.ledger.Workspaces.DiscardReview(ctx, n)
	case action == "retry":
		return s.retryReview(ctx, n)
	default:
		return nil, usage("a workspace can be given to pause, resume, archive, acknowledge, discard or retry, not %q", action)
	}
	if err != nil {
		return nil, err
	}
	return s.withRun(ctx, w)
}

// retryReview resets a workspace and starts a new run from there.
func (s *Workspaces) retryReview(ctx context.Context, n int64) (any, error) {
	run, err := s.ledger.RetryReview(ctx, n)
	if err != nil {
		return nil, err
	}

	var out api.RetriedWorkspace
	if out.Retry, err = s.runs.oneWithArtifacts(ctx, run, nil); err != nil {
		return nil, err
	}
	w, err := s.ledger.Workspaces.Get(ctx, n)
	if err != nil {
		return nil, err
	}
	out.Workspace, err = s.withRun(ctx, w)
	return out, err
}

func (s *Workspaces) decideArtifact(decision string) http.Handler {
	return s.answer(func(r *http.Request) (any, error) {
		n, err := parseID(r.PathValue("id"), "a workspace", "rouse workspaces")
		if err != nil {
			return nil, err
		}
		number, err := parseID(r.PathValue("artifact"), "an artifact", "rouse workspaces show "+api.ID(n))
		if err != nil {
			return nil, err
		}
		return s.DecideArtifact(r.Context(), n, number, decision)
	})
}

// DecideArtifact approves or rejects an artifact of a workspace.
func (s *Workspaces) DecideArtifact(ctx context.Context, n, number int64, word string) (api.WorkspaceArtifact, error) {
	decisions := map[string]string{"approve": artifact.Approved, "reject": artifact.Rejected}
	decision, ok := decisions[word]
	if !ok {
		return api.WorkspaceArtifact{}, usage("an artifact can be given to approve or reject, not %q", word)
	}

	a, err := s.ledger.Workspaces.DecideArtifact(ctx, n, number, decision)
	return newWorkspaceArtifact(a), err
}
