package agent

import (
	"context"
	"encoding/json"

	"rouse/agent/clirun"
	"rouse/agent/history"
	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/playbook"
	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/prompt"
	"rouse/agent/runlog"
	"rouse/agent/servers"
	"rouse/agent/spend"
	"rouse/agent/tool"
	"rouse/agent/tool/skill"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/skills/module"
)

// optionsBuilder builds the options of the loop for attempts.
type optionsBuilder struct {
	ledger        *ledger.Ledger
	plan          *plan.Current
	placement     Placement // nil unless several nodes share the ledger
	servers       *servers.Catalog
	modules       *moduleRunner
	tools         *toolbox
	budgetsWarned spend.Warnings
}

// options returns the options of the loop for an attempt. The kind of the run decides which of the
// functions below builds them.
func (b *optionsBuilder) options(ctx context.Context, t *attempt) (o loop.Options, err error) {
	t.authorizer = permit.NewAuthorizer(b.ledger, &t.Attempt)
	if t.past, err = history.Read(ctx, b.ledger, b.plan.Load().Specs, t.Run, t.Try); err != nil {
		return o, err
	}
	t.authorizer.MadeCalls = t.past.MadeCalls
	if err := t.past.DropUndone(t.found.Reverted); err != nil {
		return o, err
	}
	t.data = t.found.templateData(t)

	switch {
	case t.Detail.Tool != "":
		return b.callOptions(ctx, t)
	case t.Job.Playbook != nil:
		return b.playbookOptions(ctx, t)
	case t.Job.Skill != nil:
		return b.moduleOptions(ctx, t)
	case t.Executes():
		return b.executorOptions(ctx, t)
	case t.Detail.Chat:
		return b.modelOptions(ctx, t, t.Job.Prompt, loop.Chat())
	case t.Detail.Wake != nil:
		return b.modelOptions(ctx, t, t.Job.Prompt, loop.Headless())
	}
	task, err := t.prompt()
	if err != nil {
		return o, plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	return b.modelOptions(ctx, t, task, loop.Headless())
}

func (b *optionsBuilder) callOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	o, err := b.listedOptions(ctx, t)
	o.Provider = manualCall{t.Detail, t.Redactor().Replace}
	o.Invocation.MustSucceed = t.Detail.FailOnExitCode
	return o, err
}

func (b *optionsBuilder) playbookOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	o, err := b.listedOptions(ctx, t)
	if err != nil {
		return o, err
	}
	o.Provider, err = playbook.New(playbook.Options{
		Calls: t.Job.Playbook, Data: t.data, Redact: t.Redactor().Replace,
		Recorded: func(key string) (json.RawMessage, bool) {
			prior, begun := t.past.Calls[key]
			return prior.Envelope, begun
		},
		Skipped: func(key string) bool { return t.past.Skipped[key] },
		Forget: func(key string) {
			if t.past.TriedAgain[key] {
				delete(t.past.Calls, key)
			}
		},
	})
	if err != nil {
		return o, plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	o.Invocation.MustSucceed = true
	return o, nil
}

