package loop

import (
	"context"
	"errors"

	"rouse/agent/model"
	"rouse/agent/tool"
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

	// Nothing of earlier attempts: what was cut off is made again from its beginning, for it only reads.
	o.PriorCalls, o.PendingCalls, o.Interrupted, o.Board, o.PriorDurations, o.PriorSteps, o.Reducer, o.Completer = nil, nil, false, nil, nil, 0, nil, nil
	nested := newRun(o)
	nested.lastStep, nested.outerTools = r.lastStep, r.Registry
	// Added also after an error: it was used.
	err := nested.attempt(ctx)
	r.lastStep = nested.lastStep
	r.result.Steps += nested.result.Steps
	for range nested.result.Steps { // they were asked of the same model
		if !r.relieve() {
			r.charged++
		}
	}

	r.callsLeft -= nested.result.Calls
	r.result.Calls += nested.result.Calls
	r.outputBytes += nested.outputBytes
	r.result.add(nested.result.Spent)

	return nested.result, err
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
	return r.nest(ctx, o)
}

// completionPolicy says nothing to the model but what it was asked.
func completionPolicy() Policy {
	return Policy{Name: "complete", TurnRetries: 3, UnreachableRetries: 3}
}
