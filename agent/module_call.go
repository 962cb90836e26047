package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"rouse/agent/loop"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
	"rouse/skills/module"
)

// maxOffered is how large the result of a call may be that a module answers, in bytes of JSON: who called it reads it whole.
const maxOffered = 256 << 10

// moduleCalls answers the calls of one attempt that modules stand for: each in a machine of its own, within the run. What a module
// calls is a call of the run, below the one that it answers.
type moduleCalls struct {
	runner    *Runner
	task      *attempt
	inner     *loop.Inner
	completer *loop.Completer // nil: no model is asked
	times     *callTimes
	// What modules work with, once the tools of the run are there: without anything that is done for a model alone.
	roots   *tool.Roots
	granted *tool.Registry

	mu      sync.Mutex
	started int // runs of their own
}

// newModuleCalls is nil for a run without offers.
func (r *Runner) newModuleCalls(t *attempt) *moduleCalls {
	if len(t.offers) == 0 {
		return nil
	}
	return &moduleCalls{runner: r, task: t, inner: &loop.Inner{}, completer: newCompleter(t), times: newCallTimes(t.recorder, t.past)}
}

// begin gives the loop what it needs for such calls.
func (c *moduleCalls) begin(o *loop.Options) {
	if c != nil {
		o.Inner, o.Recorder = c.inner, c.times
	}
}

// use sets what modules work with.
func (c *moduleCalls) use(roots *tool.Roots, all []tool.Tool) error {
	if c == nil {
		return nil
	}
	registry, err := tool.NewRegistry(all...)
	if err != nil {
		return err
	}
	c.roots, c.granted = roots, registry.Filter(c.task.agent.Allow, c.task.agent.Deny)
	return nil
}

// call has a module answer a call. What becomes of the module is an envelope.
func (c *moduleCalls) call(ctx context.Context, in tool.Invocation, o offer, args json.RawMessage) (tool.Envelope, error) {
	if o.Starts {
		return c.start(ctx, in, o.skill, args)
	}

	of := *c.task
	t := &of
	t.settings = t.moduleSettings[o.skill.Name]
	m, err := c.runner.newModuleRun(ctx, t, o.skill)
	end, unusable := errors.AsType[*earlyEnd](err)
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
	if err != nil { // what the skill needs, and its agent is not granted
		return tool.Failure(tool.KindUnavailable, "%v", err), nil
	}
	registry := c.granted
	for _, one := range tools {
		if registry, err = registry.With(one); err != nil {
			return tool.Envelope{}, err
		}
	}

	m.completer = c.completer
	m.provider = &moduleProvider{
		moduleRun: m, times: c.times, prior: t.past.calls, skipped: t.past.skipped, registry: registry, within: in.Key, returns: o.Output,
		redact: m.redact.Replace, events: newModuleEvents(c.runner.ledger, c.task.run, m.redact), counts: map[string]int{}, open: map[string]openCall{},
	}
	_, begun := t.past.begunAt[in.Key]
	m.provider.events.live = !begun
	start := module.Start{Export: o.Export, Args: args, Now: c.times.beginning(in.Key), Surface: module.Surface{Constants: m.constants(t.settings.Config, in.Key)}}
	if err := c.runner.startModule(ctx, m, t, start); err != nil {
		return tool.Failure(tool.KindUnavailable, "%v", err), nil
	}

	res, err := c.inner.Run(ctx, in, loop.InnerRun{Provider: m.provider, Registry: registry, Completer: c.completer})
	if err != nil {
		return tool.Envelope{}, err
	}
	return offerEnvelope(ctx, res, m.provider.output), nil
}

// refusal is why a call is not made; the zero envelope where the host is broken.
func refusal(e *tool.Envelope) tool.Envelope {
	if e == nil {
		return tool.Envelope{}
	}
	return *e
}

// offerEnvelope is the result of a call that a module answered.
func offerEnvelope(ctx context.Context, res loop.Result, output json.RawMessage) tool.Envelope {
	switch {
	case ctx.Err() != nil:
		return tool.Failure(tool.KindExecutionError, "cancelled: %v", context.Cause(ctx))
	case res.Approval != nil: // nobody reads it: the call is made again
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
	case res.Outcome == domain.OutcomeBudget: // a second try would have even less
		e.Retryable = false
	}
	return e
}
