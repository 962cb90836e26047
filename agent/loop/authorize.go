package loop

import (
	"context"
	"encoding/json"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// Authorizer decides on calls before they are made (UNI-06). An error means that the host is broken.
type Authorizer interface {
	// The decision on one call. The calls of an answer come in the model's order, before any
	// of them is made.
	Authorize(ctx context.Context, in tool.Invocation, t tool.Tool, args json.RawMessage) (tool.Verdict, error)
	// Reports that the calls which were allowed since the last time begin now.
	OnCallsStart(ctx context.Context) error
}

// authorize is the first phase of a batch (OSA-07): it answers the calls that are refused. asking
// says that the agent's owner has to be asked before any call of the batch is made.
func (r *run) authorize(ctx context.Context, calls []model.Call, blocked []bool) (refusals []*tool.Envelope, asking bool, err error) {
	refusals = make([]*tool.Envelope, len(calls))
	if r.Authorizer == nil {
		return refusals, false, nil
	}

	// A decision may wait for a program to be inspected; that is not the model's silence.
	r.idle.suspend()
	defer r.idle.resume()

	denied, afterEnd := false, false
	for i, c := range calls {
		made, acts := r.innerCall(c)
		switch e, settled := r.resolvedBefore(c, made); {
		case settled:
			// What was denied in an earlier attempt still answers the calls behind it.
			denied = denied || e.Kind == tool.KindUserDenied
			continue
		case denied:
			refusals[i] = skippedAfterDenial(made.Name)
			continue
		case blocked[i] || !acts: // no tool is going to run
			continue
		}

		v, err := r.verdict(ctx, made)
		if err != nil {
			return nil, false, err
		}

		// A run cannot wait in the middle of a reduction, nor behind a call that may end it first.
		if v.Ask != nil && !afterEnd && r.canWait() {
			v.Ask.Call = made.Key
			r.result.Exit, r.result.Approval = domain.ExitEnded, v.Ask
			return nil, true, nil
		}

		if v.Ask != nil {
			v.Refusal = cannotWait(made.Name)
		}

		r.approved[made.Key], refusals[i], denied = v.Approved, v.Refusal, v.Denied
		afterEnd = afterEnd || r.endsRun(c)
	}

	return refusals, false, r.Authorizer.OnCallsStart(context.WithoutCancel(ctx))
}

// verdict is the authorizer's decision on a call. A call of an unknown tool does nothing, so
// nothing is decided on it.
func (r *run) verdict(ctx context.Context, c model.Call) (tool.Verdict, error) {
	t, ok := r.Registry.Lookup(c.Name)
	if !ok {
		return tool.Verdict{}, nil
	}
	in := r.Invocation
	in.Key = c.Key
	return r.Authorizer.Authorize(ctx, in, t, c.Args)
}

// resolvedBefore says whether a call is not going to be made because an earlier attempt made it,
// or may have made it. e is the result if it is known.
func (r *run) resolvedBefore(calls ...model.Call) (e tool.Envelope, yes bool) {
	for _, c := range calls {
		prior, known := r.PriorCalls[c.Key]
		if known && len(prior.Envelope) > 0 {
			_ = json.Unmarshal(prior.Envelope, &e) // a damaged one is reported when it is used
			return e, true
		}

		if known && (prior.Uncertain || (!prior.Repeat && !repeatable(r.effect(c)))) {
			return e, true
		}
	}
	return e, false
}

// skippedAfterDenial answers a call behind one that was denied.
func skippedAfterDenial(name string) *tool.Envelope {
	e := tool.Failure(tool.KindRejected, "a call before this one in the same answer was denied, so this one was not made")
	e.Tool = name
	return &e
}

// cannotWait answers a call that needs an approval where a run cannot wait for one: behind a call
// that is to end the run, or within a reduction.
func cannotWait(name string) *tool.Envelope {
	e := tool.Failure(tool.KindRejected, "this needs an approval by the agent's owner, which a run cannot wait for here; make the call in an answer of its own, outside of a reduction")
	e.Tool = name
	return &e
}
