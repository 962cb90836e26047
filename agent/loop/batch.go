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

// executeCalls executes the calls of an answer and decides whether the run goes on. free says that
// they only moved data, which costs no step.
func (r *run) executeCalls(ctx context.Context, t turn) (over, free bool, err error) {
	calls := t.calls
	allowed := len(calls)
	if r.Bounds.Calls > 0 {
		allowed, r.callsLeft = r.affordable(calls, max(r.Bounds.Calls-r.result.Calls, 0))
	}

	blocked := r.repeatedTooOften(calls)
	refusals, asking, err := r.authorize(ctx, calls[:allowed], blocked)
	if asking || err != nil {
		return true, false, err
	}

	envelopes, deduped, err := r.executeBatch(ctx, &callBatch{run: r, step: t.number, calls: calls, allowed: allowed, blocked: blocked, refusals: refusals})
	if err != nil {
		return true, false, err
	}
	if r.endedByCall(calls, envelopes) || r.endedByRejection(calls, envelopes[:min(allowed, len(envelopes))]) || r.endIfStopped(ctx) {
		return true, false, nil
	}

	switch {
	case allowed < len(calls):
		r.endExhausted("the %d calls of this run were used up", r.Bounds.Calls)
	case r.Bounds.Tokens > 0 && r.result.Usage.Input+r.result.Usage.Output > r.Bounds.Tokens:
		r.endExhausted("the run used %d tokens, more than its %d", r.result.Usage.Input+r.result.Usage.Output, r.Bounds.Tokens)
	case r.endIfIdle():
	default:
		return false, !deduped && r.onlyMovedData(calls, envelopes), nil
	}

	return true, false, nil
}

// onlyMovedData says whether a step is free because all its calls moved rows, as long as
// policy lets steps be free (OSA-23).
func (r *run) onlyMovedData(calls []model.Call, envelopes []tool.Envelope) bool {
	if r.dataSteps >= r.Policy.DataSteps {
		return false
	}

	for i, c := range calls {
		c, _ = r.innerCall(c)
		t, ok := r.Registry.Lookup(c.Name)
		var one struct {
			Row json.RawMessage `json:"row"`
		}
		if !ok || t.Class() != tool.ClassData || i >= len(envelopes) || !envelopes[i].OK || json.Unmarshal(c.Args, &one) != nil || len(one.Row) > 0 {
			return false
		}
	}

	if r.dataSteps++; r.dataSteps == 1 {
		r.advice = fmt.Sprintf("A step that only moves rows in bulk is not counted, up to %d of them.", r.Policy.DataSteps)
	}

	return true
}

// finishPending executes what an earlier attempt asked for and did not get.
func (r *run) finishPending(ctx context.Context) (over bool, err error) {
	writing := context.WithoutCancel(ctx)
	if r.CutOff {
		r.addNotice("An earlier attempt at this run was interrupted. The calls that it had left open were finished now.")
	}

	s := Step{Number: r.nextStep(), StartedAt: time.Now()}
	if err := r.Recorder.StartStep(writing, s); err != nil {
		return true, err
	}

	s.FinishedAt = time.Now()
	if err := r.Recorder.FinishStep(writing, s); err != nil {
		return true, err
	}

	over, _, err = r.executeCalls(ctx, turn{number: s.Number, calls: r.Pending})
	return over, err
}

