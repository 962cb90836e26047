package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/agent/checkout/runclone"
	"rouse/agent/clirun"
	"rouse/agent/condition"
	"rouse/agent/failover"
	"rouse/agent/history"
	"rouse/agent/loop"
	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/notice"
	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/prompt"
	"rouse/agent/runlog"
	"rouse/agent/servers"
	"rouse/agent/tool"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/skill"
	"rouse/agent/undo"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

// attempt is one attempt at a task. It holds the snapshot taken at its start and the resources that
// stay open until it ends.
type attempt struct {
	plan.Attempt

	found       snapshot
	past        history.History
	data        map[string]any     // template data
	relay       *failover.Provider // the model and its fallbacks; nil without a model
	board       *memory.Board      // the todo list and the plan
	reducer     *loop.Reducer      // nil unless a model answers
	loaded      *skill.LoadedSet   // skills in the model's context
	loadedTools []string           // tools loaded by earlier attempts
	authorizer  *permit.Authorizer
	recorder    *runlog.Recorder
	offers      []offer              // tools of skills
	calls       *moduleCalls         // answers calls of offers; nil without offers
	module      *moduleRun           // nil unless a skill's module does the run
	program     *clirun.Run          // nil unless an executor does the run
	servers     *servers.Connections // MCP servers; nil without one
	// Answers the calls of a replay from the recording. Nil if the attempt is not a replay.
	wrapTool func(tool.Tool) tool.Tool
}

func newAttempt(t *plan.Task, a ledger.Attempt) *attempt {
	return &attempt{Attempt: plan.NewAttempt(t, a), board: &memory.Board{}, relay: failover.New(t.Models)}
}

// execute checks whether the run may begin, and runs the attempt. If the attempt failed and the job
// has undo_on_failure, execute undoes its changes.
func (r *Runner) execute(ctx context.Context, t *attempt) (ledger.Result, error) {
	if err := r.admit(ctx, t); err != nil {
		return plan.ResultOf(err)
	}
	if err := condition.Check(ctx, r.conditionEnv(t)); err != nil {
		res, err := plan.ResultOf(err)
		return r.endQuarantined(ctx, t, res, err)
	}

	res, err := r.attempt(ctx, t)
	res, err = r.endQuarantined(ctx, t, res, err)
	if err == nil {
		if t.Job.UndoOnFailure && undo.Wanted(res) {
			res = r.Undoing.undoer(t.Run.Agent).OnFailure(ctx, t.Run, res)
		}
		r.afterAttempt(ctx, t, res)
	}
	return res, err
}

// admit moves the agent's database and files to this node, and checks the run's requirements: the
// owner has approved the definition, and the files that started the run exist. It returns an error
// if the run cannot begin.
func (r *Runner) admit(ctx context.Context, t *attempt) (err error) {
	if r.placement != nil && t.Agent.Name != "" {
		if err := r.placement.Acquire(ctx, t.Agent.Name); err != nil {
			return fmt.Errorf("cannot move the database and files of agent %s to this node: %w", t.Agent.Name, err)
		}
	}
	if err := permit.AwaitApproval(ctx, r.ledger, &t.Task); err != nil {
		return err
	}

	switch {
	case t.Detail.Wake != nil:
		last, err := r.Prompts().LastEnded(ctx, t.Run)
		if err != nil {
			return fmt.Errorf("what the agent did last cannot be read: %w", err)
		}
		t.Job.Prompt = prompt.WakeText(t.Run, *t.Detail.Wake, last, t.Plan.Zone)
	case t.Detail.File != nil:
		err = r.files.CheckFile(ctx, &t.Attempt)
	case len(t.Detail.Files) > 0:
		err = r.files.CheckBatch(ctx, &t.Attempt)
	}
	return err
}

func (r *Runner) attempt(ctx context.Context, t *attempt) (out ledger.Result, err error) {
	defer r.files.RemoveManifest(&t.Attempt)
	defer t.close()
	o, err := r.prepare(ctx, t)
	if err != nil {
		return plan.ResultOf(err)
	}
	defer r.startRecording(ctx, &o, t)()

	t.recorder.LeaveEnd()
	defer func() { err = t.recorder.End(context.WithoutCancel(ctx), &out, err) }()
	seen := r.parts.Live.Begin(t.Run.ID, t.Run.Job, t.Redactor())
	defer seen.End()
	res, err := loop.Run(seen.With(ctx), o)
	if err != nil {
		return ledger.Result{}, err
	}
	return r.check(ctx, t, o.Provider, res)
}

// prepare makes the clone, takes the snapshot, and returns the options of the loop.
func (r *Runner) prepare(ctx context.Context, t *attempt) (o loop.Options, err error) {
	if len(t.Files) > 0 {
		if t.Manifest, err = r.files.WriteManifest(&t.Attempt); err != nil {
			return o, err
		}
	}
	if err := t.makeClone(ctx, r.clones); err != nil {
		if ctx.Err() != nil {
			return o, context.Cause(ctx)
		}
		return o, plan.EndEarly(domain.OutcomeError, "the checkout of %s cannot be made: %v", t.Asker(), err)
	}
	if t.found, err = r.takeSnapshot(ctx, t); err != nil {
		return o, err
	}
	if t.found.Reverted, err = history.ReadReverted(ctx, r.ledger, r.databases, r.Specs(), &t.Attempt); err != nil {
		return o, err
	}
	// The workdir is created last, so that an agent that never runs leaves no folder.
	if err := permit.MakeWorkdir(&t.Task); err != nil {
		return o, plan.EndEarly(domain.OutcomeError, "the workdir of agent %s cannot be made: %v", t.Agent.Name, err)
	}

	if t.relay != nil && t.AsksModel() {
		t.relay.Begin(ctx, r.Models, &t.Attempt, time.Now())
	}
	return r.loop.options(ctx, t)
}

