package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/progress"
)

type made = func(context.Context, model.Call) (tool.Envelope, domain.CallState, error)

// callRecorded makes a call and records its start and end. It returns the envelope and its text, or
// "" if the envelope is not recorded.
func (r *run) callRecorded(ctx context.Context, step, index int, c model.Call, do made) (_ tool.Envelope, text string, _ error) {
	record := r.callRecord(step, index, c)
	// Record the call before it starts: after a crash, a started call may have had an effect.
	if err := r.Recorder.StartCall(context.WithoutCancel(ctx), record); err != nil {
		return tool.Envelope{}, "", err
	}

	progress.From(ctx).Call(step, c.Name)
	envelope, state, err := do(ctx, c)
	if err != nil { // an error of the host; without an end in the record, the result is unknown
		return envelope, "", err
	}

	record.State = state
	if text, err = r.endCall(&record, envelope); err != nil {
		return envelope, "", err
	}
	return envelope, text, r.Recorder.FinishCall(context.WithoutCancel(ctx), record)
}

func (r *run) answerRecorded(ctx context.Context, step, index int, c model.Call, e tool.Envelope, state domain.CallState) (_ tool.Envelope, text string, _ error) {
	record := r.callRecord(step, index, c)
	record.State = state
	text, err := r.endCall(&record, e)
	if err != nil {
		return e, "", err
	}
	return e, text, r.Recorder.AnswerCall(context.WithoutCancel(ctx), record)
}

func (r *run) callRecord(step, index int, c model.Call) Call {
	record := Call{Step: step, Index: index, ID: c.ID, Key: c.Key, Tool: c.Name, Args: c.Args, Effect: r.effect(c), StartedAt: time.Now()}
	if len(record.Args) == 0 {
		record.Args = json.RawMessage("{}")
	}
	if t, ok := r.Registry.Lookup(c.Name); ok {
		record.Once = t.Once()
	}
	return record
}

// endCall completes the record of a call. It returns the text of the envelope that the model reads.
func (r *run) endCall(record *Call, e tool.Envelope) (text string, err error) {
	record.FinishedAt = time.Now()
	r.recordDuration(record.Key, record.StartedAt, record.FinishedAt)
	if r.Now != nil && record.State != domain.CallReplayed { // a replayed result must not change
		e.Now = r.Now(record.Key)
	}

	// The call has no result that a later attempt could use. The exception is a result in which the
	// tool reports that its effect is uncertain.
	if record.State == domain.CallInterrupted || record.State == domain.CallUncertain && !e.Uncertain {
		return "", nil
	}
	if record.Envelope, err = e.MarshalJSON(); err != nil {
		return "", fmt.Errorf("the result of %s cannot be recorded: %w", record.Tool, err)
	}

	seen := []byte(record.Envelope)
	if len(e.Images) > 0 { // the record holds images; a message has them next to its text
		if seen, err = e.Text(); err != nil {
			return "", fmt.Errorf("the result of %s cannot be recorded: %w", record.Tool, err)
		}
	}
	return string(seen), nil
}

func (r *run) effect(c model.Call) domain.Effect {
	if t, ok := r.Registry.Lookup(c.Name); ok {
		return t.EffectOf(c.Args)
	}
	return domain.EffectRead
}

// repeatable reports whether an interrupted call can be made again safely.
func repeatable(e domain.Effect) bool { return e == domain.EffectRead || e == domain.EffectDatabase }

// execute returns the result of a call from the record, or otherwise calls its tool.
func (r *run) execute(ctx context.Context, step, index int, c model.Call) (_ tool.Envelope, text string, _ error) {
	e, state, known, err := r.priorAnswer(c)
	switch {
	case err != nil:
		return e, "", err
	case known:
		return r.answerRecorded(ctx, step, index, c, e, state)
	}
	return r.callRecorded(ctx, step, index, c, r.make)
}

// priorAnswer returns the result of a call that an earlier attempt made or may have made.
func (r *run) priorAnswer(c model.Call) (e tool.Envelope, state domain.CallState, known bool, err error) {
	prior, ok := r.PriorCalls[c.Key]
	switch {
	case !ok:
		return e, "", false, nil
	case prior.Tool != "" && prior.Tool != c.Name:
		// Keys are positions in a playbook. A changed playbook must not reuse results or journals.
		e = tool.Failure(tool.KindRejected, "an earlier attempt of this run called %s here, and the playbook was changed since; start the job again", prior.Tool)
		return e, domain.CallFailed, true, nil
	case len(prior.Envelope) > 0:
		if err := json.Unmarshal(prior.Envelope, &e); err != nil {
			return e, "", false, fmt.Errorf("the recorded result of %s is damaged: %w", c.Name, err)
		}
		return e, domain.CallReplayed, true, nil
	case prior.Uncertain || (!prior.Repeat && !repeatable(r.effect(c))):
		return UnknownResult(c.Name), domain.CallFailed, true, nil
	}
	return e, "", false, nil
}

