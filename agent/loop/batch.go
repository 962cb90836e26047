package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
)

// The states of a call, as the ledger has them.
const (
	callDone      = "done"
	callFailed    = "failed"
	callReplayed  = "replayed"
	callCancelled = "cancelled"
	// A call that was cut off: it may be repeated, or nobody knows what it did.
	callInterrupted = "interrupted"
	callUncertain   = "uncertain"
)

// act executes the calls of an answer and decides whether the run goes on.
func (r *run) act(ctx context.Context, t turn) (over bool, err error) {
	calls := t.calls
	left := len(calls)
	if r.Bounds.Calls > 0 {
		left = max(r.Bounds.Calls-r.result.Calls, 0)
	}
	envelopes, err := r.batch(ctx, t.number, calls, left)
	if err != nil {
		return true, err
	}
	if r.ended(calls, envelopes) || r.rejected(calls, envelopes[:min(left, len(envelopes))]) || r.stopped(ctx) {
		return true, nil
	}
	switch {
	case left < len(calls):
		r.exhausted("the %d calls of this run were used up", r.Bounds.Calls)
	case r.Bounds.Tokens > 0 && r.result.Usage.Input+r.result.Usage.Output > r.Bounds.Tokens:
		r.exhausted("the run used %d tokens, more than its %d", r.result.Usage.Input+r.result.Usage.Output, r.Bounds.Tokens)
	default:
		return false, nil
	}
	return true, nil
}

// finishPending executes what an earlier attempt asked for and did not get.
func (r *run) finishPending(ctx context.Context) (over bool, err error) {
	writing := context.WithoutCancel(ctx)
	r.result.Steps++
	r.stage("An earlier attempt at this run was interrupted. The calls that it had left open were finished now.")
	s := Step{Number: r.result.Steps, StartedAt: time.Now()}
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return true, err
	}
	s.FinishedAt = time.Now()
	if err := r.Recorder.FinishStep(writing, s); err != nil {
		return true, err
	}
	return r.act(ctx, turn{number: s.Number, calls: r.Pending})
}

// batch executes calls and appends their results to the history in the model's order.
// Only the first left of them may run.
func (r *run) batch(ctx context.Context, step int, calls []model.Call, left int) ([]tool.Envelope, error) {
	envelopes := make([]tool.Envelope, len(calls))
	errs := make([]error, len(calls))
	one := func(i int) {
		if i >= left {
			envelopes[i] = tool.Failure(tool.KindRejected, "the calls of this run are used up")
			return
		}
		r.idle.hold()
		defer r.idle.release()
		envelopes[i], errs[i] = r.call(ctx, step, i, calls[i])
	}
	if slices.ContainsFunc(calls, r.ends) {
		for i := range calls {
			if one(i); errs[i] != nil || (envelopes[i].OK && r.ends(calls[i])) {
				calls, envelopes = calls[:i+1], envelopes[:i+1] // later siblings neither run nor appear
				break
			}
		}
	} else {
		r.parallel(calls, one)
	}
	r.results = r.results[:0:0]
	for i, c := range calls {
		if errs[i] != nil {
			return nil, errs[i]
		}
		text, err := envelopes[i].MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("the result of %s cannot be recorded: %w", c.Name, err)
		}
		r.results = append(r.results, model.Result{Call: c, Envelope: text})
		r.messages = append(r.messages, model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: string(text)})
		if i < left {
			r.result.Calls++
		}
		r.note(c.Name, envelopes[i].OK)
	}
	return envelopes, nil
}

// parallel runs the calls at the same time, but those that touch the same place in order.
func (r *run) parallel(calls []model.Call, one func(int)) {
	lanes := map[string][]int{}
	for i, c := range calls {
		lane := fmt.Sprintf("#%d", i)
		if t, ok := r.Registry.Lookup(c.Name); ok {
			switch path := t.WritesTo(c.Args); {
			case path != "":
				lane = "path " + path
			case t.Effect() == tool.Database:
				lane = "database"
			}
		}
		lanes[lane] = append(lanes[lane], i)
	}
	var all sync.WaitGroup
	for _, lane := range lanes {
		all.Go(func() {
			for _, i := range lane {
				one(i)
			}
		})
	}
	all.Wait()
}

func (r *run) ends(c model.Call) bool {
	t, ok := r.Registry.Lookup(c.Name)
	return ok && t.Ends()
}

