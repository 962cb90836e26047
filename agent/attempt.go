package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rouse/agent/checkout/runclone"
	"rouse/agent/failover"
	"rouse/agent/loop"
	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/runlog"
	"rouse/agent/tool"
	"rouse/agent/tool/host"
	"rouse/agent/tool/mcp"
	"rouse/agent/tool/skill"
	"rouse/agent/undo"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// attempt is one attempt at a task: the snapshot that it began with, and the resources that are open until it ends.
type attempt struct {
	plan.Attempt

	found       snapshot
	past        history
	data        map[string]any     // data of templates
	project     string             // working folder in the prompt
	clock       string             // start of the run, as the prompt states it
	relay       *failover.Provider // the model and its fallbacks; nil without a model
	board       *memory.Board      // the todo list, and the plan
	reducer     *loop.Reducer      // nil unless a model answers
	loaded      *skill.LoadedSet   // skills in the context of the model
	loadedTools []string           // tools that earlier attempts loaded
	authorizer  *authorizer
	recorder    *runlog.Recorder
	offers      []offer      // tools of skills
	calls       *moduleCalls // answers their calls; nil without offers
	module      *moduleRun   // nil unless a module of a skill does the run
	program     *programRun  // nil unless an executor does the run
	servers     []mcp.Given  // MCP servers, with their approved tools
	sessions    *mcp.Sessions
	wrapTool    func(tool.Tool) tool.Tool // answers the calls of a replay from its record; nil otherwise
}

func newAttempt(t *plan.Task, a ledger.Attempt) *attempt {
	return &attempt{Attempt: plan.NewAttempt(t, a), board: &memory.Board{}, relay: failover.New(t.Models)}
}

// earlyEnd is the error of an attempt that ends before its loop begins: the result of the run.
type earlyEnd struct{ ledger.Result }

func (e *earlyEnd) Error() string { return "the run ends before it begins: " + e.Result.Error }

func endEarly(outcome domain.Outcome, format string, args ...any) error {
	return &earlyEnd{failed(outcome, format, args...)}
}

// resultOf returns the result of an attempt that ended early, and any other error.
func resultOf(err error) (ledger.Result, error) {
	if e, ok := errors.AsType[*earlyEnd](err); ok {
		return e.Result, nil
	}
	return ledger.Result{}, err
}

// execute checks whether the run may begin, runs the attempt, and undoes its changes if it failed and the job asks for that.
func (r *Runner) execute(ctx context.Context, t *attempt) (ledger.Result, error) {
	if err := r.admit(ctx, t); err != nil {
		return resultOf(err)
	}
	if err := r.checkConditions(ctx, t); err != nil {
		res, err := resultOf(err)
		return r.endQuarantined(ctx, t, res, err)
	}

	res, err := r.attempt(ctx, t)
	res, err = r.endQuarantined(ctx, t, res, err)
	if err == nil {
		if t.Job.UndoOnFailure && undo.Wanted(res) {
			res = r.undoer(t.Run.Agent).OnFailure(ctx, t.Run, res)
		}
		r.afterAttempt(ctx, t, res)
	}
	return res, err
}

// admit checks that the owner has approved the definition and that the files that started the run
// exist.
func (r *Runner) admit(ctx context.Context, t *attempt) (err error) {
	if r.homes != nil && t.Agent.Name != "" {
		if err := r.homes.Arrive(ctx, t.Agent.Name); err != nil {
			return fmt.Errorf("cannot move the database and files of agent %s to this node: %w", t.Agent.Name, err)
		}
	}
	if err := r.awaitApproval(ctx, &t.Task); err != nil {
		return err
	}

	switch {
	case t.Detail.Wake != nil:
		last, err := r.lastEnded(ctx, t.Run)
		if err != nil {
			return fmt.Errorf("what the agent did last cannot be read: %w", err)
		}
		t.Job.Prompt = wakeText(t.Run, *t.Detail.Wake, last, t.Plan.Zone)
	case t.Detail.File != nil:
		err = r.checkFile(ctx, t)
	case len(t.Detail.Files) > 0:
		err = r.checkBatch(ctx, t)
	}
	return err
}