// moduleOptions returns the options of a run that a skill's module does.
func (b *optionsBuilder) moduleOptions(ctx context.Context, t *attempt) (o loop.Options, err error) {
	if t.module, err = b.modules.newModuleRun(ctx, t, t.Job.Skill); err != nil {
		return o, err
	}
	t.ModuleRedactor = t.module.redact
	if err := b.modules.enterWorkspace(ctx, t); err != nil {
		return o, err
	}
	b.openRecorder(t)
	if o, err = b.toolOptions(ctx, t); err != nil {
		return o, err
	}
	input, err := moduleInput(t, t.data)
	if err != nil {
		return o, plan.EndEarly(domain.OutcomeError, "%v", err)
	}

	m, past := t.module, t.past
	seen := newCallTimes(o.Recorder, past)
	m.provider = &moduleProvider{
		moduleRun: m, times: seen, prior: past.Calls, skipped: past.Skipped, registry: o.Registry, returns: m.skill.Manifest.OutputSchema,
		redact: m.redact.Replace, events: newModuleEvents(b.ledger, m.run, m.redact),
		modulePosition: modulePosition{past: past.Module, counts: map[string]int{}}, moduleCallsOpen: moduleCallsOpen{open: map[string]openCall{}}, moduleRehearsal: moduleRehearsal{dry: t.Detail.DryRun},
	}
	m.completer = newCompleter(ctx, t)
	o.Provider, o.Recorder, o.Completer, o.Policy, o.PriorCalls = m.provider, seen, m.completer, t.policy(loop.Playbook()), past.Calls
	o.Bounds = o.Bounds.AfterTokens(past.Used.Tokens) // repeated calls count again; answered questions are not repeated
	b.askingModel(t, &o)

	start := module.Start{Export: "execute", Args: input, Now: m.run.StartedAt, Surface: module.Surface{Constants: m.constants(t.ModuleSettings.Config, "")}}
	if err := b.modules.startModule(ctx, m, t, start); err != nil {
		return o, plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	return o, nil
}

// executorOptions returns the options of a run that an executor does. Such a run is a single call.
func (b *optionsBuilder) executorOptions(ctx context.Context, t *attempt) (o loop.Options, err error) {
	b.openRecorder(t)
	left := permit.Bounds(&t.Task).After(0, 0, t.past.Used.Tokens).AfterCost(t.past.Used.Cost)
	budget := spend.New(b.ledger, &b.budgetsWarned, &t.Attempt, t.relay, left, t.past.Began)
	if t.program, err = clirun.New(ctx, b.ledger, &t.Attempt, t.recorder, budget, left); err != nil {
		return o, err
	}
	if o, err = b.baseOptions(ctx, t); err != nil {
		return o, err
	}

	task, err := t.prompt()
	if err != nil {
		return o, plan.EndEarly(domain.OutcomeError, "%v", err)
	}
	items, err := b.ledger.Inbox.OfRun(ctx, t.Run.ID)
	if err != nil {
		return o, err
	}
	text := prompt.Executor(&t.Attempt, t.found.Snapshot, t.past.FailedWith, task, clirun.Questions(items, 0))
	if o.Provider, err = t.program.Provider(items, t.past.Continues, text); err != nil {
		return o, err
	}
	o.Policy, o.PriorCalls = t.policy(loop.Playbook()), t.past.Calls
	return o, t.admitPrompt(ctx)
}

func (b *optionsBuilder) listedOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	b.openRecorder(t)
	o, err := b.toolOptions(ctx, t)
	if err != nil {
		return o, err
	}
	o.Policy, o.PriorCalls = t.policy(loop.Playbook()), t.past.Calls
	b.askingModel(t, &o)
	return o, nil
}

// modelOptions returns the options of a run that a model does: a prompt, a chat or a wake.
func (b *optionsBuilder) modelOptions(ctx context.Context, t *attempt, task string, policy loop.Policy) (loop.Options, error) {
	if t.Model == nil {
		return loop.Options{}, plan.EndEarly(domain.OutcomeError, "agent %s has no model; add one under models: in the configuration", t.Agent.Name)
	}
	past := &t.past
	t.reducer = newReducer(t)
	t.loaded, t.loadedTools = loadedSkills(t), skill.ToolsLoadedIn(past.Messages)
	b.openRecorder(t)
	o, err := b.toolOptions(ctx, t)
	if err != nil {
		return o, err
	}

	first := t.relay.Model()
	o.Provider, o.Fallback, o.Reducer = t.relay, t.relay.Fallback(ctx), t.reducer
	o.Model, o.MaxOutput, o.Window, o.Temperature = first.Name, first.MaxOutput, first.ContextSize(), first.Temperature
	o.System = prompt.System(&t.Attempt, t.found.Snapshot)
	o.Messages = append([]model.Message{{Role: model.RoleUser, Text: task}}, past.Messages...)
	addSnapshot(&o, t.found.Snapshot)
	o.Now = prompt.NewResultClock(t.ClockZone(), t.Run.StartedAt).Now

	o.PriorCalls, o.PendingCalls, o.Interrupted = past.Calls, past.Pending, past.CutOff
	o.Exhausted = !past.CutOff && o.Bounds.Exhausted(past.Used.Steps, past.Used.Tokens)
	o.Bounds = o.Bounds.After(past.Used.Steps, past.Used.Calls, past.Used.Tokens)
	if t.Agent.Phased {
		policy, o.PriorDurations, o.PriorSteps = loop.Phased(), past.Durations, past.Used.Steps
		policy.EndOnQuestion = t.Detail.Chat
		o.Exhausted = o.Exhausted || !past.CutOff && past.Used.Steps >= policy.Phases.MaxSteps
	}
	if !t.Unattended { // a person is waiting and sees the error
		policy.UnreachableRetries = 0
	}
	o.Policy = t.policy(policy)
	b.askingModel(t, &o)
	return o, t.admitPrompt(ctx)
}

