package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// callRecorded answers one call and records its start and its end. The text is what the model
// reads of the envelope, "" when none was recorded.
func (r *run) callRecorded(ctx context.Context, step, index int, c model.Call, answer func(context.Context, model.Call) (tool.Envelope, domain.CallState, error)) (_ tool.Envelope, text string, _ error) {
	writing := context.WithoutCancel(ctx)
	record := Call{Step: step, Index: index, ID: c.ID, Key: c.Key, Tool: c.Name, Args: c.Args, Effect: r.effect(c), StartedAt: time.Now()}
	if len(record.Args) == 0 {
		record.Args = json.RawMessage("{}")
	}
	// Recorded before it starts: after a crash it is known that the call may have had an effect.
	if err := r.Recorder.StartCall(writing, record); err != nil {
		return tool.Envelope{}, "", err
	}

	envelope, state, err := answer(ctx, c)
	if err != nil { // the host is broken; without an end, the record leaves the result open
		return envelope, "", err
	}

	record.State, record.FinishedAt = state, time.Now()
	r.recordDuration(c.Key, record.StartedAt, record.FinishedAt)
	// Such a call has no result that a later attempt could use, so none is recorded.
	if state == domain.CallInterrupted || state == domain.CallUncertain {
		return envelope, "", r.Recorder.FinishCall(writing, record)
	}
	if record.Envelope, err = envelope.MarshalJSON(); err != nil {
		return envelope, "", fmt.Errorf("the result of %s cannot be recorded: %w", c.Name, err)
	}

	seen := []byte(record.Envelope)
	if len(envelope.Images) > 0 { // the record holds the images, a message has them beside its text
		if seen, err = envelope.Text(); err != nil {
			return envelope, "", fmt.Errorf("the result of %s cannot be recorded: %w", c.Name, err)
		}
	}

	return envelope, string(seen), r.Recorder.FinishCall(writing, record)
}

// effect is what a call may do; a call of an unknown tool does nothing.
func (r *run) effect(c model.Call) domain.Effect {
	if t, ok := r.Registry.Lookup(c.Name); ok {
		return t.EffectOf(c.Args)
	}
	return domain.EffectRead
}

// repeatable says whether a call that was cut off may be made again: reading harms nobody,
// and the agent's database and the outbox take a key once.
func repeatable(e domain.Effect) bool { return e == domain.EffectRead || e == domain.EffectDatabase }

// execute answers a call from the record where there is one, else by its tool.
func (r *run) execute(ctx context.Context, c model.Call) (tool.Envelope, domain.CallState, error) {
	if prior, ok := r.PriorCalls[c.Key]; ok {
		var e tool.Envelope
		switch {
		case prior.Tool != "" && prior.Tool != c.Name:
			// Keys are places in a playbook. This call must neither get the result of another
			// tool, nor write a journal under a key that it has used.
			e = tool.Failure(tool.KindRejected, "an earlier attempt of this run called %s here, and the playbook was changed since; start the job again", prior.Tool)
			return e, domain.CallFailed, nil
		case len(prior.Envelope) > 0:
			if err := json.Unmarshal(prior.Envelope, &e); err != nil {
				return e, "", fmt.Errorf("the recorded result of %s is damaged: %w", c.Name, err)
			}
			return e, domain.CallReplayed, nil
		case prior.Uncertain || (!prior.Repeat && !repeatable(r.effect(c))):
			return UnknownResult(c.Name), domain.CallFailed, nil
		}
	}

	// A call that was not started is cancelled, not uncertain: it certainly did nothing.
	select {
	case <-ctx.Done():
		return tool.Failure(tool.KindExecutionError, "cancelled: %v", context.Cause(ctx)), domain.CallCancelled, nil
	default:
	}

	if r.recursive(c) {
		return refuseRecursion(c), domain.CallFailed, nil
	}

	in := r.Invocation
	in.Key, in.Approved = c.Key, r.approved[c.Key]
	e, err := r.Registry.Call(ctx, in, c.Name, c.Args)
	// A call that succeeded or was refused has its result, even if the run was stopped meanwhile.
	switch {
	case err != nil || e.OK:
		return e, domain.CallDone, err
	case r.isParked(c.Key): // it has no result yet, and is made again
		return e, domain.CallInterrupted, nil
	case ctx.Err() == nil || !unfinished(e.Kind):
		return e, domain.CallFailed, nil
	case repeatable(r.effect(c)):
		return e, domain.CallInterrupted, nil
	}

	return e, domain.CallUncertain, nil
}

// UnknownResult is the result that a model gets for a call that was cut off when it may have changed the
// world.
func UnknownResult(name string) tool.Envelope {
	e := tool.Failure(tool.KindExecutionError, "an earlier attempt was cut off during this call. Whether it took effect is unknown, and it was not made again: look what is there before you decide")
	e.Tool, e.Retryable = name, false
	return e
}

// unfinished says whether a failure can come from a call that was cut off. Failures of the other
// kinds are answers of the tool, whenever they come.
func unfinished(k tool.Kind) bool {
	return k == tool.KindExecutionError || k == tool.KindTimeout || k == tool.KindUnavailable
}
