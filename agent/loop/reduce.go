package loop

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// The limits of a reduction (OSA-24).
const (
	defaultReduceSteps = 8 // unless the call asks for others
	maxReduceSteps     = 12
	reduceWall         = 240 * time.Second
	maxDigest          = 8000 // characters
)

// Reducer answers the reduce calls of one attempt: each by a run of its own within the call,
// on the same loop, with the same model, record and bounds, but with a history of its own. The
// run that made the call sees only the digest. There is one reduction at a time.
type Reducer struct {
	// System is the system prompt of reductions.
	System string
	tools  *tool.Registry
	run    *run // the attempt, once it has begun
}

// ReduceSpec is the tool that reads much and returns little. Its effect and its class are the worst
// that the tools within it may have; each of their calls is authorized, and recorded, by itself.
func ReduceSpec(description string) tool.Spec {
	return tool.Spec{
		Name: "reduce", Description: description, Effect: domain.EffectExternal, Class: tool.ClassExec, Scope: tool.ScopeRun, Writes: tool.WritesNothing,
		Example: `{"task":"Which of the contracts end this year? Name each with its date.","paths":["contracts"]}`, Args: reflect.TypeFor[reduceArgs](), Requires: tool.RequiresModel, Nests: true, OnDemand: true, Timeout: -1, Needs: tool.NoNeeds,
	}
}

type reduceArgs struct {
	Task          string   `json:"task" jsonschema:"what to find out, with all that is needed to do it: nothing else of this run is known there"`
	Paths         []string `json:"paths,omitempty" jsonschema:"the files and folders that it is about"`
	MaxIterations int      `json:"max_iterations,omitempty" jsonschema:"steps it may take; 8 when absent, at most 12"`
}

type digest struct {
	Kind       string `json:"kind"` // digest
	Digest     string `json:"digest"`
	Iterations int    `json:"iterations"`
}

// Tool is the reduce tool over those of a run's tools that read, search or execute; false when
// there are none. Its effect is the worst of theirs.
func (d *Reducer) Tool(granted *tool.Registry, description string) (t tool.Tool, ok bool, err error) {
	spec := ReduceSpec(description)
	spec.Effect, spec.Class = domain.EffectRead, tool.ClassOther
	var tools []tool.Tool
	for _, name := range granted.Names() {
		t, _ := granted.Lookup(name)
		executes := t.Class() == tool.ClassExec
		if t.Nests() || !executes && (t.Effect() != domain.EffectRead || t.Ends() || t.Class() == tool.ClassPlan) {
			continue
		}

		tools = append(tools, t)
		if executes {
			spec.Effect, spec.Class = domain.EffectExternal, tool.ClassExec
		}
	}
	if len(tools) == 0 {
		return tool.Tool{}, false, nil
	}
	if d.tools, err = tool.NewRegistry(tools...); err != nil {
		return tool.Tool{}, false, err
	}

	t, err = tool.Define(spec, d.reduce)
	return t, err == nil, err
}

// reduce runs the loop within the call.
func (d *Reducer) reduce(ctx context.Context, in tool.Invocation, a reduceArgs) (tool.Envelope, error) {
	r := d.run
	task := strings.TrimSpace(a.Task)
	switch {
	case r == nil:
		return tool.Failure(tool.KindUnavailable, "there is no model here that could do it"), nil
	case task == "":
		return tool.Failure(tool.KindInvalidArgs, "the task is empty").WithField("task", "what to find out"), nil
	case a.MaxIterations < 0:
		return tool.Failure(tool.KindInvalidArgs, "max_iterations is below 1").WithField("max_iterations", fmt.Sprintf("1 to %d", maxReduceSteps)), nil
	case r.Bounds.Calls > 0 && r.callsLeft <= 0:
		return tool.Failure(tool.KindRejected, "the calls of this run are used up"), nil
	case r.stepsLeft() == 0:
		return tool.Failure(tool.KindRejected, "the steps of this run are used up, and a reduction takes some of them"), nil
	}

	var warnings []string
	steps := cmp.Or(a.MaxIterations, defaultReduceSteps)
	if steps > maxReduceSteps {
		steps = maxReduceSteps
		warnings = append(warnings, fmt.Sprintf("max_iterations is at most %d", maxReduceSteps))
	}

	if left := r.stepsLeft(); left > 0 {
		steps = min(steps, left)
	}

	if len(a.Paths) > 0 {
		task += "\n\nIt is about:\n- " + strings.Join(a.Paths, "\n- ")
	}

	res, err := d.runNested(ctx, in, task, steps)
	if err != nil {
		return tool.Envelope{}, err
	}

	return reduceEnvelope(ctx, res, warnings), nil
}

