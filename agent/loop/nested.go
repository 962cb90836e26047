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

// nest runs a loop within a call of the run and its bounds, and adds its use to the run.
func (r *run) nest(ctx context.Context, o Options) (Result, error) {
	// At least 1, because 0 would be no bound: a loop whose run has nothing left ends after its first answer.
	if o.Bounds.Tokens > 0 {
		o.Bounds.Tokens = max(o.Bounds.Tokens-r.result.Usage.Input-r.result.Usage.Output, 1)
	}

	if o.Bounds.Output > 0 {
		o.Bounds.Output = max(o.Bounds.Output-r.outputBytes, 1)
	}

	// The calls that wait are the run's, as are its list and its phases.
	o.PendingCalls, o.Interrupted, o.Board, o.PriorDurations, o.PriorSteps, o.Reducer = nil, false, nil, nil, 0, nil
	nested := newRun(o)
	nested.lastStep, nested.outer, nested.replayable = r.lastStep, r, answered(o.PriorCalls)
	if o.Completer != nil {
		o.Completer.run = nested
	}

	// Added also after an error: it was used.
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
			r.charged++
		}
	}

	r.callsLeft -= made
	r.result.Calls += made
	r.result.add(spent)
}

// asked is how many steps of a nested run were asked of a model: of those of an inner run only its questions were.
func (r *run) asked() int {
	if r.Policy.NoModel {
		return r.nestedSteps
	}
	return r.result.Steps
}

// Completer asks a model within the calls of a run without a model. Each completion is a run of its
// own without tools, one at a time.
type Completer struct {
	Provider model.Provider
	Model    ModelInfo
	Fallback *Fallback // nil: no other model takes over
	run      *run      // the attempt, once it has begun
}

// Completion is what a model is asked once.
type Completion struct {
	System      string
	Messages    []model.Message
	MaxOutput   int // tokens; 0 leaves it to the model
	Temperature *float64
}

// Complete asks, and returns the text as the Summary of the result. An error means that the host is
// broken.
func (c *Completer) Complete(ctx context.Context, in tool.Invocation, a Completion) (Result, error) {
	r := c.run
	if r == nil {
		return Result{}, errors.New("loop: a completion was asked for outside of a run")
	}

	if r.outer != nil && r.outer.stepsLeft() >= 0 && r.nestedSteps >= r.outer.stepsLeft() { // which counts them afterwards
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

	o.Bounds.Steps = -1 // a text without calls ends it
	// Nothing of earlier attempts: it asks once, and has no calls.
	o.PriorCalls, o.Completer = nil, nil
	return r.nest(ctx, o)
}

// Inner makes inner runs: a call is answered by a run within it, on the same loop, with the run's
// record, authorizer and bounds. Keys of its calls begin with the key of the outer call (InnerKey),
// so that a repetition finds them. There is one at a time.
//
// If the owner has to be asked within it, the outer call has no result, and is made again once
// there is an answer.
type Inner struct {
	run *run // the attempt, once it has begun
}

// InnerRun is who answers within a call.
type InnerRun struct {
	Provider  model.Provider
	Registry  *tool.Registry // what it may call
	Completer *Completer     // asks a model for it; nil: it asks none
}

// innerMark stands between the key of a call and that of a call within it.
const innerMark = "~"

// InnerKey is the key of a call within the call of a key.
func InnerKey(outer, key string) string { return outer + innerMark + key }

// OuterKey is the key of the call that a call was made within; false for one of the run itself.
func OuterKey(key string) (string, bool) {
	outer, _, within := strings.Cut(key, innerMark)
	return outer, within
}

// Run makes a run within a call. An error means that the host is broken. With an Approval the outer
// call stays open.
func (i *Inner) Run(ctx context.Context, in tool.Invocation, p InnerRun) (Result, error) {
	r := i.run
	if r == nil {
		return Result{}, errors.New("loop: a run within a call was asked for outside of a run")
	}
	if asked := r.parked(); asked != nil { // by a call beside this one, which is made again with it
		r.park(in.Key, asked)
		return Result{Approval: asked}, nil
	}

	o := r.Options
	o.Provider, o.Registry, o.Recorder, o.Invocation, o.Completer, o.Inner = p.Provider, p.Registry, reductionRecorder{r.Recorder, in.Key}, in, p.Completer, nil
	o.Policy, o.Fallback, o.System, o.Messages, o.Exhausted = Playbook(), nil, "", nil, false
	o.Policy.StopOnRejection = r.Policy.StopOnRejection
	o.Invocation.MustSucceed = false // it reads exit codes, as a model does
	o.PriorCalls = within(r.PriorCalls, in.Key)
	if p.Completer != nil && r.Fallback != nil { // who answers in the run answers here
		p.Completer.Fallback = r.Fallback
	}

	o.Bounds.Steps = -1 // what it calls is bounded, and how long it takes
	if o.Bounds.Calls > 0 {
		// What an earlier attempt has made is counted already. One is left at least, to end it properly.
		o.Bounds.Calls = max(r.callsLeft+answered(o.PriorCalls), 1)
	}

	res, err := r.nest(ctx, o)
	if res.Approval != nil {
		r.park(in.Key, res.Approval)
	}
	return res, err
}

// within are the calls of earlier attempts that were made within a call.
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

// canWait reports whether the run may wait for its owner. A reduction is made from its beginning
// each time.
func (r *run) canWait() bool {
	return r.outer == nil || r.Policy.NoModel && r.outer.canWait()
}

// park has the run wait for its owner, who is asked about a call within the call of a key.
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

	for _, asked := range r.waiting { // all of them are the same question
		return asked
	}
	return nil
}

// Account counts what was done within a call, in a replay where nothing is done. turns have a
// number in the run; in asked of them a model was asked.
func (i *Inner) Account(turns, asked, calls int, spent Spent) {
	r := i.run
	r.lastStep += turns
	r.count(asked, calls, spent)
}

// Wait has the run wait for its owner within the call of a key, as the run did that is played again.
func (i *Inner) Wait(key string, asked *tool.ApprovalRequest) { i.run.park(key, asked) }

// The limits of a reduction (OSA-24).
const (
	defaultReduceSteps = 8 // unless the call asks for others
	maxReduceSteps     = 12
	reduceWall         = 240 * time.Second
	maxDigest          = 8000 // characters
)

// Reducer answers the reduce calls of one attempt, each by a run of its own with its own history.
// The outer run sees only the digest. There is one reduction at a time.
type Reducer struct {
	// System is the system prompt of reductions.
	System string
	tools  *tool.Registry
	run    *run // the attempt, once it has begun
}

// ReduceSpec is the tool that reads much and returns little. Its effect and class are the worst
// possible ones of its tools.
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

// Tool returns the reduce tool over the given tools that read, search or execute, or false.
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

// reductionPolicy is for a run that only reads. It has no relief, because its steps count for the
// run.
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
	case domain.OutcomeBudget: // a second try would have even less
		e.Retryable = false
	}

	return e
}

func (r *run) recursive(c model.Call) bool {
	if r.outer == nil {
		return false
	}
	t, ok := r.outer.Registry.Lookup(c.Name)
	return ok && t.Nests()
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