// prompt returns the prompt of the run. It expands templates only in the prompt of a job.
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

func (b *optionsBuilder) openRecorder(t *attempt) {
	t.recorder = runlog.NewRecorder(b.ledger.Steps.Record, t.Try, t.Redactor(), t.NeedsModel())
	if b.placement != nil {
		t.recorder.Settle = func(ctx context.Context) error { return b.placement.Pin(ctx, t.Agent.Name) }
	}
}

// toolOptions returns the base options with the tools of the run's skills and MCP servers.
func (b *optionsBuilder) toolOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	t.offers = b.modules.offersOf(t, t.found.Registered)
	t.calls = b.modules.newModuleCalls(ctx, t)
	t.servers = b.servers.Connect(&t.Attempt, t.authorizer, t.found.Servers) //nolint:contextcheck // a server's request is recorded even after the run
	o, err := b.baseOptions(ctx, t)
	if err == nil {
		t.calls.begin(&o)
	}
	return o, err
}

// baseOptions returns the options that every run has. It returns an error that ends the run early
// if the owner must first decide about calls with an uncertain result.
func (b *optionsBuilder) baseOptions(ctx context.Context, t *attempt) (loop.Options, error) {
	registry, err := b.tools.registry(t)
	if err != nil {
		return loop.Options{}, plan.EndEarly(domain.OutcomeError, "the tools of agent %s cannot be set up: %v", t.Agent.Name, err)
	}
	return loop.Options{
		Registry: registry, Bounds: permit.Bounds(&t.Task), Recorder: t.recorder, Authorizer: t.authorizer, Board: t.board,
		Invocation: tool.Invocation{Run: t.Run.ID, Attempt: t.Try.Number, Job: t.Run.Job, Agent: t.Agent.Name},
	}, t.past.AskAboutUncertain(ctx, b.ledger, b.plan.Load().Specs, &t.Attempt)
}

// askingModel sets the budget and the model's properties if the run may ask a model.
func (b *optionsBuilder) askingModel(t *attempt, o *loop.Options) {
	if !t.AsksModel() || t.relay == nil {
		return
	}
	// The job's next run has the same tools. The time since the last run estimates the time until
	// it.
	o.KeepTools = !t.found.LastRun.IsZero() && model.WorthKeeping(t.Run.StartedAt.Sub(t.found.LastRun))
	o.LearnContext = func(tokens int) { t.relay.Model().LearnContext(tokens) }
	o.Bounds = o.Bounds.AfterCost(t.past.Used.Cost)
	o.Budget = spend.New(b.ledger, &b.budgetsWarned, &t.Attempt, t.relay, o.Bounds, t.past.Began)
}

// addSnapshot adds the attempt's snapshot to the system prompt and the task.
func addSnapshot(o *loop.Options, s prompt.Snapshot) {
	if s.Tables != "" {
		o.System += "\n" + s.Tables
		if o.Reducer != nil {
			o.Reducer.System += "\n" + s.Tables
		}
	}

	if s.Skills != "" {
		o.System += "\n" + s.Skills
	}
	for _, a := range s.Activated {
		o.Messages[0].Text += "\n\n" + a.Content
	}
	// Untrusted rows come before the prompt, so that they cannot pose as its continuation.
	for _, part := range []string{s.Session, s.Workspaces, s.Views} {
		if part != "" {
			o.Messages[0].Text = part + "\n" + o.Messages[0].Text
		}
	}
	if s.Soul != nil {
		o.Messages[0].Text = s.Soul.Text + "\n" + o.Messages[0].Text
	}
}
