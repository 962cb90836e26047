package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/workspace"
	"rouse/internal/text"
)

type runArgs struct {
	Action      string `json:"action"`
	RunID       string `json:"runId,omitempty"`
	WorkspaceID string `json:"workspaceId,omitempty" jsonschema:"of list, acknowledge and discard; default: the one that this run works in"`
	Item        string `json:"item,omitempty" jsonschema:"of answer: the number of the question"`
	Answer      string `json:"answer,omitempty" jsonschema:"a text, or JSON where the question has an input schema"`
}

// owners lists the actions that act in place of the owner.
var owners = []string{"answer", "acknowledge", "discard"}

// runNeed requires an approval for each action in owners.
func (o Options) runNeed(ctx context.Context, in tool.Invocation, a runArgs) (tool.Access, error) {
	if !slices.Contains(owners, a.Action) {
		all, err := o.all(ctx, in, "")
		return tool.Access{Reads: places(all)}, err
	}

	shown := fmt.Sprintf("%s what run %s left half changed in workspace %s", a.Action, a.RunID, a.WorkspaceID)
	if a.Action == "answer" {
		shown = fmt.Sprintf("answer inbox item %s in your place: %s", a.Item, a.Answer)
	}
	return tool.Access{NeedsApproval: true, NoStandingApproval: true, Shown: shown}, nil
}

type runResult struct {
	ID         string         `json:"id"`
	Job        string         `json:"job,omitempty"`
	Workspace  string         `json:"workspace"`
	State      domain.State   `json:"state"`
	WaitingFor domain.Wait    `json:"waiting_for,omitempty"`
	Outcome    domain.Outcome `json:"outcome,omitempty"`
	Summary    string         `json:"summary,omitempty"`
	Error      string         `json:"error,omitempty"`
	Step       string         `json:"step,omitempty"`
	Items      []itemResult   `json:"waits_for_answers,omitempty"`
}

type itemResult struct {
	Item    string   `json:"item"`
	Kind    string   `json:"kind"`
	Message string   `json:"message"`
	Options []string `json:"options,omitempty"`
}

func newRunResult(r ledger.Run) runResult {
	return runResult{ID: optionalID(r.ID), Job: r.Job, Workspace: optionalID(r.Workspace), State: r.State, WaitingFor: r.WaitingFor, Outcome: r.Outcome,
		Summary: text.Truncate(r.Summary, 500), Error: text.Truncate(r.Error, 500)}
}

// manageRun implements run_manage.
func (o Options) manageRun(ctx context.Context, in tool.Invocation, a runArgs) (tool.Envelope, error) {
	switch a.Action {
	case "list":
		return o.listRuns(ctx, in, a)
	case "answer":
		return o.answer(ctx, in, a)
	case "acknowledge", "discard":
		return o.review(ctx, in, a)
	}

	r, err := o.findRun(ctx, in, a)
	if err != nil {
		return result(nil, err)
	}

	switch a.Action {
	case "get":
		return o.getRun(ctx, r)
	case "events":
		return o.events(ctx, r)
	}
	if r.ID == in.Run {
		return result(nil, wrong("runId", "this is the run that you are in; end it with complete, or ask with clarify"))
	}
	return o.move(ctx, in, r, a.Action)
}

// findRun returns a run of the agent in a workspace of its skills.
func (o Options) findRun(ctx context.Context, in tool.Invocation, a runArgs) (ledger.Run, error) {
	id, err := number("runId", a.RunID)
	if err != nil {
		return ledger.Run{}, err
	}
	if id == 0 {
		return ledger.Run{}, wrong("runId", "say which run: the action list has them")
	}

	r, err := o.Ledger.Runs.Get(ctx, id)
	if err != nil {
		return r, err
	}
	if r.Agent != in.Agent || r.Workspace == 0 {
		return r, wrong("runId", fmt.Sprintf("run %d works in no workspace of yours", id))
	}
	_, err = o.find(ctx, in, optionalID(r.Workspace))
	return r, err
}

func (o Options) listRuns(ctx context.Context, in tool.Invocation, a runArgs) (tool.Envelope, error) {
	all, err := o.all(ctx, in, "")
	if a.WorkspaceID != "" {
		var w workspace.Workspace
		w, err = o.find(ctx, in, a.WorkspaceID)
		all = []workspace.Workspace{w}
	}
	if err != nil {
		return result(nil, err)
	}

	out := []runResult{}
	for _, w := range all {
		runs, err := o.Ledger.Workspaces.Runs(ctx, w.ID, maxListed)
		if err != nil {
			return tool.Envelope{}, err
		}
		for _, r := range runs {
			out = append(out, newRunResult(r))
		}
	}
	return result(map[string]any{"runs": out[:min(len(out), maxListed)]}, nil)
}

// getRun returns a run with its step and its open questions.
func (o Options) getRun(ctx context.Context, r ledger.Run) (tool.Envelope, error) {
	out := newRunResult(r)
	c, err := o.Ledger.Workspaces.LastCheckpoint(ctx, r.ID)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return tool.Envelope{}, err
	}
	out.Step = c.Step

	items, err := o.Ledger.Inbox.OfRun(ctx, r.ID)
	for _, i := range items {
		if i.State == inbox.ItemOpen {
			out.Items = append(out.Items, itemResult{optionalID(i.ID), i.Kind, i.Message, i.Options})
		}
	}
	return result(out, err)
}