func (r *Runner) attempt(ctx context.Context, t *attempt) (out ledger.Result, err error) {
	defer r.removeManifest(t)
	defer t.close()
	o, err := r.prepare(ctx, t)
	if err != nil {
		return resultOf(err)
	}
	defer r.startRecording(ctx, &o, t)()

	t.recorder.LeaveEnd()
	defer func() { err = t.recorder.End(context.WithoutCancel(ctx), &out, err) }()
	seen := r.live.Begin(t.Run.ID, t.Run.Job, t.Redactor())
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
		if t.Manifest, err = r.writeManifest(t); err != nil {
			return o, err
		}
	}
	if err := t.makeClone(ctx, r.clones); err != nil {
		if ctx.Err() != nil {
			return o, context.Cause(ctx)
		}
		return o, endEarly(domain.OutcomeError, "the checkout of %s cannot be made: %v", t.Asker(), err)
	}
	if t.found, err = r.takeSnapshot(ctx, t); err != nil {
		return o, err
	}
	if err := r.noteUndone(ctx, t); err != nil {
		return o, err
	}
	// Only now: an agent that never runs leaves no folder.
	if err := makeWorkdir(&t.Task); err != nil {
		return o, endEarly(domain.OutcomeError, "the workdir of agent %s cannot be made: %v", t.Agent.Name, err)
	}

	if t.relay != nil && t.AsksModel() {
		t.relay.Begin(ctx, r.Models, &t.Attempt, time.Now())
	}
	return r.options(ctx, t)
}

func (t *attempt) close() {
	t.sessions.Close()
	t.module.close() // may be nil
}

// check turns the loop's result into the run's, after it has collected what the run made.
func (r *Runner) check(ctx context.Context, t *attempt, p model.Provider, res loop.Result) (out ledger.Result, err error) {
	// Before the attempt ends: afterwards a watch would treat the files as new input.
	if err := r.claimExpected(context.WithoutCancel(ctx), t); err != nil {
		return ledger.Result{}, err
	}

	t.program.finish(&res) // may be nil
	// A playbook that failed has a summary of its finished calls too.
	if p, ok := p.(*playbook.Provider); ok && res.Summary == "" {
		res.Summary = p.Summary()
	}
	if res.Failure != nil {
		t.relay.Fail(ctx, res.Failure)
	}

	// Before the checks: a test that the agent has written must not change the branch.
	var branch runclone.Branch
	if t.Clone != nil && res.Wait == nil && res.Approval == nil {
		if branch, err = r.clones.Collect(ctx, t.Run, *t.Clone); err != nil {
			return ledger.Result{}, err
		}
	}
	out, err = r.judge(ctx, t, res)
	branch.Report(&out)
	if o := t.Checkout(); err == nil && o != nil {
		r.clones.Push(ctx, t.Run, o.Push, branch, &out)
	}
	if t.program != nil {
		out.Postpone = t.program.postponement(res)
	} else {
		out.Postpone = r.Models.Postponement(&t.Task, t.relay, t.outage(res), res)
	}
	return out, err
}

// judge turns the loop's result into the run's: expectations that are not met make it an error.
func (r *Runner) judge(ctx context.Context, t *attempt, res loop.Result) (ledger.Result, error) {
	out := ledger.Result{
		Outcome: res.Outcome, Exit: res.Exit, Summary: res.Summary, Error: res.Error, Kind: errorKind(res), Verified: res.Verified,
		Steps: res.Steps, Calls: res.Calls,
		Usage: runlog.Usage(res.Spent),
	}
	if res.Approval != nil {
		out.Wait = approvalQuestion(t, *res.Approval)
		return out, nil
	}

	if q := res.Wait; q != nil {
		out.Wait = waitQuestion(t, *q)
		return out, nil
	}
	if !out.Outcome.Done() { // it has failed already
		return out, nil
	}

	why, err := r.unmet(ctx, t)
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

// outage returns the failure of the model in a run that no model has answered yet, or nil.
func (t *attempt) outage(res loop.Result) (e *model.Error) {
	if t.module != nil { // the steps of a module are its own answers
		return t.module.outage.failure()
	}
	if !t.past.answered && res.Answered == 0 {
		_ = errors.As(res.Failure, &e)
	}
	return e
}

// errorKind returns the key by which incidents group failures, or "" if outcome and exit are enough.
func errorKind(res loop.Result) string {
	if e, ok := errors.AsType[*model.Error](res.Failure); ok && res.Outcome == domain.OutcomeError {
		return "model " + string(e.Kind)
	}
	return res.Kind
}

func waitQuestion(t *attempt, q loop.Question) *ledger.Question {
	out := &ledger.Question{Kind: q.Kind, Title: t.Asker() + " asks", Message: q.Question, Options: q.Options, Multiple: q.AllowMultiple, InputSchema: q.InputSchema}
	if t.module != nil { // a module repeats its calls after a restart; a model continues from its transcript
		out.Call = q.Call
	}

	switch {
	case q.Kind == ledger.KindPause:
		out.Title = t.Asker() + " paused"
	case q.SignIn != "":
		out.Title = t.Asker() + " asks you to sign in"
		// Runs that ask for the same are one entry of the inbox.
		out.Action = ledger.Action{Tool: host.AuthorizeName(), Description: q.SignIn, Hash: tool.ActionHash(t.Agent.Name, host.AuthorizeName(), q.SignIn)}
	case q.Title != "":
		out.Title = t.Asker() + ": " + q.Title
	}
	return out
}
