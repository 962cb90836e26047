package loop

import (
	"context"
	"errors"
	"maps"
	"strings"

	"rouse/agent/model"
	"rouse/agent/tool"
)

// Inner makes inner runs: what a call stands for answers as the provider of a run within the call, on the same loop, with the
// record, the authorizer and the bounds of the run. Its calls are on record below the call, under keys that begin
// with the call's (InnerKey), so that a call which is made again finds there what it has made. There is one at a time.
//
// Where the owner has to be asked about a call of an inner run, the run waits as it does for its own calls. The call that
// it is within has no result then, and is made again once there is an answer.
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

// Run makes a run within a call. Whatever became of it is in the result; an error means that the host is broken. With an
// Approval the call stays open: what its tool answers is told to nobody.
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

// answered is how many calls have a result.
func answered(prior map[string]PriorCall) (n int) {
	for _, c := range prior {
		if len(c.Envelope) > 0 {
			n++
		}
	}
	return n
}

// canWait says whether the run may wait for its owner: one of its own, and an inner one of such a one. A reduction
// is made from its beginning each time.
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

// isParked says whether the owner is asked about a call within the one of a key.
func (r *run) isParked(key string) bool {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()
	return r.waiting[key] != nil
}

// parked is what the owner is asked within a call, nil while there is nothing.
func (r *run) parked() *tool.ApprovalRequest {
	r.knownMu.Lock()
	defer r.knownMu.Unlock()

	for _, asked := range r.waiting { // all of them are the same question
		return asked
	}
	return nil
}

// Account counts what was done within a call in a run that is played again, where nothing is: turns are those that had a number in
// the run, and asked those that a model was asked in.
func (i *Inner) Account(turns, asked, calls int, spent Spent) {
	r := i.run
	r.lastStep += turns
	r.count(asked, calls, spent)
}

// Wait has the run wait for its owner within the call of a key, as the run did that is played again.
func (i *Inner) Wait(key string, asked *tool.ApprovalRequest) { i.run.park(key, asked) }
