package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// nest runs a loop within a call, within the remaining bounds of the run. It adds the usage to the
// run.
func (r *run) nest(ctx context.Context, o Options) (Result, error) {
	// The minimum is 1, because 0 means no bound. If nothing remains, the loop ends after its first
	// answer.
	if o.Bounds.Tokens > 0 {
		o.Bounds.Tokens = max(o.Bounds.Tokens-r.result.Usage.Input-r.result.Usage.Output, 1)
	}

	if o.Bounds.Output > 0 {
		o.Bounds.Output = max(o.Bounds.Output-r.outputBytes, 1)
	}

	// Pending calls, the board and the phases belong to the outer run.
	o.PendingCalls, o.Interrupted, o.Board, o.PriorDurations, o.PriorSteps, o.Reducer = nil, false, nil, nil, 0, nil
	nested := newRun(o)
	nested.lastStep, nested.parent, nested.replayable = r.lastStep, r, answered(o.PriorCalls)
	if o.Completer != nil {
		o.Completer.run = nested
	}

	// Count the usage even after an error.
	err := nested.attempt(ctx)
	r.lastStep = nested.lastStep
	r.outputBytes += nested.outputBytes
	r.count(nested.asked(), max(nested.result.Calls-nested.replayable, 0), nested.result.Spent)

	return nested.result, err
}

func (r *run) count(asked, made int, spent Spent) {
	r.result.Steps += asked
	r.nestedSteps += asked
	for range asked { // they were asked of the same model
		if !r.relieve() {
			r.stepsCharged++
		}
	}

	r.callsLeft -= made
	r.result.Calls += made
	r.result.add(spent)
}

// asked returns the number of model steps of a nested run. For an inner run it counts the steps
// nested in its calls, because the run itself does not ask a model.
func (r *run) asked() int {
	if r.Policy.NoModel {
		return r.nestedSteps
	}
	return r.result.Steps
}

// Completer asks a model within the calls of a run without a model. Each completion is a nested run
// without tools. Only one runs at a time.
type Completer struct {
	Provider model.Provider
	Model    ModelInfo
	Fallback *Fallback // nil means no fallback
	run      *run      // set when the attempt starts
}

// Completion is one question to a model.
type Completion struct {
	System      string
	Messages    []model.Message
	MaxOutput   int // tokens; zero means the model's limit
	Temperature *float64
}

// Complete asks the model and returns the text as the Summary of the result. It returns an error
// only if the host is broken.
func (c *Completer) Complete(ctx context.Context, in tool.Invocation, a Completion) (Result, error) {
	r := c.run
	if r == nil {
		return Result{}, errors.New("loop: a completion was asked for outside of a run")
	}

	if r.parent != nil && r.parent.stepsLeft() >= 0 && r.nestedSteps >= r.parent.stepsLeft() { // the outer run counts these steps afterwards
		return Result{Outcome: domain.OutcomeError, Error: "the steps of this run are used up, and each question to the model takes one"}, nil
	}

	none, err := tool.NewRegistry()
	if err != nil {
		return Result{}, err
	}

	o := r.Options
	o.Provider, o.Registry, o.Recorder, o.Invocation = c.Provider, none, reductionRecorder{r.Recorder, in.Key}, in
	o.Policy, o.Fallback, o.System, o.Messages = Policy{Name: "complete", TurnRetries: 3, UnreachableRetries: 3}, c.Fallback, a.System, a.Messages
	o.Model, o.MaxOutput, o.Window, o.Temperature = c.Model.Name, c.Model.MaxOutput, c.Model.Window, c.Model.Temperature
	if a.MaxOutput > 0 && (o.MaxOutput <= 0 || a.MaxOutput < o.MaxOutput) {
		o.MaxOutput = a.MaxOutput
	}
	if a.Temperature != nil {
		o.Temperature = a.Temperature
	}

	o.Bounds.Steps = -1 // the first text without calls ends it
	// It has no calls, so it needs no results of earlier attempts.
	o.PriorCalls, o.Completer = nil, nil
	return r.nest(ctx, o)
}