// call executes one call between its two records.
func (r *run) call(ctx context.Context, step, index int, c model.Call) (tool.Envelope, error) {
	writing := context.WithoutCancel(ctx)
	record := Call{Step: step, Index: index, ID: c.ID, Key: c.Key, Tool: c.Name, Args: c.Args, Effect: string(r.effect(c)), StartedAt: time.Now()}
	if len(record.Args) == 0 {
		record.Args = json.RawMessage("{}")
	}
	if err := r.Recorder.StartCall(writing, record); err != nil {
		return tool.Envelope{}, err
	}
	envelope, state, err := r.execute(ctx, c)
	if err != nil {
		return envelope, err
	}
	record.State, record.FinishedAt = state, time.Now()
	if state == callInterrupted || state == callUncertain { // it has no result that a later attempt could use
		return envelope, r.Recorder.FinishCall(writing, record)
	}
	if record.Envelope, err = envelope.MarshalJSON(); err != nil {
		return envelope, fmt.Errorf("the result of %s cannot be recorded: %w", c.Name, err)
	}
	return envelope, r.Recorder.FinishCall(writing, record)
}

// effect is what a call may do; what no tool answers does nothing.
func (r *run) effect(c model.Call) tool.Effect {
	if t, ok := r.Registry.Lookup(c.Name); ok {
		return t.Effect()
	}
	return tool.Read
}

// repeatable says whether a call that was cut off may be made again: reading harms nobody,
// and the agent's database and the outbox take a key once.
func repeatable(e tool.Effect) bool { return e == tool.Read || e == tool.Database }

// execute answers a call from the record where there is one, else by its tool.
func (r *run) execute(ctx context.Context, c model.Call) (tool.Envelope, string, error) {
	if past, ok := r.Past[c.Key]; ok {
		var e tool.Envelope
		switch {
		case len(past.Envelope) > 0:
			if err := json.Unmarshal(past.Envelope, &e); err != nil {
				return e, "", fmt.Errorf("the recorded result of %s is damaged: %w", c.Name, err)
			}
			return e, callReplayed, nil
		case past.Uncertain || !repeatable(r.effect(c)):
			return tool.Failure(tool.KindExecutionError, "an earlier attempt was interrupted during this call; whether it took effect is unknown, and it was not repeated"), callFailed, nil
		}
	}
	select {
	case <-ctx.Done():
		return tool.Failure(tool.KindExecutionError, "cancelled: %v", context.Cause(ctx)), callCancelled, nil
	default:
	}
	in := r.Invocation
	in.Key = c.Key
	e, err := r.Registry.Call(ctx, in, c.Name, c.Args)
	switch {
	case err != nil || e.OK:
		return e, callDone, err
	case ctx.Err() == nil || !unfinished(e.Kind):
		return e, callFailed, nil
	case repeatable(r.effect(c)):
		return e, callInterrupted, nil
	}
	return e, callUncertain, nil
}

// unfinished says whether a failure can come from a call that was cut off. The other kinds
// are verdicts, whenever they were given.
func unfinished(k tool.Kind) bool {
	return k == tool.KindExecutionError || k == tool.KindTimeout || k == tool.KindUnavailable
}

// ended looks for a successful call that ends the run.
func (r *run) ended(calls []model.Call, envelopes []tool.Envelope) bool {
	for i, e := range envelopes {
		if !e.OK || !r.ends(calls[i]) {
			continue
		}
		var said struct{ Summary, Outcome string }
		if json.Unmarshal(e.Result, &said) != nil || said.Outcome == "" {
			said.Outcome = "success"
		}
		r.result.Exit, r.result.Outcome, r.result.Summary, r.result.Verified = Ended, said.Outcome, said.Summary, true
		return true
	}
	return false
}

// rejected ends the run where policy says that a rejection does.
func (r *run) rejected(calls []model.Call, envelopes []tool.Envelope) bool {
	if !r.Policy.StopOnRejection {
		return false
	}
	for i, e := range envelopes {
		if e.Kind == tool.KindRejected || e.Kind == tool.KindUserDenied {
			r.result.Exit, r.result.Outcome = ToolRejected, "error"
			r.result.Error = fmt.Sprintf("%s was rejected: %s", calls[i].Name, e.Message)
			return true
		}
	}
	return false
}
