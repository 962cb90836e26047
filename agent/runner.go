package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"rouse/agent/loop"
	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/preview"
	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Options are the runner's parts.
type Options struct {
	Ledger    *ledger.Ledger
	Databases *agentdb.Pool
	Manifests string // folder for the lists of the files of batches
	// Recordings is the folder for what models were asked and answered in jobs that are
	// recorded; "" where none is.
	Recordings string
	// Tools are those beside the built-in ones, for every agent that has what they are given with
	// (GivenSkills, GivenUntold and GivenPhases, no tool of these can be).
	Tools  []tool.Tool
	Logger *slog.Logger
}

// Runner executes runs. It satisfies dispatch.Executor.
type Runner struct {
	ledger     *ledger.Ledger
	databases  *agentdb.Pool
	manifests  string
	recordings string
	beside     []tool.Tool
	specs      tool.Specs // of every tool that there is
	log        *slog.Logger
	programs   *programs
	viewer     *preview.Viewer
	plan       atomic.Pointer[Plan]
	told       sync.Map // the warnings of budgets that were given
}

// New checks the options. Set gives the runner somebody to run.
func New(o Options) (*Runner, error) {
	if o.Ledger == nil || o.Databases == nil || o.Manifests == "" {
		return nil, errors.New("agent: a ledger, the databases and a folder for manifests are needed")
	}

	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	r := &Runner{ledger: o.Ledger, databases: o.Databases, manifests: o.Manifests, recordings: o.Recordings, beside: o.Tools, log: o.Logger, viewer: preview.New()}
	var err error
	if r.programs, err = newPrograms(); err != nil {
		return nil, err
	}

	r.specs = Specs(o.Tools...)
	if err := checkSpecs(r.specs); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}

	r.plan.Store(&Plan{})
	return r, nil
}

// Set replaces the plan; runs that have started keep theirs.
func (r *Runner) Set(p Plan) {
	p.drops, p.Masks = dropFolders(p.Jobs), p.Masks.Resolved()
	r.plan.Store(&p)
}

// Hold says why a run must wait: a prompt, when its agent has no model; any run, while its
// agent's database cannot be used.
func (r *Runner) Hold(run ledger.Run) string {
	d, err := parseDetail(run)
	if err != nil {
		return "" // the run itself says what is wrong
	}

	t, err := r.plan.Load().find(run, d)
	if err != nil {
		return ""
	}
	if why := r.barred(t); why != "" || t.model != nil || !t.needsModel() {
		return why
	}

	return fmt.Sprintf("no_model: agent %s has no model; add one under models: in the configuration", t.agent.Name)
}

// failed is the result of a run that could not begin.
func failed(outcome domain.Outcome, format string, args ...any) ledger.Result {
	return ledger.Result{Outcome: outcome, Exit: domain.ExitEnded, Error: fmt.Sprintf(format, args...)}
}

// Execute runs one attempt. An error means that the host is broken.
func (r *Runner) Execute(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
	res, err := r.execute(ctx, run, a)
	return cleanResult(res, redactor(r.plan.Load().Secrets)), err
}

func (r *Runner) execute(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
	d, err := parseDetail(run)
	if err != nil {
		return ledger.Result{}, err
	}

	t, err := r.plan.Load().find(run, d)
	if err != nil {
		return failed(domain.OutcomeError, "%s", err.Error()), nil
	}
	if res, held, err := r.held(ctx, run, t); held || err != nil {
		return res, err
	}

	if d.Wake != nil {
		if t.job.Prompt, err = r.wakePrompt(ctx, run, t); err != nil {
			return ledger.Result{}, err
		}
	}

	var res ledger.Result
	over := false
	switch {
	case t.detail.File != nil:
		res, over, err = r.checkFile(ctx, run, &t)
	case len(t.detail.Files) > 0:
		res, over, err = r.checkFiles(ctx, run, a, &t)
	}
	if over || err != nil {
		return res, err
	}
	if res, closed, err := r.gates(ctx, run, a, t); closed || err != nil {
		return r.met(ctx, run, a, t, res, err)
	}

	res, err = r.attempt(ctx, run, a, t)
	res, err = r.met(ctx, run, a, t, res, err)
	if err == nil {
		res = r.undoFailed(ctx, run, t, res)
		r.leave(ctx, run, t, res)
	}

	return res, err
}