// Inner executes inner runs. An inner run is a nested run on the same loop that answers a call. It
// uses the run's record, authorizer and bounds. The keys of its calls start with the key of the
// outer call (see InnerKey), so that a repetition finds their results. Only one runs at a time.
//
// If the owner must be asked within an inner run, the outer call has no result. It is made again
// after the approval.
type Inner struct {
	run *run // set when the attempt starts
}

// InnerRun is the provider of an inner run with its tools.
type InnerRun struct {
	Provider  model.Provider
	Registry  *tool.Registry // tools it may call
	Completer *Completer     // asks a model for it; optional
}

// innerMark separates the key of a call from the key of a call within it.
const innerMark = "~"

// InnerKey returns the key of a call within the call with the key outer.
func InnerKey(outer, key string) string { return outer + innerMark + key }

// OuterKey returns the key of the enclosing call. It returns false for a call of the run itself.
func OuterKey(key string) (string, bool) {
	outer, _, within := strings.Cut(key, innerMark)
	return outer, within
}

// Run executes an inner run within a call. It returns an error only if the host is broken. If the
// Result has an Approval, the outer call stays open.
func (i *Inner) Run(ctx context.Context, in tool.Invocation, p InnerRun) (Result, error) {
	r := i.run
	if r == nil {
		return Result{}, errors.New("loop: a run within a call was asked for outside of a run")
	}
	if asked := r.parked(); asked != nil { // another call of the batch waits; both are made again
		r.park(in.Key, asked)
		return Result{Approval: asked}, nil
	}

	o := r.Options
	o.Provider, o.Registry, o.Recorder, o.Invocation, o.Completer, o.Inner = p.Provider, p.Registry, reductionRecorder{r.Recorder, in.Key}, in, p.Completer, nil
	o.Policy, o.Fallback, o.System, o.Messages, o.Exhausted = Playbook(), nil, "", nil, false
	o.Policy.StopOnRejection = r.Policy.StopOnRejection
	o.Invocation.MustSucceed = false // the provider checks exit codes itself, like a model
	o.PriorCalls = within(r.PriorCalls, in.Key)
	if p.Completer != nil && r.Fallback != nil { // the inner run uses the model that currently answers in the run
		p.Completer.Fallback = r.Fallback
	}

	o.Bounds.Steps = -1 // its calls and its time are limited instead
	if o.Bounds.Calls > 0 {
		// Calls of an earlier attempt are already counted. At least one call is left, so that the
		// run can end properly.
		o.Bounds.Calls = max(r.callsLeft+answered(o.PriorCalls), 1)
	}

	res, err := r.nest(ctx, o)
	if res.Approval != nil {
		r.park(in.Key, res.Approval)
	}
	return res, err
}

// within returns the calls of earlier attempts that were made within the call outer.
func within(prior map[string]PriorCall, outer string) map[string]PriorCall {
	out := maps.Clone(prior)
	maps.DeleteFunc(out, func(key string, _ PriorCall) bool { return !strings.HasPrefix(key, InnerKey(outer, "")) })
	return out
}

func answered(prior map[string]PriorCall) (n int) {
	for _, c := range prior {
		if len(c.Envelope) > 0 {
			n++
		}
	}
	return n
}

// canWait reports whether the run may wait for its owner. A reduction may not, because it starts
// from the beginning each time.
func (r *run) canWait() bool {
	return r.parent == nil || r.Policy.NoModel && r.parent.canWait()
}

// park makes the run wait for its owner to approve a call within the call with the key.
func (r *run) park(key string, asked *tool.ApprovalRequest) {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()

	if r.waiting == nil {
		r.waiting = map[string]*tool.ApprovalRequest{}
	}
	r.waiting[key] = asked
}

func (r *run) isParked(key string) bool {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	return r.waiting[key] != nil
}

func (r *run) parked() *tool.ApprovalRequest {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()

	for _, asked := range r.waiting { // all entries are the same question
		return asked
	}
	return nil
}

