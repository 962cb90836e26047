package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/tool"
	"rouse/agent/tool/control"
	"rouse/agent/tool/db"
	"rouse/agent/tool/file"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
)

// Options are the runner's parts.
type Options struct {
	Ledger    *ledger.Ledger
	Databases *agentdb.Pool
	Logger    *slog.Logger
	// Channels are the notification channels; the first is the default.
	Channels []string
	// Secrets are values that must not reach the record.
	Secrets []string
}

// Runner executes runs. It satisfies dispatch.Executor.
type Runner struct {
	ledger    *ledger.Ledger
	databases *agentdb.Pool
	log       *slog.Logger
	channels  []string
	secrets   []string
	plan      atomic.Pointer[Plan]
}

// New checks the options. Set gives the runner somebody to run.
func New(o Options) (*Runner, error) {
	if o.Ledger == nil || o.Databases == nil {
		return nil, errors.New("agent: a ledger and the databases are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{ledger: o.Ledger, databases: o.Databases, log: o.Logger, channels: o.Channels, secrets: o.Secrets}
	r.plan.Store(&Plan{})
	return r, nil
}

// Set replaces the plan; runs that have started keep theirs.
func (r *Runner) Set(p Plan) { r.plan.Store(&p) }

// Hold says why a run must wait: a prompt, when its agent has no model.
func (r *Runner) Hold(run ledger.Run) string {
	d, err := parseDetail(run)
	if err != nil {
		return "" // the run itself says what is wrong
	}
	t, err := r.plan.Load().find(run, d)
	if err != nil || t.model != nil || !t.needsModel() {
		return ""
	}
	return fmt.Sprintf("no_model: agent %s has no model; add one under models: in the configuration", t.agent.Name)
}

// failed is the result of a run that could not begin.
func failed(outcome ledger.Outcome, format string, args ...any) ledger.Result {
	return ledger.Result{Outcome: outcome, Exit: string(loop.Ended), Error: fmt.Sprintf(format, args...)}
}

// Execute runs one attempt. An error means that the host is broken.
func (r *Runner) Execute(ctx context.Context, run ledger.Run, a ledger.Attempt) (ledger.Result, error) {
	d, err := parseDetail(run)
	if err != nil {
		return ledger.Result{}, err
	}
	t, err := r.plan.Load().find(run, d)
	if err != nil {
		return failed(ledger.OutcomeError, "%s", err.Error()), nil
	}
	if d.File != nil {
		if res, gone := r.checkFile(ctx, run, &t); gone {
			return res, nil
		}
	}
	return r.attempt(ctx, run, a, t)
}

// attempt gives the task to the loop, and checks what it did.
func (r *Runner) attempt(ctx context.Context, run ledger.Run, a ledger.Attempt, t task) (ledger.Result, error) {
	data, err := r.data(ctx, run, a, t)
	if err != nil {
		return ledger.Result{}, err
	}
	registry, err := r.tools(t)
	if err != nil {
		return failed(ledger.OutcomeError, "the tools of agent %s cannot be set up: %v", t.agent.Name, err), nil
	}
	o := loop.Options{
		Registry: registry, Bounds: bounds(t),
		Recorder:   &recorder{ledger: r.ledger, attempt: a, redact: redactor(r.secrets)},
		Invocation: tool.Invocation{Run: run.ID, Attempt: a.Number, Job: run.Job, Agent: t.agent.Name},
	}
	past, err := r.past(ctx, run, a)
	if err != nil {
		return ledger.Result{}, err
	}
	if err := r.speaker(&o, t, data, past); err != nil {
		return failed(ledger.OutcomeError, "%s", err.Error()), nil
	}
	if o.System != "" && t.agent.Database {
		tables, err := r.tables(ctx, t.agent.Name)
		if err != nil {
			return ledger.Result{}, err
		}
		o.System += "\n" + tables
	}
	started := a.StartedAt
	res, err := loop.Run(ctx, o)
	if err != nil {
		return ledger.Result{}, err
	}
	return r.judge(ctx, t, started, res)
}

// speaker chooses who answers in the loop: a playbook, a call by hand, or a model.
func (r *Runner) speaker(o *loop.Options, t task, data map[string]any, past history) error {
	switch {
	case t.detail.Tool != "":
		o.Provider, o.Policy, o.Past = byHand{t.detail}, loop.Playbook(), past.calls
	case t.job.Playbook != nil:
		p, err := playbook.New(playbook.Options{Calls: t.job.Playbook, Data: data})
		if err != nil {
			return err
		}
		o.Provider, o.Policy, o.Past = p, loop.Playbook(), past.calls
	case t.model == nil:
		return fmt.Errorf("agent %s has no model; add one under models: in the configuration", t.agent.Name)
	default:
		prompt := t.job.Prompt
		if t.detail.Prompt == "" { // an ad-hoc prompt is not a template
			var err error
			if prompt, err = playbook.Expand("prompt", t.job.Prompt, data); err != nil {
				return err
			}
		}
		o.Provider, o.Policy = t.model.Provider, loop.Headless()
		o.MaxOutput, o.Temperature = t.model.MaxOutput, t.model.Temperature
		o.System = system(t)
		o.Messages = append([]model.Message{{Role: model.RoleUser, Text: prompt}}, past.messages...)
		o.Past, o.Pending = past.calls, past.pending
		o.Bounds = o.Bounds.After(past.took.steps, past.took.calls, past.took.tokens)
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

// data is what templates can name.
func (r *Runner) data(ctx context.Context, run ledger.Run, a ledger.Attempt, t task) (map[string]any, error) {
	var lastSuccess, lastRun time.Time
	if run.Job != "" {
		good, ok, err := r.ledger.LastSuccess(ctx, run.Job)
		if err != nil {
			return nil, err
		}
		if ok {
			lastSuccess = good.FinishedAt
		}
		before, err := r.ledger.Runs(ctx, ledger.Filter{Job: run.Job, State: ledger.StateFinished, Before: run.ID, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(before) > 0 {
			lastRun = before[0].FinishedAt
		}
	}
	return templateData(run, a.Number, t.detail, lastSuccess, lastRun), nil
}

// tools are the tools of the task within the agent's grants.
func (r *Runner) tools(t task) (*tool.Registry, error) {
	if err := os.MkdirAll(t.agent.Workdir, 0o755); err != nil {
		return nil, fmt.Errorf("the workdir cannot be made: %w", err)
	}
	var grants []tool.Grant
	for _, p := range t.agent.Read {
		grants = append(grants, tool.Grant{Path: p})
	}
	for _, p := range t.agent.Write {
		grants = append(grants, tool.Grant{Path: p, Write: true})
	}
	if t.detail.File != nil {
		grants = append(grants, tool.Grant{Path: t.detail.File.Path, File: true})
	}
	roots, err := tool.NewRoots(t.agent.Workdir, grants)
	if err != nil {
		return nil, err
	}
	all, err := control.Tools(control.Options{Ledger: r.ledger, Channels: r.channels})
	if err != nil {
		return nil, err
	}
	files, err := file.Tools(roots)
	if err != nil {
		return nil, err
	}
	all = append(all, files...)
	if t.agent.Database {
		rows, err := db.Tools(db.Options{Pool: r.databases, Roots: roots})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	registry, err := tool.NewRegistry(all...)
	if err != nil {
		return nil, err
	}
	return registry.Filter(t.agent.Allow, t.agent.Deny), nil
}

// bounds are the job's where it gives any, else the agent's.
func bounds(t task) loop.Bounds {
	b, j := t.agent.Bounds, t.job.Bounds
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
	if j.Output != 0 {
		b.Output = j.Output
	}
	return b
}

// judge turns the loop's result into the run's: expectations that are not met make it an error.
func (r *Runner) judge(ctx context.Context, t task, started time.Time, res loop.Result) (ledger.Result, error) {
	out := ledger.Result{
		Outcome: ledger.Outcome(res.Outcome), Exit: string(res.Exit), Summary: res.Summary, Error: res.Error, Verified: res.Verified,
		Steps: res.Steps, Calls: res.Calls,
		Usage: ledger.Usage{TokensIn: res.Usage.Input, TokensOut: res.Usage.Output, TokensCached: res.Usage.Cached},
	}
	if !out.Outcome.Done() {
		return out, nil
	}
	why, err := r.unmet(ctx, t, started)
	if err != nil {
		return out, err
	}
	if why != "" {
		out.Outcome, out.Error, out.Verified = ledger.OutcomeError, why, false
	} else if len(t.job.Expect) > 0 {
		out.Verified = true
	}
	return out, nil
}
