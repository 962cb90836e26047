package agent

import (
	"cmp"
	"context"
	"encoding/json"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/runlog"
	"rouse/agent/spend"
	"rouse/agent/tool"
	"rouse/agent/tool/skill"
	"rouse/internal/domain"
)

// options returns the options of the loop for an attempt, by the kind of its run. Each function below sets up one kind.
func (r *Runner) options(ctx context.Context, t *attempt) (o loop.Options, err error) {
	t.authorizer = r.newAuthorizer(t)
	if t.past, err = r.past(ctx, t.Run, t.Try); err != nil {
		return o, err
	}
	t.authorizer.madeCalls = t.past.madeCalls
	if err := t.past.dropUndone(t.found); err != nil {
		return o, err
	}
	t.data = t.found.templateData(t)

	switch {
	case t.Detail.Tool != "":
		return r.callOptions(ctx, t)
	case t.Job.Playbook != nil:
		return r.playbookOptions(ctx, t)
	case t.Job.Skill != nil:
		return r.moduleOptions(ctx, t)
	case t.Executes():
		return r.executorOptions(ctx, t)
	case t.Detail.Chat:
		return r.modelOptions(ctx, t, t.Job.Prompt, loop.Chat())
	case t.Detail.Wake != nil:
		return r.modelOptions(ctx, t, t.Job.Prompt, loop.Headless())
	}
	prompt, err := t.prompt()
	if err != nil {
		return o, endEarly(domain.OutcomeError, "%v", err)
	}
	return r.modelOptions(ctx, t, prompt, loop.Headless())
}

func (r *Runner) callOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	o, err := r.listedOptions(ctx, t)
	o.Provider = manualCall{t.Detail, t.Redactor().Replace}
	o.Invocation.MustSucceed = t.Detail.Check
	return o, err
}

func (r *Runner) playbookOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	o, err := r.listedOptions(ctx, t)
	if err != nil {
		return o, err
	}
	o.Provider, err = playbook.New(playbook.Options{
		Calls: t.Job.Playbook, Data: t.data, Redact: t.Redactor().Replace,
		Recorded: func(key string) (json.RawMessage, bool) {
			prior, begun := t.past.calls[key]
			return prior.Envelope, begun
		},
		Skipped: func(key string) bool { return t.past.skipped[key] },
		Forget: func(key string) {
			if t.past.triedAgain[key] {
				delete(t.past.calls, key)
			}
		},
	})
	if err != nil {
		return o, endEarly(domain.OutcomeError, "%v", err)
	}
	o.Invocation.MustSucceed = true
	return o, nil
}

func (r *Runner) listedOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	r.openRecorder(t)
	o, err := r.toolOptions(ctx, t)
	if err != nil {
		return o, err
	}
	o.Policy, o.PriorCalls = t.policy(loop.Playbook()), t.past.calls
	r.askingModel(t, &o)
	return o, nil
}

// modelOptions returns the options of a run in which a model answers: a prompt, a chat or a wake.
func (r *Runner) modelOptions(ctx context.Context, t *attempt, prompt string, policy loop.Policy) (loop.Options, error) {
	if t.Model == nil {
		return loop.Options{}, endEarly(domain.OutcomeError, "agent %s has no model; add one under models: in the configuration", t.Agent.Name)
	}
	past := &t.past
	t.reducer = newReducer(t)
	t.loaded, t.loadedTools = loadedSkills(t), skill.ToolsLoadedIn(past.messages)
	t.project, t.clock = t.found.Folder, t.found.Clock
	r.openRecorder(t)
	o, err := r.toolOptions(ctx, t)
	if err != nil {
		return o, err
	}

	first := t.relay.Model()
	o.Provider, o.Fallback, o.Reducer = t.relay, t.relay.Fallback(ctx), t.reducer
	o.Model, o.MaxOutput, o.Window, o.Temperature = first.Name, first.MaxOutput, first.ContextSize(), first.Temperature
	o.System = systemPrompt(t)
	o.Messages = append([]model.Message{{Role: model.RoleUser, Text: prompt}}, past.messages...)
	t.found.tell(&o)
	o.Now = (&resultClock{zone: t.ClockZone(), told: t.Run.StartedAt}).now

	o.PriorCalls, o.PendingCalls, o.Interrupted = past.calls, past.pending, past.cutOff
	o.Exhausted = !past.cutOff && o.Bounds.Exhausted(past.used.steps, past.used.tokens)
	o.Bounds = o.Bounds.After(past.used.steps, past.used.calls, past.used.tokens)
	if t.Agent.Phased {
		policy, o.PriorDurations, o.PriorSteps = loop.Phased(), past.durations, past.used.steps
		policy.EndOnQuestion = t.Detail.Chat
		o.Exhausted = o.Exhausted || !past.cutOff && past.used.steps >= policy.Phases.MaxSteps
	}
	if !t.Unattended { // a person waits for the result, and sees the error
		policy.UnreachableRetries = 0
	}
	o.Policy = t.policy(policy)
	r.askingModel(t, &o)
	return o, t.authorizer.admitPrompt(ctx, t)
}

