package web

import (
	"context"
	"net/http"

	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

// Answers gives what /v1 answers to a caller in this process, without HTTP between them: a page shows
// nothing, and changes nothing, that the API would not. Its errors are for Failure.
type Answers struct{ s *server }

// NewAnswers needs what NewHandler does.
func NewAnswers(o Options) (*Answers, error) {
	s, err := newServer(o)
	return &Answers{s}, err
}

// Failure words an error for whoever asked, with the HTTP status that it has in the API.
func (a *Answers) Failure(r *http.Request, err error) *api.Error { return a.s.failure(r, err) }

// Inbox is what waits for a person; the same question of several runs is one item.
func (a *Answers) Inbox(ctx context.Context) ([]api.Item, error) { return a.s.openItems(ctx) }

// Closed is what waited for a person and does no more, the newest first: items whose numbers are below before, or all (0).
func (a *Answers) Closed(ctx context.Context, before int64, n int) ([]api.Item, error) {
	return a.s.closedItems(ctx, before, n)
}

// Item is one item of the inbox, also one that is closed.
func (a *Answers) Item(ctx context.Context, id int64) (api.Item, error) {
	i, err := a.s.ledger.Item(ctx, id)
	out := newItem(i)
	if err != nil || i.State != ledger.ItemOpen || i.Action.Hash == "" {
		return out, err
	}

	open, err := a.s.ledger.Inbox(ctx)
	for _, o := range open {
		if o.ID != i.ID && o.Agent == i.Agent && o.Action.Hash == i.Action.Hash {
			out.Runs = append(out.Runs, newItem(o).Run)
		}
	}
	return out, err
}

// Answer answers an item. The run is what became of the one that asked.
func (a *Answers) Answer(ctx context.Context, item int64, in api.Answer) (api.Run, error) {
	return a.s.answerOne(ctx, item, in)
}

// Incidents lists jobs that fail, by the kind of error.
func (a *Answers) Incidents(ctx context.Context, f ledger.IncidentFilter) ([]api.Incident, error) {
	return a.s.listIncidents(ctx, f)
}

// Acknowledge says that somebody knows of an incident.
func (a *Answers) Acknowledge(ctx context.Context, incident int64, note string) (api.Incident, error) {
	return a.s.acknowledgeOne(ctx, incident, note)
}

// Runs lists runs, the newest first.
func (a *Answers) Runs(ctx context.Context, f ledger.RunFilter) ([]api.Run, error) {
	return a.s.listRuns(ctx, f)
}

// Run is a run with all that happened in it.
func (a *Answers) Run(ctx context.Context, id int64) (api.RunDetail, error) {
	return a.s.detail(ctx, id)
}

// Checkout is the private clone of a run, with its changes.
func (a *Answers) Checkout(ctx context.Context, id int64) (api.Checkout, error) {
	return a.s.checkoutOf(ctx, id)
}

// WaitingCheckouts are the branches that wait to be applied or discarded.
func (a *Answers) WaitingCheckouts(ctx context.Context) ([]api.Checkout, error) {
	return a.s.backend.Checkouts.WaitingCheckouts(ctx)
}

// Apply puts the commits of a run on the branch that it began from.
func (a *Answers) Apply(ctx context.Context, id int64, ask api.ApplyRequest) (api.Checkout, error) {
	return a.s.applyRun(ctx, id, ask)
}

// Discard removes the clone and the branch of a run.
func (a *Answers) Discard(ctx context.Context, id int64) (api.Checkout, error) {
	return a.s.discardRun(ctx, id)
}

// Pending says what a run waits for.
func (a *Answers) Pending(ctx context.Context, id int64) (api.Pending, error) {
	run, err := a.s.ledger.Run(ctx, id)
	if err != nil {
		return api.Pending{}, err
	}
	return a.s.backend.Runs.Pending(ctx, run)
}

// Fire starts a run.
func (a *Answers) Fire(ctx context.Context, in api.RunRequest) (api.Run, error) {
	return a.s.fireRun(ctx, in)
}

// Cancel cancels a run that is not over.
func (a *Answers) Cancel(ctx context.Context, run int64) (api.Run, error) {
	return a.s.cancelRun(ctx, run)
}

// Retry has a run tried again.
func (a *Answers) Retry(ctx context.Context, run int64) (api.Run, error) {
	return a.s.retryRun(ctx, run)
}

// Undo undoes a run, or says what that would do.
func (a *Answers) Undo(ctx context.Context, run int64, ask api.UndoRequest) (api.Undo, error) {
	return a.s.undoOf(ctx, run, ask, func(int64, int64) {})
}

// Replay plays a finished run again without any effect.
func (a *Answers) Replay(ctx context.Context, run int64) (api.Replay, error) {
	return a.s.backend.Runs.Replay(ctx, run)
}

// Pauses lists the pauses that are on, or will be.
func (a *Answers) Pauses(ctx context.Context) ([]api.Pause, error) { return a.s.listPauses(ctx) }

// Pause begins a pause.
func (a *Answers) Pause(ctx context.Context, in api.PauseRequest) (api.Paused, error) {
	if err := pauseScope(in.Scope, in.Name); err != nil {
		return api.Paused{}, err
	}
	return a.s.backend.Pauses.Pause(ctx, in)
}

// Resume ends a pause.
func (a *Answers) Resume(ctx context.Context, scope, name string) (api.Resumed, error) {
	if err := pauseScope(scope, name); err != nil {
		return api.Resumed{}, err
	}
	return a.s.backend.Pauses.Resume(ctx, scope, name)
}

// Changes are entries of the changelog of an agent's database.
func (a *Answers) Changes(ctx context.Context, db *agentdb.DB, f agentdb.ChangeFilter) ([]api.Change, error) {
	return changesOf(ctx, db, f)
}

// Workspaces lists workspaces.
func (a *Answers) Workspaces(ctx context.Context, f ledger.WorkspaceFilter) ([]api.Workspace, error) {
	f.Limit = maxWorkspaces
	return a.s.listWorkspaces(ctx, f)
}

// Workspace is a workspace with what it holds, and who works in it.
func (a *Answers) Workspace(ctx context.Context, id int64) (api.WorkspaceDetail, error) {
	return a.s.workspaceDetail(ctx, id)
}

// ChangeWorkspace is what an owner does with a workspace: pause, resume, archive, acknowledge, discard or retry.
func (a *Answers) ChangeWorkspace(ctx context.Context, id int64, action string) error {
	_, err := a.s.actOnWorkspace(ctx, id, action)
	return err
}

// DecideArtifact approves or rejects an artifact of a workspace.
func (a *Answers) DecideArtifact(ctx context.Context, workspace, artifact int64, decision string) error {
	_, err := a.s.decideOne(ctx, workspace, artifact, decision)
	return err
}
