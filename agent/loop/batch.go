package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"rouse/agent/loop/memory"
	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// act executes the calls of an answer and decides whether the run goes on. free says that
// they only moved data, which costs no step.
func (r *run) act(ctx context.Context, t turn) (over, free bool, err error) {
	calls := t.calls
	left := len(calls)
	if r.Bounds.Calls > 0 {
		left, r.spare = r.affordable(calls, max(r.Bounds.Calls-r.result.Calls, 0))
	}

	blocked := r.blocked(calls)
	refusals, parked, err := r.judge(ctx, calls[:left], blocked)
	if parked || err != nil {
		return true, false, err
	}

	envelopes, deduped, err := r.batch(ctx, &wave{run: r, step: t.number, calls: calls, left: left, blocked: blocked, refusals: refusals})
	if err != nil {
		return true, false, err
	}
	if r.ended(calls, envelopes) || r.rejected(calls, envelopes[:min(left, len(envelopes))]) || r.stopped(ctx) {
		return true, false, nil
	}

	switch {
	case left < len(calls):
		r.exhausted("the %d calls of this run were used up", r.Bounds.Calls)
	case r.Bounds.Tokens > 0 && r.result.Usage.Input+r.result.Usage.Output > r.Bounds.Tokens:
		r.exhausted("the run used %d tokens, more than its %d", r.result.Usage.Input+r.result.Usage.Output, r.Bounds.Tokens)
	case r.idled():
	default:
		return false, !deduped && r.onlyMovedData(calls, envelopes), nil
	}

	return true, false, nil
}

// onlyMovedData says whether a step is free because all its calls moved rows, as long as
// policy lets steps be free (OSA-23).
func (r *run) onlyMovedData(calls []model.Call, envelopes []tool.Envelope) bool {
	if r.moved >= r.Policy.DataSteps {
		return false
	}

	for i, c := range calls {
		c, _ = r.made(c)
		t, ok := r.Registry.Lookup(c.Name)
		var one struct {
			Row json.RawMessage `json:"row"`
		}
		if !ok || t.Class() != tool.ClassData || i >= len(envelopes) || !envelopes[i].OK || json.Unmarshal(c.Args, &one) != nil || len(one.Row) > 0 {
			return false
		}
	}

	if r.moved++; r.moved == 1 {
		r.advice = fmt.Sprintf("A step that only moves rows in bulk is not counted, up to %d of them.", r.Policy.DataSteps)
	}

	return true
}

// finishPending executes what an earlier attempt asked for and did not get.
func (r *run) finishPending(ctx context.Context) (over bool, err error) {
	writing := context.WithoutCancel(ctx)
	if r.CutOff {
		r.stage("An earlier attempt at this run was interrupted. The calls that it had left open were finished now.")
	}

	s := Step{Number: r.next(), StartedAt: time.Now()}
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return true, err
	}

	s.FinishedAt = time.Now()
	if err := r.Recorder.FinishStep(writing, s); err != nil {
		return true, err
	}

	over, _, err = r.act(ctx, turn{number: s.Number, calls: r.Pending})
	return over, err
}

// batch executes calls and appends their results to the history in the model's order.
// deduped says that one was answered from what is known.
func (r *run) batch(ctx context.Context, b *wave) (_ []tool.Envelope, deduped bool, err error) {
	calls, left := b.calls, b.left
	b.envelopes, b.texts, b.errs, b.known = make([]tool.Envelope, len(calls)), make([]string, len(calls)), make([]error, len(calls)), make([]bool, len(calls))
	serial := slices.ContainsFunc(calls, func(c model.Call) bool { return r.ends(c) || r.isStep(c) })
	if serial {
		for i := range calls {
			b.one(ctx, i, false)
			if i < left && b.errs[i] == nil && !r.isStep(calls[i]) {
				r.keep(calls[i], b.envelopes[i])
			}

			if b.errs[i] != nil || (b.envelopes[i].OK && r.ends(calls[i])) {
				calls, b.envelopes = calls[:i+1], b.envelopes[:i+1] // later siblings neither run nor appear
				break
			}
		}
	} else {
		first, twins := b.twins()
		r.parallel(calls, first, func(i int) { b.one(ctx, i, false) })
		for _, i := range twins { // their siblings have their results now (OSA-08)
			b.one(ctx, i, true)
		}
	}

	r.results = r.results[:0:0]
	for i, c := range calls {
		if b.errs[i] != nil {
			return nil, false, b.errs[i]
		}

		text := b.texts[i]
		if text == "" { // it has no record of its own
			raw, err := b.envelopes[i].Text()
			if err != nil {
				return nil, false, fmt.Errorf("the result of %s cannot be recorded: %w", c.Name, err)
			}
			text = string(raw)
		}

		r.results = append(r.results, model.Result{Call: c, Envelope: json.RawMessage(text)})
		r.messages = append(r.messages, model.Message{Role: model.RoleTool, CallID: c.ID, Name: c.Name, Text: text, Images: b.envelopes[i].Images})
		if i < left {
			r.result.Calls++
		}

		if i < left && !serial {
			r.keep(c, b.envelopes[i])
		}

		made, _ := r.made(c)
		r.note(made.Name, made.Args, b.envelopes[i].OK)
		if i < left && !b.known[i] {
			r.advise(made, b.envelopes[i])
		}
	}

	return b.envelopes, slices.Contains(b.known, true), nil
}