// Account counts the work done within a call during a replay, which does not repeat it. turns is
// the number of turns in the record, and asked is the number of turns that asked a model.
func (i *Inner) Account(turns, asked, calls int, spent Spent) {
	r := i.run
	r.lastStep += turns
	r.count(asked, calls, spent)
}

// Wait makes a replayed run wait for its owner within the call with the key, like the original run.
func (i *Inner) Wait(key string, asked *tool.ApprovalRequest) { i.run.park(key, asked) }

// The limits of a reduction.
const (
	defaultReduceSteps = 8 // unless the call specifies another number
	maxReduceSteps     = 12
	reduceWall         = 240 * time.Second
	maxDigest          = 8000 // characters
)

// Reducer answers the reduce calls of one attempt. Each reduction is a nested run with its own
// history, and the outer run sees only the digest. Only one runs at a time.
type Reducer struct {
	// System is the system prompt of reductions.
	System string
	tools  *tool.Registry
	run    *run // set when the attempt starts
}

// ReduceSpec returns the spec of the tool that reads much and returns a short digest. Its effect
// and class are the strongest that its tools could have.
func ReduceSpec(description string) tool.Spec {
	return tool.Spec{
		Name: "reduce", Description: description, Effect: domain.EffectExternal, Class: tool.ClassExec, Scope: tool.ScopeRun, Writes: tool.WritesNothing,
		Example: `{"task":"Which of the contracts end this year? Name each with its date.","paths":["contracts"]}`, Args: reflect.TypeFor[reduceArgs](), Requires: tool.RequiresModel, Nests: true, OnDemand: true, Timeout: -1, Access: tool.NoNeeds,
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

// Tool returns the reduce tool for the given tools that read, search or execute. It returns false
// if no tool qualifies.
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

func (d *Reducer) runNested(ctx context.Context, in tool.Invocation, task string, steps int) (Result, error) {
	r := d.run
	o := r.Options
	o.Registry, o.Recorder, o.Invocation, o.System = d.tools, reductionRecorder{r.Recorder, in.Key}, in, d.System
	if r.Registry.IsBrief() { // the nested run has a context of the same size
		o.Registry = d.tools.Briefly()
	}

	o.Messages = []model.Message{{Role: model.RoleUser, Text: task}}
	o.Policy = reductionPolicy(r.Policy)
	o.Bounds.Steps, o.Bounds.Wall = steps, reduceWall
	if o.Bounds.Calls > 0 {
		o.Bounds.Calls = r.callsLeft
	}

	// A reduction only reads, so an interrupted one starts from the beginning.
	o.PriorCalls, o.Completer = nil, nil
	return r.nest(ctx, o)
}

// reductionPolicy returns the policy of a run that only reads. It has no free steps, because its
// steps count for the outer run.
func reductionPolicy(p Policy) Policy {
	p.Name, p.Phases, p.StaleTodoSteps, p.FreeSteps = "reduce", Phases{}, 0, 0
	p.ClosingPrompt = "Write the digest now, of what you have found out so far, and say what is missing in it."
	return p
}

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

	e := tool.Failure(tool.KindExecutionError, "there is no digest: %s", cmp.Or(res.Error, "the model said nothing"))
	switch res.Outcome {
	case domain.OutcomeTimeout:
		e.Kind = tool.KindTimeout
	case domain.OutcomeBudget: // a retry would have an even smaller budget
		e.Retryable = false
	}

	return e
}

func (r *run) recursive(c model.Call) bool {
	if r.parent == nil {
		return false
	}
	t, ok := r.parent.Registry.Lookup(c.Name)
	return ok && t.Nests()
}

// reductionRecorder records the steps of a nested run as steps of the enclosing call. It keeps the
// parent call of steps that are nested deeper.
type reductionRecorder struct {
	Recorder
	call string
}

// StartStep implements Recorder.
func (w reductionRecorder) StartStep(ctx context.Context, s Step) error {
	s.ParentCall = cmp.Or(s.ParentCall, w.call)
	return w.Recorder.StartStep(ctx, s)
}
