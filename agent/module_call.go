package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"rouse/agent/loop"
	"rouse/agent/plan"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/moduleapi"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/skill"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
	"rouse/skills"
	"rouse/skills/install"
	"rouse/skills/module"
)

// maxOffered is the maximum size of a module's result of a call, in bytes of JSON. The caller reads
// the whole result.
const maxOffered = 256 << 10

// moduleCalls answers the calls of one attempt that go to modules. Each call starts its own
// machine.
type moduleCalls struct {
	runner    *moduleRunner
	task      *attempt
	inner     *loop.Inner
	completer *loop.Completer // nil if no model is asked
	times     *callTimes
	// Roots and tools for modules, set by use. The tools lack the changes made for a model.
	roots   *tool.Roots
	granted *tool.Registry

	mu      sync.Mutex
	started int // number of runs started by calls
}

func (r *moduleRunner) newModuleCalls(ctx context.Context, t *attempt) *moduleCalls {
	if len(t.offers) == 0 {
		return nil
	}
	return &moduleCalls{runner: r, task: t, inner: &loop.Inner{}, completer: newCompleter(ctx, t), times: newCallTimes(t.recorder, t.past)}
}

func (c *moduleCalls) begin(o *loop.Options) {
	if c != nil {
		o.Inner, o.Recorder = c.inner, c.times
	}
}

func (c *moduleCalls) use(roots *tool.Roots, all []tool.Tool) error {
	if c == nil {
		return nil
	}
	registry, err := tool.NewRegistry(all...)
	if err != nil {
		return err
	}
	c.roots, c.granted = roots, registry.Filter(c.task.Agent.Allow, c.task.Agent.Deny)
	return nil
}

// call runs a module to answer a call, and returns the module's end as an envelope. It returns an
// error only if the host is broken.
func (c *moduleCalls) call(ctx context.Context, in tool.Invocation, o offer, args json.RawMessage) (tool.Envelope, error) {
	if o.Starts {
		return c.start(ctx, in, o.skill, args)
	}

	of := *c.task
	t := &of
	t.ModuleSettings = t.Plan.ModuleSettings[o.skill.Name]
	m, err := c.runner.newModuleRun(ctx, t, o.skill)
	end, unusable := errors.AsType[*plan.EarlyEnd](err)
	switch {
	case unusable:
		return tool.Failure(tool.KindUnavailable, "%s", end.Result.Error), nil
	case err != nil:
		return tool.Envelope{}, err
	case !slices.Contains(m.program.Exports(), o.Export):
		return tool.Failure(tool.KindUnavailable, "the module of the skill %s exports no %s", o.skill.Name, o.Export), nil
	}
	defer m.close()

	var refused *tool.Envelope
	if m.workspace, refused, err = c.enter(ctx, in, o.skill); refused != nil || err != nil {
		return refusal(refused), err
	}
	m.within = true
	tools, err := m.hostTools(t, c.roots, c.granted)
	if err != nil { // the agent lacks a grant that the skill needs
		return tool.Failure(tool.KindUnavailable, "%v", err), nil
	}
	registry, err := withTools(c.granted, tools)
	if err != nil {
		return tool.Envelope{}, err
	}

	m.completer = c.completer
	m.provider = &moduleProvider{
		moduleRun: m, times: c.times, prior: t.past.Calls, skipped: t.past.Skipped, registry: registry, within: in.Key, returns: o.Output,
		redact: m.redact.Replace, events: newModuleEvents(c.runner.ledger, c.task.Run, m.redact), modulePosition: modulePosition{counts: map[string]int{}}, moduleCallsOpen: moduleCallsOpen{open: map[string]openCall{}},
	}
	_, begun := t.past.BegunAt[in.Key]
	m.provider.events.live = !begun
	start := module.Start{Export: o.Export, Args: args, Now: c.times.beginning(in.Key), Surface: module.Surface{Constants: m.constants(t.ModuleSettings.Config, in.Key)}}
	if err := c.runner.startModule(ctx, m, t, start); err != nil {
		return tool.Failure(tool.KindUnavailable, "%v", err), nil
	}

	res, err := c.inner.Run(ctx, in, loop.InnerRun{Provider: m.provider, Registry: registry, Completer: c.completer})
	if err != nil {
		return tool.Envelope{}, err
	}
	return offerEnvelope(ctx, res, m.provider.output), nil
}

// refusal returns the envelope of a refused call, or the zero envelope if e is nil.
func refusal(e *tool.Envelope) tool.Envelope {
	if e == nil {
		return tool.Envelope{}
	}
	return *e
}

func offerEnvelope(ctx context.Context, res loop.Result, output json.RawMessage) tool.Envelope {
	switch {
	case ctx.Err() != nil:
		return tool.Failure(tool.KindExecutionError, "cancelled: %v", context.Cause(ctx))
	case res.Approval != nil: // discarded, because the call is repeated after the approval
		return tool.Failure(tool.KindExecutionError, "it waits for an approval")
	case res.Outcome == domain.OutcomeSuccess && len(output) > maxOffered:
		return tool.Failure(tool.KindExecutionError, "the module returned %s, and %s are the most; have it return less, or write a file", text.Size(int64(len(output))), text.Size(maxOffered))
	case res.Outcome == domain.OutcomeSuccess:
		return tool.Success(output)
	}

	e := tool.Failure(tool.KindExecutionError, "%s", res.Error)
	switch {
	case res.Outcome == domain.OutcomeTimeout:
		e.Kind = tool.KindTimeout
	case res.Exit == domain.ExitToolRejected:
		e.Kind = tool.KindRejected
		e.Retryable = false
	case res.Outcome == domain.OutcomeBudget: // a retry would have an even smaller budget
		e.Retryable = false
	}
	return e
}