// wave is one answer's calls while they are executed.
type wave struct {
	run       *run
	step      int
	calls     []model.Call
	left      int              // only so many of them may run
	blocked   []bool           // not made, because it was made too often
	refusals  []*tool.Envelope // of the gate, for the first left of them
	envelopes []tool.Envelope
	texts     []string // of the envelopes, as the model reads them; "" where none was recorded
	errs      []error
	known     []bool // answered from what is known
}

// twins are the calls that read what an earlier one of the same answer reads; they wait.
func (b *wave) twins() (first, twins []int) {
	if len(b.calls) == 1 {
		return []int{0}, nil
	}

	seen := map[string]bool{}
	for i, c := range b.calls {
		t, ok := b.run.Registry.Lookup(c.Name)
		if !ok || !b.run.Policy.Dedupe || !reads(t.Class()) {
			first = append(first, i)
			continue
		}

		if sig := signature(c); seen[sig] {
			twins = append(twins, i)
		} else {
			seen[sig] = true
			first = append(first, i)
		}
	}

	return first, twins
}

// one answers a call: from the record of an earlier attempt, from what this one knows
// already, or by its tool. A twin of a call that failed makes its own try.
func (b *wave) one(ctx context.Context, i int, twin bool) {
	r, c := b.run, b.calls[i]
	if i >= b.left {
		b.envelopes[i] = tool.Failure(tool.KindRejected, "the calls of this run are used up")
		return
	}

	r.idle.hold()
	defer r.idle.release()

	if r.isStep(c) {
		b.envelopes[i], b.texts[i], b.errs[i] = b.phase(ctx, i)
		return
	}

	b.envelopes[i], b.texts[i], b.errs[i] = b.answer(ctx, i, r.place(i), c, twin)
}

// answer makes a call of its own record, which stands at index, for the call at i. The text is
// the envelope's.
func (b *wave) answer(ctx context.Context, i, index int, c model.Call, twin bool) (tool.Envelope, string, error) {
	r := b.run
	if e := b.refusals[i]; e != nil {
		return r.call(ctx, b.step, index, c, refusal(*e))
	}

	t, ok := r.Registry.Lookup(c.Name)
	_, past := r.Past[c.Key]
	if b.blocked[i] && !past {
		return r.call(ctx, b.step, index, c, func(context.Context, model.Call) (tool.Envelope, domain.CallState, error) {
			return r.block(c), domain.CallFailed, nil
		})
	}

	if !ok || past || !r.Policy.Dedupe {
		return r.call(ctx, b.step, index, c, r.execute)
	}

	sig := signature(c)
	if e, times, found := r.recallCall(t, c, sig); found && (!twin || times == 0) {
		b.known[i] = true
		r.tellKnown(c, e, times)
		return r.call(ctx, b.step, index, c, func(context.Context, model.Call) (tool.Envelope, domain.CallState, error) {
			return e, domain.CallDeduped, nil
		})
	}

	look := t.Looks(c.Args)
	e, text, err := r.call(ctx, b.step, index, c, r.execute)
	if err == nil {
		r.learnCall(t, c, sig, e, text, look)
	}

	return e, text, err
}