// prompt returns the prompt of the run. Only the prompt of a job is a template.
func (t *attempt) prompt() (string, error) {
	if t.Detail.Prompt != "" || t.Detail.Wake != nil {
		return t.Job.Prompt, nil
	}
	return playbook.Expand("prompt", t.Job.Prompt, t.data)
}

func (t *attempt) policy(p loop.Policy) loop.Policy {
	p.StopOnRejection = p.StopOnRejection || t.Agent.OnDenied == tool.OnDeniedFail
	return p
}

func (r *Runner) openRecorder(t *attempt) {
	t.recorder = runlog.NewRecorder(r.ledger.Record, t.Try, t.Redactor(), t.NeedsModel())
	if r.homes != nil {
		t.recorder.Settle = func(ctx context.Context) error { return r.homes.Settle(ctx, t.Agent.Name) }
	}
}

// toolOptions returns the options that every run of the loop has, with the tools of its skills and MCP servers.
func (r *Runner) toolOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	t.offers = r.offersOf(t, t.found.Registered)
	t.calls = r.newModuleCalls(ctx, t)
	r.useServers(t, t.found.Servers) //nolint:contextcheck // a request of a server is recorded even if its run ends
	o, err := r.baseOptions(ctx, t)
	if err == nil {
		t.calls.begin(&o)
	}
	return o, err
}

// baseOptions returns the options that every run has. It ends a run early that waits for its owner.
func (r *Runner) baseOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	registry, err := r.tools(t)
	if err != nil {
		return loop.Options{}, endEarly(domain.OutcomeError, "the tools of agent %s cannot be set up: %v", t.Agent.Name, err)
	}
	return loop.Options{
		Registry: registry, Bounds: bounds(&t.Task), Recorder: t.recorder, Authorizer: t.authorizer, Board: t.board,
		Invocation: tool.Invocation{Run: t.Run.ID, Attempt: t.Try.Number, Job: t.Run.Job, Agent: t.Agent.Name},
	}, r.recover(ctx, t)
}

// askingModel adds what a run needs that may ask a model: its budget, and what is known of the model.
func (r *Runner) askingModel(t *attempt, o *loop.Options) {
	if !t.AsksModel() || t.relay == nil {
		return
	}
	// The tools of the job's next run are the same, and it is expected as far off as the last one was.
	o.KeepTools = !t.found.LastRun.IsZero() && model.WorthKeeping(t.Run.StartedAt.Sub(t.found.LastRun))
	o.LearnContext = func(tokens int) { t.relay.Model().LearnContext(tokens) }
	o.Bounds = o.Bounds.AfterCost(t.past.used.cost)
	o.Budget = spend.New(r.ledger, &r.budgetsWarned, &t.Attempt, t.relay, o.Bounds, t.past.began)
}

// bounds returns the job's bounds, or else the agent's. A wake stays within those of the job that
// began its chain.
func bounds(t *plan.Task) loop.Bounds {
	b := overrideBounds(t.Agent.Bounds, t.GoverningJob().Bounds)
	if t.Detail.Chat && (b.Steps == 0 || t.Agent.DefaultSteps) { // a bound set by the owner is kept
		b.Steps = loop.ChatSteps
	}
	if t.Origin != nil {
		return t.Agent.Bounds.Within(b)
	}
	return b
}

func overrideBounds(b, j loop.Bounds) loop.Bounds {
	return loop.Bounds{
		Steps: cmp.Or(j.Steps, b.Steps), Calls: cmp.Or(j.Calls, b.Calls), Wall: cmp.Or(j.Wall, b.Wall), Idle: cmp.Or(j.Idle, b.Idle),
		Tokens: cmp.Or(j.Tokens, b.Tokens), CostMicroUSD: cmp.Or(j.CostMicroUSD, b.CostMicroUSD), Output: cmp.Or(j.Output, b.Output),
	}
}