// runNested runs the task within what is left of the run's bounds.
func (d *Reducer) runNested(ctx context.Context, in tool.Invocation, task string, steps int) (Result, error) {
	r := d.run
	o := r.Options
	o.Registry, o.Recorder, o.Invocation, o.System = d.tools, reductionRecorder{r.Recorder, in.Key}, in, d.System
	if r.Registry.IsBrief() { // the context that it has is as small
		o.Registry = d.tools.Briefly()
	}

	o.Messages = []model.Message{{Role: model.RoleUser, Text: task}}
	o.Policy = reductionPolicy(r.Policy)
	o.Bounds.Steps, o.Bounds.Wall = steps, reduceWall
	if o.Bounds.Calls > 0 {
		o.Bounds.Calls = r.callsLeft
	}

	// Nothing of earlier attempts: what was cut off is made again from its beginning, for it only reads.
	o.PriorCalls, o.Completer = nil, nil
	return r.nest(ctx, o)
}

// reductionPolicy is the policy of a run that only reads: it has no todo list, ends with its digest, and
// has no relief of its own, for its steps are taken out of that of the run.
func reductionPolicy(p Policy) Policy {
	p.Name, p.Phases, p.StaleTodoSteps, p.FreeSteps = "reduce", Phases{}, 0, 0
	p.ClosingPrompt = "Write the digest now, of what you have found out so far, and say what is missing in it."
	return p
}

// reduceEnvelope makes the result of a reduction the result of its call.
func reduceEnvelope(ctx context.Context, res Result, warnings []string) tool.Envelope {
	switch {
	case ctx.Err() != nil:
		return tool.Failure(tool.KindExecutionError, "cancelled: %v", context.Cause(ctx))
	case res.Summary != "" && res.Outcome != domain.OutcomeError && slices.Contains([]domain.Exit{domain.ExitFinalResponse, domain.ExitIterationCap}, res.Exit):
		found := text.Head(res.Summary, maxDigest)
		if res.Error != "" {
			warnings = append(warnings, "the digest may be incomplete: "+res.Error)
		}

		if found != res.Summary {
			warnings = append(warnings, fmt.Sprintf("the digest was longer than %d characters, and cut", maxDigest))
		}
		return tool.Success(digest{"digest", found, res.Steps}, warnings...)
	}

	reason := res.Error
	if reason == "" {
		reason = "the model said nothing"
	}

	e := tool.Failure(tool.KindExecutionError, "there is no digest: %s", reason)
	switch res.Outcome {
	case domain.OutcomeTimeout:
		e.Kind = tool.KindTimeout
	case domain.OutcomeBudget: // a second try would have even less
		e.Retryable = false
	}

	return e
}

// recursive says whether a call is a reduction within a reduction. The tools of a reduction do not
// have one, but a model may call it all the same; the tools of the outer run know its name.
func (r *run) recursive(c model.Call) bool {
	if r.outer == nil {
		return false
	}
	t, ok := r.outer.Registry.Lookup(c.Name)
	return ok && t.Nests()
}

// refuseRecursion answers a reduction within a reduction.
func refuseRecursion(c model.Call) tool.Envelope {
	e := tool.Failure(tool.KindRejected, "a reduction cannot begin another one; use the other tools")
	e.Tool = c.Name
	return e
}

// reductionRecorder records the steps of a run within a call as those of the call, unless they are within one further in.
type reductionRecorder struct {
	Recorder
	call string
}

// StartStep implements Recorder.
func (w reductionRecorder) StartStep(ctx context.Context, s Step) error {
	s.ParentCall = cmp.Or(s.ParentCall, w.call)
	return w.Recorder.StartStep(ctx, s)
}