type eventResult struct {
	At   string `json:"at"`
	Kind string `json:"kind"`
	Data any    `json:"data,omitempty"`
}

// events returns the latest events of a run.
func (o Options) events(ctx context.Context, r ledger.Run) (tool.Envelope, error) {
	all, err := o.Ledger.Events.List(ctx, event.Filter{Run: r.ID, Limit: 10_000})
	out := []eventResult{}
	for _, e := range all[max(0, len(all)-maxListed):] {
		one := eventResult{At: e.At.UTC().Format("2006-01-02T15:04:05Z"), Kind: e.Kind}
		if len(e.Data) > 0 {
			one.Data = e.Data
		}
		out = append(out, one)
	}
	return result(map[string]any{"events": out}, err)
}

// move continues, pauses, cancels or retries a run. Each action sets a state, so it can be
// repeated.
func (o Options) move(ctx context.Context, in tool.Invocation, r ledger.Run, action string) (tool.Envelope, error) {
	var err error
	switch action {
	case "continue":
		_, err = o.Ledger.Workspaces.Change(ctx, in.Author(), r.Workspace, workspace.Change{Status: workspace.Active})
		switch {
		case err == nil && r.WaitsForRetry():
			_, err = o.Ledger.Retry(ctx, r.ID)
		case err == nil && r.WaitingFor == domain.WaitPause:
			err = o.goOn(ctx, r)
		}
	case "pause":
		_, err = o.Ledger.Workspaces.Change(ctx, in.Author(), r.Workspace, workspace.Change{Status: workspace.Paused})
	case "cancel":
		waited := r.State != domain.StateRunning && r.State != domain.StateFinished
		if r, err = o.Ledger.RequestCancel(ctx, r.ID, "cancelled by the agent in run "+optionalID(in.Run)); err == nil && waited && r.Outcome == domain.OutcomeCancelled {
			o.Cancelled(ctx, r)
		}
	case "retry":
		switch {
		case r.State == domain.StateQueued: // an earlier attempt of this call has already queued it
		case r.Outcome == domain.OutcomeSuccess || r.Outcome == domain.OutcomeNothing:
			err = wrong("runId", fmt.Sprintf("run %d ended in %s, so there is nothing to try again", r.ID, r.Outcome))
		default:
			_, err = o.Ledger.Retry(ctx, r.ID)
		}
	}
	if err != nil {
		return result(nil, err)
	}

	r, err = o.Ledger.Runs.Get(ctx, r.ID)
	return result(newRunResult(r), err)
}

// goOn continues a run that its skill has paused.
func (o Options) goOn(ctx context.Context, r ledger.Run) error {
	items, err := o.Ledger.Inbox.OfRun(ctx, r.ID)
	if err != nil {
		return err
	}
	for _, i := range items {
		if i.Kind == inbox.KindPause && i.State == inbox.ItemOpen {
			_, err = o.Ledger.Answer(ctx, i.ID, inbox.PauseContinue)
		}
	}
	return err
}

// answer answers a question in place of the owner. The owner has approved the answer.
func (o Options) answer(ctx context.Context, in tool.Invocation, a runArgs) (tool.Envelope, error) {
	id, err := number("item", a.Item)
	if err != nil {
		return result(nil, err)
	}

	i, err := o.Ledger.Inbox.Get(ctx, id)
	switch {
	case err != nil:
		return result(nil, err)
	case i.Agent != in.Agent || i.Kind != inbox.KindInput || i.Action.Tool != "": // an item with a tool asks for a sign-in
		return result(nil, wrong("item", fmt.Sprintf("inbox item %d is no question of a run of yours; approvals, recoveries and sign-ins are your owner's alone", id)))
	}

	r, err := o.Ledger.Answer(ctx, id, o.Redact(a.Answer))
	if err != nil {
		return result(nil, err)
	}
	r, err = o.Ledger.Runs.Get(ctx, r.ID)
	return result(newRunResult(r), err)
}

// review ends the review of a workspace in place of the owner. The owner has approved it.
func (o Options) review(ctx context.Context, in tool.Invocation, a runArgs) (tool.Envelope, error) {
	if a.WorkspaceID == "" && a.RunID != "" {
		r, err := o.findRun(ctx, in, a)
		if err != nil {
			return result(nil, err)
		}
		a.WorkspaceID = optionalID(r.Workspace)
	}

	w, err := o.find(ctx, in, a.WorkspaceID)
	if err != nil {
		return result(nil, err)
	}

	switch {
	case w.Review == 0: // already ended by an earlier attempt of this call, or never started
		return result(newResult(w), nil)
	case a.Action == "acknowledge":
		w, err = o.Ledger.Workspaces.AcknowledgeReview(ctx, w.ID)
	default:
		w, err = o.Ledger.Workspaces.DiscardReview(ctx, w.ID)
	}
	return result(newResult(w), err)
}