const maxStarted = 10

type startedRun struct {
	Run   string       `json:"run"`
	Skill string       `json:"skill"`
	State domain.State `json:"state"`
}

// start queues an independent run of a skill, with the labels of this run and the bounds of its
// job. If the call is repeated, start returns the run that the first call queued.
func (c *moduleCalls) start(ctx context.Context, in tool.Invocation, s *skills.Skill, args json.RawMessage) (tool.Envelope, error) {
	if c.task.Detail.StartedBy != nil {
		return tool.Failure(tool.KindRejected, "another run started this one, which therefore starts none"), nil
	}
	c.mu.Lock()
	c.started++
	many := c.started > maxStarted
	c.mu.Unlock()
	if many {
		return tool.Failure(tool.KindRejected, "a run starts %d others at most", maxStarted), nil
	}

	workspace, refused, err := c.workspaceFor(ctx, s)
	if refused != nil || err != nil {
		return refusal(refused), err
	}
	by := &ledger.StarterDetail{Run: c.task.Run.ID, Job: c.task.GoverningJob().Name}
	accepted, err := c.runner.ledger.Enqueue(ctx, ledger.Request{
		Key:   fmt.Sprintf("skill/%s/%d/%s", c.runner.ledger.EpochOf(c.task.Run.ID).ID, c.task.Run.ID, in.Key),
		Agent: c.task.Run.Agent, Trigger: domain.TriggerAPI, Detail: ledger.TriggerDetail{Skill: s.Name, SkillInput: args, Workspace: workspace, StartedBy: by},
	})
	if err != nil {
		return tool.Envelope{}, err
	}

	run, err := c.runner.ledger.Runs.Get(ctx, accepted[0].Run)
	if err != nil {
		return tool.Envelope{}, err
	}
	return tool.Success(startedRun{fmt.Sprint(run.ID), s.Name, run.State}), nil
}

// offer is a tool that a skill offers to a run.
type offer struct {
	moduleapi.Offer
	skill *skills.Skill
	// apart is set if the agent does not preload the skill. The model's list then omits the tool,
	// and the model finds the tool by a search, as it finds the skill.
	apart bool
}

// offersOf returns the tools that the skills of a task's agent offer to its run. registered
// contains the tools registered by modules, by skill.
func (r *moduleRunner) offersOf(t *attempt, registered map[string][]moduleapi.Offer) (out []offer) {
	if t.Job.Skill != nil { // a module does not call other modules
		return nil
	}

	view := t.Agent.Skills.View
	for i, s := range view.All() {
		apart := t.NeedsModel() && i >= len(view.Preloaded)
		if s.Manifest == nil || apart && !r.findsTools(t) || r.cannotOffer(t, s) {
			continue
		}

		fit, _ := moduleapi.Offers(s) // the configuration check reports invalid tools
		for _, o := range slices.Concat(fit, registered[s.Name]) {
			out = append(out, offer{o, s, apart})
		}
	}
	return out
}

// findsTools reports whether the model of a task can search for unlisted tools.
func (r *moduleRunner) findsTools(t *attempt) bool {
	return !slices.ContainsFunc(skill.Specs(), func(s tool.Spec) bool {
		return s.Requires == tool.RequiresUnlisted && !tool.IsAllowed(t.Agent.Allow, t.Agent.Deny, s.Name)
	})
}

// cannotOffer reports whether a skill cannot run for the agent of a task.
func (r *moduleRunner) cannotOffer(t *attempt, s *skills.Skill) bool {
	has := func(name string) bool {
		return t.given(t.Plan.Specs.Find(name)) && tool.IsAllowed(t.Agent.Allow, t.Agent.Deny, name)
	}
	can := moduleapi.Capabilities{Network: len(t.Agent.Network) > 0, Model: t.Model != nil, Commands: has(shell.RunName()), Writing: has(file.WriteName()), Servers: t.Agent.ServerNames()}
	needed, _ := moduleapi.Ungranted(s.Manifest, can, t.Agent.SecretNames())
	return !s.Manifest.Supports(runtime.GOOS) || len(moduleapi.Missing(s.Manifest)) > 0 || len(needed) > 0 || install.Verify(s) != nil
}

// registeredOffers returns the tools registered by the modules of a task's skills, by skill. It
// logs read errors and omits the affected skills.
func (r *moduleRunner) registeredOffers(ctx context.Context, t *attempt) map[string][]moduleapi.Offer {
	out := map[string][]moduleapi.Offer{}
	if t.Job.Skill != nil {
		return out
	}

	for _, s := range t.Agent.Skills.All() {
		if s.Manifest == nil || len(s.Manifest.Tools) == 0 { // its module cannot register tools
			continue
		}
		more, err := moduleapi.Registered(ctx, r.storageOf(t.Agent.Name, s.Name), s)
		if err != nil {
			r.log.Warn("the tools that a skill has registered cannot be read", "agent", t.Agent.Name, "skill", s.Name, "error", err)
		}
		if len(more) > 0 {
			out[s.Name] = more
		}
	}
	return out
}

func offeredTools(_ *toolbox, t *attempt, _ *tool.Roots) ([]tool.Tool, error) {
	var out []tool.Tool
	for _, o := range t.offers {
		one, err := tool.DefineBySchema(o.Spec(), func(ctx context.Context, in tool.Invocation, args json.RawMessage) (tool.Envelope, error) {
			return t.calls.call(ctx, in, o, args)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// offersApart reports whether a tool belongs to a skill and is omitted from the model's list.
func (t *attempt) offersApart(name string) bool {
	return slices.ContainsFunc(t.offers, func(o offer) bool { return o.apart && o.Name == name })
}