func (t *attempt) close() {
	t.servers.Close()
	t.module.close() // may be nil
}

// check collects the run's outputs and commits, checks the expectations, and returns the result of
// the run.
func (r *Runner) check(ctx context.Context, t *attempt, p model.Provider, res loop.Result) (out ledger.Result, err error) {
	// This must happen before the attempt ends. Afterwards a watch would treat the files as new
	// input.
	if err := condition.ClaimExpected(context.WithoutCancel(ctx), r.ledger, &t.Attempt); err != nil {
		return ledger.Result{}, err
	}

	t.program.Finish(&res) // may be nil
	// A failed playbook also has a summary of its finished calls.
	if p, ok := p.(*playbook.Provider); ok && res.Summary == "" {
		res.Summary = p.Summary()
	}
	if res.Failure != nil {
		t.relay.Fail(ctx, res.Failure)
	}

	// The branch is collected before the checks, because a check may run a test written by the
	// agent, and the test must not change the branch.
	var branch runclone.Branch
	if t.Clone != nil && res.Wait == nil && res.Approval == nil {
		if branch, err = r.clones.Collect(ctx, t.Run, *t.Clone); err != nil {
			return ledger.Result{}, err
		}
	}
	out, err = judge(ctx, r.conditionEnv(t), t, res)
	branch.Report(&out)
	if o := t.Checkout(); err == nil && o != nil {
		r.clones.Push(ctx, t.Run, o.Push, branch, &out)
	}
	out.Postpone = r.postponement(t, res)
	return out, err
}

func (r *Runner) conditionEnv(t *attempt) condition.Env {
	return condition.Env{Ledger: r.ledger, Databases: r.databases, Programs: r.programs, Log: r.log, Attempt: &t.Attempt}
}

// judge converts the loop's result into the run's result. The outcome is an error if an expectation
// is not met.
func judge(ctx context.Context, env condition.Env, t *attempt, res loop.Result) (ledger.Result, error) {
	out := ledger.Result{
		Outcome: res.Outcome, Exit: res.Exit, Summary: res.Summary, Error: res.Error, Kind: errorKind(res), Verified: res.Verified,
		Steps: res.Steps, Calls: res.Calls,
		Usage: runlog.Usage(res.Spent),
	}
	if res.Approval != nil {
		out.Wait = permit.ApprovalQuestion(&t.Attempt, *res.Approval)
		return out, nil
	}

	if q := res.Wait; q != nil {
		out.Wait = waitQuestion(t, *q)
		return out, nil
	}
	if !out.Outcome.Done() { // already failed
		return out, nil
	}

	why, err := condition.Unmet(ctx, env, t.authorizer.Untrusted())
	if err != nil {
		return out, err
	}

	if why != "" {
		out.Outcome, out.Error, out.Kind, out.Verified = domain.OutcomeError, why, "expectation", false
	} else if len(t.Job.Expect) > 0 {
		out.Verified = true
	}

	return out, nil
}

// postponement returns the postponement of an unattended run if its model is unavailable, or nil if
// the run ends now.
func (r *Runner) postponement(t *attempt, res loop.Result) *ledger.Postponement {
	if t.program == nil {
		return r.Models.Postponement(&t.Task, t.relay, t.outage(res), res)
	}

	e := t.program.Outage(res)
	if !t.Unattended || e == nil {
		return nil
	}
	out := &ledger.Postponement{Until: e.RetryAt}
	if t.Run.Postponements == 0 {
		out.Notices = notice.Unreachable(&t.Task, &plan.Model{Name: "of " + e.Program}, t.Run.QueuedAt, res.Error, e.RetryAt)
	}
	return out
}

// outage returns the model error of a run if no model has answered the run yet. Otherwise it
// returns nil.
func (t *attempt) outage(res loop.Result) (e *model.Error) {
	if t.module != nil { // a module's steps are not answers of a model
		return t.module.outage.failure()
	}
	if !t.past.Answered && res.Answered == 0 {
		_ = errors.As(res.Failure, &e)
	}
	return e
}

// errorKind returns the key that groups failures into incidents. It returns "" if outcome and exit
// code identify the failure.
func errorKind(res loop.Result) string {
	if e, ok := errors.AsType[*model.Error](res.Failure); ok && res.Outcome == domain.OutcomeError {
		return "model " + string(e.Kind)
	}
	return res.Kind
}

func waitQuestion(t *attempt, q loop.Question) *inbox.Question {
	out := &inbox.Question{Kind: q.Kind, Title: t.Asker() + " asks", Message: q.Question, Options: q.Options, Multiple: q.AllowMultiple, InputSchema: q.InputSchema}
	if t.module != nil { // after a restart a module repeats its calls; a model continues from its transcript
		out.Call = q.Call
	}

	switch {
	case q.Kind == inbox.KindPause:
		out.Title = t.Asker() + " paused"
	case q.SignIn != "":
		out.Title = t.Asker() + " asks you to sign in"
		// The hash merges requests for the same sign-in into one inbox entry.
		out.Action = inbox.Action{Tool: moduleapi.AuthorizeName(), Description: q.SignIn, Hash: tool.ActionHash(t.Agent.Name, moduleapi.AuthorizeName(), q.SignIn)}
	case q.Title != "":
		out.Title = t.Asker() + ": " + q.Title
	}
	return out
}