// attempt gives the task to the loop, and checks what it did.
func (r *Runner) attempt(ctx context.Context, run ledger.Run, a ledger.Attempt, t task) (ledger.Result, error) {
	if len(t.files) > 0 {
		var err error
		if t.manifest, err = r.writeManifest(run, t); err != nil {
			return ledger.Result{}, err
		}
		defer r.removeManifest(run.ID)
	}

	s, err := r.scene(ctx, run, t)
	if res, ended := skillFault(err); ended {
		return res, nil
	}

	if err == nil {
		err = r.takenBack(ctx, run, a, t, &s)
	}
	if err != nil {
		return ledger.Result{}, err
	}
	if err := os.MkdirAll(t.agent.Workdir, 0o755); err != nil {
		return failed(domain.OutcomeError, "the workdir of agent %s cannot be made: %v", t.agent.Name, err), nil
	}

	o, over, err := r.orders(ctx, run, a, &t, s)
	if over != nil {
		return *over, err
	}
	if err != nil {
		return ledger.Result{}, err
	}
	defer r.record(&o, a, t, s)()

	started := a.StartedAt
	res, err := loop.Run(ctx, o)
	if err == nil {
		err = r.ownExpected(context.WithoutCancel(ctx), a, t)
	}
	if err != nil {
		return ledger.Result{}, err
	}

	return r.judge(ctx, t, started, res)
}

// orders are what the loop is told of a task in its scene. With over the attempt has ended
// before it began.
func (r *Runner) orders(ctx context.Context, run ledger.Run, a ledger.Attempt, t *task, s scene) (o loop.Options, over *ledger.Result, err error) {
	t.board, t.reducer, t.gate = &memory.Board{}, newReducer(*t), r.newGate(run, a, *t)
	past, err := r.past(ctx, run, a)
	if err != nil {
		return o, nil, err
	}

	t.gate.made = past.made
	if err := past.without(s); err != nil {
		return o, nil, err
	}

	t.loaded = loadedBefore(*t, s, past)
	registry, err := r.tools(*t, a)
	if err != nil {
		res := failed(domain.OutcomeError, "the tools of agent %s cannot be set up: %v", t.agent.Name, err)
		return o, &res, nil
	}

	o = loop.Options{
		Registry: registry, Bounds: bounds(*t),
		Recorder:   NewRecorder(r.ledger, a, t.secrets),
		Invocation: tool.Invocation{Run: run.ID, Attempt: a.Number, Job: run.Job, Agent: t.agent.Name}, Board: t.board,
		Reducer: t.reducer, Gate: t.gate,
	}
	if res, parked, err := r.recover(ctx, a, *t, past); parked || err != nil {
		return o, &res, err
	}

	if err := r.speaker(&o, *t, s.data(a, *t), past); err != nil {
		res := failed(domain.OutcomeError, "%s", err.Error())
		return o, &res, nil
	}

	if err := t.gate.prompted(ctx, *t); err != nil {
		return o, nil, err
	}

	o.Policy.StopOnRejection = t.agent.OnDenied == tool.OnDeniedFail
	if t.needsModel() {
		o.Bounds = o.Bounds.AfterCost(past.took.cost)
		o.Budget = r.newBudget(run, a, *t, o.Bounds, !past.began)
	}

	if o.System != "" && s.Tables != "" {
		o.System += "\n" + s.Tables
		o.Reducer.System += "\n" + s.Tables
	}

	if t.needsModel() {
		s.tell(&o.System, &o.Messages[0].Text)
		if s.Views != "" { // before the orders: nothing may be taken for a part of them
			o.Messages[0].Text = s.Views + "\n" + o.Messages[0].Text
		}
	}

	return o, nil, nil
}

// speaker chooses who answers in the loop: a playbook, a call by hand, or a model.
func (r *Runner) speaker(o *loop.Options, t task, data map[string]any, past history) error {
	switch {
	case t.detail.Tool != "":
		o.Provider, o.Policy, o.Past = byHand{t.detail}, loop.Playbook(), past.calls
	case t.job.Playbook != nil:
		p, err := playbook.New(playbook.Options{Calls: t.job.Playbook, Data: data, Recorded: func(key string) bool {
			_, ok := past.calls[key]
			return ok
		}, Skipped: func(key string) bool { return past.skipped[key] }})
		if err != nil {
			return err
		}
		o.Provider, o.Policy, o.Past = p, loop.Playbook(), past.calls
	case t.model == nil:
		return fmt.Errorf("agent %s has no model; add one under models: in the configuration", t.agent.Name)
	default:
		prompt := t.job.Prompt
		if t.detail.Prompt == "" && t.detail.Wake == nil { // only a job's prompt is a template
			var err error
			if prompt, err = playbook.Expand("prompt", t.job.Prompt, data); err != nil {
				return err
			}
		}

		o.Provider, o.Policy, o.Fallback = t.relay, loop.Headless(), t.relay.fallback()
		o.Model, o.MaxOutput, o.Window, o.Temperature = t.model.Name, t.model.MaxOutput, t.model.Window, t.model.Temperature
		o.System = system(t)
		o.Messages = append([]model.Message{{Role: model.RoleUser, Text: prompt}}, past.messages...)
		o.Past, o.Pending, o.CutOff = past.calls, past.pending, past.cutOff
		o.Spent = !past.cutOff && o.Bounds.Spent(past.took.steps, past.took.tokens)
		o.Bounds = o.Bounds.After(past.took.steps, past.took.calls, past.took.tokens)
		if t.agent.Phased {
			o.Policy, o.Took, o.Taken = loop.Phased(), past.lasted, past.took.steps
			o.Spent = o.Spent || !past.cutOff && past.took.steps >= o.Policy.Phases.MaxSteps
		}
	}
	return nil
}