// executeBatch executes calls and appends their results to the history in the model's order.
// deduped says that one was answered from what is known.
func (r *run) executeBatch(ctx context.Context, b *callBatch) (_ []tool.Envelope, deduped bool, err error) {
	calls, allowed := b.calls, b.allowed
	b.envelopes, b.texts, b.errs, b.deduped = make([]tool.Envelope, len(calls)), make([]string, len(calls)), make([]error, len(calls)), make([]bool, len(calls))
	serial := slices.ContainsFunc(calls, func(c model.Call) bool { return r.endsRun(c) || r.isStep(c) })
	if serial {
		for i := range calls {
			b.answerAt(ctx, i, false)
			if i < allowed && b.errs[i] == nil && !r.isStep(calls[i]) {
				r.memorize(calls[i], b.envelopes[i])
			}

			if b.errs[i] != nil || (b.envelopes[i].OK && r.endsRun(calls[i])) {
				calls, b.envelopes = calls[:i+1], b.envelopes[:i+1] // later siblings neither run nor appear
				break
			}
		}
	} else {
		first, duplicates := b.duplicates()
		r.runParallel(calls, first, func(i int) { b.answerAt(ctx, i, false) })
		for _, i := range duplicates { // their siblings have their results now (OSA-08)
			b.answerAt(ctx, i, true)
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
		if i < allowed {
			r.result.Calls++
		}

		if i < allowed && !serial {
			r.memorize(c, b.envelopes[i])
		}

		made, _ := r.innerCall(c)
		r.noteOutcome(made.Name, made.Args, b.envelopes[i].OK)
		if i < allowed && !b.deduped[i] {
			r.advise(made, b.envelopes[i])
		}
	}

	return b.envelopes, slices.Contains(b.deduped, true), nil
}

// callBatch is one answer's calls while they are executed.
type callBatch struct {
	run       *run
	step      int
	calls     []model.Call
	allowed   int              // only so many of them may run
	blocked   []bool           // not made, because it was made too often
	refusals  []*tool.Envelope // of the gate, for the first left of them
	envelopes []tool.Envelope
	texts     []string // of the envelopes, as the model reads them; "" where none was recorded
	errs      []error
	deduped   []bool // answered from what is known
}

// duplicates are the calls that read what an earlier one of the same answer reads; they wait.
func (b *callBatch) duplicates() (first, duplicates []int) {
	if len(b.calls) == 1 {
		return []int{0}, nil
	}

	seen := map[string]bool{}
	for i, c := range b.calls {
		t, ok := b.run.Registry.Lookup(c.Name)
		if !ok || !b.run.Policy.Dedupe || !readsFiles(t.Class()) {
			first = append(first, i)
			continue
		}

		if sig := signature(c); seen[sig] {
			duplicates = append(duplicates, i)
		} else {
			seen[sig] = true
			first = append(first, i)
		}
	}

	return first, duplicates
}

// answerAt answers a call: from the record of an earlier attempt, from what this one knows
// already, or by its tool. A twin of a call that failed makes its own try.
func (b *callBatch) answerAt(ctx context.Context, i int, duplicate bool) {
	r, c := b.run, b.calls[i]
	if i >= b.allowed {
		b.envelopes[i] = tool.Failure(tool.KindRejected, "the calls of this run are used up")
		return
	}

	r.idle.suspend()
	defer r.idle.resume()

	if r.isStep(c) {
		b.envelopes[i], b.texts[i], b.errs[i] = b.answerStep(ctx, i)
		return
	}

	b.envelopes[i], b.texts[i], b.errs[i] = b.answerCall(ctx, i, r.recordIndex(i), c, duplicate)
}

// answerCall makes a call of its own record, which stands at index, for the call at i. The text is
// the envelope's.
func (b *callBatch) answerCall(ctx context.Context, i, index int, c model.Call, duplicate bool) (tool.Envelope, string, error) {
	r := b.run
	if e := b.refusals[i]; e != nil {
		return r.callRecorded(ctx, b.step, index, c, answerWith(*e))
	}

	t, ok := r.Registry.Lookup(c.Name)
	_, prior := r.Past[c.Key]
	if b.blocked[i] && !prior {
		return r.callRecorded(ctx, b.step, index, c, func(context.Context, model.Call) (tool.Envelope, domain.CallState, error) {
			return r.blockedResult(c), domain.CallFailed, nil
		})
	}

	if !ok || prior || !r.Policy.Dedupe {
		return r.callRecorded(ctx, b.step, index, c, r.execute)
	}

	sig := signature(c)
	if e, times, found := r.lookupKnown(t, c, sig); found && (!duplicate || times == 0) {
		b.deduped[i] = true
		r.adviseKnown(c, e, times)
		return r.callRecorded(ctx, b.step, index, c, func(context.Context, model.Call) (tool.Envelope, domain.CallState, error) {
			return e, domain.CallDeduped, nil
		})
	}

	pathState := t.Looks(c.Args)
	e, text, err := r.callRecorded(ctx, b.step, index, c, r.execute)
	if err == nil {
		r.learnResult(t, c, sig, e, text, pathState)
	}

	return e, text, err
}

// runParallel runs the calls at the same time, but those that touch the same place in order, and
// one reduction after the other: a run has one conversation with its model at a time.
func (r *run) runParallel(calls []model.Call, which []int, answer func(int)) {
	if len(which) == 1 {
		answer(which[0])
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
				answer(i)
			}
		})
	}

	all.Wait()
}

func (r *run) endsRun(c model.Call) bool {
	c, acts := r.innerCall(c)
	if !acts {
		parsed, invalid := memory.Parse(c.Args)
		return invalid == nil && parsed.Phase == memory.End
	}
	t, ok := r.Registry.Lookup(c.Name)
	return ok && t.Ends()
}

// endedByCall looks for a successful call that ends the run.
func (r *run) endedByCall(calls []model.Call, envelopes []tool.Envelope) bool {
	for i, e := range envelopes {
		if !e.OK || !r.endsRun(calls[i]) {
			continue
		}

		made, _ := r.innerCall(calls[i])
		if t, _ := r.Registry.Lookup(made.Name); t.Waits() {
			var q Question
			if json.Unmarshal(e.Result, &q) == nil && q.Question != "" {
				r.result.Exit, r.result.Wait = domain.ExitEnded, &q
				return true
			}
		}

		var end struct {
			Summary, Error string
			Outcome        domain.Outcome
		}
		if json.Unmarshal(e.Result, &end) != nil || end.Outcome == "" {
			end.Outcome = domain.OutcomeSuccess
		}

		r.result.Exit, r.result.Outcome, r.result.Summary, r.result.Error = domain.ExitEnded, end.Outcome, end.Summary, end.Error
		r.result.Verified = end.Error == ""
		return true
	}
	return false
}

// endedByRejection ends the run where policy says that a rejection does.
func (r *run) endedByRejection(calls []model.Call, envelopes []tool.Envelope) bool {
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
