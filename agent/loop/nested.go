package loop

import (
	"context"
	"errors"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// nest runs a loop within a call of the run, within what is left of the run's bounds, and adds what it used
// to the run.
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

// count adds to the run what was done within one of its calls.
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

// Completer asks a model within the calls of a run that no model answers in. Each completion is a run of its own
// within its call, without tools: with the record, the bounds and the budget of the run. There is one at a time.
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

// Complete asks, and returns the text as the Summary of the result. Whatever the model did is in the result; an
// error means that the host is broken.
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
	o.Policy, o.Fallback, o.System, o.Messages = completionPolicy(), c.Fallback, a.System, a.Messages
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

// completionPolicy says nothing to the model but what it was asked.
func completionPolicy() Policy {
	return Policy{Name: "complete", TurnRetries: 3, UnreachableRetries: 3}
}