// tables describes the agent's database to its model (OSA-63).
func (r *Runner) tables(ctx context.Context, agent string) (string, error) {
	db, release, err := r.databases.Get(ctx, agent)
	if err != nil {
		return "", err
	}
	defer release()

	schema, err := db.Schema(ctx)
	if err != nil {
		return "", err
	}
	return schema.String(), nil
}

// times are when the run's job last succeeded, and when it last ended at all. A run that
// was skipped did nothing: did it count, a job whose gate asks for six hours since the
// last run would never run again.
func (r *Runner) times(ctx context.Context, run ledger.Run) (lastSuccess, lastRun time.Time, err error) {
	if run.Job == "" {
		return lastSuccess, lastRun, nil
	}

	good, ok, err := r.ledger.LastSuccess(ctx, run.Job)
	if err != nil {
		return lastSuccess, lastRun, err
	}

	if ok {
		lastSuccess = good.FinishedAt
	}

	f := ledger.Filter{Job: run.Job, State: domain.StateFinished, Before: run.ID, Limit: 1}
	for ; ; f.Limit = min(2*f.Limit, 1000) {
		before, err := r.ledger.Runs(ctx, f)
		if err != nil || len(before) == 0 {
			return lastSuccess, lastRun, err
		}

		for _, b := range before {
			if b.Outcome != domain.OutcomeSkipped {
				return lastSuccess, b.FinishedAt, nil
			}
			f.Before = b.ID
		}
	}
}

// bounds are the job's where it gives any, else the agent's. A wake stays within those of
// the job that its chain goes back to, so that no job sets anything going that is larger
// than itself.
func bounds(t task) loop.Bounds {
	if t.begun != nil {
		return t.agent.Bounds.Within(over(t.agent.Bounds, t.begun.Bounds))
	}
	return over(t.agent.Bounds, t.job.Bounds)
}

// over is b with what j gives.
func over(b, j loop.Bounds) loop.Bounds {
	if j.Steps != 0 {
		b.Steps = j.Steps
	}

	if j.Calls != 0 {
		b.Calls = j.Calls
	}

	if j.Wall != 0 {
		b.Wall = j.Wall
	}

	if j.Idle != 0 {
		b.Idle = j.Idle
	}

	if j.Tokens != 0 {
		b.Tokens = j.Tokens
	}

	if j.CostMicroUSD != 0 {
		b.CostMicroUSD = j.CostMicroUSD
	}

	if j.Output != 0 {
		b.Output = j.Output
	}

	return b
}

// judge turns the loop's result into the run's: expectations that are not met make it an error.
func (r *Runner) judge(ctx context.Context, t task, started time.Time, res loop.Result) (ledger.Result, error) {
	out := ledger.Result{
		Outcome: res.Outcome, Exit: res.Exit, Summary: res.Summary, Error: res.Error, Verified: res.Verified,
		Steps: res.Steps, Calls: res.Calls,
		Usage: ledger.Usage{TokensIn: res.Usage.Input, TokensOut: res.Usage.Output, TokensCached: res.Usage.Cached, CostMicroUSD: res.CostMicroUSD},
	}
	if res.Approval != nil {
		out.Wait = approval(t, *res.Approval)
		return out, nil
	}

	if q := res.Wait; q != nil {
		asker := t.job.Name
		if asker == "" {
			asker = t.agent.Name
		}
		out.Wait = &ledger.Question{Title: asker + " asks", Message: q.Question, Options: q.Options, Multiple: q.AllowMultiple}
		return out, nil
	}
	if !out.Outcome.Done() {
		return out, nil
	}

	why, err := r.unmet(ctx, t, started)
	if err != nil {
		return out, err
	}

	if why != "" {
		out.Outcome, out.Error, out.Verified = domain.OutcomeError, why, false
	} else if len(t.job.Expect) > 0 {
		out.Verified = true
	}

	return out, nil
}