func (r *run) make(ctx context.Context, c model.Call) (tool.Envelope, domain.CallState, error) {
	// A call that was not started is cancelled, not uncertain, because it had no effect.
	select {
	case <-ctx.Done():
		return tool.Cancelled(ctx), domain.CallCancelled, nil
	default:
	}

	if r.recursive(c) {
		return *rejected(c.Name, "a reduction cannot begin another one; use the other tools"), domain.CallFailed, nil
	}

	in := r.Invocation
	in.Key, in.Approved = c.Key, r.approved[c.Key]
	e, err := r.Registry.Call(ctx, in, c.Name, c.Args)
	// A call that succeeded or was refused keeps its result, even if the run was stopped in the
	// meantime.
	switch {
	case err == nil && r.isParked(c.Key): // waits for an approval, so it has no result and is made again
		return e, domain.CallInterrupted, nil
	case err != nil || e.OK:
		return e, domain.CallDone, err
	case e.NotStarted: // it was still waiting for its turn
		return e, domain.CallCancelled, nil
	case e.Uncertain && !repeatable(r.effect(c)):
		return e, domain.CallUncertain, nil
	case ctx.Err() == nil || !unfinished(e.Kind):
		return e, domain.CallFailed, nil
	case repeatable(r.effect(c)):
		return e, domain.CallInterrupted, nil
	}

	return e, domain.CallUncertain, nil
}

// UnknownResult returns the result for an interrupted call that may have had an effect.
func UnknownResult(name string) tool.Envelope {
	e := tool.Failure(tool.KindExecutionError, "an earlier attempt was cut off during this call. Whether it took effect is unknown, and it was not made again: look what is there before you decide")
	e.Tool, e.Retryable = name, false
	return e
}

// unfinished reports whether a failure of this kind can come from an interrupted call.
func unfinished(k tool.Kind) bool {
	return k == tool.KindExecutionError || k == tool.KindTimeout || k == tool.KindUnavailable
}

// Authorizer decides on calls before they are made. Its methods return an error only if the host is
// broken.
type Authorizer interface {
	// Authorize decides on one call. It is called for all calls of an answer in order, before any
	// of them is made.
	Authorize(ctx context.Context, in tool.Invocation, t tool.Tool, args json.RawMessage) (tool.Verdict, error)
	// OnCallsStart is called when the calls allowed since its last call are about to start.
	OnCallsStart(ctx context.Context) error
}

// authorize decides on the calls of a batch. asking reports that the owner must be asked before any
// call is made.
func (r *run) authorize(ctx context.Context, calls []model.Call, blocked []bool) (refusals []*tool.Envelope, asking bool, err error) {
	refusals = make([]*tool.Envelope, len(calls))
	if r.Authorizer == nil {
		return refusals, false, nil
	}

	// The decision may wait for the inspection of a program, which is not idle time of the model.
	r.idle.suspend()
	defer r.idle.resume()

	denied, afterEnd := false, false
	for i, c := range calls {
		made, acts := r.phasedCall(c)
		switch e, settled := r.resolvedBefore(c, made); {
		case settled:
			// A denial in an earlier attempt also applies to the calls after it.
			denied = denied || e.Kind == tool.KindUserDenied
			continue
		case denied:
			refusals[i] = rejected(made.Name, "a call before this one in the same answer was denied, so this one was not made")
			continue
		case blocked[i] || !acts: // no tool will run
			continue
		}

		v, err := r.verdict(ctx, made)
		if err != nil {
			return nil, false, err
		}

		// A run cannot wait within a reduction, or after a call that may end the run first.
		if v.Ask != nil && !afterEnd && r.canWait() {
			v.Ask.Call = made.Key
			r.result.Exit, r.result.Approval = domain.ExitEnded, v.Ask
			return nil, true, nil
		}

		if v.Ask != nil {
			v.Refusal = rejected(made.Name, "this needs an approval by the agent's owner, which a run cannot wait for here; make the call in an answer of its own, outside of a reduction")
		}

		r.approved[made.Key], refusals[i], denied = v.Approved, v.Refusal, v.Denied
		afterEnd = afterEnd || r.endsRun(c)
	}

	return refusals, false, r.Authorizer.OnCallsStart(context.WithoutCancel(ctx))
}

// verdict returns the authorizer's decision on a call. It returns the zero Verdict for an unknown
// tool.
func (r *run) verdict(ctx context.Context, c model.Call) (tool.Verdict, error) {
	t, ok := r.Registry.Lookup(c.Name)
	if !ok {
		return tool.Verdict{}, nil
	}
	in := r.Invocation
	in.Key = c.Key
	return r.Authorizer.Authorize(ctx, in, t, c.Args)
}

// resolvedBefore reports whether an earlier attempt made a call or may have made it. It returns the
// result if it is known.
func (r *run) resolvedBefore(calls ...model.Call) (e tool.Envelope, yes bool) {
	for _, c := range calls {
		prior, known := r.PriorCalls[c.Key]
		if known && len(prior.Envelope) > 0 {
			_ = json.Unmarshal(prior.Envelope, &e) // a damaged envelope is reported when it is used
			return e, true
		}

		if known && (prior.Uncertain || (!prior.Repeat && !repeatable(r.effect(c)))) {
			return e, true
		}
	}
	return e, false
}

func rejected(name, format string, args ...any) *tool.Envelope {
	e := tool.Failure(tool.KindRejected, format, args...)
	e.Tool = name
	return &e
}