// parallel runs the calls at the same time, but those that touch the same place in order, and
// one reduction after the other: a run has one conversation with its model at a time.
func (r *run) parallel(calls []model.Call, which []int, one func(int)) {
	if len(which) == 1 {
		one(which[0])
		return
	}

	lanes := map[string][]int{}
	for _, i := range which {
		c := calls[i]
		lane := fmt.Sprintf("#%d", i)
		if t, ok := r.Registry.Lookup(c.Name); ok {
			switch path := t.WritesTo(c.Args); {
			case t.Nests():
				lane = "nested"
			case path != "":
				lane = "path " + path
			case t.Effect() == domain.EffectDatabase:
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
	c, acts := r.made(c)
	if !acts {
		said, wrong := memory.Parse(c.Args)
		return wrong == nil && said.Phase == memory.End
	}
	t, ok := r.Registry.Lookup(c.Name)
	return ok && t.Ends()
}

// call answers one call between its two records. The text is what the model reads of the
// envelope, "" when none was recorded.
func (r *run) call(ctx context.Context, step, index int, c model.Call, answer func(context.Context, model.Call) (tool.Envelope, domain.CallState, error)) (_ tool.Envelope, text string, _ error) {
	writing := context.WithoutCancel(ctx)
	record := Call{Step: step, Index: index, ID: c.ID, Key: c.Key, Tool: c.Name, Args: c.Args, Effect: r.effect(c), StartedAt: time.Now()}
	if len(record.Args) == 0 {
		record.Args = json.RawMessage("{}")
	}
	if err := r.Recorder.StartCall(writing, record); err != nil {
		return tool.Envelope{}, "", err
	}

	envelope, state, err := answer(ctx, c)
	if err != nil {
		return envelope, "", err
	}

	record.State, record.FinishedAt = state, time.Now()
	r.clocked(c.Key, record.StartedAt, record.FinishedAt)
	if state == domain.CallInterrupted || state == domain.CallUncertain { // it has no result that a later attempt could use
		return envelope, "", r.Recorder.FinishCall(writing, record)
	}
	if record.Envelope, err = envelope.MarshalJSON(); err != nil {
		return envelope, "", fmt.Errorf("the result of %s cannot be recorded: %w", c.Name, err)
	}

	seen := []byte(record.Envelope)
	if len(envelope.Images) > 0 { // they are in the record, and beside the text
		if seen, err = envelope.Text(); err != nil {
			return envelope, "", fmt.Errorf("the result of %s cannot be recorded: %w", c.Name, err)
		}
	}

	return envelope, string(seen), r.Recorder.FinishCall(writing, record)
}

// effect is what a call may do; what no tool answers does nothing.
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
	if past, ok := r.Past[c.Key]; ok {
		var e tool.Envelope
		switch {
		case past.Tool != "" && past.Tool != c.Name: // to take its result for this one's, or its key, would be wrong
			e = tool.Failure(tool.KindExecutionError, "an earlier attempt of this run called %s here, and the playbook was changed since; start the job anew", past.Tool)
			e.Retryable = false
			return e, domain.CallFailed, nil
		case len(past.Envelope) > 0:
			if err := json.Unmarshal(past.Envelope, &e); err != nil {
				return e, "", fmt.Errorf("the recorded result of %s is damaged: %w", c.Name, err)
			}
			return e, domain.CallReplayed, nil
		case past.Uncertain || (!past.Again && !repeatable(r.effect(c))):
			return Unknown(c.Name), domain.CallFailed, nil
		}
	}

	select {
	case <-ctx.Done():
		return tool.Failure(tool.KindExecutionError, "cancelled: %v", context.Cause(ctx)), domain.CallCancelled, nil
	default:
	}

	if r.recursive(c) {
		return refuseRecursion(c), domain.CallFailed, nil
	}

	in := r.Invocation
	in.Key = c.Key
	e, err := r.Registry.Call(ctx, in, c.Name, c.Args)
	switch {
	case err != nil || e.OK:
		return e, domain.CallDone, err
	case ctx.Err() == nil || !unfinished(e.Kind):
		return e, domain.CallFailed, nil
	case repeatable(r.effect(c)):
		return e, domain.CallInterrupted, nil
	}

	return e, domain.CallUncertain, nil
}

// Unknown is what a model is told of a call that was cut off while it may have changed the
// world.
func Unknown(name string) tool.Envelope {
	e := tool.Failure(tool.KindExecutionError, "an earlier attempt was cut off during this call. Whether it took effect is unknown, and it was not made again: look what is there before you decide")
	e.Tool, e.Retryable = name, false
	return e
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

		made, _ := r.made(calls[i])
		if t, _ := r.Registry.Lookup(made.Name); t.Waits() {
			var q Question
			if json.Unmarshal(e.Result, &q) == nil && q.Question != "" {
				r.result.Exit, r.result.Wait = domain.ExitEnded, &q
				return true
			}
		}

		var said struct {
			Summary, Error string
			Outcome        domain.Outcome
		}
		if json.Unmarshal(e.Result, &said) != nil || said.Outcome == "" {
			said.Outcome = domain.OutcomeSuccess
		}

		r.result.Exit, r.result.Outcome, r.result.Summary, r.result.Error = domain.ExitEnded, said.Outcome, said.Summary, said.Error
		r.result.Verified = said.Error == ""
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
			r.result.Exit, r.result.Outcome = domain.ExitToolRejected, domain.OutcomeError
			r.result.Error = fmt.Sprintf("%s was rejected: %s", calls[i].Name, e.Message)
			return true
		}
	}

	return false
}
